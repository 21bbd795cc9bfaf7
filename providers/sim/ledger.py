"""The jobs a vendor has accepted, their state by the clock, and what was asked of it.

May not know HTTP, dialects or rendering. Invariants: a job's state is computed from the clock when
it is asked for, so a job costs no thread and no timer; `forget` hides jobs from their owners, as a
vendor's restart does, but never from this ledger: what was accepted stays on record.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
import random
import threading
import time
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from providers.sim.config import Config
from providers.sim.faults import NO_FAULT, Fault

_WALL_AT_START = time.time() - time.monotonic()
_FILTERED = "DataInspectionFailed"


def now_s() -> float:
    """Seconds since the epoch by a clock that never steps back in this process."""
    return _WALL_AT_START + time.monotonic()


class State(StrEnum):
    """Where a job is; each dialect has its own words for these."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a dialect understood of a submit: all that is needed to make the files."""

    dialect: str
    account: str
    kind: str
    """`image` or `video`."""
    model: str
    prompt: str
    seed: int
    width: int
    height: int
    n: int = 1
    duration_s: float = 0.0
    image_type: str = "png"
    extra: Mapping[str, object] = field(default_factory=dict)
    """What else was understood, for the dialect itself; the report shows it as `params`."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One accepted order. Times are seconds since the epoch; infinity means never."""

    order: Order
    fault: Fault
    id: str
    created_at: float
    starts_at: float
    ends_at: float
    canceled_at: float = math.inf
    later: dict[str, list[Fault]] = field(default_factory=dict)
    """Faults waiting for the next calls about this job, by operation."""
    settled: bool = False
    """Whether its end has been taken off its account's count."""

    def state(self, now: float) -> State:
        """Return where the job is at `now`."""
        if self.canceled_at <= now:
            return State.CANCELED
        if now < self.starts_at:
            return State.PENDING
        if now < self.ends_at:
            return State.RUNNING
        return State.FAILED if self.failure else State.SUCCEEDED

    @property
    def failure(self) -> tuple[str, str] | None:
        """The code and text this job fails with; None when it succeeds. Code '' = dialect's own."""
        if self.fault.fail is not None or self.fault.fail_message is not None:
            return self.fault.fail or "", self.fault.fail_message or "The job failed by script."
        if self.fault.partial == 0:
            return _FILTERED, "Output data may contain inappropriate content."
        return None

    @property
    def good(self) -> int:
        """How many of the `n` outputs exist once the job has succeeded: the first ones do."""
        partial = self.fault.partial
        return self.order.n if partial is None else min(partial, self.order.n)

    def billed(self, now: float) -> float:
        """Return what is charged by `now`: images for a picture, seconds for a clip, else 0."""
        if self.state(now) is not State.SUCCEEDED:
            return 0
        return self.order.duration_s if self.order.kind == "video" else self.good

    def take(self, operation: str) -> Fault:
        """Take the next fault that waits for a call of this kind, NO_FAULT when there is none."""
        waiting = self.later.get(operation)
        if not waiting:
            return NO_FAULT
        try:
            return waiting.pop(0)
        except IndexError:
            # Another thread took the last one between the two lines.
            return NO_FAULT

    def as_json(self, now: float) -> dict[str, object]:
        """Return the line of the ledger's report."""
        order = self.order
        return {
            "id": self.id,
            "dialect": order.dialect,
            "account": order.account,
            "kind": order.kind,
            "model": order.model,
            "prompt": order.prompt,
            "prompt_sha256": hashlib.sha256(order.prompt.encode()).hexdigest(),
            "seed": order.seed,
            "n": order.n,
            "width": order.width,
            "height": order.height,
            "duration_s": order.duration_s,
            "params": dict(order.extra),
            "created_at": self.created_at,
            "state": self.state(now),
            "billed": self.billed(now),
        }


@dataclass(slots=True)
class _Account:
    """The jobs of one key of one dialect, oldest first, and how many have not ended."""

    jobs: list[Job] = field(default_factory=list)
    created: list[float] = field(default_factory=list)
    ends: list[tuple[float, int, Job]] = field(default_factory=list)
    live: int = 0
    most_live: int = 0

    def add(self, job: Job, serial: int, keep: int) -> None:
        """Append a job; `serial` breaks ties. Old ones go once there are twice `keep`."""
        if len(self.jobs) >= 2 * keep:
            # New lists: a reader may still hold the old ones.
            self.jobs, self.created = self.jobs[-keep:], self.created[-keep:]
        self.jobs.append(job)
        self.created.append(job.created_at)
        heapq.heappush(self.ends, (job.ends_at, serial, job))
        self.live += 1
        self.most_live = max(self.most_live, self.live)

    def settle(self, now: float) -> None:
        """Take what has ended by itself off the count."""
        while self.ends and self.ends[0][0] <= now:
            ends_at, _, job = heapq.heappop(self.ends)
            # A job that was moved has another entry, at another time or at the same.
            if job.canceled_at == math.inf and job.ends_at == ends_at and not job.settled:
                job.settled = True
                self.live -= 1


