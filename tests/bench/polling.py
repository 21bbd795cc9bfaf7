"""Ways of asking a vendor whether a task is done, simulated side by side: `python -m tests.bench.polling`.

A discrete-event simulation with a seed: a vendor with a number of tasks in flight (each that is noticed makes room for
the next), and one way of asking after another. It prints queries per task, delay between a task's end and its notice,
the share that was given up, and how many tasks in flight a limit of 20 queries/s would carry; then whether the
numbers promised for polling hold. Exit status 1 if one does not. About 15 s.

Ours learns while it runs, from what it notices itself, the vendor giving no end times.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from models import pollplan
from models.pollplan import EMPTY, Histogram, Plan

SEED = 20_260_806
IN_FLIGHT = 200
RATE = 20  # queries in any one second: the documented limit of a large vendor
PAGE = 100  # tasks on one page of its list
DEADLINE_S = 1800.0
Draw = Callable[[random.Random], float]


def video(rng: random.Random) -> float:
    """Seconds of a three-minute video: lognormal, a third around 180 s."""
    return rng.lognormvariate(math.log(180), 0.35)


def image(rng: random.Random) -> float:
    """Seconds of an image: anything from 10 to 30."""
    return rng.uniform(10, 30)


@dataclass
class Tally:
    """What one way of asking cost and brought, over the tasks that count."""

    queries: int = 0
    lags: list[float] = field(default_factory=list)
    lives: list[float] = field(default_factory=list)  # seconds from the start to the notice or the giving up
    seconds: float = 0.0  # simulated, where calls serve many tasks at once
    held_back_s: float = 0.0  # longest wait of a call for the vendor's rate

    def ended(self, life_s: float, lag_s: float | None) -> None:
        """One task left: its whole life and its delay in seconds, None if it was given up."""
        self.lives.append(life_s)
        self.lags += [] if lag_s is None else [lag_s]

    @property
    def given_up(self) -> int:
        """Tasks that were never noticed."""
        return len(self.lives) - len(self.lags)

    @property
    def each(self) -> float:
        """Queries per task."""
        return self.queries / len(self.lives)

    @property
    def lag_s(self) -> float:
        """Mean delay in seconds of the tasks that were noticed."""
        return statistics.fmean(self.lags)

    @property
    def p95_s(self) -> float:
        """Delay in seconds that 95 % of the noticed tasks stay below."""
        return sorted(self.lags)[len(self.lags) * 95 // 100]

    @property
    def carries(self) -> float:
        """Tasks in flight at RATE queries/s, by Little's law."""
        return RATE * statistics.fmean(self.lives) / self.each


# --- ways of asking, where each task costs a query: seconds from an age to query n, None to give up ---

Ask = Callable[[float, int], float | None]


def fixed(_age: float, _n: int) -> float:
    """Every 2 s."""
    return 2.0


