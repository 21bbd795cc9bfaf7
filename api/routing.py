"""Which provider makes a new task (tasks.routing), or the problem that nobody can.

A pinned provider is a list of one. What is decided here stands with its reasons in the task's `accepted` event.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.errors import Problem
from api.parts import Parts
from models.fields import Kind
from models.settings import ModelSettings, Route
from tasks import routing


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Who makes it and why; or the problem that nobody can.

    `route` is there beside a problem too, where bounds are known to hold a request against. `stranger`: the pinned
    provider is none of the model's, which are `names`. `candidates`: tasks.routing.told.
    """

    route: Route | None = None
    why: str = ""
    candidates: Sequence[Mapping[str, object]] = ()
    problem: Problem | None = None
    stranger: bool = False
    names: Sequence[str] = ()


NOBODY = Choice()


def choose(pinned: object, kind: Kind, model: ModelSettings, parts: Parts) -> Choice:
    """The provider for a new task of `model`. `pinned`: the only one it may be; anything but a text: all may be."""
    routes = [(at, one) for at, one in routing.in_order(model) if not isinstance(pinned, str) or one.name == pinned]
    if not routes:
        return Choice(stranger=True, names=[route.name for route in model.providers])
    found = routing.candidates(parts, routes, kind)
    chosen = routing.pick(found)
    told = routing.told(model, found, chosen)
    if chosen is not None:
        why = routing.why(found, chosen, pinned=isinstance(pinned, str))
        return Choice(route=chosen.route, why=why, candidates=told)
    held = [(one, one.hold) for one in found if one.hold is not None]
    if not held:
        return Choice(problem=_nobody(found[0], routing.OFF_RETRY_S, told), candidates=told)
    first = held[0][0]
    wait_s = min(hold.wait_s for _, hold in held)
    return Choice(route=first.route, problem=_nobody(first, wait_s, told), candidates=told)


def _nobody(first: routing.Candidate, wait_s: float, told: Sequence[Mapping[str, object]]) -> Problem:
    jittered = wait_s * (1 + random.random() / 10)  # noqa: S311  so that clients do not return as one
    name = first.route.name
    return Problem(
        "capacity-exhausted",
        f"No provider of this model takes tasks at the moment; not {name}, since {first.against}.",
        headers={"Retry-After": str(max(1, math.ceil(jittered)))},
        upstream_name=name,
        candidates=[{"provider": row["provider"], "reason": row["reason"]} for row in told],
    )
