"""The frame around calls: recording, rounds side by side, the budget of retries."""

from __future__ import annotations

import threading
import time

import pytest

from providers.calls import RetryBudget, recorded, side_by_side
from tests.contract.http_client import (
    READ,
    answered,
    make,
)
from tests.contract.raw_server import RawServer

# --- frames ---


def test_side_by_side_gives_what_finished_and_is_never_wider_than_asked() -> None:
    running, most, lock, stop = 0, 0, threading.Lock(), threading.Event()

    def one(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        stop.wait(5 if item == 7 else 0.005)
        with lock:
            running -= 1
        return item * 2

    clock = time.monotonic()
    found = side_by_side(one, range(20), 3, 0.5)
    stop.set()
    assert found == {item: item * 2 for item in range(20) if item != 7}
    assert most == 3
    assert time.monotonic() - clock < 1.5


def test_side_by_side_of_nothing_is_nothing() -> None:
    assert side_by_side(lambda item: item, [], 3, 1.0) == {}


def test_side_by_side_raises_a_defect() -> None:
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda item: 1 // item, [1, 0], 2, 1.0)


def test_calls_of_every_thread_are_recorded_and_only_there() -> None:
    with RawServer(answered("200 OK", b"{}")) as server:
        http = make(server.url)
        with recorded() as outer:
            with recorded() as calls:
                side_by_side(lambda _: http.read(READ), range(6), 3, 5.0)
            assert len(calls) == 6
            assert outer == []
        http.read(READ)
        assert len(calls) == 6


def test_retry_budget_is_a_tenth_and_a_reserve() -> None:
    budget = RetryBudget()
    taken = 0
    for _ in range(1000):
        budget.earn()
        taken += budget.take()
    assert 100 <= taken <= 111
