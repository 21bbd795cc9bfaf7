"""Which of a model's providers makes a task: in order, past those that cannot, and why each was taken or not.

    switched off                                    never
    failing, away, or refusing our credential       passed over; nobody else left: a new task is not accepted
    full, or pausing because the vendor asked for it  passed over where another has room; nobody else left: it waits

The order is the place in the configuration; routes of one place share the tasks by their weights, or the cheapest of
them comes first. POST, its dry run and failover ask here, so that all three decide alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from models import reads
from models.db import Database
from models.fields import Kind
from models.settings import ModelSettings, Route, Settings
from providers.gate import Gate, Hold
from providers.port import Provider

OFF_RETRY_S = 30.0  # a provider that is switched off comes back by somebody's hand


class Hands(Protocol):
    """What is asked here: Runtime of a worker and Parts of the API both have it."""

    @property
    def settings(self) -> Settings:
        """As configured now."""
        ...

    @property
    def db(self) -> Database:
        """For the tasks that live now."""
        ...

    @property
    def gates(self) -> Mapping[str, Gate]:
        """By provider."""
        ...


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One route, and what stands against it: `hold` (nothing new may go there) or `busy` (it would wait there)."""

    route: Route
    place: int
    off: bool = False
    hold: Hold | None = None
    busy: str = ""

    @property
    def able(self) -> bool:
        """Whether a task may be given to it at all."""
        return not self.off and self.hold is None

    @property
    def against(self) -> str:
        """What stands against it, in words that follow "since"; empty: nothing."""
        return "it is switched off" if self.off else self.hold.why if self.hold is not None else self.busy


def faults(settings: Settings, providers: Mapping[str, Provider]) -> list[str]:
    """A sentence for each route to a model that its provider does not have."""
    return [
        f"models.{name}.providers: {route.name} has no model {route.model!r}; known:"
        f" {', '.join(sorted(providers[route.name].capabilities.models))}"
        for name, model in settings.models.items()
        for route in model.providers
        if providers[route.name].capabilities.models.get(route.model) is None
    ]


def in_order(model: ModelSettings, draw: Callable[[], float] = random.random) -> list[tuple[int, Route]]:
    """A model's routes by preference, each with its place; `draw` gives numbers in [0, 1).

    Of one place, the first is each route as often as its share of the weights says.
    """
    rows = []
    for index, route in enumerate(model.providers):
        chance = -math.log(1.0 - draw()) / route.weight  # the least of such numbers is each in proportion to its weight
        price = model.price_of(route) if model.prefer == "price" else 0
        rows.append((route.order or index + 1, price, chance, index, route))
    return [(place, route) for place, _, _, _, route in sorted(rows, key=lambda row: row[:4])]


def candidates(hands: Hands, routes: Sequence[tuple[int, Route]], kind: Kind) -> list[Candidate]:
    """Look at each of `routes`. Takes and changes nothing; full and pausing ones only where there is a choice."""
    found = []
    for place, route in routes:
        off, gate = not hands.settings.providers[route.name].enabled, hands.gates.get(route.name)
        hold = gate.refuses(kind) if gate is not None and not off else None
        found.append(Candidate(route=route, place=place, off=off, hold=hold))
    free = [one for one in found if one.able]
    if len(free) < 2:
        return found
    with hands.db.unit_of_work() as uow:
        live = reads.live_by_provider(uow)
    return [_with_room(hands, one, live) if one.able else one for one in found]


def _with_room(hands: Hands, one: Candidate, live: Mapping[str, int]) -> Candidate:
    name, gate = one.route.name, hands.gates.get(one.route.name)
    busy = ""
    if live.get(name, 0) >= hands.settings.providers[name].max_in_flight:
        busy = "it is full"
    elif gate is not None and gate.paused_s() > 0:
        busy = "the vendor asked for a pause"
    return Candidate(route=one.route, place=one.place, busy=busy)


def pick(found: Sequence[Candidate]) -> Candidate | None:
    """The first with room, else the first that may have it at all; None: nobody may."""
    able = [one for one in found if one.able]
    return next((one for one in able if not one.busy), able[0] if able else None)


def why(found: Sequence[Candidate], chosen: Candidate, *, pinned: bool) -> str:
    """The decision as one line for the history."""
    if pinned:
        return "pinned by the caller"
    enabled = [one for one in found if not one.off]
    passed = [f"not {one.route.name}, since {one.against}" for one in enabled[: enabled.index(chosen)] if one.against]
    return "; ".join(["first enabled" if chosen is enabled[0] else "next in order", *passed])


def told(
    model: ModelSettings, found: Sequence[Candidate], chosen: Candidate | None, lacks: Mapping[str, str] | None = None
) -> list[dict[str, object]]:
    """Every candidate with the reason for or against it, as data. `lacks`: what a provider cannot make of a request."""
    rows: list[dict[str, object]] = []
    for one in found:
        against = (lacks or {}).get(one.route.name) or one.against
        reason = "chosen" if one is chosen else against or "behind the chosen one"
        if one is chosen and against:
            reason = f"chosen, since nobody has room; {against}"
        rows.append({
            "provider": one.route.name, "model": one.route.model, "place": one.place, "weight": one.route.weight,
            "price_micros": model.price_of(one.route), "chosen": one is chosen, "reason": reason,
        })  # fmt: skip
    return rows
