"""PURE  What a vendor's answer means: kind of failure, Retry-After, cleaned words.

The rule behind the table: **only JSON from the vendor is a verdict on a submit.** A page, an empty
body or a cut one may come from any machine on the way, before or after the vendor took the job, so
on a submit it is doubt at every status, 429 and 404 included. A query risks nothing: there a bare
429 slows the asking.

The vendor's own code comes first, then the status. No socket, no clock, no library:
providers/http.py asks.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import quote

from models.failures import FAILURES
from models.failures import FailureKind as K

RETRY_AFTER_MAX_S = 3600.0
MESSAGE_MAX = 200  # characters of a vendor's words that are kept
_LOOKED_AT = 10_000  # characters of them that are looked at


class VendorError(NamedTuple):
    """A vendor's no, as its body words it. `code` None: the body has words but no code.

    `retry_after_s`: seconds to wait that the words name, for a vendor that does not say so in a header.
    """

    code: str | None
    message: str = ""
    retry_after_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How one vendor says no.

    `codes` maps the vendor's codes to kinds; a dotted code that is not listed is looked up without
    its last part (`Throttling.RateQuota`, then `Throttling`). `error_of` finds the error in a JSON
    body, None when the body is no error; it is asked at every status, since some vendors answer
    errors with 200.
    """

    codes: Mapping[str, K]
    error_of: Callable[[Mapping[str, object]], VendorError | None]


# JSON bodies whose code says nothing. Statuses that are not here: 2xx no failure, other 4xx a
# refusal, 5xx an error of the vendor, 1xx and 3xx unreadable. A redirect is never followed: it
# would carry the key, and for a POST it does not even say whether the job was made (303 says it
# was).
_BY_STATUS: Mapping[int, K] = {
    401: K.PROVIDER_AUTH,
    402: K.PROVIDER_QUOTA,
    403: K.PROVIDER_AUTH,
    408: K.READ_TIMEOUT,  # used loosely by proxies: not always "the request never came"
    409: K.UNREADABLE,  # may mean that it exists already
    425: K.OVERLOADED,  # RFC 8470: not processed, send it again later
    429: K.RATE_LIMITED,
    499: K.UNREADABLE,  # a proxy's note that the caller went away
}


def kind_of(
    status: int, error: VendorError | None, codes: Mapping[str, K], *, readable: bool, submit: bool
) -> K | None:
    """The kind of failure that an answer is, None for none. Total over every status.

    `readable`: the body was a JSON object or list. A 503 is a definite "busy" only by a code that
    `codes` knows.
    """
    if not readable:
        return _of_page(status, submit=submit)
    known = code_kind(error.code, codes) if error else None
    if known is not None:
        # "Busy" with an error of the vendor's own on top (500 ModelServingError) is no sure no.
        return K.SERVER_ERROR if FAILURES[known].repeat and status >= 500 and status != 503 else known
    if 200 <= status < 300:
        return K.UNREADABLE if error else None
    if 400 <= status < 500:
        return _BY_STATUS.get(status, K.INVALID_PARAMETER)
    return K.SERVER_ERROR if status >= 500 else K.UNREADABLE


def _of_page(status: int, *, submit: bool) -> K:
    if status == 429 and not submit:
        return K.RATE_LIMITED
    if status == 408:
        return K.READ_TIMEOUT
    return K.SERVER_ERROR if status >= 500 else K.UNREADABLE


def code_kind(code: str | None, codes: Mapping[str, K]) -> K | None:
    """The kind that `codes` gives `code`, or the longest dotted beginning of it.

    None for an unknown one.
    """
    rest = code or ""
    while rest:
        if rest in codes:
            return codes[rest]
        rest = rest.rpartition(".")[0]
    return None


def read_json(body: bytes) -> Mapping[str, object] | list[object] | None:
    """The JSON object or list in `body`.

    None for anything else: a page, a cut body, NaN, a bare word.
    """
    try:
        found = json.loads(body, parse_constant=_not_json)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _not_json(word: str) -> object:
    raise ValueError(word)


