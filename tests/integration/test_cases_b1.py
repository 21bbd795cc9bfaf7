"""Cases O-19 to O-27: what vendors answer, and what may come of it.

Left out, with the reason:

- O-21, the count of each unknown word: there is no such metric; the words themselves are played.
- O-22, the operator's alert with the key names of the reply: there are no alerts; the task's `risk` flag stands for it.
- O-23, "one webhook": webhooks are not built.
- O-25 is told of Replicate, which is not built; Ark and DashScope play its two halves.
- O-27, `usage: counted`: the price is fixed from the effective parameters, so that no usage is read for it.
"""

from __future__ import annotations

import threading
import time

import pytest

from models.fields import Kind
from tests.cases import FLARE, GROUP, PLAIN, PRICE, Case, V, bought, failed
from tests.contract.simulated import link

pytest_plugins = ("tests.cases_fixtures",)

V_PRICE = 5 * PRICE


def test_o19_an_html_page_in_place_of_an_answer_is_no_news(case: Case) -> None:
    case.script({"on": "query", "times": 2, "do": {"html": True}})
    task_id = case.post(V)
    assert case.step(task_id) == "RUNNING"
    for polls in (1, 2):
        assert case.step(task_id) == "RUNNING"
        seen = case.see(task_id)
        assert (seen["failed_polls"], seen["error"]) == (polls, None)
        assert not any(word in (seen["last_error"] or "") for word in ("JSON", "Expecting", "char 0", "<html"))
    lines = [line for line in case.calls(task_id) if line["http_status"] == 502]
    assert len(lines) == 2
    assert all(len(line["error"]) <= 200 for line in lines)
    assert bought(case.end(task_id)) == ("SUCCESS", V_PRICE)
    assert case.totals("ark")["submit"] == 1


def test_o20_a_200_with_an_empty_list_is_a_failure_with_its_text(case: Case) -> None:
    body = {"created": 1, "data": [], "error": "The machine ran out of memory: https://h/a?Signature=secret"}
    case.script({"on": "submit", "do": {"status": 200, "body": body}})
    task = case.play(FLARE)
    assert failed(task) == ("FAILED", "provider_error", 0)
    assert task["error"]["message"] == "The machine ran out of memory: https://h/a"
    assert (task["outputs"], case.totals("openai")["submit"]) == ([], 1)


def test_o21_words_nobody_knows_leave_it_running(case: Case) -> None:
    words = ("queued", "in_progress", "postprocessing", "IN_PROGRESS")
    case.script(*({"on": "query", "times": 1, "do": {"status_word": word}} for word in words))
    task_id = case.post(V)
    case.step(task_id)
    for _ in words:
        assert case.step(task_id) == "RUNNING"
        assert case.see(task_id)["error"] is None
    task = case.end(task_id)
    assert bought(task) == ("SUCCESS", V_PRICE)
    assert case.totals("ark")["submit"] == 1


def test_o22_done_without_a_link_is_given_up_after_three_looks(case: Case) -> None:
    case.script({"on": "submit", "do": {"no_payload": True}})
    task_id = case.post(V)
    case.step(task_id)
    assert [case.step(task_id) for _ in range(3)] == ["RUNNING", "RUNNING", "FAILED"]
    task = case.see(task_id)
    assert failed(task) == ("FAILED", "result_missing", 0)
    assert (task["risk"], case.totals("ark")["submit"], case.totals("ark")["query"]) == (True, 1, 3)


def test_o22_a_link_in_the_vendors_other_documented_place_is_found(case: Case) -> None:
    made = link(case.sim)
    message = {"role": "assistant", "content": [{"type": "image", "image": made}]}
    choices = [{"finish_reason": "stop", "message": message}]
    body = {"request_id": "r", "output": {"task_id": "t", "task_status": "SUCCEEDED", "choices": choices}}
    case.script({"on": "query", "do": {"status": 200, "body": body}})
    before = case.totals("dashscope")["submit"]
    assert bought(case.play(PLAIN)) == ("SUCCESS", PRICE)
    assert case.totals("dashscope")["submit"] - before == 1


