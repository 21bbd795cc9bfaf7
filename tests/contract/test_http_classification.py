"""Every way a call can end is one kind of failure.

Exceptions, statuses, bodies and words, as tables.
"""

from __future__ import annotations

import base64
import email.utils
import time
from urllib.parse import quote

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import HTTPError as Urllib3Error

from models.failures import FAILURES
from providers.http import FOREIGN, kind_of_exception
from providers.verdicts import (
    MESSAGE_MAX,
    VendorError,
    clean,
    code_kind,
    kind_of,
    read_json,
    retry_after_s,
)
from providers.wire import Wire
from tests.contract.http_client import (
    DIALECT,
    DOUBT,
    KEY,
    K,
)

# --- exceptions, as a table ---

_NOT_SENT = [
    "ConnectTimeout",
    "InvalidHeader",
    "InvalidProxyURL",
    "InvalidSchema",
    "InvalidURL",
    "MissingSchema",
    "ProxyError",
    "URLRequired",
    "UnrewindableBodyError",
]
_SLOW = ["ReadTimeout", "Timeout"]
_OTHER = [
    "ChunkedEncodingError",
    "ConnectionError",
    "ContentDecodingError",
    "HTTPError",
    "InvalidJSONError",
    "JSONDecodeError",
    "RequestException",
    "RetryError",
    "SSLError",
    "StreamConsumedError",
    "TooManyRedirects",
]
UNTOUCHED = {
    **dict.fromkeys(_NOT_SENT, K.NOT_SENT),
    **dict.fromkeys(_SLOW, K.READ_TIMEOUT),
    **dict.fromkeys(_OTHER, K.UNREADABLE),
}


def _classes() -> dict[str, type[requests.RequestException]]:
    return {
        name: found
        for name, found in vars(requests.exceptions).items()
        if isinstance(found, type) and issubclass(found, requests.RequestException)
    }


def _instance(cls: type[requests.RequestException]) -> requests.RequestException:
    if cls.__name__ == "JSONDecodeError":
        return cls("no json", "", 0)
    return cls("words")


def _wire(*, dialled: bool = False, sent: bool = False) -> Wire:
    return Wire(idle_s=1, total_s=1, until=float("inf"), dialled=dialled, sent=sent)


def test_every_exception_of_requests_is_in_the_table() -> None:
    assert set(_classes()) == set(UNTOUCHED)


@pytest.mark.parametrize("name", sorted(UNTOUCHED))
def test_exception_is_judged_by_what_the_socket_noted(name: str) -> None:
    exc = _instance(_classes()[name])
    assert isinstance(exc, FOREIGN)
    assert kind_of_exception(exc, _wire()) is UNTOUCHED[name]
    assert kind_of_exception(exc, _wire(dialled=True)) is K.NOT_SENT
    for sent in (_wire(sent=True), _wire(dialled=True, sent=True)):
        assert kind_of_exception(exc, sent) in DOUBT


@pytest.mark.parametrize("cls", [*Urllib3Error.__subclasses__(), OSError, TimeoutError, UnicodeError], ids=repr)
def test_exception_after_the_first_byte_is_never_a_sure_no(cls: type[Exception]) -> None:
    exc = cls.__new__(cls)
    assert kind_of_exception(exc, _wire(sent=True)) in DOUBT


# --- statuses and bodies, as a table ---

STATUSES = range(100, 600)
CODES = DIALECT.codes
NAMELESS = VendorError(None, "words")


@pytest.mark.parametrize("status", STATUSES)
def test_page_is_no_verdict_on_a_submit_at_any_status(status: int) -> None:
    kind = kind_of(status, None, CODES, readable=False, submit=True)
    assert kind in DOUBT


@pytest.mark.parametrize("status", STATUSES)
def test_only_json_may_lead_to_sending_again(status: int) -> None:
    for error in (
        None,
        NAMELESS,
        VendorError("Nobody.Knows"),
        VendorError("Busy"),
        VendorError("Throttling.X"),
    ):
        kind = kind_of(status, error, CODES, readable=True, submit=True)
        if kind is not None and FAILURES[kind].repeat:
            by_code = error is not None and error.code in ("Busy", "Throttling.X")
            assert status in (425, 429) or (by_code and (status < 500 or status == 503))


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_has_a_kind(status: int) -> None:
    for readable in (True, False):
        for submit in (True, False):
            for error in (None, NAMELESS):
                kind = kind_of(status, error, CODES, readable=readable, submit=submit)
                fine = readable and error is None and 200 <= status < 300
                assert (kind is None) == fine


