"""Whether this process can serve: each dependency asked at most every two seconds, for at most one second.

PostgreSQL and its schema decide. Redis only warns: without it tasks are accepted and the sweep wakes them. Vendors are
no part of it. Names and milliseconds only, no address and no error.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from models import migrations
from models.db import TRANSIENT, Database
from providers.kv import Kv

_CHECK_S = 1.0  # a dependency that needs longer is as good as away
_FRESH_S = 2.0  # how long one result serves every prober
_CHECKS = 3

Check = dict[str, object]


class Readiness:
    """The checks of one process. Its threads start with the first question, never before a fork."""

    def __init__(self, url: str, db: Database, kv: Kv) -> None:
        self._url, self._db, self._kv = url, db, kv
        self._lock = threading.Lock()
        self._until = -math.inf
        self._known: dict[str, Check] = {}
        self._pool: ThreadPoolExecutor | None = None

    def checks(self) -> Mapping[str, Check]:
        """The state of each dependency: {"status": "pass" | "warn" | "fail", "ms": ...}."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._ask()
                self._until = time.monotonic() + _FRESH_S
            return self._known

    def _ask(self) -> dict[str, Check]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_CHECKS, thread_name_prefix="readiness")
        asked = {
            "postgres": (self._pool.submit(_timed, self._postgres), "fail"),
            "migrations": (self._pool.submit(_timed, self._migrations), "fail"),
            "redis": (self._pool.submit(_timed, self._kv.ping), "warn"),
        }
        wait([future for future, _ in asked.values()], timeout=_CHECK_S)
        return {name: _verdict(future, bad) for name, (future, bad) in asked.items()}

    def _postgres(self) -> bool:
        with self._db.unit_of_work() as uow:
            return bool(uow.scalar("select true"))

    def _migrations(self) -> bool:
        here, newest = migrations.current(self._url)
        return here == newest


def _timed(check: Callable[[], bool]) -> tuple[bool, int]:
    began = time.monotonic()
    try:
        well = check()
    except TRANSIENT:
        well = False
    return well, round((time.monotonic() - began) * 1000)


def _verdict(future: Future[tuple[bool, int]], bad: str) -> Check:
    if not future.done() or future.exception() is not None:
        return {"status": bad, "ms": round(_CHECK_S * 1000)}
    well, ms = future.result()
    return {"status": "pass" if well else bad, "ms": ms}
