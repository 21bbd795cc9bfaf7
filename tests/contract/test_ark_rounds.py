"""The Ark adapter: how few calls a round takes, and how carefully it cancels and finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from models.contract import Kind
from models.lifecycle import Canceled, Finished, Unknown, Unreadable, Working
from providers.calls import recorded
from providers.port import CancelAnswer, FindAnswer
from tests.contract.ark_jobs import KEY, PICTURE, TASKS, Body, adapter, answering, job, lines, scripted, task
from tests.contract.raw_server import RawServer, Script

# --- rounds ---


def listing(known: Mapping[str, Body]) -> Script:
    """An account that lists what is asked for and answers single queries for the rest of `known`."""

    def say(_method: str, path: str, query: dict[str, list[str]]) -> tuple[int, object]:
        if path == TASKS:
            asked = query["filter.task_ids"]
            assert int(query["page_size"][0]) == len(asked)
            return 200, {"items": [known[one] for one in asked if one in known], "total": 9}
        return 404, {"error": {"code": "NotFound.TaskNotFound", "message": "x"}}

    return scripted(say)


def test_five_hundred_clips_take_five_calls() -> None:
    known = {f"cgt-20261130100000-{n:05}": task(f"cgt-20261130100000-{n:05}", "running") for n in range(500)}
    with RawServer(listing(known)) as server, recorded() as calls:
        seen = adapter(server.url).observe(list(known), Kind.VIDEO)
    assert seen == dict.fromkeys(known, Working(word="running"))
    assert len(server.requests) == 5
    assert {receipt for call in calls for receipt in call.receipts} == set(known)
    assert max(len(request.split(b"\r\n")[0]) for request in server.requests) < 8_000


def test_list_says_all_that_a_query_says() -> None:
    done = task("b", "succeeded", content={"video_url": "https://h/b.mp4"}, seed=0)
    known = {"a": task("a", "queued"), "b": done, "c": task("c", "cancelled")}
    with RawServer(listing(known)) as server:
        seen = adapter(server.url).observe([*known, "gone", *known], Kind.VIDEO)
    assert (seen["a"], seen["c"], seen["gone"]) == (Working(word="queued"), Canceled(), Unknown())
    assert isinstance(seen["b"], Finished)
    assert (seen["b"].outputs[0].url, seen["b"].outputs[0].seed) == ("https://h/b.mp4", 0)
    assert lines(server)[1:] == [f"GET {TASKS}/gone"]


def test_line_of_the_list_without_its_reason_is_asked_about() -> None:
    known = {"a": task("a", "failed"), "b": task("b", "succeeded"), "c": task("c", "running")}
    with RawServer(listing(known)) as server:
        adapter(server.url).observe(list(known), Kind.VIDEO)
    assert sorted(lines(server)[1:]) == [f"GET {TASKS}/a", f"GET {TASKS}/b"]


@pytest.mark.parametrize(
    ("status", "code", "calls"),
    [(429, "RequestBurstTooFast", 1), (500, "InternalServiceError", 1), (403, "AccessDenied", 4)],
)
def test_list_that_fails_is_no_news_and_one_that_is_forbidden_is_done_without(
    status: int, code: str, calls: int
) -> None:
    def say(_method: str, path: str, _query: object) -> tuple[int, object]:
        return (status, {"error": {"code": code}}) if path == TASKS else (200, task("x", "running"))

    with RawServer(scripted(say)) as server:
        seen = adapter(server.url).observe(["a", "b", "c"], Kind.VIDEO)
    assert {type(one) for one in seen.values()} == {Unreadable if calls == 1 else Working}
    assert len(server.requests) == calls


def test_no_list_call_means_one_query_each() -> None:
    with RawServer(answering(200, task("x", "running"))) as server:
        provider = adapter(server.url, list_call=False)
        assert provider.capabilities.list_call is False
        assert len(provider.observe(["a", "b/c"], Kind.VIDEO)) == 2
    assert sorted(lines(server)) == [f"GET {TASKS}/a", f"GET {TASKS}/b%2Fc"]


@pytest.mark.parametrize("base", ["", "/", "/api/v3", "/api/v3/"])
def test_address_is_taken_with_and_without_its_version(base: str) -> None:
    with RawServer(answering(200, task("x", "running"))) as server:
        adapter(server.url + base).observe(["x"], Kind.VIDEO)
    assert lines(server) == [f"GET {TASKS}/x"]
    assert f"Authorization: Bearer {KEY}\r\n".encode() in server.requests[0]


# --- cancel ---

RUNS = {"error": {"code": "InvalidAction.RunningTaskDeletion", "message": "x"}}
CANCELS = {
    "queued": ("queued", 200, {}, "queued", CancelAnswer.CONFIRMED, 2),
    "queued, empty answer": ("queued", 204, None, "cancelled", CancelAnswer.CONFIRMED, 2),
    "queued, then it ran": ("queued", 409, RUNS, "running", CancelAnswer.REFUSED, 2),
    "queued, answer lost, done": ("queued", 502, None, "cancelled", CancelAnswer.CONFIRMED, 3),
    "queued, answer lost, not done": ("queued", 502, None, "queued", CancelAnswer.UNCLEAR, 3),
    "running": ("running", 200, {}, "running", CancelAnswer.REFUSED, 1),
    "succeeded: a DELETE would remove the result": ("succeeded", 200, {}, "", CancelAnswer.REFUSED, 1),
    "failed": ("failed", 200, {}, "", CancelAnswer.REFUSED, 1),
    "expired": ("expired", 200, {}, "", CancelAnswer.REFUSED, 1),
    "cancelled: the next look tells": ("cancelled", 200, {}, "", CancelAnswer.UNCLEAR, 1),
}


@pytest.mark.parametrize("name", CANCELS)
def test_cancel_looks_first_and_deletes_only_what_waits(name: str) -> None:
    before, status, body, after, answer, calls = CANCELS[name]
    words = iter([before, after])

    def say(method: str, _path: str, _query: object) -> tuple[int, object]:
        return (status, body) if method == "DELETE" else (200, task("cgt-1", next(words)))

    with RawServer(scripted(say)) as server:
        assert adapter(server.url).cancel(job()) is answer
    assert [line.split()[0] for line in lines(server)] == ["GET", "DELETE", "GET"][:calls]
    assert {line.split()[1] for line in lines(server)} == {f"{TASKS}/cgt-1"}


def test_what_has_no_receipt_or_is_a_picture_cannot_be_canceled() -> None:
    with recorded() as calls:
        provider = adapter("http://127.0.0.1:1")
        assert provider.cancel(replace(job(), receipt=None)) is CancelAnswer.UNCLEAR
        assert provider.cancel(job(PICTURE)) is CancelAnswer.UNCLEAR
    assert calls == []


# --- find ---


def pages(*found: list[Body]) -> Script:
    def say(_method: str, path: str, query: dict[str, list[str]]) -> tuple[int, object]:
        if path != TASKS:
            return 200, found[0][0]
        return 200, {"items": found[int(query["page_num"][0]) - 1], "total": 501}

    return scripted(say)


def test_lost_clip_is_found_by_the_identifier_it_tells_back() -> None:
    others: list[Body] = [task(f"cgt-{n}", "running", safety_identifier=f"task_{n}.1") for n in range(500)]
    with RawServer(pages(others, [task("cgt-own", "running", safety_identifier="task_x.1")])) as server:
        assert adapter(server.url).find(replace(job(), receipt=None)) == "cgt-own"
    assert len(server.requests) == 2


def test_clip_that_is_not_listed_may_be_there_all_the_same() -> None:
    listed: list[Body] = [task("a", "running"), task("b", "running", safety_identifier="task_x.2")]
    with RawServer(pages(listed)) as server:
        assert adapter(server.url).find(replace(job(), receipt=None)) is FindAnswer.LATER


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"safety_identifier": "task_x.1"}, "cgt-lent"),
        ({"safety_identifier": "task_y.1"}, FindAnswer.LATER),
        ({}, "cgt-lent"),
        ({"created_at": 1_795_999_000}, FindAnswer.LATER),  # older than the claim
    ],
)
def test_id_that_a_callback_lent_is_adopted_once_the_vendor_confirms_it(
    told: dict[str, object], found: str | FindAnswer
) -> None:
    with RawServer(pages([{**task("cgt-lent", "running"), **told}])) as server:
        assert adapter(server.url).find(replace(job(), receipt="cgt-lent")) == found
    assert lines(server) == [f"GET {TASKS}/cgt-lent"]


def test_lost_picture_cannot_be_looked_up() -> None:
    assert adapter("http://127.0.0.1:1").find(job(PICTURE)) is FindAnswer.UNCLEAR
