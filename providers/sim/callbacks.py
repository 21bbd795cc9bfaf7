"""Calls to a client's callback address: planned when a task is taken, made when its state changes.

    a clip [[ark: callback lost]]       no call comes; instead of `ark` the name of any dialect that has callbacks
    ... [[ark: callback twice]]         each comes twice
    ... [[ark: callback late SECONDS]]  each comes that much later than its news
    ... [[ark: callback early]]         all of them come before the submit is answered, which waits for the task's end
    ... [[ark: callback disorder]]      the end comes first, then the states between, then the end again

A call carries what its dialect tells of that moment, signed where the dialect signs. One that is not acknowledged with
2xx within 5 s is repeated where it tells an end, three times. Only loopback is called: a simulator must not be a proxy.
May not know what a task looks like. Invariants: at most `_SIDE_BY_SIDE` calls of a dialect are open at one moment, at
most `_PLANNED_MAX` are planned; none is made after the simulator has stopped.
"""

from __future__ import annotations

import heapq
import http.client
import ipaddress
import itertools
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from providers.sim.ledger import now_s
from providers.sim.world import World

_FORM = re.compile(r"\[\[\s*(\w+):\s*([^\[\]]*?)\s*\]\]")
_KINDS = ("lost", "twice", "early", "disorder")
_ALLOWED = "callback lost, callback twice, callback late SECONDS, callback early, callback disorder"
_ANSWER_S = 5.0
_REPEATS = 3
_PAUSE_S = 0.5
_SIDE_BY_SIDE = 8
_PLANNED_MAX = 10_000
_ORDER_S = 0.1  # between calls whose order matters
_LOOK_S = 0.25  # how soon a planner that waits for a later call notices that the simulator has stopped

Told = Callable[[float], Mapping[str, object] | None]
"""seconds since the epoch -> the task as it was or will be then; None when there is nothing to tell."""
Sign = Callable[[bytes], Mapping[str, str]]
"""a body -> the headers that prove it."""


class BadScriptError(ValueError):
    """A directive about callbacks cannot be understood."""


@dataclass(frozen=True, slots=True)
class Script:
    """What goes wrong with the calls of one task."""

    kind: str = ""
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call that is due."""

    url: str
    as_of: float
    """The moment whose news it carries, seconds since the epoch."""
    told: Told
    sign: Sign
    repeats: int
    """How often it is repeated without an acknowledgement."""


def unsigned(_body: bytes) -> Mapping[str, str]:
    """Return no proof: for a vendor that gives none."""
    return {}


def script_of(prompt: str, dialect: str) -> Script:
    """Return what a prompt asks of this dialect. Raises BadScriptError for a directive that nobody knows."""
    found = Script()
    for name, text in _FORM.findall(prompt) if "[[" in prompt else []:
        if name != dialect:
            continue
        match = re.fullmatch(r"callback (\w+)(?: (\d{1,4}(?:\.\d{1,3})?))?", text)
        # Only "late" has seconds, and it has to have them.
        if match is None or (match[2] is None) != (match[1] in _KINDS) or match[1] not in (*_KINDS, "late"):
            message = f"unknown directive {text!r}; allowed: {_ALLOWED}"
            raise BadScriptError(message)
        found = replace(found, late_s=float(match[2])) if match[2] else replace(found, kind=match[1])
    return found


class Callbacks:
    """The calls that are due, and the thread that makes them while there are any. Safe under threads."""

    def __init__(self, world: World, dialect: str) -> None:
        """Start with nothing planned and no thread; calls are counted for `dialect`."""
        self._world, self._dialect = world, dialect
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Call]] = []
        self._serial = itertools.count()
        self._planner: threading.Thread | None = None
        self._places = threading.BoundedSemaphore(_SIDE_BY_SIDE)

    def plan(self, url: str, moments: tuple[float, ...], told: Told, script: Script, sign: Sign = unsigned) -> None:
        """Plan one call for each of `moments`, oldest first; the last tells the end. Early ones are made at once."""
        if not _is_loopback(url):
            self._world.ledger.count(self._dialect, "callback_refused")
            return
        calls = [Call(url, at, told, sign, _REPEATS if at == moments[-1] else 0) for at in moments]
        if script.kind == "lost":
            return
        if script.kind == "early":
            self._world.pause(moments[-1] - now_s())
            for call in calls:
                self._make(call)
            return
        end = calls[-1]
        if script.kind == "disorder":
            calls = [end, *calls[1:-1], end]
        for place, call in enumerate(calls):
            # In disorder all wait for the end, then keep their new order.
            at_s = end.as_of + _ORDER_S * place if script.kind == "disorder" else call.as_of
            for _ in range(2 if script.kind == "twice" else 1):
                self._add(at_s + script.late_s, call)

    def _add(self, at_s: float, call: Call) -> None:
        with self._changed:
            if len(self._due) >= _PLANNED_MAX or self._world.stopping.is_set():
                self._world.ledger.count(self._dialect, "callback_dropped")
                return
            heapq.heappush(self._due, (at_s, next(self._serial), call))
            if self._planner is None:
                self._planner = threading.Thread(target=self._run, name="sim-callbacks", daemon=True)
                self._planner.start()
            self._changed.notify()

    def _run(self) -> None:
        """Make each call when it is due; end when none is left or the simulator stops."""
        while True:
            with self._changed:
                if self._world.stopping.is_set():
                    self._due.clear()
                if not self._due:
                    self._planner = None
                    return
                wait_s = self._due[0][0] - now_s()
                if wait_s > 0:
                    self._changed.wait(min(wait_s, _LOOK_S))
                    continue
                _, _, call = heapq.heappop(self._due)
            self._places.acquire()
            threading.Thread(target=self._make_beside, args=(call,), daemon=True).start()

    def _make_beside(self, call: Call) -> None:
        try:
            self._make(call)
        finally:
            self._places.release()

    def _make(self, call: Call) -> None:
        body = call.told(call.as_of)
        if body is None or self._world.stopping.is_set():
            return
        self._world.ledger.count(self._dialect, "callback")
        content = json.dumps(body).encode()
        if not _posted(call.url, content, call.sign(content)) and call.repeats > 0:
            self._add(now_s() + _PAUSE_S, replace(call, repeats=call.repeats - 1))


def _is_loopback(url: str) -> bool:
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "http" and parts.port != 0
        near = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
    return usable and near


def _posted(url: str, body: bytes, proof: Mapping[str, str]) -> bool:
    """POST `body`; return whether it was acknowledged. A redirect is not followed and acknowledges nothing."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=_ANSWER_S)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, body, {"Content-Type": "application/json", **proof})
        return 200 <= connection.getresponse().status < 300
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
