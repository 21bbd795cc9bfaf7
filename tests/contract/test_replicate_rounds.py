"""The Replicate adapter over several calls: rounds over many predictions, cancel, find, check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.contract import Kind
from models.lifecycle import Observation, Unreadable, Working
from providers.port import CancelAnswer, FindAnswer, ProviderError
from providers.replicate_models import BOUNDS, FAMILIES
from tests.contract.ark_jobs import answering, lines, scripted
from tests.contract.raw_server import RawServer, Script
from tests.contract.replicate_jobs import AT, ID, PAYLOADS, adapter, job


def _word(seen: Observation) -> str:
    assert isinstance(seen, Working)
    return seen.word


# --- many at once ---

MANY = [f"p{n}" for n in range(6)]


def record(receipt: str, status: str = "processing", **more: object) -> dict[str, object]:
    return {"id": receipt, "status": status, **more}


def listing(*pages: list[dict[str, object]]) -> Script:
    """The list by page, whose `next` names another host, and singles that are all known as starting."""

    def say(_method: str, path: str, query: dict[str, list[str]]) -> tuple[int, object]:
        if path != "/v1/predictions":
            return 200, record(path.rpartition("/")[2], "starting")
        page = int(query.get("cursor", ["0"])[0])
        more = f"https://elsewhere.example/v1/predictions?cursor={page + 1}" if page + 1 < len(pages) else None
        return 200, {"next": more, "previous": None, "results": pages[page]}

    return scripted(say)


def test_list_answers_for_many_in_one_call() -> None:
    with RawServer(listing([record("stranger"), *map(record, MANY)])) as server:
        seen = adapter(server.url).observe(MANY, Kind.IMAGE)
    assert {receipt: _word(one) for receipt, one in seen.items()} == dict.fromkeys(MANY, "processing")
    assert lines(server) == ["GET /v1/predictions"]


def test_page_after_the_first_is_asked_of_our_own_host() -> None:
    with RawServer(listing([record("stranger")], [record(receipt) for receipt in MANY])) as server:
        adapter(server.url).observe(MANY, Kind.IMAGE)
    assert lines(server) == ["GET /v1/predictions", "GET /v1/predictions?cursor=1"]


def test_what_the_list_does_not_tell_whole_is_asked_for() -> None:
    listed = [*(record(receipt) for receipt in MANY[:4]), record(MANY[4], "succeeded")]
    with RawServer(listing(listed)) as server:
        seen = adapter(server.url).observe(MANY, Kind.IMAGE)
    assert sorted(lines(server)) == ["GET /v1/predictions", *(f"GET /v1/predictions/{one}" for one in MANY[4:])]
    assert {receipt for receipt, one in seen.items() if _word(one) == "starting"} == set(MANY[4:])


@pytest.mark.parametrize("few", [MANY[:4], MANY])
def test_few_are_asked_singly_and_many_where_lists_are_not_to_be_asked_for(few: list[str]) -> None:
    with RawServer(listing([])) as server:
        adapter(server.url, list_call=len(few) < 5).observe(few, Kind.IMAGE)
    assert sorted(lines(server)) == [f"GET /v1/predictions/{one}" for one in few]


@pytest.mark.parametrize(
    ("status", "body", "calls"),
    [
        (429, {"detail": "Your rate limit resets in ~9s."}, 1),
        (502, None, 1),
        (200, ["no object"], 7),
        (200, {"results": None}, 7),
        (404, {"title": "Not found", "detail": "x", "status": 404}, 7),
    ],
)
def test_list_that_cannot_be_had_is_no_news_or_is_done_without(status: int, body: object, calls: int) -> None:
    def say(_method: str, path: str, _query: object) -> tuple[int, object]:
        return (status, body) if path == "/v1/predictions" else (200, record(path.rpartition("/")[2]))

    with RawServer(scripted(say)) as server:
        seen = adapter(server.url).observe(MANY, Kind.IMAGE)
    assert seen.keys() == set(MANY)
    assert len(lines(server)) == calls
    assert {type(one) for one in seen.values()} == {Unreadable if calls == 1 else Working}


def test_list_longer_than_an_answer_may_be_is_done_without() -> None:
    def say(_method: str, path: str, _query: object) -> tuple[int, object]:
        large = {"results": [record("stranger", input={"image": "x" * 4_100_000})]}
        return 200, (large if path == "/v1/predictions" else record(path.rpartition("/")[2]))

    with RawServer(scripted(say)) as server:
        seen = adapter(server.url).observe(MANY, Kind.IMAGE)
    assert {type(one) for one in seen.values()} == {Working}


# --- cancel, find, check ---


@pytest.mark.parametrize(
    ("states", "answer", "calls"),
    [
        (["starting", "canceled"], CancelAnswer.CONFIRMED, 2),
        (["processing", "processing", "canceled"], CancelAnswer.CONFIRMED, 3),
        (["processing", "processing", "processing"], CancelAnswer.UNCLEAR, 3),
        (["processing", "succeeded"], CancelAnswer.REFUSED, 2),
        (["succeeded"], CancelAnswer.REFUSED, 1),
        (["failed"], CancelAnswer.REFUSED, 1),
        (["canceled"], CancelAnswer.UNCLEAR, 1),
    ],
)
def test_cancel_is_what_the_state_says(states: list[str], answer: CancelAnswer, calls: int) -> None:
    left = iter(states)
    with RawServer(scripted(lambda _method, _path, _query: (200, record(ID, next(left))))) as server:
        assert adapter(server.url).cancel(job()) is answer
    assert lines(server) == [f"GET {AT}", f"POST {AT}/cancel", f"GET {AT}"][:calls]


def test_cancel_without_a_readable_answer_is_unclear() -> None:
    def say(method: str, _path: str, _query: object) -> tuple[int, object]:
        return (200, record(ID)) if method == "GET" else (500, {"title": "x", "detail": "x"})

    with RawServer(scripted(say)) as server:
        assert adapter(server.url).cancel(job()) is CancelAnswer.UNCLEAR


CREATED = "2026-12-01T00:00:00.123Z"


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"input": {"prompt": "a red cup"}, "created_at": CREATED}, True),
        ({"input": {}, "created_at": CREATED}, True),
        ({"input": {"prompt": "another"}, "created_at": CREATED}, False),
        ({"input": {"prompt": "a red cup"}, "created_at": "2025-01-01T00:00:00Z"}, False),
        ({"input": {"prompt": "a red cup"}}, False),
        ({"id": "another", "input": {"prompt": "a red cup"}, "created_at": CREATED}, False),
    ],
)
def test_lost_prediction_is_found_by_the_id_that_a_callback_lent(told: dict[str, object], found: bool) -> None:  # noqa: FBT001
    with RawServer(answering(200, {**record(ID), **told})) as server:
        assert adapter(server.url).find(job()) == (ID if found else FindAnswer.UNCLEAR)
    assert lines(server) == [f"GET {AT}"]


def test_lost_prediction_without_a_callback_is_not_looked_for() -> None:
    assert adapter("http://127.0.0.1:1").find(replace(job(), receipt=None)) is FindAnswer.UNCLEAR


def test_check_is_content_with_a_prediction_that_nobody_knows() -> None:
    with RawServer(answering(404, PAYLOADS["state_gone"]["body"])) as server:
        adapter(server.url).check()


@pytest.mark.parametrize("name", ["state_wrong_token", "state_other_404", "state_internal"])
def test_check_says_what_is_wrong(name: str) -> None:
    server = RawServer(answering(PAYLOADS[name]["http_status"], PAYLOADS[name]["body"]))
    with server, pytest.raises(ProviderError):
        adapter(server.url).check()


def test_family_alone_is_no_model() -> None:
    assert not {*FAMILIES} & {*BOUNDS}
