"""Cases O-33, O-34 and O-36 to O-39: what was bought when nobody said so, and whose result is whose.

Left out, with the reason:

- O-33, the operator's alert with time and body hash: there are no alerts; the task's `risk` flag stands for it.
- O-38, the socket that says nothing more: we listen to none; the history alone ends a task.
- O-39, 80 % of whatever runs now: the answer of this server is the picture, so that nobody asks for its progress.
"""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from models.fields import Kind
from tests.cases import FILM, GRAPH, PLAIN, PRICE, WAVES, WEBUI, Case, V, bought, failed

pytest_plugins = ("tests.cases_fixtures",)

V_PRICE = 5 * PRICE


@pytest.mark.parametrize(("body", "vendor"), [(FILM, "dashscope"), (PLAIN, "dashscope"), (WAVES, "openai")])
def test_o33_answer_to_the_create_call_lost_buys_once(case: Case, body: dict[str, object], vendor: str) -> None:
    case.script({"on": "submit", "do": {"lost_answer": "reset"}})
    task = case.play(body)
    assert failed(task) == ("FAILED", "submit_unconfirmed", 0)
    assert (task["risk"], task["upstream_call_count"]) == (True, 1)
    case.world.sql("update tasks set wake_at = now()")
    case.world.sweep()
    assert (case.totals(vendor)["submit"], case.totals(vendor)["accepted"]) == (1, 1)
    again = case.see(task["task_id"])
    assert failed(again) == ("FAILED", "submit_unconfirmed", 0)


@pytest.mark.parametrize(("body", "vendor", "price"), [(V, "ark", V_PRICE), (GRAPH, "comfyui", PRICE)])
def test_o33_answer_lost_by_a_vendor_that_can_be_asked_is_adopted(
    case: Case, body: dict[str, object], vendor: str, price: int
) -> None:
    case.script({"on": "submit", "do": {"lost_answer": "reset"}})
    task = case.play(body)
    assert bought(task) == ("SUCCESS", price)
    assert (task["risk"], task["upstream_call_count"]) == (False, 1)
    assert (case.totals(vendor)["submit"], case.totals(vendor)["accepted"]) == (1, 1)


def test_o33_a_refused_connection_is_no_submit_and_is_tried_again(case: Case) -> None:
    task_id = case.post(V)
    case.sim.stop()
    assert [case.step(task_id), case.step(task_id)] == ["PENDING", "PENDING"]
    case.sim.start()
    task = case.end(task_id)
    assert bought(task) == ("SUCCESS", V_PRICE)
    assert (case.totals("ark")["submit"], task["upstream_call_count"]) == (1, 1)


def test_o34_a_524_is_not_given_to_the_second_provider(case: Case) -> None:
    case.script({"on": "submit", "do": {"status": 524, "html": True, "accepted": True}})
    task = case.play(PLAIN)
    assert failed(task) == ("FAILED", "submit_unconfirmed", 0)
    assert (task["provider"], task["risk"], case.totals("dashscope")["submit"]) == ("wan", True, 1)


def test_o34_a_429_is_given_to_the_second_provider_and_makes_one_job(case: Case) -> None:
    case.script({"on": "submit", "times": 1, "do": {"status": 429, "retry_after": "1"}})
    task_id = case.post(PLAIN)
    assert case.step(task_id) == "PENDING"
    assert (case.see(task_id)["error"], case.see(task_id)["provider"]) == (None, "spare")
    task = case.end(task_id)
    assert bought(task) == ("SUCCESS", PRICE)
    assert (case.totals("dashscope")["accepted"], task["upstream_call_count"]) == (1, 1)


def test_o36_the_same_graph_twice_gives_a_file_to_each(case: Case) -> None:
    first, second = case.play(GRAPH, idem="one"), case.play(GRAPH, idem="two")
    assert [bought(first), bought(second)] == [("SUCCESS", PRICE)] * 2
    assert first["task_id"] != second["task_id"]
    assert [len(task["outputs"]) for task in (first, second)] == [1, 1]
    assert case.file(first).data == case.file(second).data
    assert case.totals("comfyui")["submit"] == 2


def test_o37_a_job_in_neither_queue_nor_history_is_lost_at_the_third_look(case: Case) -> None:
    case.script({"on": "submit", "do": {"stuck": "RUNNING"}})
    task_id = case.post(GRAPH)
    assert [case.step(task_id) for _ in range(3)] == ["RUNNING"] * 3
    case.sim.world.ledger.forget()
    assert [case.step(task_id) for _ in range(3)] == ["RUNNING", "RUNNING", "FAILED"]
    task = case.see(task_id)
    assert failed(task) == ("FAILED", "upstream_lost", 0)
    assert case.totals("comfyui")["submit"] == 1
    reasons = case.world.reasons(case.row(task_id)["id"])
    assert reasons == ["accepted", "claimed", "observed", "refused"]


def test_o38_the_history_alone_ends_a_job(case: Case) -> None:
    case.script({"on": "submit", "do": {"slow_s": 0.3}})
    task_id = case.post(GRAPH)
    case.step(task_id)
    job = next(iter(case.sim.world.ledger.accepted(0)))
    until = time.monotonic() + 10
    while job.state(time.time()) != "SUCCEEDED":
        assert case.see(task_id)["status"] == "RUNNING"
        assert time.monotonic() < until
    for _ in range(2):
        if case.row(task_id)["stage"] == "generating":
            case.poll("studio", Kind.IMAGE)
    seen = case.see(task_id)
    assert (seen["status"], seen["stage"], seen["outputs"]) == ("RUNNING", "fetching", [])
    assert bought(case.end(task_id)) == ("SUCCESS", PRICE)
    assert case.totals("comfyui")["submit"] == 1


def test_o39_two_users_on_one_server_get_each_his_own_picture(case: Case) -> None:
    ann, bob = case.post({**WEBUI, "seed": 7}), case.post({**WEBUI, "seed": 99}, who=case.service.bob)
    assert case.see(bob, who=case.service.bob)["progress"] is None
    with ThreadPoolExecutor(2) as pool:
        tasks = list(pool.map(lambda one: case.end(one[0], who=one[1]), [(ann, None), (bob, case.service.bob)]))
    assert [bought(task) for task in tasks] == [("SUCCESS", PRICE)] * 2
    assert [task["outputs"][0]["seed"] for task in tasks] == [7, 99]
    assert case.service.get(f"/v1/tasks/{bob}").status_code == 404
    for task, who in zip(tasks, (None, case.service.bob), strict=True):
        image = Image.open(io.BytesIO(case.service.get(task["outputs"][0]["url"], who=who).data))
        assert image.info["seed"] == str(task["effective"]["seed"])
    assert case.totals("sdwebui")["submit"] == 2
