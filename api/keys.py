"""The idempotency key of a request: what it is, what it covers, how a body is recognised (conventions 1 and 2).

Key space: user + order_id + key. Fingerprint: SHA-256 over method, route and the canonical JSON of the body as it was
received, without `idempotency_key` itself; headers are not part of it. 1 and 1.0 differ, so do absent and null.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from api.errors import Problem, error_wire
from api.schemas import ORDER_ID_MAX
from models.fields import FieldError

_KEY = re.compile(r"[!-~]{1,255}")
_SF_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_DETAIL = "must be 1 to 255 visible ASCII characters"


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key within its user's space, and the body it came with."""

    key: str
    order_id: str
    fingerprint: bytes


def read_key(header: str | None, body: Mapping[str, object]) -> Key | None:
    """The key of a request, from the header or from the body; None: there is none.

    An `order_id` that is not valid gives None too: such a request is refused by its fields before any key matters.

    Raises Problem idempotency-key-invalid, or validation-error when the two differ.
    """
    named = None if header is None else _from_header(header)
    inside = body.get("idempotency_key")
    if isinstance(inside, str):
        if not _KEY.fullmatch(inside):
            raise _not_valid("pointer", "#/idempotency_key")
        if named is not None and named != inside:
            fault = FieldError(pointer="/idempotency_key", code="inconsistent", detail="differs from the header's")
            raise Problem(
                "validation-error",
                "The header and the body name two different idempotency keys.",
                errors=[error_wire("pointer", "#/idempotency_key", fault)],
            )
        named = inside
    order_id = body.get("order_id")
    if named is None or not (order_id is None or isinstance(order_id, str)):
        return None
    if order_id is not None and (len(order_id) > ORDER_ID_MAX or "\0" in order_id or not _encodable(order_id)):
        return None
    return Key(key=named, order_id=order_id or "", fingerprint=fingerprint(body))


def _from_header(value: str) -> str:
    """The key of either spelling: a Structured Field String, or the bare token."""
    text = value.strip()
    if text.startswith('"'):
        quoted = _SF_STRING.fullmatch(text)
        text = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else ""
    if not _KEY.fullmatch(text):
        raise _not_valid("header", "Idempotency-Key")
    return text


def _not_valid(place: str, name: str) -> Problem:
    fault = FieldError(pointer="", code="invalid_format", detail=_DETAIL)
    return Problem("idempotency-key-invalid", f"The key {_DETAIL}.", errors=[error_wire(place, name, fault)])


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def fingerprint(body: Mapping[str, object]) -> bytes:
    """SHA-256 of the canonical request: equal for bodies that differ in order of keys and in spaces only."""
    rest = {name: value for name, value in body.items() if name != "idempotency_key"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(b"POST /v1/tasks\n" + canonical.encode("utf-8", "surrogatepass")).digest()
