"""To the next provider of the same model, when one surely did not take a task (design.md 6).

Never after an answer that leaves a doubt, nor past a provider that the caller named. Every provider is tried once in an
attempt; a task for which nobody else is left goes back to the line of the last one. The request is resolved anew for
the other vendor's model, whose bounds may differ: one that cannot make what was asked for is passed over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from models.contract import Checked, Invalid, Presets, resolve
from models.db import TRANSIENT, Row
from models.fields import Kind
from models.lifecycle import Change, Reason, Status
from models.settings import ModelSettings
from tasks import routing
from tasks.runtime import Runtime, draw


@dataclass(frozen=True, kw_only=True)
class Move:
    """To another provider: what the row becomes, and the reasons for its event."""

    fields: Mapping[str, object]
    detail: Mapping[str, object]

    def change(self, reason: Reason, said: Mapping[str, object], more: Mapping[str, object]) -> Change:
        """The transition; `said` is why it leaves, `more` further columns."""
        return Change(
            reason=reason,
            to=Status.PENDING,
            fields={**self.fields, **more},
            wake_in_s=0,
            detail={**said, **self.detail},
        )


def elsewhere(rt: Runtime, row: Row) -> Move | None:
    """Where a task goes that its provider surely does not have; None: nowhere, it waits where it is."""
    model = rt.settings.models.get(row["model"])
    if model is None or row["pinned"]:
        return None
    tried = {*row["tried"], row["provider"]}
    kind = Kind(row["type"])
    routes = [(place, route) for place, route in routing.in_order(model) if route.name not in tried]
    try:
        found = routing.candidates(rt, routes, kind)
    except TRANSIENT:  # a task that waits loses less than a verdict that is not written
        return None
    lacks: dict[str, str] = {}
    for one in found:
        if not one.able or one.busy:
            continue
        made = _resolved(rt, row, one)
        if isinstance(made, Checked):
            return _move(row, model, found, one, made, lacks)
        lacks[one.route.name] = made
    return None


def _resolved(rt: Runtime, row: Row, one: routing.Candidate) -> Checked | str:
    """The request for this route's model; or why it cannot be made there, without the caller's words."""
    provider = rt.providers.get(one.route.name)
    bounds = provider.capabilities.models.get(one.route.model) if provider is not None else None
    if bounds is None:
        return "it has no such model"
    before = row["effective"].get("seed")

    def again(low: int, high: int) -> int:
        return before if isinstance(before, int) and low <= before <= high else draw(low, high)

    try:
        presets = Presets.from_tables(rt.settings.presets)
        return resolve(Kind(row["type"]), row["input"], bounds, presets, strict=row["strict"], draw=again)
    except Invalid as exc:
        fault = exc.errors[0]
        return f"it cannot make this: {fault.pointer[1:]} {fault.detail}"


def _move(
    row: Row,
    model: ModelSettings,
    found: list[routing.Candidate],
    chosen: routing.Candidate,
    made: Checked,
    lacks: Mapping[str, str],
) -> Move:
    route = chosen.route
    old, new = row["effective"], made.effective
    changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    passed = [f"not {name}, since {reason}" for name, reason in lacks.items()]
    fields = {
        "provider": route.name,
        "credential": None,
        "provider_model": route.model,
        "effective": new,
        "adjustments": [dataclasses.asdict(note) for note in made.adjustments],
        "price_micros": model.price_of(route),
        "tried": [*row["tried"], row["provider"]],
        "submit_tries": 0,
    }
    detail = {
        "why": "; ".join([f"next provider after {row['provider']}", *passed]),
        "provider": route.name,
        "candidates": routing.told(model, found, chosen, lacks),
        "changed": changed,
    }
    return Move(fields=fields, detail=detail)