@pytest.mark.parametrize(("late", "finally_"), [("running", "TIMEOUT"), ("succeeded", "SUCCESS")])
def test_o23_an_answer_that_comes_after_the_deadline_overwrites_nothing(case: Case, late: str, finally_: str) -> None:
    case.script({"on": "query", "times": 1, "do": {"hold_s": 0.6}})
    if late == "running":
        case.script({"on": "submit", "do": {"stuck": "RUNNING"}})
    task_id = case.post({**V, "deadline_s": 60})
    case.step(task_id)
    asking = threading.Thread(target=case.step, args=(task_id,))
    asking.start()
    until = time.monotonic() + 10
    while case.totals("ark").get("query", 0) == 0:
        assert time.monotonic() < until
        asking.join(0.01)
    case.world.sql("update tasks set deadline_at = now() - interval '1 second'")
    assert case.world.sweep()["timed_out"] == 1
    before = case.see(task_id)
    changed = case.row(task_id)["updated_at"]
    asking.join()
    assert case.see(task_id) == before
    assert (case.row(task_id)["updated_at"], failed(before)) == (changed, ("TIMEOUT", "deadline_exceeded", 0))
    case.world.sql("update tasks set wake_at = now()")
    case.world.sweep()
    case.world.reconcile(case.row(task_id)["id"])
    after = case.see(task_id)
    assert bought(after) == (finally_, V_PRICE if finally_ == "SUCCESS" else 0)
    assert case.totals("ark")["submit"] == 1


def test_o24_an_error_among_the_images_spoils_only_its_own_place(case: Case) -> None:
    links = [{"url": link(case.sim, f"kite {n}")} for n in range(2)]
    broken = {"error": {"code": "InternalServiceError", "message": "The image was not made."}}
    body = {"model": "m", "created": 1, "data": [*links, broken], "usage": {"generated_images": 2}}
    case.script({"on": "submit", "dialect": "ark", "do": {"status": 200, "body": body}})
    task = case.play({**GROUP, "image_count": 3})
    assert bought(task) == ("SUCCESS", 2 * PRICE)
    assert (task["partial"], len(task["outputs"])) == (True, 2)
    assert [one["code"] for one in task["missing"]] == ["provider_error"]
    assert case.totals("ark")["submit"] == 1


def test_o25_one_filtered_image_does_not_sink_the_others(case: Case) -> None:
    case.script({"on": "submit", "do": {"partial": 3}})
    task = case.play({**GROUP, "image_count": 4})
    assert bought(task) == ("SUCCESS", 3 * PRICE)
    assert (task["partial"], len(task["outputs"])) == (True, 3)
    assert [one["code"] for one in task["missing"]] == ["content_filtered"]
    assert case.totals("ark")["submit"] == 1


def test_o25_a_job_that_was_filtered_whole_is_failed_and_free(case: Case) -> None:
    task = case.play({**PLAIN, "image_count": 4, "prompt": "a red kite [[sim: filtered]]"})
    assert failed(task) == ("FAILED", "content_filtered", 0)
    assert (task["outputs"], task["effective"]["seed"]) == ([], 7)
    assert case.totals("dashscope")["submit"] == 1


@pytest.mark.parametrize(
    ("vendors_code", "text", "code"),
    [
        ("DataInspectionFailed", "(1026) The image is sensitive and not supported.", "content_filtered"),
        ("InvalidParameter", "The prompt is case-sensitive.", "invalid_parameter"),
    ],
)
def test_o26_a_refusal_is_told_by_its_code_and_is_final(case: Case, vendors_code: str, text: str, code: str) -> None:
    case.script({"on": "submit", "do": {"status": 400, "code": vendors_code, "message": text}})
    task = case.play(PLAIN)
    assert failed(task) == ("FAILED", code, 0)
    assert (task["error"]["upstream_code"], task["provider"]) == (vendors_code, "wan")
    assert case.totals("dashscope")["submit"] == 1
    assert [case.world.rt.hold_s(name, "submit", Kind.IMAGE) for name in ("wan", "spare")] == [0.0, 0.0]


def test_o27_images_without_a_usage_block_are_priced_all_the_same(case: Case) -> None:
    body = {"model": "m", "created": 1, "data": [{"url": link(case.sim, f"kite {n}")} for n in range(2)]}
    case.script({"on": "submit", "dialect": "ark", "do": {"status": 200, "body": body}})
    task = case.play({**GROUP, "image_count": 2})
    assert bought(task) == ("SUCCESS", 2 * PRICE)
    assert (task["partial"], len(task["outputs"]), case.totals("ark")["submit"]) == (False, 2, 1)
