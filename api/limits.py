"""Rates and caps of a caller as headers: `RateLimit-Policy`, `RateLimit` (draft-ietf-httpapi-ratelimit-headers).

The fields' names and parameters are written here and nowhere else: the draft may still move.
"""

from __future__ import annotations

import math
import random

from flask import Response, g

from api.errors import Problem
from api.parts import parts
from models.accounts import Caller
from models.intake import Active
from providers.kv import Allowance

_MINUTE_S = 60
_PREVIEWS = 10  # dry runs a minute for each submit: they cost no vendor's money, and a little of our own time
_ACTIVE_RETRY_S = 10  # a slot frees when a task ends, which nobody can foresee


def per_minute(caller: Caller) -> int:
    """How many POSTs a minute this user may make."""
    return caller.submits_per_minute or parts().settings.users.submits_per_minute


def active_limit(caller: Caller) -> int:
    """How many tasks this user may have PENDING or RUNNING."""
    return caller.active_limit or parts().settings.users.active


def spend(caller: Caller) -> None:
    """Count one POST. Raises Problem rate-limited."""
    left = parts().kv.spend("create", str(caller.user_id), per_minute(caller))
    _note(left)
    _refuse(left, "create", "tasks may be submitted")


def spend_preview(caller: Caller) -> None:
    """Count one dry run, of which there may be ten times as many as submits. Raises Problem rate-limited."""
    left = parts().kv.spend("preview", str(caller.user_id), per_minute(caller) * _PREVIEWS)
    _refuse(left, "preview", "dry runs may be made")


def _refuse(left: Allowance, policy: str, what: str) -> None:
    if not left.admitted:
        wait_s = max(1, left.reset_s)
        jittered = math.ceil(wait_s * (1 + random.random() / 10))  # noqa: S311  so that clients do not return as one
        raise Problem(
            "rate-limited",
            f"At most {left.limit} {what} a minute.",
            headers={"Retry-After": str(jittered)},
            violated_policies=[policy],
        )


def look(caller: Caller) -> None:
    """Tell what is left of the rate without counting: a replay is free."""
    _note(parts().kv.look("create", str(caller.user_id), per_minute(caller)))


def _note(left: Allowance) -> None:
    if left.known:
        g.create_left = left


def check_active(caller: Caller, active: Active, *, high: bool) -> None:
    """Hold live tasks, the new one included, against the caps; of priority `high` each key has one of its own.

    Raises Problem too-many-active-tasks.
    """
    caps = [("active", active.of_user, active_limit(caller), "tasks wait or run")]
    if high:
        most = parts().settings.users.high_active
        caps.append(("active-high", active.high_of_key, most, "tasks of priority high by this key wait or run"))
    g.active_left = [(name, limit, max(0, limit - count)) for name, count, limit, _ in caps]
    for name, count, limit, words in caps:
        if count > limit:
            raise Problem(
                "too-many-active-tasks",
                f"{count - 1} {words}, and at most {limit} may.",
                headers={"Retry-After": str(_ACTIVE_RETRY_S)},
                violated_policies=[name],
                active=count - 1,
                limit=limit,
            )


def headers(response: Response) -> Response:
    """Add what is known of the caller's rates, the tightest first."""
    rows: list[tuple[float, str, str]] = []
    left: Allowance | None = g.get("create_left")
    if left is not None:
        policy = f'"create";q={left.limit};w={_MINUTE_S}'
        rows.append((left.remaining / left.limit, policy, f'"create";r={left.remaining};t={left.reset_s}'))
    for name, limit, room in g.get("active_left", ()):
        rows.append((room / limit, f'"{name}";q={limit};qu="concurrent-requests"', f'"{name}";r={room}'))
    if rows:
        rows.sort()
        response.headers["RateLimit-Policy"] = ", ".join(policy for _, policy, _ in rows)
        response.headers["RateLimit"] = ", ".join(state for _, _, state in rows)
    return response
