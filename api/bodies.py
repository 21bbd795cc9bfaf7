"""Reading a JSON body strictly: UTF-8, one object, no key twice, no NaN, bounded (D1, conventions 18)."""

from __future__ import annotations

import json
import time
from typing import NoReturn

from flask import request
from gunicorn.http.errors import ParseException  # type: ignore[import-untyped]  # ships no types
from werkzeug.exceptions import RequestEntityTooLarge

from api.errors import Problem, too_large

MAX_BYTES = 1_000_000
_DISCARD_BYTES, _DISCARD_S = 32_000_000, 1.0  # of a body that is too large; beyond that the connection breaks
_CHUNK_BYTES = 65_536


def read_object() -> dict[str, object]:
    """The request's body. Raises Problem with 400, 413 or 415; nothing of the body is in it but a repeated key."""
    _check_type()
    raw = _read()
    try:
        body = json.loads(raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Problem("malformed-request", "The body is not UTF-8.") from None
    except (ValueError, RecursionError):
        raise Problem("malformed-request", "The body is not JSON.") from None
    if not isinstance(body, dict):
        raise Problem("malformed-request", "The body must be a JSON object.")
    return body


def _read() -> bytes:
    """The bytes, at most MAX_BYTES of them."""
    try:
        raw = request.get_data(cache=False)
    except ParseException:  # a chunk that says no size
        raise Problem("malformed-request", "The body is not framed as HTTP asks.") from None
    except RequestEntityTooLarge:  # its Content-Length says so
        _discard()
        raise too_large() from None
    # werkzeug 3.1 cuts a body that comes in chunks at the limit and calls it whole.
    if len(raw) >= MAX_BYTES and request.environ["wsgi.input"].read(1):
        _discard()
        raise too_large()
    return raw


def _discard() -> None:
    """Read on for a moment and keep nothing: a client that is still sending would see a broken pipe and no 413."""
    until, left = time.monotonic() + _DISCARD_S, _DISCARD_BYTES
    while left > 0 and time.monotonic() < until:
        read = len(request.environ["wsgi.input"].read(_CHUNK_BYTES))
        if read == 0:
            return
        left -= read


def _check_type() -> None:
    accept = {"Accept": "application/json"}
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Problem("unsupported-media-type", "Compressed bodies are not supported.", headers=accept)
    kind = request.mimetype
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        detail = "The body must be sent as Content-Type: application/json."
        raise Problem("unsupported-media-type", detail, headers=accept)
    if request.mimetype_params.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        raise Problem("unsupported-media-type", "The body must be UTF-8.", headers=accept)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise Problem("malformed-request", f"The key {name[:64]!r} occurs twice in one object.")
        found[name] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise Problem("malformed-request", f"{name} is not JSON.")
