"""PURE  Pictures inside JSON and forms, and numbers inside text: what vendors that answer with bytes have in common.

Reading is tolerant, since every server of a copied dialect writes these a little differently: base64 with or without a
`data:` head, in lines or in one, in either alphabet; 3.4, "3.4" and "100%". What cannot be read is None, never a guess.
"""

from __future__ import annotations

import binascii
import hashlib
import math
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_HEAD = re.compile(r"\s*data:([a-z]+/[a-z0-9.+-]+)?[^,]{0,100},", re.IGNORECASE | re.ASCII)
_URLSAFE = str.maketrans("-_", "+/")
_ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/jpg": "jpg", "image/webp": "webp", "image/gif": "gif"}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An inline picture. `media_type` is what its address says; nobody has looked at the bytes."""

    media_type: str
    content: bytes = field(repr=False)

    @property
    def ending(self) -> str:
        """The ending of a file name that fits, "bin" for a type without a usual one."""
        return _ENDINGS.get(self.media_type, "bin")


def mapping(value: object) -> Mapping[str, object]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def number(value: object) -> float | None:
    """A finite number, also from text and with a per cent sign (the 100 of "100%"); whole ones as int."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value.strip().removesuffix("%")) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(found):
        return None
    if isinstance(value, int):
        return value  # a seed above 2**53 must not pass through a float
    return int(found) if found.is_integer() else found


def decoded(text: object) -> bytes | None:
    """The bytes of base64 text; None when it is no base64 or has none."""
    if not isinstance(text, str):
        return None
    head = _HEAD.match(text)
    plain = text[head.end() :] if head else text
    if not plain.isascii():
        return None
    try:
        found = b64decode("".join(plain.split()).translate(_URLSAFE), validate=True)
    except (binascii.Error, ValueError):
        return None
    return found or None


def picture(reference: object) -> Picture | None:
    """The picture in a `data:` address; None for any other reference."""
    if not isinstance(reference, str) or reference[:5].lower() != "data:":
        return None
    head, content = _HEAD.match(reference), decoded(reference)
    if head is None or content is None:
        return None
    return Picture(media_type=(head[1] or "image/png").lower(), content=content)


@dataclass(frozen=True, kw_only=True)
class Form:
    """A multipart/form-data body (RFC 7578) and the header that goes with it."""

    content_type: str
    body: bytes = field(repr=False)


def form(fields: Mapping[str, object], files: Sequence[tuple[str, Picture]]) -> Form:
    """Text fields, then files named after their field. The same input gives the same bytes.

    The boundary is a digest of everything inside, which a content cannot hold of itself.
    """
    parts = [
        (f'Content-Disposition: form-data; name="{name}"\r\n\r\n'.encode(), str(value).encode())
        for name, value in fields.items()
    ]
    for name, file in files:
        label = name.removesuffix("[]")
        head = (
            f'Content-Disposition: form-data; name="{name}"; filename="{label}.{file.ending}"\r\n'
            f"Content-Type: {file.media_type}\r\n\r\n"
        )
        parts.append((head.encode(), file.content))
    digest = hashlib.sha256()
    for head_bytes, content in parts:
        digest.update(head_bytes)
        digest.update(content)
    boundary = digest.hexdigest()[:40]
    lines = [b"--%b\r\n%b%b\r\n" % (boundary.encode(), head_bytes, content) for head_bytes, content in parts]
    body = b"".join([*lines, b"--%b--\r\n" % boundary.encode()])
    return Form(content_type=f"multipart/form-data; boundary={boundary}", body=body)
