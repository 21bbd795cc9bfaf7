"""The simulator's DashScope dialect: what the vendor's SDK does not show. The SDK itself is in test_sim_sdk.py."""

from __future__ import annotations

import calendar
import sys
import time
from collections.abc import Iterator
from http import HTTPStatus

import pytest
import requests

from providers.sim import Config, Limits, Simulator
from tests.contract.simulated import (
    KEY,
    MESSAGE,
    MESSAGES,
    MESSAGES_ASYNC,
    OLD_WAN,
    TEXT2IMAGE,
    VIDEO,
    Body,
    finished,
    get,
    only_job,
    ordered,
    post,
    renewed,
)


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0.2)


def slowly(sim: Simulator) -> None:
    """Jobs from now on stay PENDING for longer than any test runs."""
    sim.world.config = Config(image_s=(600, 600), video_s=(600, 600))


def test_asynchronous_path_refuses_a_call_without_the_async_header(sim: Simulator) -> None:
    answer = post(sim, TEXT2IMAGE, {"model": OLD_WAN, "input": {"prompt": "x"}}, asynchronous=False)
    assert (answer.status_code, answer.json()["code"]) == (403, "AccessDenied")


def test_synchronous_path_refuses_the_async_header(sim: Simulator) -> None:
    answer = post(sim, MESSAGES, {"model": "wan2.6-t2i", "input": {"messages": MESSAGE}})
    assert (answer.status_code, answer.json()["code"]) == (403, "AccessDenied")


@pytest.mark.parametrize("key", ["", "wrong", "SK-test"])
def test_key_that_does_not_begin_with_sk_is_refused(sim: Simulator, key: str) -> None:
    answer = post(sim, TEXT2IMAGE, {"model": OLD_WAN, "input": {"prompt": "x"}}, key=key)
    assert (answer.status_code, answer.json()["code"]) == (401, "InvalidApiKey")


def test_image_count_left_out_makes_four(sim: Simulator) -> None:
    body = finished(sim, ordered(sim))
    assert body["usage"] == {"image_count": 4}


def test_qwen_image_count_left_out_makes_one(sim: Simulator) -> None:
    body = finished(sim, ordered(sim, model="qwen-image"))
    assert body["usage"] == {"image_count": 1}


@pytest.mark.parametrize(
    ("path", "model", "parameters"),
    [
        (TEXT2IMAGE, OLD_WAN, {"size": "1024x1024"}),
        (TEXT2IMAGE, OLD_WAN, {"size": "1024*"}),
        (TEXT2IMAGE, OLD_WAN, {"size": "1024*511"}),
        (TEXT2IMAGE, OLD_WAN, {"size": 1024}),
        (TEXT2IMAGE, OLD_WAN, {"n": 0}),
        (TEXT2IMAGE, OLD_WAN, {"n": 5}),
        (TEXT2IMAGE, OLD_WAN, {"n": "1"}),
        (TEXT2IMAGE, OLD_WAN, {"n": True}),
        (TEXT2IMAGE, OLD_WAN, {"seed": -1}),
        (TEXT2IMAGE, OLD_WAN, {"seed": 2147483648}),
        (TEXT2IMAGE, OLD_WAN, {"watermark": "no"}),
        (TEXT2IMAGE, "wan2.5-t2i-preview", {"size": "1024*1024"}),
        (TEXT2IMAGE, "wan2.5-t2i-preview", {"size": "600*3000"}),
        (TEXT2IMAGE, "qwen-image-plus", {"size": "1024*1024"}),
        (TEXT2IMAGE, "qwen-image-plus", {"n": 2}),
        (MESSAGES_ASYNC, "wan2.6-t2i", {"size": "1024*1024"}),
        (VIDEO, "wan2.5-t2v-preview", {"size": "1000*1000"}),
        (VIDEO, "wan2.5-t2v-preview", {"duration": 7}),
        (VIDEO, "wan2.2-t2v-plus", {"duration": 10}),
        (VIDEO, "wan2.7-t2v", {"resolution": "480P"}),
        (VIDEO, "wan2.7-t2v", {"ratio": "21:9"}),
        (VIDEO, "wan2.5-i2v-preview", {}),
    ],
)
def test_parameter_out_of_range_is_refused(sim: Simulator, path: str, model: str, parameters: Body) -> None:
    source: Body = {"messages": MESSAGE} if path == MESSAGES_ASYNC else {"prompt": "x"}
    answer = post(sim, path, {"model": model, "input": source, "parameters": parameters})
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameter")


