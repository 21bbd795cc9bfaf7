"""The frame around calls to a vendor.

Who is told of them, how long they may take, how many run side by side.

    with recorded() as calls:         every wire call made inside is appended, for the history
    with within(seconds):             every call made inside ends by then
    side_by_side(fn, items, ...)      a round of single questions with one end for all

All three hang on context variables, so that a call deep inside an adapter needs no extra argument,
and two threads never see each other's. No library and no vendor is known here.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from models import metrics
from providers.gate import provider_in_call
from providers.port import Call

RETRY_SHARE = 0.1  # of all calls that may be retries (design.md 7)
RETRY_RESERVE = 10.0  # retries a process may make at once after a quiet time

_calls: contextvars.ContextVar[list[Call] | None] = contextvars.ContextVar("calls", default=None)
_until: contextvars.ContextVar[float] = contextvars.ContextVar("until", default=float("inf"))

T = TypeVar("T", bound=Hashable)
R = TypeVar("R")


@contextlib.contextmanager
def recorded() -> Iterator[list[Call]]:
    """A list to which every wire call made in this context is appended.

    Threads of side_by_side included.
    """
    calls: list[Call] = []
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


def note(call: Call) -> None:
    """Count `call`, and append it to the list of the nearest `recorded` around, if there is one."""
    provider = provider_in_call()
    metrics.UPSTREAM_CALLS.labels(provider, call.operation, call.verdict).inc()
    metrics.UPSTREAM_SECONDS.labels(provider, call.operation).observe(call.ms / 1000)
    calls = _calls.get()
    if calls is not None:
        calls.append(call)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Cut every call made in this context to end within `seconds`.

    Of nested ones the tightest wins.
    """
    token = _until.set(min(_until.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _until.reset(token)


def until() -> float:
    """The end of the tightest `within` around, in seconds of `time.monotonic`.

    Infinite without one.
    """
    return _until.get()


def side_by_side(fn: Callable[[T], R], items: Sequence[T], width: int, seconds: float) -> dict[T, R]:
    """`fn` over `items` on at most `width` threads: what finished within `seconds` in all, by item.

    Each call runs in a copy of this context that ends with the round, so that no thread outlives it
    for long; what was not begun by then is not begun. Raises what `fn` raises, which should be
    nothing but a defect.
    """
    with within(seconds):
        end = until()
        pool = ThreadPoolExecutor(max_workers=max(1, min(width, len(items))), thread_name_prefix="round")
        begun: dict[Future[R], T] = {}
        try:
            for item in items:
                begun[pool.submit(contextvars.copy_context().run, _in_time, fn, item, end)] = item
            return _finished(begun, end)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class _TooLate(Exception):  # noqa: N818  no error: the item waits for the next round
    """The round was over before this item's turn."""


def _in_time(fn: Callable[[T], R], item: T, end: float) -> R:
    if time.monotonic() >= end:
        raise _TooLate
    return fn(item)


def _finished(begun: dict[Future[R], T], end: float) -> dict[T, R]:
    done, _ = wait(begun, timeout=max(0.0, end - time.monotonic()))
    kept = [future for future in done if not isinstance(future.exception(), _TooLate)]
    return {begun[future]: future.result() for future in kept}


class RetryBudget:
    """How many of one provider's calls may be retries.

    A tenth, with a small reserve. Per process, thread-safe.

    With every call failing, three retries each would quadruple the load on a vendor that is already
    down.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = RETRY_RESERVE

    def earn(self) -> None:
        """Count one first call."""
        with self._lock:
            self._tokens = min(RETRY_RESERVE, self._tokens + RETRY_SHARE)

    def take(self) -> bool:
        """Whether one retry may be made; it is then spent."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True