def sdk(_age: float, n: int) -> float:
    """DashScope's own SDK: 1, 1, 1, 2, 2, 2, 4, 4, 4, then 5 s."""
    return min(5.0, 2.0 ** (n // 3))


def full_jitter(attempts: float) -> Ask:
    """Anything up to 4, 8, 16, 30, 30 ... s (base 2 s, doubled before each), and after `attempts` queries no more."""
    rng = random.Random(SEED)
    return lambda _age, n: rng.uniform(0, min(30.0, 4.0 * 2.0 ** min(n, 10))) if n < attempts else None


class Ours:
    """Ours where there is neither list call nor callback."""

    def __init__(self, plan: Plan, hist: Histogram = EMPTY, *, learns: bool = True) -> None:
        self.plan, self.hist, self.learns, self.rng = plan, hist, learns, random.Random(SEED)

    def __call__(self, age: float, n: int) -> float | None:
        """The poll plan's word; None at the deadline."""
        left_s, jitter = DEADLINE_S - age, self.rng.random()
        wait = pollplan.next_wait_s(self.hist, age, self.plan, poll_count=n, jitter=jitter, left_s=max(left_s, 0.0))
        return wait if left_s > 0 else None

    def noticed(self, before: float, age: float) -> None:
        """A task was seen working at age `before` and done at `age`: it ended in the middle, as far as we know."""
        if self.learns:
            self.hist = pollplan.observe(self.hist, (before + age) / 2)


@dataclass(order=True)
class Job:
    """One task at the vendor; times in simulated seconds."""

    due: float
    number: int
    begun: float
    end: float
    last: float
    asked: int = 0


def ask_each(ask: Ask, draws: Iterator[float], skip: int, count: int, *, waves: bool = False) -> Tally:
    """IN_FLIGHT tasks at a time, started over the first three minutes; `count` of them counted after the first `skip`.

    Which are counted is settled by the order of their starts, so that long ones are not left out. `waves`: asked by a
    chain that wakes at whole seconds and takes what is due within 0.3 s.
    """
    tally, numbers, rng = Tally(), iter(range(skip + count)), random.Random(SEED)
    jobs: list[Job] = []

    def start(now: float) -> None:
        for number in itertools.islice(numbers, 1):
            heapq.heappush(jobs, Job(due=now, number=number, begun=now, end=now + next(draws), last=now))

    for _ in range(IN_FLIGHT):
        start(rng.uniform(0, 180))
    while jobs:
        job = heapq.heappop(jobs)
        now, counts = job.due, job.number >= skip
        tally.queries += counts and job.asked > 0
        done = job.asked > 0 and job.end <= now
        wait = None if done else ask(now - job.begun, job.asked)
        if wait is not None:
            job.due, job.last, job.asked = now + wait, now, job.asked + 1
            job.due = math.ceil(job.due - 0.3) if waves else job.due
            heapq.heappush(jobs, job)
            continue
        if done and isinstance(ask, Ours):
            ask.noticed(job.last - job.begun, now - job.begun)
        if counts:
            tally.ended(now - job.begun, now - job.end if done else None)
        start(now)
    return tally


# --- one call for many ---


class Window:
    """At most RATE calls in any second; a call beyond waits."""

    def __init__(self) -> None:
        self._calls: deque[float] = deque(maxlen=RATE)

    def call(self, now: float) -> float:
        """Make a call at `now` or as soon after as may be; when that was."""
        free = self._calls[0] + 1.0 if len(self._calls) == RATE else now
        at = max(now, free)
        self._calls.append(at)
        return at


def ask_by_list(draw: Draw, tick: Callable[[], int], count: int, in_flight: int = IN_FLIGHT, extra: int = 0) -> Tally:
    """A pass of the list each tick, and one single query for each task that is not on it any more."""
    tally, window, rng = Tally(), Window(), random.Random(SEED)
    running = [(now + draw(rng), now) for now in (-rng.uniform(0, 30) for _ in range(in_flight))]
    heapq.heapify(running)
    now, warm_at, number = 0.0, 3 * in_flight, 0
    while len(tally.lives) < count:
        asked = 0
        for _ in range(math.ceil(in_flight / PAGE) + extra):
            window.call(now)
            asked += 1
        while running[0][0] <= now:
            end, begun = running[0]
            at = window.call(now)
            heapq.heapreplace(running, (at + draw(rng), at))
            number, asked = number + 1, asked + 1
            if number > warm_at:
                tally.ended(at - begun, at - end)
                tally.held_back_s = max(tally.held_back_s, at - now)
        step = tick()
        if number > warm_at:
            tally.queries += asked
            tally.seconds += step
        now += step
    return tally


def ask_by_callback(draw: Draw, hist: Histogram, plan: Plan, count: int) -> Tally:
    """The vendor calls back, 2 % of the calls are lost. Counted are the queries nobody called for."""
    tally, rng = Tally(), random.Random(SEED)
    for _ in range(count):
        end, lost, age = draw(rng), rng.random() < 0.02, 0.0
        while age < DEADLINE_S:
            age += pollplan.callback_wait_s(hist, age, plan, jitter=rng.random(), left_s=DEADLINE_S - age)
            if end <= age and not lost:
                age = end
                break
            tally.queries += 1
            if end <= age:
                break
        tally.ended(age, age - end if end <= age else None)
    return tally


def oracle(draw: Draw, count: int) -> Tally:
    """Asks once, at the right moment."""
    rng = random.Random(SEED)
    return Tally(queries=count, lags=[0.0] * count, lives=[draw(rng) for _ in range(count)])


# --- the table ---


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table; `holds` None where nothing is promised."""

    name: str
    tally: Tally
    promise: str = ""
    holds: bool | None = None


def learned_from(draw: Draw, count: int) -> Histogram:
    """What `count` tasks teach, their ends known exactly."""
    rng, hist = random.Random(SEED), EMPTY
    for _ in range(count):
        hist = pollplan.observe(hist, draw(rng))
    return hist


def by_our_tick(draw: Draw, count: int, in_flight: int = IN_FLIGHT, extra: int = 0) -> Tally:
    """List calls at the poll plan's tick for that load; `extra` calls a pass for a second status."""
    rng, mean = random.Random(SEED), pollplan.mean_s(learned_from(draw, 500))

    def tick() -> int:
        return pollplan.tick_s(
            in_flight, mean, page_size=PAGE, queries_per_s=RATE, jitter=rng.random(), extra_calls=extra
        )

    return ask_by_list(draw, tick, count, in_flight, extra)


def endless(draw: Draw, factor: float = 1.0) -> Iterator[float]:
    """Durations in seconds without end; from a generator of their own, so that every way meets the same tasks."""
    rng = random.Random(SEED)
    while True:
        yield factor * draw(rng)


def peers(draw: Draw, plan: Plan, count: int) -> list[Line]:
    """The ways of others, and ours before it knows anything."""
    ways: list[tuple[str, Ask]] = [
        ("fixed 2 s", fixed),
        ("full jitter 2/30, 12 attempts", full_jitter(12)),
        ("full jitter 2/30, no end", full_jitter(math.inf)),
        ("DashScope SDK's loop: 1, 2, 4, 5 s", sdk),
        ("ours, no history", Ours(plan, learns=False)),
    ]
    lines = [Line(name=name, tally=ask_each(ask, endless(draw), IN_FLIGHT, count)) for name, ask in ways]
    return [Line(name="oracle", tally=oracle(draw, count)), *lines]


def listed(draw: Draw, count: int) -> list[Line]:
    """List calls at a steady tick."""
    return [
        Line(
            name=f"ours, list every {tick} s + 1 query",
            tally=ask_by_list(draw, partial(int, tick), count),
        )
        for tick in (1, 2)
    ]


def videos() -> list[Line]:
    """Three-minute videos, 200 in flight."""
    plan = pollplan.VIDEO
    own = ask_each(Ours(plan), endless(video), 600, 6000)
    waves = ask_each(Ours(plan), endless(video), 600, 6000, waves=True)
    tick, both = by_our_tick(video, 6000), by_our_tick(video, 6000, extra=1)
    called, blind = (ask_by_callback(video, hist, plan, 20_000) for hist in (learned_from(video, 500), EMPTY))
    return [
        *peers(video, plan, 1500),
        Line(name="ours, learned", tally=own, promise="<= 12 at <= 5 s, none given up", holds=_few(own)),
        Line(name="same, asked at whole seconds", tally=waves, promise="the same", holds=_few(waves)),
        *listed(video, 6000),
        Line(name="ours, list at our tick + 1 query", tally=tick, promise="<= 2.5 at <= 1.0 s", holds=_soon(tick)),
        Line(name="same, two statuses to list", tally=both, promise="the same", holds=_soon(both)),
        Line(name="ours, callback, 2 % lost", tally=called, promise="<= 0.1", holds=called.each <= 0.1),
        Line(name="same, no history", tally=blind, promise="<= 0.1", holds=blind.each <= 0.1),
    ]


def _few(tally: Tally) -> bool:
    return tally.each <= 12 and tally.lag_s <= 5 and not tally.given_up


def _soon(tally: Tally) -> bool:
    return tally.each <= 2.5 and tally.lag_s <= 1.0


def changed(factor: float) -> list[Line]:
    """Videos that from one moment on take `factor` times as long; counted is what was started after it."""
    jitter = ask_each(full_jitter(math.inf), endless(video, factor), IN_FLIGHT, 1500)
    lines = [Line(name="full jitter 2/30, no end", tally=jitter)]
    for name, learns, count in (("first 200", True, 200), ("first 1500", True, 1500), ("never learning", False, 1500)):
        ours = Ours(pollplan.VIDEO, learned_from(video, 500), learns=learns)
        draws = itertools.chain(itertools.islice(endless(video), 500), endless(video, factor))
        tally = ask_each(ours, draws, 500, count)
        holds = not tally.given_up and tally.lag_s <= 2 * jitter.lag_s and tally.each <= 1.5 * jitter.each
        lines.append(Line(name=f"ours, {name}", tally=tally, promise="<= 1.5 x its queries, 2 x its lag", holds=holds))
    return lines


def images() -> list[Line]:
    """Images of 10 to 30 s, 200 in flight."""
    tick = by_our_tick(image, 10_000)
    holds = tick.each <= 1.5 and tick.lag_s <= 0.6 and tick.p95_s <= 1.2
    promise = "<= 1.5 at <= 0.6 s, p95 <= 1.2 s"
    return [
        *peers(image, pollplan.IMAGE, 3000),
        Line(name="ours, learned", tally=ask_each(Ours(pollplan.IMAGE), endless(image), 600, 6000)),
        *listed(image, 6000),
        Line(name="ours, list at our tick + 1 query", tally=tick, promise=promise, holds=holds),
    ]


def crowd() -> list[Line]:
    """As many videos in flight as the vendor's rate is to carry."""
    tally = by_our_tick(video, 12_000, in_flight=1600)
    holds = tally.queries / tally.seconds <= RATE and tally.held_back_s <= 2.0
    promise = f"{tally.queries / tally.seconds:.1f} <= 20 calls/s, none held back over 2 s"
    return [Line(name="ours, list at our tick + 1 query", tally=tally, promise=promise, holds=holds)]


def show(title: str, lines: list[Line]) -> bool:
    """Print one table; whether all its promises hold."""
    head = f"{'way of asking':36} {'queries':>8} {'lag mean':>9} {'p95':>7} {'given up':>9} {'at 20/s':>9}  promise"
    out = ["", title, head]
    for line in lines:
        t = line.tally
        verdict = {None: "", True: "pass", False: "FAIL"}[line.holds]
        figures = f"{t.each:8.2f} {t.lag_s:7.2f} s {t.p95_s:5.1f} s {100 * t.given_up / len(t.lives):7.1f} %"
        out.append(f"{line.name:36} {figures} {t.carries:9,.0f}  {verdict:5}{line.promise}".rstrip())
    sys.stdout.write("\n".join(out) + "\n")
    return all(line.holds is not False for line in lines)


def main() -> int:
    """Run everything; 0 if every promise holds."""
    kept = [
        show("video, lognormal around 180 s, 200 in flight", videos()),
        show("video, durations double: what came after", changed(2.0)),
        show("video, durations halve: what came after", changed(0.5)),
        show("video, 1,600 in flight, at most 20 calls in any second", crowd()),
        show("image, 10 to 30 s, 200 in flight", images()),
    ]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
