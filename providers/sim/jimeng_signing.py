"""Who signed a request, as Volcengine's gateway checks it before any service sees the call.

May not know Flask, jobs or what is asked for. Written by itself, not with the adapter's signer: the one checks the
other. Any access key of at least eight signs is an account whose secret is the access key once more; the pair of the
provider sheet is there too.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

SECRETS: Mapping[str, str] = {"AKTESTEXAMPLE0001": "U0VDUkVURVhBTVBMRTAwMDE="}
WINDOW_S = 900.0
"""How far X-Date may be from our clock. The vendor's own number is written nowhere."""
_SCOPE = ("cn-north-1", "cv", "request")
_MUST = {"content-type", "host", "x-content-sha256", "x-date"}
_FORM = re.compile(
    r"HMAC-SHA256 Credential=(?P<access>[!-~]+?)/(?P<day>\d{8})/(?P<scope>[^,]+), "
    r"SignedHeaders=(?P<names>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)


class UnsignedError(Exception):
    """The gateway's refusal: HTTP status, its word, its number."""

    def __init__(self, status: int, code: str, number: int, message: str) -> None:
        """Status, `Code`, `CodeN`, `Message`."""
        super().__init__(message)
        self.status, self.code, self.number, self.message = status, code, number, message


@dataclass(frozen=True, kw_only=True)
class Received:
    """A request as it arrived. `headers` with lower-case names."""

    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes


def signer(request: Received, now: float) -> str:
    """Return the access key that signed a request. Raises UnsignedError."""
    headers = request.headers
    found = _FORM.fullmatch(headers.get("authorization", ""))
    if found is None or "x-date" not in headers:
        raise UnsignedError(400, "MissingRequestInfo", 100004, "Request is missing Authorization or X-Date.")
    access = found["access"]
    secret = SECRETS.get(access, access if len(access) >= 8 else None)
    if secret is None:
        raise UnsignedError(401, "InvalidAccessKey", 100009, f"The access key {access} does not exist.")
    _timely(headers["x-date"], found["day"], now)
    names = found["names"].split(";")
    digest = hashlib.sha256(request.body).hexdigest()
    whole = tuple(found["scope"].split("/")) == _SCOPE and set(names) >= _MUST and set(names) <= set(headers)
    if not whole or headers["x-content-sha256"] != digest:
        raise _mismatch()
    block = "".join(f"{name}:{headers[name]}\n" for name in names)
    pairs = "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in sorted(request.query))
    text = f"POST\n{request.path}\n{pairs}\n{block}\n{found['names']}\n{digest}"
    key = secret.encode()
    for part in (found["day"], *_SCOPE):
        key = hmac.digest(key, part.encode(), "sha256")
    hashed = hashlib.sha256(text.encode()).hexdigest()
    told = f"HMAC-SHA256\n{headers['x-date']}\n{found['day']}/{found['scope']}\n{hashed}"
    if not hmac.compare_digest(hmac.digest(key, told.encode(), "sha256").hex(), found["signature"]):
        raise _mismatch()
    return access


def _timely(date: str, day: str, now: float) -> None:
    """Raise UnsignedError for a date that is none, of another day than the scope, or too far from `now`."""
    try:
        told = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        told = 0.0
    if abs(told - now) > WINDOW_S or not date.startswith(day):
        raise UnsignedError(400, "InvalidTimestamp", 100006, f"X-Date {date} is not valid or has expired.")


def _mismatch() -> UnsignedError:
    message = "The request signature we calculated does not match the signature you provided."
    return UnsignedError(401, "SignatureDoesNotMatch", 100010, message)
