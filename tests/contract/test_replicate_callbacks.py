"""Callbacks of Replicate: what the vendor signed is read, anything else is forged."""

from __future__ import annotations

import json
import time

import pytest
from pytest_httpserver import HTTPServer

from providers.port import CallbackReader, Forged
from providers.sim.replicate_signing import Signer
from tests.contract.replicate_jobs import ID, KEY, adapter

BODY = json.dumps({"id": ID, "status": "succeeded", "output": ["https://replicate.delivery/a.png"]}).encode()
SECRET = "/v1/webhooks/default/secret"


@pytest.fixture
def signer(httpserver: HTTPServer) -> Signer:
    signer = Signer()
    httpserver.expect_request(SECRET).respond_with_json({"key": signer.secret})
    return signer


@pytest.fixture
def read(httpserver: HTTPServer) -> CallbackReader:
    reader = adapter(httpserver.url_for("").rstrip("/")).capabilities.callback
    assert reader is not None
    return reader


def signed(signer: Signer, body: bytes = BODY, *, off_s: float = 0) -> dict[str, str]:
    return dict(signer.headers(body, time.time() + off_s))


def test_signed_callback_names_its_prediction(signer: Signer, read: CallbackReader, httpserver: HTTPServer) -> None:
    assert [read(signed(signer), BODY) for _ in range(3)] == [ID] * 3
    assert len(httpserver.log) == 1
    assert httpserver.log[0][0].headers["Authorization"] == f"Bearer {KEY}"


def test_one_of_several_signatures_is_enough(signer: Signer, read: CallbackReader) -> None:
    headers = signed(signer)
    assert read(headers | {"webhook-signature": f"v2,AAAA v1,AAAA {headers['webhook-signature']}"}, BODY) == ID


@pytest.mark.parametrize("off_s", [-290, 290])
def test_clocks_may_differ_by_less_than_five_minutes(signer: Signer, read: CallbackReader, off_s: float) -> None:
    assert read(signed(signer, off_s=off_s), BODY) == ID


@pytest.mark.parametrize("body", [b"no json", b"[]", b"{}", b'{"id": 7}', b'{"id": ""}'])
def test_signed_callback_without_an_id_names_none(signer: Signer, read: CallbackReader, body: bytes) -> None:
    assert read(signed(signer, body), body) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"signature": "v1,AAAA"},
        {"signature": "no form"},
        {"signature": "v1,\u00fc"},
        {"signature": "v1,A"},
        {"signature": ""},
        {"id": "msg_another"},
        {"id": ""},
        {"timestamp": ""},
        {"timestamp": "nan"},
        {"timestamp": "inf"},
        {"timestamp": "9" * 400},
    ],
)
def test_what_was_changed_after_signing_is_forged(
    signer: Signer, read: CallbackReader, changed: dict[str, str]
) -> None:
    with pytest.raises(Forged):
        read(signed(signer) | {f"webhook-{name}": value for name, value in changed.items()}, BODY)


@pytest.mark.parametrize("off_s", [-310, 310])
def test_old_and_future_callbacks_are_forged(signer: Signer, read: CallbackReader, off_s: float) -> None:
    with pytest.raises(Forged):
        read(signed(signer, off_s=off_s), BODY)


def test_another_body_another_secret_and_no_headers_are_forged(signer: Signer, read: CallbackReader) -> None:
    cases: list[tuple[dict[str, str], bytes]] = [
        (signed(signer), BODY + b" "),
        (signed(signer), b"\xff"),
        (signed(Signer()), BODY),
        ({}, BODY),
    ]
    for headers, body in cases:
        with pytest.raises(Forged):
            read(headers, body)


def test_forgeries_ask_for_the_secret_once_a_minute_at_most(read: CallbackReader, httpserver: HTTPServer) -> None:
    httpserver.expect_request(SECRET).respond_with_json({"key": Signer().secret})
    for _ in range(5):
        with pytest.raises(Forged):
            read(signed(Signer()), BODY)
    assert len(httpserver.log) == 1


def test_secret_that_changed_is_asked_for_again(
    httpserver: HTTPServer, read: CallbackReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Signer(), Signer()
    for signer in (old, new):
        httpserver.expect_ordered_request(SECRET).respond_with_json({"key": signer.secret})
    assert read(signed(old), BODY) == ID
    clock = time.monotonic() + 61
    monkeypatch.setattr("providers.replicate_callbacks.time.monotonic", lambda: clock)
    assert read(signed(new), BODY) == ID
    with pytest.raises(Forged):
        read(signed(old), BODY)


@pytest.mark.parametrize("key", [None, 7, "", "whsec_", "whsec_!", "whsec_\u00fc"])
def test_secret_that_is_none_proves_nothing(httpserver: HTTPServer, read: CallbackReader, key: object) -> None:
    httpserver.expect_request(SECRET).respond_with_json({"key": key})
    with pytest.raises(Forged):
        read(signed(Signer()), BODY)


def test_without_the_secret_nothing_is_believed(httpserver: HTTPServer, read: CallbackReader) -> None:
    httpserver.expect_request(SECRET).respond_with_data("<html>", 503)
    with pytest.raises(Forged):
        read(signed(Signer()), BODY)