@pytest.mark.parametrize(
    ("path", "model", "parameters"),
    [
        (TEXT2IMAGE, OLD_WAN, {"size": "512*1440", "n": 4, "seed": 0}),
        (TEXT2IMAGE, "wan2.5-t2i-preview", {"size": "1280*1280"}),
        (TEXT2IMAGE, "sim-image", {"size": "64*2048"}),
        (MESSAGES_ASYNC, "wan2.7-image-pro", {"size": "4K"}),
        (VIDEO, "wan2.5-t2v-preview", {"size": "624*624", "duration": 10}),
        (VIDEO, "wan2.7-t2v", {"ratio": "3:4", "resolution": "720P", "duration": 15}),
        (VIDEO, "wan3.0-video", {"duration": -1}),
        (VIDEO, "sim-video", {"size": "64*64", "duration": 1}),
    ],
)
def test_parameter_at_its_bound_is_taken(sim: Simulator, path: str, model: str, parameters: Body) -> None:
    assert ordered(sim, path, model, **parameters)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"input": {"prompt": "x"}}, "BadRequest.EmptyModel"),
        ({"model": OLD_WAN}, "BadRequest.EmptyInput"),
        ({"model": OLD_WAN, "input": {"prompt": ""}}, "InvalidParameter"),
        ([], "BadRequest.IllegalInput"),
    ],
)
def test_body_without_a_needed_part_is_refused(sim: Simulator, body: object, code: str) -> None:
    assert post(sim, TEXT2IMAGE, body).json()["code"] == code


def test_refused_submit_makes_no_job(sim: Simulator) -> None:
    post(sim, TEXT2IMAGE, {"model": OLD_WAN, "input": {"prompt": "x"}, "parameters": {"n": 9}})
    assert sim.world.ledger.totals()["dashscope"]["accepted"] == 0


def test_unknown_fields_are_ignored(sim: Simulator) -> None:
    source = {"prompt": "x", "extend_prompt": True, "function": "video-synthesis"}
    answer = post(sim, TEXT2IMAGE, {"model": OLD_WAN, "input": source, "parameters": {"is_async": True}})
    assert answer.status_code == HTTPStatus.OK


def test_long_prompt_is_cut_in_silence(sim: Simulator) -> None:
    post(sim, TEXT2IMAGE, {"model": OLD_WAN, "input": {"prompt": "x" * 900}})
    assert only_job(sim)["prompt"] == "x" * 800


@pytest.mark.parametrize(
    ("path", "model", "understood"),
    [(TEXT2IMAGE, OLD_WAN, "in input"), (TEXT2IMAGE, "qwen-image", "in parameters")],
)
def test_negative_prompt_is_read_only_where_the_model_has_it(
    sim: Simulator, path: str, model: str, understood: str
) -> None:
    source = {"prompt": "x", "negative_prompt": "in input"}
    post(sim, path, {"model": model, "input": source, "parameters": {"negative_prompt": "in parameters"}})
    assert only_job(sim)["params"]["negative_prompt"] == understood


def test_query_of_an_unknown_id_is_a_200_with_unknown(sim: Simulator) -> None:
    assert get(sim, "/tasks/no-such-task")["output"] == {"task_id": "no-such-task", "task_status": "UNKNOWN"}


def test_task_of_another_key_is_unknown(sim: Simulator) -> None:
    assert get(sim, f"/tasks/{ordered(sim)}", key="sk-other")["output"]["task_status"] == "UNKNOWN"


def test_task_older_than_its_life_is_unknown(sim: Simulator) -> None:
    task_id = ordered(sim)
    sim.world.config = sim.world.config.changed({"job_ttl_s": 0})
    assert get(sim, f"/tasks/{task_id}")["output"]["task_status"] == "UNKNOWN"


def test_task_is_running_between_pending_and_its_end(sim: Simulator) -> None:
    sim.world.config = Config(image_s=(600, 600), pending_share=0)
    assert get(sim, f"/tasks/{ordered(sim)}")["output"]["task_status"] == "RUNNING"


def test_running_task_cannot_be_canceled(sim: Simulator) -> None:
    sim.world.config = Config(image_s=(600, 600), pending_share=0)
    answer = post(sim, f"/tasks/{ordered(sim)}/cancel", None)
    assert (answer.status_code, answer.json()["code"]) == (400, "UnsupportedOperation")


def test_times_of_a_task_are_in_the_vendors_zone(sim: Simulator) -> None:
    text = get(sim, f"/tasks/{ordered(sim)}")["output"]["submit_time"]
    there = calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S.%f"))
    assert there - time.time() == pytest.approx(8 * 3600, abs=5)


def test_video_usage_of_an_older_model_names_the_ratio(sim: Simulator) -> None:
    task_id = ordered(sim, VIDEO, "wan2.5-t2v-preview", size="832*480")
    expected = {"video_count": 1, "video_duration": 5, "video_ratio": "832*480", "SR": 480}
    assert finished(sim, task_id)["usage"] == expected


