"""The query of GET /v1/tasks: filters, limit and cursor, as strict as a body (conventions 7).

A cursor is opaque and signed; it says where to go on and for which user and filters it was given. Tampered with, or
used with others: 400. It grants nothing: the list is always the caller's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode
from uuid import UUID

from flask import request
from itsdangerous import BadData

from api.errors import Problem, counted, error_wire
from api.parts import parts
from models.fields import FieldError, Kind
from models.lifecycle import Status
from models.reads import Filters

LIMIT_MAX, LIMIT_DEFAULT = 100, 20
_TEXT_MAX = 128
_METADATA = "metadata."
_TEXTS = ("model", "provider", "order_id")
_TIMES = ("created_after", "created_before")
_KNOWN = ("status", "type", *_TEXTS, *_TIMES, "limit", "cursor")


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a list request asks for: at most `limit` tasks older than `before`."""

    filters: Filters
    limit: int
    before: UUID | None
    asked: tuple[tuple[str, str], ...]  # the filters as they were written, for the link to the next page


class _Query:
    """Reads one query string, collecting every fault."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.pairs = tuple(pairs)
        self.faults: list[dict[str, object]] = []
        self.values: dict[str, str] = {}
        for name, value in self.pairs:
            known = name in _KNOWN or (name.startswith(_METADATA) and name != _METADATA)
            if not known:
                self.fault(name, "unknown_field", "there is no such parameter")
            elif name in self.values and name != "status":
                self.fault(name, "invalid_format", "must be given once")
            elif "\0" in name + value or len(value) > 4096:
                self.fault(name, "invalid_format", "must not contain U+0000 nor be longer than 4096 characters")
            self.values[name] = value

    def fault(self, name: str, code: str, detail: str, allowed: Mapping[str, object] | None = None) -> None:
        """Note one."""
        error = FieldError(pointer="", code=code, detail=detail, allowed=allowed)
        self.faults.append(error_wire("parameter", name[:64], error))

    def word(self, name: str, choices: Iterable[str]) -> str | None:
        """A value out of a list."""
        value, listed = self.values.get(name), [str(choice) for choice in choices]
        if value is not None and value not in listed:
            self.fault(name, "not_one_of", f"must be one of {', '.join(listed)}", {"values": listed})
        return value

    def text(self, name: str) -> str | None:
        """A short text."""
        value = self.values.get(name)
        if value is not None and len(value) > _TEXT_MAX:
            self.fault(name, "too_long", f"must have at most {_TEXT_MAX} characters", {"max_length": _TEXT_MAX})
        return value

    def time(self, name: str) -> datetime | None:
        """An aware RFC 3339 time. A `+` that was not escaped arrives as a space and is understood."""
        value = self.values.get(name)
        if value is None:
            return None
        try:
            found = datetime.fromisoformat(value.strip().replace(" ", "+") if "T" in value else value)
        except ValueError:
            found = None
        if found is not None and found.tzinfo is not None and 1970 <= found.year < 9999:
            found = found.astimezone(UTC)  # PostgreSQL refuses offsets beyond half a day
        else:
            self.fault(name, "invalid_format", "must be a time such as 2026-11-30T20:15:05Z")
            return None
        return found

    def limit(self) -> int:
        """How many."""
        value = self.values.get("limit")
        if value is None:
            return LIMIT_DEFAULT
        allowed = {"min": 1, "max": LIMIT_MAX}
        if not (value.isascii() and value.isdigit() and len(value) <= 9):
            self.fault("limit", "invalid_type", "must be an integer", allowed)
        elif not 1 <= int(value) <= LIMIT_MAX:
            self.fault("limit", "out_of_range", f"must be between 1 and {LIMIT_MAX}", allowed)
        else:
            return int(value)
        return LIMIT_DEFAULT

    def statuses(self) -> tuple[str, ...]:
        """Every `status` given."""
        given = tuple(value for name, value in self.pairs if name == "status")
        known = [str(status) for status in Status]
        if set(given) - set(known):
            self.fault("status", "not_one_of", f"must be one of {', '.join(known)}", {"values": known})
        return given


def read_page(user_id: UUID) -> Page:
    """The page a request asks for. Raises Problem validation-error with every fault, or invalid-cursor."""
    query = _Query(request.args.items(multi=True))
    filters = Filters(
        status=query.statuses(),
        type=query.word("type", Kind),
        model=query.text("model"),
        provider=query.text("provider"),
        order_id=query.text("order_id"),
        created_after=query.time("created_after"),
        created_before=query.time("created_before"),
        metadata={
            name.removeprefix(_METADATA): value for name, value in query.values.items() if name.startswith(_METADATA)
        },
    )
    limit = query.limit()
    if query.faults:
        raise Problem("validation-error", counted(len(query.faults)), errors=query.faults[:50])
    asked = tuple((name, value) for name, value in query.pairs if name not in ("cursor", "limit"))
    return Page(filters=filters, limit=limit, before=_before(user_id, asked, query.values.get("cursor")), asked=asked)


def _before(user_id: UUID, asked: tuple[tuple[str, str], ...], cursor: str | None) -> UUID | None:
    if cursor is None:
        return None
    try:
        last, seal = parts().cursors().loads(cursor)
        before = UUID(hex=last)
    except (BadData, ValueError, TypeError, AttributeError):
        raise Problem("invalid-cursor", "This cursor was not given by this server.") from None
    if seal != _seal(user_id, asked):
        raise Problem("invalid-cursor", "This cursor was given for other filters; begin without one.")
    return before


def next_cursor(user_id: UUID, page: Page, last: UUID) -> str:
    """The cursor of what comes after `last`."""
    signed: str = parts().cursors().dumps([last.hex, _seal(user_id, page.asked)])
    return signed


def next_link(page: Page, cursor: str) -> str:
    """The `Link` header's value for the next page."""
    query = urlencode([*page.asked, ("limit", str(page.limit)), ("cursor", cursor)])
    return f'</v1/tasks?{query}>; rel="next"'


def _seal(user_id: UUID, asked: tuple[tuple[str, str], ...]) -> str:
    """What a cursor belongs to: the user and the filters in any order."""
    text = json.dumps([user_id.hex, sorted(asked)], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
