"""Tables and words for a terminal: nothing that somebody may copy is ever cut or broken.

What does not fit loses whole columns, the least important first; only a column of free text is laid over several lines.
A width is in cells: a Chinese character takes two.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from rich.cells import cell_len

_GAP = "  "
_LEAST = 24  # cells that free text should have
_SAID = {"what": "", "why": ""}  # their values are sentences already
_UNSAID = ("candidates",)  # `why` has it in one line; --json has all of it
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)")


def lines(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    width: int,
    spare: Sequence[str] = (),
    free: str = "",
) -> list[str]:
    """The head and a line per row. `spare`: columns that may go, first to last; `free`: the last one, if it is text."""
    cells = {name: [name.replace("_", " "), *(words(row.get(name)) for row in rows)] for name in columns}
    widths = {name: max(map(cell_len, column)) for name, column in cells.items()}
    for name in spare:
        if _total(widths, free) <= width:
            break
        widths.pop(name, None)
    room = max(_LEAST, width - _total({name: w for name, w in widths.items() if name != free}, "") - len(_GAP))
    told = []
    for at in range(len(rows) + 1):
        fixed = [_padded(cells[name][at], w) for name, w in widths.items() if name != free]
        text = textwrap.wrap(cells[free][at], room, break_long_words=False, break_on_hyphens=False) if free else []
        told.append(_GAP.join([*fixed, *text[:1]]).rstrip())
        indent = " " * (sum(widths[name] + len(_GAP) for name in widths if name != free))
        told += [indent + more for more in text[1:]]
    return told


def words(value: object) -> str:
    """A value as people read it: times in UTC to the second, "-" for nothing."""
    if isinstance(value, datetime):
        value = value.astimezone(UTC).isoformat(timespec="seconds")
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(
            f"{_SAID.get(name, name.replace('_', ' ') + ' ')}{words(inner)}"
            for name, inner in value.items()
            if name not in _UNSAID
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(words, value))
    text = str(value)
    found = _TIME.fullmatch(text)
    return f"{found[1]} {found[2]}Z" if found else text


def money(cost: Mapping[str, Any]) -> str:
    """{"micros": 20000, "currency": "USD"} -> "0.02 USD"; at least two places, and as many as it takes."""
    whole, _, parts = f"{Decimal(cost['micros']).scaleb(-6):.6f}".partition(".")
    return f"{whole}.{parts.rstrip('0'):0<2} {cost['currency']}"


def failure(error: Mapping[str, Any] | None) -> str:
    """Why a task failed, and whether trying again makes sense."""
    if not error:
        return "-"
    vendor = f", {error['upstream_name']} said {error['upstream_code']}" if error.get("upstream_code") else ""
    again = "trying again may help" if error.get("retryable") else "trying again does not help"
    return f"{error.get('message') or error['code']} ({error['code']}{vendor}; {again})"


def _total(widths: Mapping[str, int], free: str) -> int:
    taken = [min(w, _LEAST) if name == free else w for name, w in widths.items()]
    return sum(taken) + len(_GAP) * max(0, len(taken) - 1)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
