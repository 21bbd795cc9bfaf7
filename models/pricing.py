"""PURE  What a task costs, in whole micros of the configured currency.

Invariant: the price is a function of the effective parameters, the ones that were sent, and of what
came; never of what was asked in other words. Integers only: a float would lose a micro somewhere
and the ledger would never add up.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.fields import Kind


def cost_micros(kind: Kind, effective: Mapping[str, object], price_micros: int, delivered: int | None = None) -> int:
    """Cost of one task.

    `price_micros` (>= 0) is for one image or for one second of video. `effective` is what
    `contract.resolve` gave. `delivered` is how many images, or videos (0 or 1), came; None prices
    the task as accepted, in full. Fewer than asked are priced by what came; more are not charged,
    since nobody asked for them. A task that delivered nothing costs 0.

    Raises ValueError for a negative or fractional number and for parameters that name no quantity.
    """
    _whole("price_micros", price_micros)
    asked = _whole("image_count", effective.get("image_count")) if kind is Kind.IMAGE else 1
    came = asked if delivered is None else min(asked, _whole("delivered", delivered))
    seconds = _whole("duration_s", effective.get("duration_s")) if kind is Kind.VIDEO else 1
    return price_micros * came * seconds


def _whole(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        message = f"{name} must be a whole number of at least 0, is {value!r}"
        raise ValueError(message)
    return value
