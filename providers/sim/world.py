"""Everything one simulator holds, and the one way every call of every dialect takes through it.

May not know any dialect. Invariant: each call is counted once, whatever a fault then does to it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from flask import Blueprint, Response

from providers.sim import directives
from providers.sim.config import Config
from providers.sim.faults import NO_FAULT, Fault
from providers.sim.ledger import Job, Ledger, Order
from providers.sim.rules import FaultBook, Subject
from providers.sim.wire import DroppedResponse, scripted, spoiled

_REMEMBERED_PROMPTS = 10_000
_LONGEST_PAUSE_S = 86_400.0

Link = Callable[[str, Job, int], str]
"""(scheme and host, job, output's index from 0) -> a signed result link."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One vendor's way of speaking: what a new file in this package has to offer."""

    name: str
    """Also the path it is mounted under."""
    blueprint: Callable[[World, Link], Blueprint]
    """Makes the routes."""
    error: Callable[[int, str | None, str | None], Response]
    """(HTTP status, code, text) -> the vendor's error body; None = a fitting one."""


class World:
    """The state of one simulator. Safe under threads."""

    def __init__(self, config: Config, dialects: tuple[str, ...]) -> None:
        """Start with no job, no rule and nothing counted."""
        self.config = config
        self.ledger = Ledger()
        self.faults = FaultBook(dialects)
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._rates: dict[tuple[str, str, str], deque[float]] = {}
        self._directive_hits: OrderedDict[str, int] = OrderedDict()

    def reset(self) -> None:
        """Forget jobs, counters, rules and how often a directive has struck; keep the settings."""
        self.faults.clear()
        self.ledger.reset()
        with self._lock:
            self._rates.clear()
            self._directive_hits.clear()

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than the simulator runs."""
        if seconds > 0:
            self.stopping.wait(min(seconds, _LONGEST_PAUSE_S))

    def answer(
        self,
        operation: str,
        dialect: Dialect,
        subject: Callable[[], Subject],
        handle: Callable[[Fault], Response],
        job: Job | None = None,
    ) -> Response:
        """Take one call: count it, let a fault strike, have the dialect `handle` it.

        `subject` is called only when something needs to know it. `job` is the one the call is
        about, if any. A bad directive in a prompt is refused in the dialect's words.
        """
        self.ledger.count(dialect.name, operation)
        fault = self.faults.pick(operation, dialect.name, subject)
        if fault is NO_FAULT and job is not None:
            fault = job.take(operation)
        if fault is NO_FAULT and operation == "submit":
            try:
                fault = self._directed(subject().prompt)
            except directives.BadDirectiveError as error:
                return dialect.error(400, None, str(error))
        if fault is NO_FAULT:
            return handle(NO_FAULT)
        return self._faulty(operation, dialect, fault, handle)

    def _faulty(
        self,
        operation: str,
        dialect: Dialect,
        fault: Fault,
        handle: Callable[[Fault], Response],
    ) -> Response:
        self.pause(fault.latency_s)
        if fault.forget:
            self.ledger.forget()
        if fault.reset:
            if operation == "submit":
                self.ledger.count(dialect.name, "dropped")
            return DroppedResponse(reset=True)
        replaced = fault.replaces_answer
        answer = None if replaced and not fault.accepted else handle(fault)
        if answer is None or replaced:
            error = dialect.error(fault.status or 502, fault.code, fault.message)
            answer = scripted(fault, error)
        answer.headers.update(fault.headers)
        self.pause(fault.hold_s)
        return spoiled(answer, fault, self.stopping)

    def _directed(self, prompt: str) -> Fault:
        """Return what the directives in a prompt ask for on this submit of it."""
        found = directives.read(prompt)
        fault = NO_FAULT
        for directive in found:
            if directive.times is None or self._strikes(prompt, directive):
                fault = directive.fault.over(fault)
        return fault

    def _strikes(self, prompt: str, directive: directives.Directive) -> bool:
        """Count a directive that strikes only the first `times` submits of its prompt."""
        key = f"{directive.name}|{prompt}"
        with self._lock:
            hits = self._directive_hits.get(key, 0)
            if directive.times is not None and hits >= directive.times:
                return False
            self._directive_hits[key] = hits + 1
            if len(self._directive_hits) > _REMEMBERED_PROMPTS:
                self._directive_hits.popitem(last=False)
            return True

    def accept(self, order: Order, fault: Fault, prompt: str) -> Job:
        """Make the job of a submit. `prompt` is as it was sent, before a vendor cuts it."""
        job = self.ledger.accept(order, fault, self.config)
        job.later = directives.later(prompt)
        return job

    def too_fast(self, operation: str, dialect: str, account: str) -> bool:
        """Whether a call is above its limit; one that is not is counted.

        A sliding second: the call is too fast if as many calls as allowed lie less than 1 s back.
        """
        limits = self.config.limits
        rate = limits.submits_per_s if operation == "submit" else limits.queries_per_s
        if rate is not None and not self._within(rate, (operation, dialect, account)):
            return True
        if operation != "submit" or limits.in_flight is None:
            return False
        return self.ledger.live(dialect, account) >= limits.in_flight

    def _within(self, rate: float, key: tuple[str, str, str]) -> bool:
        now = time.monotonic()
        with self._lock:
            times = self._rates.setdefault(key, deque())
            while times and times[0] <= now - 1:
                times.popleft()
            if len(times) >= rate:
                return False
            times.append(now)
            return True
