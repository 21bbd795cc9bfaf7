"""The simulator's ComfyUI as a queue: one by one, stopped by name, forgotten by a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import requests

from models.contract import Kind
from models.lifecycle import Canceled, Finished, Unknown, Working
from providers.comfyui import ComfyUI
from providers.port import CancelAnswer, FindAnswer
from providers.sim import Simulator, comfyui_machine
from tests.contract.comfyui_jobs import STUCK, adapter, ended, new_job, outputs, seen, taken


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    vendor.world.reset()
    vendor.world.config = vendor.world.config.changed({"image_s": [0, 0], "video_s": [0, 0]})
    return vendor


@pytest.fixture
def provider(sim: Simulator) -> ComfyUI:
    return adapter(f"{sim.url}/comfyui")


@pytest.fixture
def old(sim: Simulator) -> ComfyUI:
    """A server of summer 2025."""
    return adapter(f"{sim.url}/comfyui/old")


# --- the queue ---


def test_jobs_are_worked_off_one_by_one(provider: ComfyUI) -> None:
    jobs = [taken(provider, new_job(STUCK)) for _ in range(3)]
    receipts = [job.receipt or "" for job in jobs]
    words = provider.observe(receipts, Kind.IMAGE)
    assert [words[receipt] for receipt in receipts] == [
        Working(word="running"),
        Working(word="pending"),
        Working(word="pending"),
    ]
    assert provider.cancel(jobs[0]) is CancelAnswer.UNCLEAR  # told to stop, not yet seen to
    assert isinstance(ended(provider, jobs[0]), Canceled)
    assert seen(provider, jobs[1]) == Working(word="running")


def test_job_that_waits_is_taken_out_and_leaves_no_trace(sim: Simulator, provider: ComfyUI) -> None:
    running, waiting = taken(provider, new_job(STUCK)), taken(provider, new_job())
    assert provider.cancel(waiting) is CancelAnswer.CONFIRMED
    assert seen(provider, waiting) == Unknown()
    assert provider.cancel(waiting) is CancelAnswer.UNCLEAR
    assert seen(provider, running) == Working(word="running")
    states = {job.order.extra["prompt_id"]: job.state(time.time()) for job in sim.world.ledger.accepted(0)}
    assert states[waiting.receipt] == "CANCELED"


def test_job_that_somebody_else_cleared_is_unknown_at_every_look(sim: Simulator, provider: ComfyUI) -> None:
    taken(provider, new_job(STUCK))
    lost = taken(provider, new_job())
    requests.post(f"{sim.url}/comfyui/queue", json={"clear": True}, timeout=5)
    assert [seen(provider, lost) for _ in range(3)] == [Unknown()] * 3


def test_restart_forgets_all_jobs_and_keeps_the_files(sim: Simulator, provider: ComfyUI) -> None:
    done = taken(provider, new_job())
    (output,) = outputs(ended(provider, done))
    running, waiting = taken(provider, new_job(STUCK)), taken(provider, new_job())
    requests.post(f"{sim.url}/_sim/forget", timeout=5)
    assert [seen(provider, job) for job in (done, running, waiting)] == [Unknown()] * 3
    assert provider.find(done) is FindAnswer.UNCLEAR  # absence proves nothing: it ran
    assert requests.get(str(output.url), timeout=5).headers["Content-Type"] == "image/png"
    assert isinstance(ended(provider, taken(provider, new_job())), Finished)  # what ran before holds nobody up


def test_history_drops_its_oldest_without_a_word(monkeypatch: pytest.MonkeyPatch, provider: ComfyUI) -> None:
    monkeypatch.setattr(comfyui_machine, "HISTORY_MAX", 3)
    jobs = [taken(provider, new_job(f"cup {n}")) for n in range(4)]
    assert isinstance(ended(provider, jobs[3]), Finished)
    assert [type(seen(provider, job)) for job in jobs] == [Unknown, Finished, Finished, Finished]


# --- cancel and its neighbours ---


def test_old_server_is_never_told_to_interrupt(old: ComfyUI) -> None:
    running, waiting = taken(old, new_job(STUCK)), taken(old, new_job(STUCK))
    assert old.cancel(running) is CancelAnswer.REFUSED
    assert seen(old, running) == Working(word="running")
    assert old.cancel(waiting) is CancelAnswer.CONFIRMED


def test_old_server_makes_pictures_all_the_same(old: ComfyUI) -> None:
    job = taken(old, new_job())
    assert isinstance(ended(old, job), Finished)
    assert old.find(job) == job.receipt
    assert old.cancel(job) is CancelAnswer.REFUSED


def test_old_server_stops_a_stranger_when_told_to(sim: Simulator, old: ComfyUI) -> None:
    job = taken(old, new_job(STUCK))
    requests.post(f"{sim.url}/comfyui/old/interrupt", json={"prompt_id": "somebody-else"}, timeout=5)
    assert isinstance(ended(old, job), Canceled)


def test_cancel_at_the_moment_of_the_end_never_hits_the_next_job(sim: Simulator, provider: ComfyUI) -> None:
    sim.world.config = sim.world.config.changed({"image_s": [0.004, 0.012]})
    for number in range(40):
        mine, other = taken(provider, new_job(f"mine {number}")), taken(provider, new_job(f"other {number}"))
        answer: list[CancelAnswer] = []
        thread = threading.Thread(target=lambda mine=mine, answer=answer: answer.append(provider.cancel(mine)))
        thread.start()
        assert isinstance(ended(provider, other), Finished)
        thread.join()
        found = ended(provider, mine)
        if answer[0] is CancelAnswer.CONFIRMED:
            assert isinstance(found, Canceled | Unknown)
        elif answer[0] is CancelAnswer.REFUSED:
            assert isinstance(found, Finished)
        else:
            assert isinstance(found, Canceled | Finished)


def test_live_jobs_and_ends_are_counted(sim: Simulator, provider: ComfyUI) -> None:
    stuck = [taken(provider, new_job(STUCK)) for _ in range(3)]
    (line,) = sim.world.ledger.most_in_flight()
    assert (line["in_flight"], line["most_in_flight"]) == (3, 3)
    requests.post(f"{sim.url}/comfyui/queue", json={"clear": True}, timeout=5)
    provider.cancel(stuck[0])
    assert isinstance(ended(provider, taken(provider, new_job())), Finished)
    # Here nothing holds it up: it ends at the very moment it would have without a queue.
    assert isinstance(ended(provider, taken(provider, new_job())), Finished)
    (line,) = sim.world.ledger.most_in_flight()
    assert line["in_flight"] == 0


def test_two_servers_of_one_simulator_share_nothing(provider: ComfyUI, old: ComfyUI) -> None:
    job = taken(provider, new_job(STUCK))
    assert seen(old, job) == Unknown()
    assert isinstance(ended(old, taken(old, new_job())), Finished)
