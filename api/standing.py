"""How each provider stands, for operators: circuits, pause, credential, health. Read from Redis, changing nothing.

What Redis knows is null while Redis is away, and a credential's state `unknown`: nothing is made up.
"""

from __future__ import annotations

from collections.abc import Mapping

from api import shapes
from api.parts import Parts
from models.seats import alias
from providers.breaker import OPERATIONS, State
from providers.gate import Dam, Gate
from providers.pace import Condition


def standings(parts: Parts) -> Mapping[str, dict[str, object]]:
    """By provider: `breaker`, `pause`, `credential`, `health`."""
    dam, names = parts.dam, list(parts.settings.providers)
    states = dam.breaker.states(names)
    known = bool(states) or not names
    conditions = dam.health.conditions(names) if known else {}
    found: dict[str, dict[str, object]] = {}
    for name in names:
        condition, gate = conditions.get(name), parts.gates[name]
        variables = parts.settings.providers[name].credentials or ("",)
        credentials = [_credential(dam, gate, variable, known=known) for variable in variables]
        found[name] = {
            "breaker": {one: _circuit(states[name, one]) for one in OPERATIONS} if known else None,
            "pause": _pause(dam, gate) if known else None,
            "credential": credentials[0],
            "credentials": credentials,
            "health": _health(condition) if condition is not None else None,
        }
    return found


def _health(condition: Condition) -> dict[str, object]:
    return {"healthy": condition.healthy, "misses": condition.misses, "why": condition.why or None}


def _circuit(state: State) -> dict[str, object]:
    return {
        "state": state.name,
        "since": shapes.moment(state.since_at),
        "failure_rate": round(state.failure_rate, 3),
        "calls": state.calls,
        "last_error": state.last_error or None,
        "next_probe_s": None if state.next_probe_s is None else round(state.next_probe_s, 1),
        "admits_percent": state.admits_percent,
    }


def _pause(dam: Dam, gate: Gate) -> dict[str, object]:
    pause = dam.pace.standing(gate.provider, gate.credential)
    return {"paused_for_s": round(pause.paused_for_s, 1), "why": pause.why or None}


def _credential(dam: Dam, gate: Gate, variable: str, *, known: bool) -> dict[str, object]:
    """The name of the variable it is in, never what is in it."""
    name = alias(variable) or gate.credential
    why = dam.credentials.dead(gate.provider, [name]).get(name) if known else None
    state = ("out" if why else "in_use") if known else "unknown"
    return {"alias": alias(variable) or None, "state": state, "why": why}
