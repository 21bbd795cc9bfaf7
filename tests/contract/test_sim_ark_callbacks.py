"""Calls to a callback address: what the simulator sends, and the ways it is told to fail."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests

from models.contract import Kind
from models.lifecycle import Finished
from providers.port import Accepted
from providers.sim import Config, Simulator
from tests.contract import ark_jobs
from tests.contract.raw_server import Conn, RawServer
from tests.contract.simulated import renewed

TASKS = "/ark/api/v3/contents/generations/tasks"
AUTH = {"Authorization": "Bearer ark-test"}
ALL = ["queued", "running", "succeeded"]


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0.3)


class Receiver(RawServer):
    """A callback address. `answers` are the first statuses it answers with; 204 afterwards."""

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)
        super().__init__(self._take)

    def _take(self, conn: Conn) -> None:
        if conn.request():
            status = self._answers.pop(0) if self._answers else 204
            conn.answer(b"", f"{status} x", "Location: /elsewhere\r\n" if status == 301 else "")

    @property
    def told(self) -> list[Any]:
        return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in self.requests]

    @property
    def words(self) -> list[str]:
        return [task["status"] for task in self.told]


def until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not fact():
        assert time.monotonic() < end, "it did not come about in 10 s"
        time.sleep(0.01)


def create(sim: Simulator, url: str, text: str = "a red cup") -> str:
    body = {
        "model": "doubao-seedance-1-0-pro-250528",
        "content": [{"type": "text", "text": text}],
        "callback_url": url,
        "duration": 2,
    }
    return str(requests.post(sim.url + TASKS, json=body, headers=AUTH, timeout=10).json()["id"])


def word(sim: Simulator, task_id: str) -> str:
    return str(requests.get(f"{sim.url}{TASKS}/{task_id}", headers=AUTH, timeout=5).json()["status"])


def planners() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sim-callbacks"]


def test_every_state_is_called_with_what_a_query_would_say(sim: Simulator) -> None:
    with Receiver() as receiver:
        task_id = create(sim, f"{receiver.url}/v1/callbacks/ark/task_x/token?a=b")
        until(lambda: len(receiver.requests) == 3)
    assert receiver.words == ALL
    assert all(
        request.startswith(b"POST /v1/callbacks/ark/task_x/token?a=b HTTP/1.1\r\n") for request in receiver.requests
    )
    assert receiver.told[2] == requests.get(f"{sim.url}{TASKS}/{task_id}", headers=AUTH, timeout=5).json()


def test_failure_is_called_too(sim: Simulator) -> None:
    with Receiver() as receiver:
        create(sim, receiver.url, "x [[sim: fail]]")
        until(lambda: len(receiver.requests) == 3)
    assert (receiver.words[2], receiver.told[2]["error"]["code"]) == ("failed", "InternalServiceError")


def test_calls_can_come_twice(sim: Simulator) -> None:
    with Receiver() as receiver:
        create(sim, receiver.url, "x [[ark: callback twice]]")
        until(lambda: len(receiver.requests) == 6)
    assert sorted(receiver.words) == sorted(ALL * 2)


def test_calls_can_be_lost(sim: Simulator) -> None:
    with Receiver() as receiver:
        task_id = create(sim, receiver.url, "x [[ark: callback lost]]")
        until(lambda: word(sim, task_id) == "succeeded")
        assert (receiver.requests, planners()) == ([], [])


def test_calls_can_be_late(sim: Simulator) -> None:
    with Receiver() as receiver:
        task_id = create(sim, receiver.url, "x [[ark: callback late 0.5]]")
        until(lambda: word(sim, task_id) == "succeeded")
        assert "succeeded" not in receiver.words
        until(lambda: receiver.words == ALL)


def test_calls_can_come_before_the_answer_to_the_create(sim: Simulator) -> None:
    with Receiver() as receiver:
        task_id = create(sim, receiver.url, "x [[ark: callback early]]")
        assert receiver.words == ALL
        assert {task["id"] for task in receiver.told} == {task_id}


def test_early_call_can_be_all_there_is_of_an_answer(sim: Simulator) -> None:
    """O-48: the create's answer is lost after the end was called."""
    with Receiver() as receiver:
        with pytest.raises(requests.ConnectionError):
            create(sim, receiver.url, "x [[ark: callback early]] [[sim: lost-answer]]")
        assert word(sim, receiver.told[-1]["id"]) == "succeeded"


def test_calls_can_come_out_of_order(sim: Simulator) -> None:
    with Receiver() as receiver:
        create(sim, receiver.url, "x [[ark: callback disorder]]")
        until(lambda: len(receiver.requests) == 3)
    assert receiver.words == ["succeeded", "running", "succeeded"]


@pytest.mark.parametrize("status", [500, 301])
def test_end_that_is_not_acknowledged_is_called_again_and_other_news_is_not(sim: Simulator, status: int) -> None:
    with Receiver(status, status, status) as receiver:
        create(sim, receiver.url)
        until(lambda: len(receiver.requests) == 4)
    assert receiver.words == [*ALL, "succeeded"]


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1/x", "https://127.0.0.1/x", "http://example.com/x", "x", "http://[", "http://127.0.0.1:x/"]
)
def test_only_loopback_is_called(sim: Simulator, url: str) -> None:
    task_id = create(sim, url)
    until(lambda: word(sim, task_id) == "succeeded")
    totals = sim.world.ledger.totals()["ark"]
    assert (totals["callback_refused"], totals.get("callback", 0)) == (1, 0)


def test_stopped_simulator_calls_nobody() -> None:
    with Receiver() as receiver:
        with Simulator(config=Config(video_s=(600, 600))) as sim:
            create(sim, receiver.url)
            until(lambda: receiver.words == ["queued"])
        until(lambda: planners() == [])
    assert receiver.words == ["queued"]


def test_adapter_gives_the_address_and_the_query_confirms_the_call(sim: Simulator) -> None:
    provider = ark_jobs.adapter(f"{sim.url}/ark")
    with Receiver() as receiver:
        job = replace(ark_jobs.job(duration_s=2), callback_url=f"{receiver.url}/cb")
        outcome = provider.submit(job)
        assert isinstance(outcome, Accepted)
        until(lambda: receiver.words == ALL)
    assert {task["id"] for task in receiver.told} == {outcome.receipt}
    assert isinstance(provider.observe([outcome.receipt], Kind.VIDEO)[outcome.receipt], Finished)
    assert provider.find(replace(job, receipt=outcome.receipt)) == outcome.receipt
