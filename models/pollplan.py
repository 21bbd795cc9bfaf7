"""PURE  When to ask a vendor about a task, learned from how long such tasks took before.

A bucket is what is alike: provider, model, size or length (`bucket`). Its durations are kept as a small histogram, 64
counts over 0.5 s to 3 h, which follows change by halving itself. Below 50 observations a row waits by full jitter
(models/backoff.py). From then on the density of queries at age t, per second, is

    q(t) = k * sqrt(h(t)),    h(t) = chance a second that a task which is not done at t finishes now,

since each query costs 1 and each second of delay costs something too: between two queries 1/q apart the mean delay is
1/(2q), so that E[queries] = int(q S) and E[delay] = int(f / 2q), with f = h S, and for a given number of queries the
delay is least where q is proportional to sqrt(h). `k` is chosen so that the expected number is the plan's budget.

No clock, no chance, no database: age and jitter are arguments. Invariants, whatever was learned: a wait is at least
min_s; at most max_s once one task in a hundred has ended at that age, and at most 4 x max_s before; never past the
task's deadline. So a wrong histogram costs queries or a delay of known size, never a task.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

from models import backoff

BINS = 64  # each 17 % wide: 40 cost 3 % more queries at equal delay, 80 gained nothing with 50 observations
SHORTEST_S = 0.5
LONGEST_S = 10_800.0  # 3 h; the last bin takes all that is longer
FULL = 512  # observations; past it all counts are halved, so that the last few hundred decide

ENOUGH = 50  # observations from which the learned times are used
ENOUGH_FOR_ETA = 10

_STEP = math.log(LONGEST_S / SHORTEST_S) / BINS
_EDGES = (0.0, *(SHORTEST_S * math.exp(_STEP * i) for i in range(1, BINS)), LONGEST_S)
_WIDTHS = tuple(end - start for start, end in pairwise(_EDGES))

_NEVER_SAY_NEVER = 0.25  # observations spread over all bins: no age is so strange that nobody would ask
_FIRST = 1.5  # queries due when the first is made: 2 % fewer at equal delay than with 1.0; hardly any is done before
_QUIET_SHARE = 0.01  # until this share has ended it is quiet: waits may be longer than max_s
_QUIET = 4  # ... but never longer than so many times max_s
_OUTLIVED = 0.05  # of its age: about the wait of a task that is older than any seen before
_SPREAD = 0.2  # jitter moves a wait by this share both ways (2 % of delay), so that a burst does not ask as one

Histogram = tuple[int, ...]
EMPTY: Histogram = (0,) * BINS


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What asking may cost and what it is to bring, for one kind of task.

    `policy` gives the full jitter without history and bounds the learned waits, in seconds. `queries` > 1 is the
    number expected per task, `lag_s` > 0 the mean delay in seconds that is good enough: where durations vary so little
    that it takes fewer queries, fewer are made. Raises ValueError when out of range.
    """

    policy: backoff.Policy
    queries: float
    lag_s: float

    def __post_init__(self) -> None:
        if not 1 < self.queries < math.inf:
            raise ValueError(f"queries must be above 1, is {self.queries}")
        if not 0 < self.lag_s < math.inf:
            raise ValueError(f"lag_s must be above 0, is {self.lag_s}")


IMAGE = Plan(policy=backoff.IMAGE, queries=5.0, lag_s=0.9)
VIDEO = Plan(policy=backoff.VIDEO, queries=11.95, lag_s=4.0)  # three minutes, spread by a third: 4.8 s of delay


# --- the histogram ---


def bucket(provider: str, model: str, *, pixels: int | None = None, length_s: float | None = None) -> str:
    """The name under which durations are alike: `dashscope:wan-t2v:p19:5s`.

    `pixels` of one picture or frame counts by its power of two, `length_s` of a video by its whole seconds; None where
    the task has none.
    """
    size = f":p{pixels.bit_length() - 1}" if pixels and pixels > 0 else ""
    length = f":{max(1, round(length_s))}s" if length_s and length_s > 0 else ""
    return f"{provider}:{model}{size}{length}"


def load(counts: Iterable[object] | None) -> Histogram:
    """A stored list of counts as a histogram; EMPTY where it is none (absent, another length, not counts).

    Learning anew costs 50 tasks at full jitter; a strange row must not cost more.
    """
    kept = tuple(counts or ())
    whole = tuple(n for n in kept if isinstance(n, int) and not isinstance(n, bool) and n >= 0)
    return _faded(whole) if len(whole) == len(kept) == BINS else EMPTY


