"""PURE  Identifiers on the wire: `task_` + 26 Crockford base32 characters of a UUIDv7 (conventions 19)."""

from __future__ import annotations

from uuid import UUID

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES = {c: i for i, c in enumerate(_ALPHABET)}
_LENGTH = 26


def encode(prefix: str, value: UUID) -> str:
    """`prefix_` and 26 lower-case characters, most significant first; sorts like the UUID."""
    number = value.int
    chars = []
    for _ in range(_LENGTH):
        chars.append(_ALPHABET[number & 31])
        number >>= 5
    return f"{prefix}_{''.join(reversed(chars))}"


def decode(prefix: str, text: str) -> UUID | None:
    """The UUID that `encode` gave `text` for, or None for anything else."""
    head, _, body = text.rpartition("_")
    if head != prefix or len(body) != _LENGTH or any(c not in _VALUES for c in body):
        return None
    number = 0
    for char in body:
        number = number << 5 | _VALUES[char]
    return UUID(int=number) if number < 1 << 128 else None