_SECONDS = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds the vendor asks to wait, in [0, 3600], from `retry-after-ms` or `Retry-After`.

    None for none or garbage.

    `headers` without regard to case, `now` in unix seconds (for the date form; a past date is 0).
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    millis, plain = lower.get("retry-after-ms", ""), lower.get("retry-after", "")
    if _SECONDS.fullmatch(millis):
        return min(RETRY_AFTER_MAX_S, float(millis) / 1000)
    if _SECONDS.fullmatch(plain):
        return min(RETRY_AFTER_MAX_S, float(plain))
    try:
        return min(RETRY_AFTER_MAX_S, max(0.0, parsedate_to_datetime(plain).timestamp() - now))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


_MASK = "***"
_SECRET_FORMS = re.compile(
    r"(?i)\bbearer\s+[^\s\"',;]+"
    r"|\bbasic\s+[a-z0-9+/_=-]{8,}"
    r"|\b(?:sk|wk|rk|pk|r8|whsec)[-_][a-z0-9_*.-]{6,}"
    r"|\beyj[a-z0-9_-]{10,}(?:\.[a-z0-9_-]+){1,2}"
)
_PAIRS = re.compile(
    r"(?i)\b((?:x-[a-z]+-)?(?:signature|security-?token|access-?key(?:-?id)?|ossaccesskeyid|credential"
    r"|api-?key|authorization|token|sig|password|secret|expires))(\"?\s*[=:]\s*\"?)[^\s&\"',;]+"
)
_LINKS = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,15}://)(?:[^\s/?#\"'<>@]*@)?([^\s?#\"'<>]*)(?:[?#][^\s\"'<>]*)?")
_DATA = re.compile(r"(?i)\bdata:[^\s\"'<>]*")
_PAGE = re.compile(r"(?is)<(script|style|head|title)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)|</?[a-z!][^>]*(?:>|\Z)")
_TAG = re.compile(r"(?i)</?[a-z!][^<>]*>")  # without one, a `<` is only a smaller-than
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def clean(text: object, secrets: Iterable[str] = ()) -> str:
    """A vendor's words, fit to show.

    No key, no signed link, no page, no control character, at most 200 characters.

    `secrets` are masked in every form they travel in: plain, URL-encoded, base64 at any offset.
    Masking comes before cutting, so that no beginning of a key is left at the end. Anything but a
    string gives the empty string.
    """
    if not isinstance(text, str):
        return ""
    if len(text) > _LOOKED_AT:
        text = text[:_LOOKED_AT].rpartition(" ")[0]  # never half a key at the end
    for form in _forms(secrets):
        text = re.sub(re.escape(form), _MASK, text, flags=re.IGNORECASE)
    if _TAG.search(text):
        text = _PAGE.sub(" ", text)
    text = _LINKS.sub(r"\1\2", _DATA.sub("data:" + _MASK, text))
    text = _SECRET_FORMS.sub(_MASK, _PAIRS.sub(rf"\1\2{_MASK}", text))
    text = " ".join(_CONTROL.sub(" ", text).split())
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 3] + "..."


_SHORTEST_SECRET = 6  # masking less would garble ordinary words


def _forms(secrets: Iterable[str]) -> list[str]:
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) < _SHORTEST_SECRET:
            continue
        forms |= {secret, quote(secret, safe=""), quote(secret)}
        forms |= _base64_forms(secret.encode())
    return sorted(forms, key=len, reverse=True)


def _base64_forms(raw: bytes) -> set[str]:
    """What of `raw` shows in base64 text around it, at each of the three offsets.

    `user:key` moves the key.
    """
    found = set()
    for offset in range(3):
        head, tail = -(-offset * 8 // 6), (offset + len(raw)) * 8 // 6
        shown = binascii.b2a_base64(b"\0" * offset + raw + b"\0\0", newline=False).decode()[head:tail]
        found |= {shown, shown.replace("+", "-").replace("/", "_")}
    return {form for form in found if len(form) >= _SHORTEST_SECRET}