def dump(hist: Histogram) -> list[int]:
    """`hist` as it is stored: 64 counts, each 0 to 512. `load` is its inverse."""
    return list(hist)


def total(hist: Histogram) -> int:
    """How many observations `hist` holds, 0 to 512."""
    return sum(hist)


def observe(hist: Histogram, duration_s: float) -> Histogram:
    """`hist` with one more task that took `duration_s` seconds, from the vendor's acceptance to the vendor's end.

    Where the vendor does not say when it ended: the middle between the last query that found it working and the one
    that found it done; the moment of notice alone would push every later query back. Only tasks that succeeded: a
    refusal's seconds say nothing. Anything but a finite number of at least 0 changes nothing.
    """
    if not 0 <= duration_s < math.inf:
        return hist
    place = _bin(duration_s)
    return _faded((*hist[:place], hist[place] + 1, *hist[place + 1 :]))


def merge(one: Histogram, other: Histogram) -> Histogram:
    """Both together, for instance all buckets of a wave."""
    return _faded(tuple(a + b for a, b in zip(one, other, strict=True)))


def mean_s(hist: Histogram) -> float | None:
    """Mean duration in seconds; None without an observation."""
    n = total(hist)
    return sum(c * (_EDGES[i] + _EDGES[i + 1]) / 2 for i, c in enumerate(hist)) / n if n else None


def quantile_s(hist: Histogram, share: float) -> float:
    """Age in seconds by which `share` (0 to 1) of the tasks had ended; inf without an observation."""
    return _reach_s(hist, share * total(hist)) if any(hist) else math.inf


def eta_s(hist: Histogram, elapsed_s: float) -> float | None:
    """Median of the seconds that a task has left which is `elapsed_s` old and not done.

    None below 10 observations, and for a task older than any seen before: nothing honest can be said of it.
    """
    if total(hist) < ENOUGH_FOR_ETA:
        return None
    age = max(elapsed_s, 0.0)
    place = _bin(age)
    share = min(1.0, (age - _EDGES[place]) / _WIDTHS[place])
    gone = sum(hist[:place]) + hist[place] * share
    left = total(hist) - gone
    if left <= 0:
        return None
    return max(0.0, _reach_s(hist, gone + left / 2) - age)


