"""Two connections at one moment: started together, or one held while the other waits for its lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Event
from time import monotonic
from typing import TypeVar

from models.db import Database, UnitOfWork

T = TypeVar("T")
PATIENCE_S = 20.0


def at_once(db: Database, acts: Sequence[Callable[[UnitOfWork], T]]) -> list[T]:
    """Run each in a transaction of its own, all begun before the first goes on; their answers in order."""
    barrier = Barrier(len(acts))

    def run(act: Callable[[UnitOfWork], T]) -> T:
        with db.unit_of_work() as uow:
            uow.execute("select 1")  # the connection is there and its transaction open
            barrier.wait(PATIENCE_S)
            return act(uow)

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def until(true: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; AssertionError after PATIENCE_S."""
    ends = monotonic() + PATIENCE_S
    while not true():
        assert monotonic() < ends, f"never happened: {what}"
        Event().wait(0.005)


@contextmanager
def behind(db: Database, holder: UnitOfWork, act: Callable[[UnitOfWork], T]) -> Iterator[Future[T]]:
    """Start `act` in another connection and go on once it waits for a lock of `holder`; its answer is the future's.

    The caller ends `holder`'s transaction before asking.
    """
    me = holder.scalar("select pg_backend_pid()")

    def run() -> T:
        with db.unit_of_work() as uow:
            return act(uow)

    def waits() -> bool:
        with db.unit_of_work() as uow:
            return bool(
                uow.scalar("select count(*) from pg_stat_activity where :me = any(pg_blocking_pids(pid))", me=me)
            )

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run)
        until(lambda: waits() or future.done(), "the second waits for the first")
        assert not future.done(), "the second did not have to wait"
        yield future