class Ledger:
    """Every job, found by id or by account, and the counters. Safe under threads."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._serial = itertools.count()
        self.reset()

    def reset(self) -> None:
        """Drop every job and every counter."""
        with self._lock:
            self._jobs: dict[str, Job] = {}
            self._accounts: dict[tuple[str, str], _Account] = defaultdict(_Account)
            self._counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
            self._forgotten_until = 0.0

    def count(self, dialect: str, what: str) -> None:
        """Add one to a counter of a dialect."""
        with self._lock:
            self._counts[dialect][what] += 1

    def accept(self, order: Order, fault: Fault, config: Config) -> Job:
        """Record a new job; its times come from its prompt and seed, `config` and `fault`."""
        waits, takes = _times(order, fault, config)
        with self._lock:
            # The clock is read inside: an account's list is searched by time and must be in order.
            now = now_s()
            job = Job(
                order=order,
                fault=fault,
                id=str(uuid.uuid4()),
                created_at=now,
                starts_at=now + waits,
                ends_at=now + takes,
            )
            self._jobs[job.id] = job
            if len(self._jobs) > config.keep_jobs:
                del self._jobs[next(iter(self._jobs))]
            account = self._accounts[order.dialect, order.account]
            account.settle(now)
            account.add(job, next(self._serial), config.keep_jobs)
            self._counts[order.dialect]["accepted"] += 1
        return job

    def live(self, dialect: str, account: str) -> int:
        """Return how many jobs of a key have not ended."""
        with self._lock:
            held = self._accounts[dialect, account]
            held.settle(now_s())
            return held.live

    def find(self, job_id: str, dialect: str, account: str, ttl_s: float) -> Job | None:
        """Return a job its owner can still see, None when the vendor does not know it (any more)."""
        job = self._jobs.get(job_id)
        if job is None or (job.order.dialect, job.order.account) != (dialect, account):
            return None
        oldest = max(self._forgotten_until, now_s() - ttl_s)
        return job if job.created_at > oldest else None

    def for_file(self, job_id: str) -> Job | None:
        """Return the job a file belongs to: files outlive the record of the job."""
        return self._jobs.get(job_id)

    def forget(self) -> None:
        """Hide every job from its owner, as a restart without a database does."""
        self._forgotten_until = now_s()

    def move(self, job: Job, starts_at: float, ends_at: float) -> None:
        """Give a job that has not ended other times: for a vendor that works one by one."""
        with self._lock:
            job.starts_at, job.ends_at = starts_at, ends_at
            held = self._accounts[job.order.dialect, job.order.account]
            heapq.heappush(held.ends, (ends_at, next(self._serial), job))

    def cancel(self, job: Job, *, running: bool = False) -> bool:
        """Cancel a job that is PENDING (or, where the vendor stops that too, RUNNING); return whether it was."""
        with self._lock:
            now = now_s()
            if job.state(now) not in ({State.PENDING, State.RUNNING} if running else {State.PENDING}):
                return False
            job.canceled_at = now
            self._accounts[job.order.dialect, job.order.account].live -= 1
            return True

    def window(self, dialect: str, account: str, start: float, end: float) -> tuple[list[Job], int, int]:
        """Return a key's jobs and the slice [low, high) of them created in [start, end).

        The list is the ledger's own and only ever grows: read it, do not change it.
        """
        with self._lock:
            held = self._accounts[dialect, account]
            start = max(start, math.nextafter(self._forgotten_until, math.inf))
            return held.jobs, bisect_left(held.created, start), bisect_left(held.created, end)

    def accepted(self, since: float) -> Iterator[Job]:
        """Yield the jobs created at or after `since`, newest first."""
        with self._lock:
            jobs = list(self._jobs.values())
        for job in reversed(jobs):
            if job.created_at < since:
                return
            yield job

    def totals(self) -> dict[str, dict[str, int]]:
        """Return the counters of each dialect. `refused` is what made no job and was answered."""
        with self._lock:
            report = {dialect: dict(counts) for dialect, counts in self._counts.items()}
        for counts in report.values():
            for name in ("submit", "query", "list", "cancel", "fetch", "accepted", "dropped"):
                counts.setdefault(name, 0)
            made = counts["accepted"] + counts["dropped"]
            counts["refused"] = max(0, counts["submit"] - made)
        return report

    def most_in_flight(self) -> list[dict[str, object]]:
        """Return, per dialect and key, the live jobs now and the most there ever were at once."""
        now = now_s()
        report: list[dict[str, object]] = []
        with self._lock:
            for (dialect, account), held in self._accounts.items():
                held.settle(now)
                report.append(
                    {
                        "dialect": dialect,
                        "account": account,
                        "in_flight": held.live,
                        "most_in_flight": held.most_live,
                    }
                )
        return report


def _times(order: Order, fault: Fault, config: Config) -> tuple[float, float]:
    """Return after how many seconds a job starts and ends. Infinity means never."""
    low, high = config.video_s if order.kind == "video" else config.image_s
    # Not for secrets: the same prompt and seed must take the same time in every run.
    dice = random.Random(f"{order.prompt}|{order.seed}")  # noqa: S311
    takes = fault.slow_s if fault.slow_s is not None else dice.uniform(low, high)
    waits = takes * config.pending_share
    if fault.stuck == "PENDING":
        return math.inf, math.inf
    if fault.stuck == "RUNNING":
        return waits, math.inf
    return waits, takes


def account_of(secret: str) -> str:
    """Return the name a key has in the ledger: a digest, since the key itself must not be shown."""
    return hashlib.sha256(secret.encode()).hexdigest()[:12]