def _faded(counts: tuple[int, ...]) -> Histogram:
    """Halved until at most FULL are left.

    The running sums are halved, not the counts: each stays within 1 of its half, so the shape does, and twenty bins
    with one observation each keep ten (halving each would lose them all, and with them the tail).
    """
    while sum(counts) > FULL:
        sums = [0, *(n // 2 for n in accumulate(counts))]
        counts = tuple(after - before for before, after in pairwise(sums))
    return counts


def _bin(seconds: float) -> int:
    """The bin that `seconds` falls into, 0 to BINS - 1."""
    return min(BINS, bisect_right(_EDGES, seconds)) - 1


def _reach_s(hist: Histogram, count: float) -> float:
    """Age in seconds at which `count` of the observations had ended, spread evenly within each bin."""
    before, last = 0, 0.0
    for place, here in enumerate(hist):
        if here and before + here >= count:
            return _EDGES[place] + _WIDTHS[place] * max(0.0, count - before) / here
        before += here
        last = _EDGES[place + 1] if here else last
    return last


# --- the next query, where each task costs one ---


def next_wait_s(
    hist: Histogram, elapsed_s: float, plan: Plan, *, poll_count: int, jitter: float, left_s: float = math.inf
) -> float:
    """Seconds to wait before the next query about a task that is `elapsed_s` old (since the vendor took it).

    `poll_count` is how many were made, used until there are 50 observations; `jitter` in [0, 1); `left_s` the seconds
    to its deadline. Result in [min_s, max_s] of the plan's policy, up to 4 x max_s while fewer than one task in a
    hundred ended this young, cut to `left_s` (0 when that has passed). A later age never gives an earlier query.
    """
    if total(hist) < ENOUGH:
        wait = backoff.countdown(poll_count, plan.policy, jitter)
    else:
        wait = _schedule(hist, plan).wait_s(max(elapsed_s, 0.0), 1 + _SPREAD * (2 * jitter - 1))
    return max(0.0, min(wait, left_s))


def expected(hist: Histogram, plan: Plan) -> tuple[float, float]:
    """(queries per task, mean delay in seconds) that the learned times cost if tasks go on as they did."""
    schedule = _schedule(hist, plan)
    return schedule.queries, schedule.lag_s


@dataclass(frozen=True, kw_only=True)
class _Schedule:
    """Queries as a rising sum: `due[i]` of them are expected by the age _EDGES[i]; a straight line in between."""

    due: tuple[float, ...]
    quiet_s: float  # the age at which the first task in a hundred had ended
    policy: backoff.Policy
    queries: float
    lag_s: float

    def wait_s(self, age: float, step: float) -> float:
        """Seconds from `age` until `step` more queries are due, within the bounds of the module's docstring."""
        wait = self._age(max(self._due(age) + step, _FIRST * step)) - age
        longest = max(self.policy.max_s, min(_QUIET * self.policy.max_s, self.quiet_s + self.policy.max_s - age))
        return max(self.policy.min_s, min(wait, longest))

    def _due(self, age: float) -> float:
        place = min(_bin(age), BINS - 1)
        low, high = self.due[place], self.due[place + 1]
        return low + (high - low) * min(1.0, (age - _EDGES[place]) / _WIDTHS[place])

    def _age(self, due: float) -> float:
        place = min(bisect_right(self.due, due), BINS) - 1
        low, high = self.due[place], self.due[place + 1]
        return _EDGES[place] + _WIDTHS[place] * (due - low) / (high - low) if due < high else math.inf


@functools.lru_cache(maxsize=256)  # pure, 1 ms; a round asks for hundreds of rows of few buckets
def _schedule(hist: Histogram, plan: Plan) -> _Schedule:
    """The learned times. The smallest `k` that spends the budget or makes the delay good enough, by bisection."""
    mass = _smooth(hist)
    alive = _alive(mass)
    roots = [math.sqrt(m / (a * w)) for m, a, w in zip(mass, alive, _WIDTHS, strict=True)]
    slowest = _floor(hist, plan.policy)
    fastest = 1 / plan.policy.min_s
    low, high = 1e-4, 1e4

    def densities(k: float) -> list[float]:
        return [min(fastest, max(floor, k * root)) for floor, root in zip(slowest, roots, strict=True)]

    while high > low * 1.001:
        k = math.sqrt(low * high)
        queries, lag_s = _cost(densities(k), mass, alive, plan.policy)
        if queries >= plan.queries or lag_s <= plan.lag_s:
            high = k
        else:
            low = k
    q = densities(high)
    queries, lag_s = _cost(q, mass, alive, plan.policy)
    due = tuple(accumulate((d * w for d, w in zip(q, _WIDTHS, strict=True)), initial=0.0))
    quiet_s = quantile_s(hist, _QUIET_SHARE)
    return _Schedule(due=due, quiet_s=quiet_s, policy=plan.policy, queries=queries, lag_s=lag_s)


def _smooth(hist: Histogram) -> list[float]:
    """Share of the tasks that end in each bin: counts spread a quarter to each neighbour, and a trace everywhere.

    With 50 observations a bin may be empty by chance; its neighbours know better.
    """
    padded = (hist[0], *hist, hist[-1])
    spread = [(padded[i] + 2 * padded[i + 1] + padded[i + 2]) / 4 for i in range(BINS)]
    whole = sum(spread) + _NEVER_SAY_NEVER
    return [(n + _NEVER_SAY_NEVER / BINS) / whole for n in spread]


def _alive(mass: list[float]) -> list[float]:
    """Share of the tasks that are not done in the middle of each bin; the hazard there is mass / (alive x width)."""
    left = list(accumulate(reversed(mass)))[::-1]
    return [after - here / 2 for after, here in zip(left, mass, strict=True)]


def _floor(hist: Histogram, policy: backoff.Policy) -> list[float]:
    """Least density in each bin, queries per second: what keeps the delay bounded when all that was learned is wrong.

    None while it is quiet (the wait itself is bounded there), then one query per max_s. Past the oldest task ever seen,
    where everything is after a change of the pace, one per 5 % of the age, but no fewer than full jitter makes.
    """
    usual_s = (policy.min_s + policy.max_s) / 2
    quiet_s = quantile_s(hist, _QUIET_SHARE)
    oldest = max(place for place, n in enumerate(hist) if n)
    floors = []
    for place, start in enumerate(_EDGES[:-1]):
        if place > oldest:
            floors.append(1 / min(usual_s, max(policy.min_s, _OUTLIVED * start)))
        else:
            floors.append(1 / policy.max_s if start >= quiet_s else 0.0)
    return floors


def _cost(density: list[float], mass: list[float], alive: list[float], policy: backoff.Policy) -> tuple[float, float]:
    """(queries per task, mean delay in seconds): int(q S), int(f / 2q).

    A task that ends when x are due has been asked x - _FIRST + 1/2 times on average, and once more to find it done.
    """
    queries = 1.5 - _FIRST + sum(q * a * w for q, a, w in zip(density, alive, _WIDTHS, strict=True))
    longest = _QUIET * policy.max_s
    lag_s = (1 + _SPREAD**2 / 3) / 2 * sum(m * min(1 / q, longest) for m, q in zip(mass, density, strict=True))
    return queries, lag_s


# --- the tick, where one call covers many ---

LIST_QUERIES = 2.4  # calls per task that a tick may cost, the single query about its end included
CALM_TICK_S = 1.95  # longest tick for the sake of that: a mean delay of 0.99 s
HEADROOM = 0.9  # of the vendor's rate; the rest is for submits, cancels and what comes in bursts
_SLOWEST_TICK_S = 30  # the longest countdown of a wave


def tick_s(
    in_flight: int,
    mean_duration_s: float | None,
    *,
    page_size: int,
    queries_per_s: float,
    jitter: float,
    extra_calls: int = 0,
) -> int:
    """Whole seconds between two passes of a vendor's list call, 1 to 30.

    A pass costs ceil(in_flight / page_size) + `extra_calls` (one for each further status that is listed by itself),
    and each task that ends one single query more; by Little's law in_flight / mean_duration_s end each second. Two
    bounds: passes and singles together stay within 90 % of `queries_per_s`, the vendor's documented rate, so that the
    token bucket over it never runs empty; and, up to 1.95 s, no more than 2.4 calls per task. The second is met on
    average: `jitter` in [0, 1) decides between the whole seconds around it. `mean_duration_s` None: nothing ended yet.
    """
    calls = max(1, math.ceil(in_flight / max(1, page_size))) + max(0, extra_calls)
    ended_per_s = in_flight / max(mean_duration_s, SHORTEST_S) if mean_duration_s else 0.0
    spare = queries_per_s * HEADROOM - ended_per_s
    needed_s = math.ceil(min(calls / spare, _SLOWEST_TICK_S)) if spare > 0 else _SLOWEST_TICK_S
    thrifty_s = calls / ((LIST_QUERIES - 1) * ended_per_s) if ended_per_s else CALM_TICK_S
    dithered_s = math.floor(min(thrifty_s, CALM_TICK_S) + jitter)
    return max(1, min(_SLOWEST_TICK_S, max(needed_s, dithered_s)))


# --- the backstop, where the vendor calls back ---

_CALLBACK_GROWTH = 1.5
_CALLBACK_SPREAD = 0.1
_CALLBACK_UNKNOWN_S = 600.0  # without history: past 99.9 % of three-minute videos
_CALLBACK_LATEST = 0.75  # of the way to the deadline: whatever the pace, there is a query here


def callback_wait_s(hist: Histogram, elapsed_s: float, plan: Plan, *, jitter: float, left_s: float = math.inf) -> float:
    """Seconds to wait before asking about a task whose vendor calls back: the slowest pace there is.

    The first query comes when 99 tasks in a hundred have ended (without history after 10 min), each further one when
    the age has grown by half, and one at three quarters of the way to the deadline: a lost callback is found in time,
    and all others cost nothing. A callback makes its row due at once; that query is not of this pace. `jitter`
    in [0, 1) adds up to a tenth of the age. At least the policy's min_s, cut to `left_s`; 0 when that has passed.
    """
    age = max(elapsed_s, 0.0)
    usual = quantile_s(hist, 0.99) if total(hist) >= ENOUGH else _CALLBACK_UNKNOWN_S
    due = usual if age < usual else age * _CALLBACK_GROWTH
    latest = _CALLBACK_LATEST * (age + max(left_s, 0.0))
    due = min(due, latest) if age < latest else due
    wait = max(plan.policy.min_s, due * (1 + _CALLBACK_SPREAD * jitter) - age)
    return max(0.0, min(wait, left_s))