def test_video_usage_of_a_newer_model_names_input_and_output(sim: Simulator) -> None:
    usage = finished(sim, ordered(sim, VIDEO, "wan2.7-t2v", duration=3))["usage"]
    assert (usage["duration"], usage["output_video_duration"], usage["SR"]) == (3, 3, 1080)


def test_synchronous_qwen_names_its_metric_in_the_singular(sim: Simulator) -> None:
    body = {"model": "qwen-image-plus", "input": {"messages": MESSAGE}}
    answer = post(sim, MESSAGES, body, asynchronous=False).json()
    assert answer["output"]["task_metric"] == {"TOTAL": 1, "SUCCEEDED": 1, "FAILED": 0}


@pytest.mark.parametrize("path", ["/tasks", "/tasks/"])
def test_list_answers_with_and_without_a_slash(sim: Simulator, path: str) -> None:
    task_id = ordered(sim)
    assert [line["task_id"] for line in get(sim, path)["data"]] == [task_id]


def test_list_gives_the_newest_first_in_pages(sim: Simulator) -> None:
    ids = [ordered(sim) for _ in range(5)]
    second = get(sim, "/tasks?page_no=2&page_size=2")
    assert ([line["task_id"] for line in second["data"]], second["total"], second["total_page"]) == (
        [ids[2], ids[1]],
        5,
        3,
    )


@pytest.mark.parametrize("query", ["model_name=qwen-image", "status=SUCCEEDED", "task_id={second}"])
def test_list_filters(sim: Simulator, query: str) -> None:
    slowly(sim)
    ordered(sim)
    sim.world.config = Config(image_s=(0, 0))
    second = ordered(sim, model="qwen-image")
    listed = get(sim, f"/tasks?{query.format(second=second)}")
    assert [line["task_id"] for line in listed["data"]] == [second]


def test_list_of_filtered_tasks_counts_all_pages(sim: Simulator) -> None:
    for _ in range(3):
        ordered(sim)
    listed = get(sim, f"/tasks?model_name={OLD_WAN}&page_size=2&page_no=2")
    assert (len(listed["data"]), listed["total"]) == (1, 3)


def vendor_time(shift_s: float) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(time.time() + 8 * 3600 + shift_s))


@pytest.mark.parametrize(("start_s", "end_s", "count"), [(-60, 60, 1), (-7200, -3600, 0), (3600, 7200, 0)])
def test_list_filters_by_time(sim: Simulator, start_s: float, end_s: float, count: int) -> None:
    ordered(sim)
    window = f"start_time={vendor_time(start_s)}&end_time={vendor_time(end_s)}"
    assert get(sim, f"/tasks?{window}")["total"] == count


@pytest.mark.parametrize(
    "query",
    [
        "status=DONE",
        "page_size=101",
        "page_no=0",
        "start_time=2026",
        "start_time=20260101000000&end_time=20260103000000",
    ],
)
def test_list_refuses_a_filter_that_makes_no_sense(sim: Simulator, query: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    answer = requests.get(f"{sim.dashscope}/tasks?{query}", headers=headers, timeout=10)
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameter")


def test_list_holds_no_task_of_another_key(sim: Simulator) -> None:
    ordered(sim)
    assert get(sim, "/tasks", key="sk-other")["data"] == []


def test_queries_above_the_limit_are_throttled(sim: Simulator) -> None:
    sim.world.config = Config(limits=Limits(queries_per_s=2, retry_after_s=3))
    headers = {"Authorization": f"Bearer {KEY}"}
    with requests.Session() as session:
        session.headers.update(headers)
        answers = [session.get(f"{sim.dashscope}/tasks/x", timeout=10) for _ in range(3)]
    seen = [(one.status_code, one.headers.get("Retry-After")) for one in answers]
    assert seen == [(200, None), (200, None), (429, "3")]


def test_submit_above_the_jobs_in_flight_is_throttled(sim: Simulator) -> None:
    sim.world.config = Config(limits=Limits(in_flight=1))
    ordered(sim)
    answer = post(sim, TEXT2IMAGE, {"model": OLD_WAN, "input": {"prompt": "x"}})
    assert (answer.status_code, answer.json()["code"]) == (429, "Throttling.RateQuota")


def test_links_use_the_host_the_request_came_in_by(sim: Simulator) -> None:
    task_id = ordered(sim, n=1)
    finished(sim, task_id)
    headers = {"Authorization": f"Bearer {KEY}", "Host": "vendor.test:81"}
    answer = requests.get(f"{sim.dashscope}/tasks/{task_id}", headers=headers, timeout=10)
    assert answer.json()["output"]["results"][0]["url"].startswith("http://vendor.test:81/files/")


def test_clip_without_pyav_fails_and_names_the_extra(sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    body = finished(sim, ordered(sim, VIDEO, "sim-video"))
    assert "weir-gateway[local]" in body["output"]["message"]
