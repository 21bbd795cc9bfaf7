"""PURE  Who is next, and how much room there is.

A slot is a RUNNING row. Room is what is left below every cap: all providers together, the type, the provider. Order:
priority class (a waiting task rises one class every AGEING_S, so that `low` never starves), then the user with the
fewest running, then age.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Line = tuple[str, str]  # provider and type

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

    key: int  # rises with the time of acceptance
    priority: int  # 0 high, 1 normal, 2 low
    waited_s: float
    user: str
    user_cap: int
    line: Line = ("", "")


@dataclass(frozen=True, kw_only=True)
class Caps:
    """The caps that hold for everybody, by what they cap."""

    total: int
    types: Mapping[str, int]
    providers: Mapping[str, int]


def effective_priority(priority: int, waited_s: float) -> int:
    """The class a task counts as after waiting: never below 0."""
    return max(0, priority - int(waited_s // AGEING_S))


def room_of(line: Line, running: Mapping[Line, int], caps: Caps) -> int:
    """How many more tasks of this provider and type may start now; never negative, 0 for an unknown provider."""
    provider, kind = line
    return Room(
        total=sum(running.values()),
        total_cap=caps.total,
        of_type=sum(n for (_, other), n in running.items() if other == kind),
        type_cap=caps.types.get(kind, 0),
        of_provider=sum(n for (other, _), n in running.items() if other == provider),
        provider_cap=caps.providers.get(provider, 0),
    ).left()


def choose(
    waiting: Iterable[Waiting], running: Mapping[Line, int], load: Mapping[str, int], caps: Caps
) -> list[Waiting]:
    """Who starts now, in order, each counted as running for those behind it; until nobody fits any more.

    `running` counts RUNNING tasks by provider and type, `load` by user. All lines are looked at together, since they
    share caps: a line that is served alone would starve the others.
    """
    taken, users = Counter(running), Counter(load)
    left = list(waiting)
    chosen: list[Waiting] = []
    while True:
        open_ = {line for line in {w.line for w in left} if room_of(line, taken, caps) > 0}
        left = [w for w in left if w.line in open_ and users[w.user] < w.user_cap]
        if not left:
            return chosen
        best = min(left, key=lambda w: (effective_priority(w.priority, w.waited_s), users[w.user], w.key))
        chosen.append(best)
        left.remove(best)
        taken[best.line] += 1
        users[best.user] += 1
