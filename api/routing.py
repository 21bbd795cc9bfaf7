"""Which of a model's providers makes a task: in the configured order, past those that cannot.

    switched off                                    never
    failing, away, or refusing our credential       passed over; nobody else left: 503, the task is not accepted
    full, or pausing because the vendor asked for it  passed over where another has room; nobody else left: it waits

A pinned provider is a list of one. What is decided here stands with its reason in the task's `accepted` event.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.errors import Problem
from api.parts import Parts
from models import reads
from models.fields import Kind
from models.settings import ModelSettings, Route
from providers.gate import Hold

_OFF_RETRY_S = 30  # a provider that is switched off comes back by somebody's hand


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Who makes it and why; or the problem that nobody can.

    `route` is there beside a problem too, where bounds are known to hold a request against. `stranger`: the pinned
    provider is none of the model's, which are `names`.
    """

    route: Route | None = None
    why: str = ""
    problem: Problem | None = None
    stranger: bool = False
    names: Sequence[str] = ()


NOBODY = Choice()


def choose(pinned: object, kind: Kind, model: ModelSettings, parts: Parts) -> Choice:
    """The provider for a new task of `model`. `pinned`: the only one it may be; anything but a text: all may be."""
    names = [route.name for route in model.providers]
    wanted = [route for route in model.providers if not isinstance(pinned, str) or route.name == pinned]
    if not wanted:
        return Choice(stranger=True, names=names)
    able = [route for route in wanted if parts.settings.providers[route.name].enabled]
    if not able:
        return Choice(problem=_nobody(wanted[0].name, "it is switched off", _OFF_RETRY_S))
    holds = {route.name: hold for route in able if (hold := parts.gates[route.name].refuses(kind)) is not None}
    free = [route for route in able if route.name not in holds]
    if not free:
        wait_s = min(hold.wait_s for hold in holds.values())
        return Choice(route=able[0], problem=_nobody(able[0].name, holds[able[0].name].why, wait_s))
    busy = _busy(free, parts) if len(free) > 1 else {}
    route = next((route for route in free if route.name not in busy), free[0])
    return Choice(route=route, why=_why(route, able, holds, busy, pinned=isinstance(pinned, str)))


def _busy(free: Sequence[Route], parts: Parts) -> Mapping[str, str]:
    """Those of `free` where a task would wait although others may have room, each with the reason."""
    with parts.db.unit_of_work() as uow:
        live = reads.live_by_provider(uow)
    found = {}
    for route in free:
        if live.get(route.name, 0) >= parts.settings.providers[route.name].max_in_flight:
            found[route.name] = "it is full"
        elif parts.gates[route.name].paused_s() > 0:
            found[route.name] = "the vendor asked for a pause"
    return found


def _why(
    route: Route, able: Sequence[Route], holds: Mapping[str, Hold], busy: Mapping[str, str], *, pinned: bool
) -> str:
    if pinned:
        return "pinned by the caller"
    before = [one.name for one in able[: able.index(route)]]
    passed = [f"not {name}, since {holds[name].why if name in holds else busy[name]}" for name in before]
    return "; ".join(["first enabled" if not passed else "next in order", *passed])


def _nobody(name: str, why: str, wait_s: float) -> Problem:
    jittered = wait_s * (1 + random.random() / 10)  # noqa: S311  so that clients do not return as one
    return Problem(
        "capacity-exhausted",
        f"No provider of this model takes tasks at the moment; not {name}, since {why}.",
        headers={"Retry-After": str(max(1, math.ceil(jittered)))},
        upstream_name=name,
    )
