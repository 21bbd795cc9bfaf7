"""Which workers are there: each notes itself in Redis every ten seconds, and is forgotten thirty after its last note.

One set for the fleet, by the end of each note's time. Redis away: nobody can tell, and nothing waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.breaker import Shared, ms
from providers.kv import Redis

NOTE_EVERY_S = 10.0
_LASTS_S = 30.0  # two notes may be lost
_KEY = "weir:workers"

# ARGV: the note, its time in ms. Answers {now}.
_NOTE = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {now}
"""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One worker process: its name, the queues it takes from, how many calls it makes at one moment."""

    name: str
    queues: Sequence[str]
    slots: int


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Who takes from one queue. A worker that takes from several is counted at each, with all its slots."""

    workers: int = 0
    slots: int = 0


class Presence:
    """The workers of the whole fleet. `lasts_s`: how long a note counts."""

    def __init__(self, shared: Shared, *, lasts_s: float = _LASTS_S) -> None:
        self._shared, self._lasts_ms = shared, ms(lasts_s)

    def note(self, worker: Worker) -> None:
        """Say that it is there."""
        self._shared.run(_NOTE, _KEY, _written(worker), self._lasts_ms)

    def gone(self, worker: Worker) -> None:
        """Say that it is not, sooner than its note ends."""
        self._shared.ask(lambda client: client.zrem(_KEY, _written(worker)))

    def workers(self) -> Sequence[Worker] | None:
        """Who is there, by name; None: Redis is away. One that began anew with another command counts once."""

        def read(client: Redis) -> list[bytes]:
            seconds, micros = client.time()
            found: list[Any] = client.zrangebyscore(_KEY, seconds * 1000 + micros // 1000, "+inf")
            return found

        found = self._shared.ask(read)
        if found is None:
            return None
        latest = {worker.name: worker for worker in (Worker(**json.loads(raw)) for raw in found)}
        return [latest[name] for name in sorted(latest)]


def crews(workers: Iterable[Worker], queues: Iterable[str]) -> Mapping[str, Crew]:
    """Who takes from each of `queues`."""
    there = list(workers)
    found = {}
    for queue in queues:
        mine = [worker for worker in there if queue in worker.queues]
        found[queue] = Crew(workers=len(mine), slots=sum(worker.slots for worker in mine))
    return found


def _written(worker: Worker) -> str:
    return json.dumps({"name": worker.name, "queues": sorted(worker.queues), "slots": worker.slots})