@pytest.mark.parametrize(
    ("status", "submit", "read", "page_submit", "page_read"),
    [
        (200, None, None, K.UNREADABLE, K.UNREADABLE),
        (204, None, None, K.UNREADABLE, K.UNREADABLE),
        (302, K.UNREADABLE, K.UNREADABLE, K.UNREADABLE, K.UNREADABLE),
        (400, K.INVALID_PARAMETER, K.INVALID_PARAMETER, K.UNREADABLE, K.UNREADABLE),
        (401, K.PROVIDER_AUTH, K.PROVIDER_AUTH, K.UNREADABLE, K.UNREADABLE),
        (402, K.PROVIDER_QUOTA, K.PROVIDER_QUOTA, K.UNREADABLE, K.UNREADABLE),
        (403, K.PROVIDER_AUTH, K.PROVIDER_AUTH, K.UNREADABLE, K.UNREADABLE),
        (404, K.INVALID_PARAMETER, K.INVALID_PARAMETER, K.UNREADABLE, K.UNREADABLE),
        (408, K.READ_TIMEOUT, K.READ_TIMEOUT, K.READ_TIMEOUT, K.READ_TIMEOUT),
        (409, K.UNREADABLE, K.UNREADABLE, K.UNREADABLE, K.UNREADABLE),
        (422, K.INVALID_PARAMETER, K.INVALID_PARAMETER, K.UNREADABLE, K.UNREADABLE),
        (425, K.OVERLOADED, K.OVERLOADED, K.UNREADABLE, K.UNREADABLE),
        (429, K.RATE_LIMITED, K.RATE_LIMITED, K.UNREADABLE, K.RATE_LIMITED),
        (500, K.SERVER_ERROR, K.SERVER_ERROR, K.SERVER_ERROR, K.SERVER_ERROR),
        (502, K.SERVER_ERROR, K.SERVER_ERROR, K.SERVER_ERROR, K.SERVER_ERROR),
        (503, K.SERVER_ERROR, K.SERVER_ERROR, K.SERVER_ERROR, K.SERVER_ERROR),
        (524, K.SERVER_ERROR, K.SERVER_ERROR, K.SERVER_ERROR, K.SERVER_ERROR),
    ],
)
def test_status_decides_where_no_code_does(
    status: int, submit: K | None, read: K | None, page_submit: K, page_read: K
) -> None:
    assert kind_of(status, None, CODES, readable=True, submit=True) is submit
    assert kind_of(status, None, CODES, readable=True, submit=False) is read
    assert kind_of(status, None, CODES, readable=False, submit=True) is page_submit
    assert kind_of(status, None, CODES, readable=False, submit=False) is page_read


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (200, "Throttling", K.RATE_LIMITED),
        (403, "Throttling.RateQuota", K.RATE_LIMITED),
        (503, "Busy", K.OVERLOADED),
        (500, "Busy", K.SERVER_ERROR),
        (500, "InvalidParameter", K.INVALID_PARAMETER),
        (200, "Nobody.Knows", K.UNREADABLE),
        (403, "Nobody.Knows", K.PROVIDER_AUTH),
    ],
)
def test_vendor_code_comes_before_the_status(status: int, code: str, kind: K) -> None:
    assert kind_of(status, VendorError(code), CODES, readable=True, submit=True) is kind


def test_dotted_code_is_read_without_its_last_part() -> None:
    codes = {"A": K.RATE_LIMITED, "A.B": K.PROVIDER_QUOTA}
    assert code_kind("A.B.C", codes) is K.PROVIDER_QUOTA
    assert code_kind("A.C", codes) is K.RATE_LIMITED
    assert code_kind("AB", codes) is None
    assert code_kind(None, codes) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"a": ',
        b'"word"',
        b"12",
        b"null",
        b'{"a": NaN}',
        b"\xff\xfe{",
        b"[" * 100_000,
    ],
)
def test_body_that_is_no_json_object_or_list_is_unreadable(body: bytes) -> None:
    assert read_json(body) is None


# --- words ---

NOW = 1_796_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "99999999"}, 3600.0),
        ({"Retry-After": "9" * 400}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "٣"}, None),
        ({"Retry-After": email.utils.formatdate(NOW + 30, usegmt=True)}, 30.0),
        ({"Retry-After": email.utils.formatdate(NOW - 30, usegmt=True)}, 0.0),
        ({"Retry-After": email.utils.formatdate(NOW + 10**7, usegmt=True)}, 3600.0),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
        ({}, None),
        ({"Retry-After": ""}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_or_nothing(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words stay: size must be W*H, 3 < 4", "plain words stay: size must be W*H, 3 < 4"),
        ("a\x00b\r\n\tc\u2028d", "a b c d"),
        ("Bearer abc.def", "***"),
        ("key sk-abcdefgh1234 is wrong", "key *** is wrong"),
        ("wk_live_0123456789", "***"),
        (
            "see https://u:p@h.example/a/b.png?Expires=1&Signature=x now",
            "see https://h.example/a/b.png now",
        ),
        ("/a?X-Amz-Signature=abc&n=1", "/a?X-Amz-Signature=***&n=1"),
        ("<html><head><title>t</title></head><body><h1>502</h1> Bad</body>", "502 Bad"),
        ("<script>var a = 1;</script>x", "x"),
        ("data:image/png;base64,AAAA BBBB", "data:*** BBBB"),
        (None, ""),
        ({"a": 1}, ""),
    ],
)
def test_words_are_cleaned(text: object, shown: str) -> None:
    assert clean(text) == shown


def _embeddings(secret: str) -> list[str]:
    whole = [base64.b64encode((pad + secret + "tail").encode()).decode() for pad in ("", "u", "us", "user:")]
    safe = [base64.urlsafe_b64encode((pad + secret).encode()).decode() for pad in ("", "u", "us")]
    return [secret, quote(secret, safe=""), secret.upper(), *whole, *safe]


@given(
    secret=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=60),
    before=st.text(max_size=250),
    which=st.integers(0, 9),
)
def test_key_never_shows_in_any_form(secret: str, before: str, which: int) -> None:
    embedded = _embeddings(secret)[which]
    shown = clean(f"{before} {embedded} after", (secret,))
    assert len(shown) <= MESSAGE_MAX
    core = embedded[3:-8] or embedded
    assert core not in shown or core in before


@given(st.text(max_size=2000))
def test_cleaning_is_short_and_without_control_characters(text: str) -> None:
    shown = clean(text)
    assert len(shown) <= MESSAGE_MAX
    assert not any(ord(char) < 32 for char in shown)


def test_cleaning_a_hostile_text_takes_no_time() -> None:
    clock = time.monotonic()
    for text in (
        "a." * 50_000,
        "<" * 100_000,
        "<script" * 20_000,
        "Bearer " * 20_000,
        "eyJ" + "a" * 100_000,
    ):
        clean(text, (KEY,))
    assert time.monotonic() - clock < 2
