"""Reading a JSON body strictly: UTF-8, one object, no key twice, no NaN, bounded (D1, conventions 18)."""

from __future__ import annotations

import json
from typing import NoReturn

from flask import request

from api.errors import Problem

MAX_BYTES = 1_000_000


def read_object() -> dict[str, object]:
    """The request's body. Raises Problem with 400, 413 or 415; nothing of the body is in it but a repeated key."""
    _check_type()
    raw = request.get_data(cache=False)  # werkzeug stops at MAX_CONTENT_LENGTH and answers 413
    try:
        body = json.loads(raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Problem("malformed-request", "The body is not UTF-8.") from None
    except (ValueError, RecursionError):
        raise Problem("malformed-request", "The body is not JSON.") from None
    if not isinstance(body, dict):
        raise Problem("malformed-request", "The body must be a JSON object.")
    return body


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
