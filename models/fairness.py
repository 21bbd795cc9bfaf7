"""PURE  Who is next, and how much room there is.

A slot is a RUNNING row. Room is what is left below every cap: all providers together, the type, the provider. Order:
priority class (a waiting task rises one class every AGEING_S, so that `low` never starves), then the user with the
fewest running, then age. The same order stands as SQL in line.py (`next_in_line`); a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

AGEING_S = 300  # a task that waited this long counts as one priority class higher


@dataclass(frozen=True, kw_only=True)
class Room:
    """RUNNING rows against the caps that one claim must respect."""

    total: int
    total_cap: int
    of_type: int
    type_cap: int
    of_provider: int
    provider_cap: int
    of_user: int = 0
    user_cap: int = 1

    def left(self) -> int:
        """How many more tasks may start now, whoever owns them; never negative."""
        return max(
            0,
            min(
                self.total_cap - self.total,
                self.type_cap - self.of_type,
                self.provider_cap - self.of_provider,
            ),
        )

    def admits(self) -> bool:
        """Whether one more task of this user may start now."""
        return self.left() > 0 and self.of_user < self.user_cap


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What the order looks at."""

    key: int  # anything that rises with age of acceptance
    priority: int  # 0 high, 1 normal, 2 low
    waited_s: float
    user: str


def effective_priority(priority: int, waited_s: float) -> int:
    """The class a task counts as after waiting: never below 0."""
    return max(0, priority - int(waited_s // AGEING_S))


def order(waiting: Sequence[Waiting], running: dict[str, int], user_cap: int, room: int) -> list[Waiting]:
    """The next `room` tasks to start, each counted as running for those behind it."""
    load = dict(running)
    left = list(waiting)
    chosen: list[Waiting] = []
    while left and len(chosen) < room:
        able = [w for w in left if load.get(w.user, 0) < user_cap]
        if not able:
            break
        best = min(able, key=lambda w: (effective_priority(w.priority, w.waited_s), load.get(w.user, 0), w.key))
        chosen.append(best)
        left.remove(best)
        load[best.user] = load.get(best.user, 0) + 1
    return chosen
