"""How few calls a round takes at DashScope, and what the simulator makes of our requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from models.contract import Kind
from models.failures import FailureKind
from models.lifecycle import Finished, Unknown, Unreadable, Working
from providers.calls import recorded
from providers.dashscope_models import MODELS
from providers.port import Accepted, NotAccepted, Uncertain
from providers.sim import Simulator
from tests.contract.dashscope_jobs import adapter, answering, resolved
from tests.contract.raw_server import Conn, RawServer

# --- rounds ---


class Account:
    """A vendor's tasks and its listing, as one script."""

    def __init__(self, states: dict[str, str], *, unlisted: frozenset[str] = frozenset()) -> None:
        self.states, self.unlisted, self.list_answer = states, unlisted, 200

    def __call__(self, conn: Conn) -> None:
        while request := conn.request():
            target = urlsplit(request.split(b" ")[1].decode())
            if target.path == "/api/v1/tasks":
                status, body = self.list_answer, self.listing(parse_qs(target.query))
            else:
                receipt = target.path.rpartition("/")[2]
                status, body = (
                    200,
                    {"output": {"task_id": receipt, "task_status": self.states[receipt]}},
                )
            conn.answer(json.dumps(body).encode(), f"{status} x", close=False)

    def listing(self, query: dict[str, list[str]]) -> dict[str, object]:
        if self.list_answer != 200:
            return {"code": "Throttling" if self.list_answer == 429 else "AccessDenied"}
        size, page, status = (
            int(query["page_size"][0]),
            int(query["page_no"][0]),
            query["status"][0],
        )
        found = [key for key, state in self.states.items() if state == status and key not in self.unlisted]
        shown = [{"task_id": key, "status": status} for key in found[size * (page - 1) : size * page]]
        return {
            "total": len(found),
            "total_page": -(-len(found) // size),
            "page_no": page,
            "data": shown,
        }


def lines(server: RawServer) -> list[str]:
    return [request.split(b" ")[1].decode() for request in server.requests]


def test_three_hundred_working_jobs_take_four_calls() -> None:
    states = {f"r-{n}": "RUNNING" if n < 250 else "PENDING" for n in range(300)}
    with RawServer(Account(states)) as server, recorded() as calls:
        seen = adapter(server.url).observe(list(states), Kind.VIDEO)
    assert seen == {receipt: Working(word=word) for receipt, word in states.items()}
    assert len(server.requests) == 4
    assert all(set(call.receipts) == set(states) for call in calls)


def test_pages_are_turned_only_while_that_is_cheaper_than_asking() -> None:
    others = {f"x-{n}": "RUNNING" for n in range(1000)}
    ours = {f"r-{n}": "RUNNING" for n in range(6)}
    with RawServer(Account(others | ours)) as server:
        seen = adapter(server.url).observe(list(ours), Kind.VIDEO)
    assert set(seen.values()) == {Working(word="RUNNING")}
    assert len(seen) == len(ours)
    assert len(server.requests) <= len(ours) + 2


def test_listing_that_breaks_off_keeps_what_it_gave() -> None:
    states = {f"r-{n}": "RUNNING" for n in range(150)}

    def script(conn: Conn) -> None:
        account = Account(states)
        while request := conn.request():
            if b"page_no=2" in request:
                conn.answer(b"<html>", "502 Bad", close=False)
            else:
                query = parse_qs(urlsplit(request.split(b" ")[1].decode()).query)
                conn.answer(json.dumps(account.listing(query)).encode(), close=False)

    with RawServer(script) as server:
        seen = adapter(server.url).observe(list(states), Kind.VIDEO)
    kinds = [type(one) for one in seen.values()]
    assert (kinds.count(Working), kinds.count(Unreadable)) == (100, 50)


def test_job_that_is_not_listed_is_asked_about_by_itself() -> None:
    """Ended, forgotten, or too young for the list: absence alone says nothing."""
    states = {f"r-{n}": "RUNNING" for n in range(20)} | {
        "done": "SUCCEEDED",
        "gone": "UNKNOWN",
        "young": "PENDING",
    }
    with RawServer(Account(states, unlisted=frozenset({"young"}))) as server:
        seen = adapter(server.url).observe(list(states), Kind.VIDEO)
    assert seen.keys() == states.keys()
    assert isinstance(seen["done"], Finished)
    assert isinstance(seen["gone"], Unknown)
    assert seen["young"] == Working(word="PENDING")
    singles = [line for line in lines(server) if "?" not in line]
    assert sorted(singles) == [f"/api/v1/tasks/{name}" for name in ("done", "gone", "young")]


@pytest.mark.parametrize(("count", "list_call"), [(4, True), (30, False)])
def test_few_jobs_or_no_listing_means_one_query_each(count: int, list_call: bool) -> None:  # noqa: FBT001
    states = {f"r-{n}": "RUNNING" for n in range(count)}
    with RawServer(Account(states)) as server:
        provider = adapter(server.url, list_call=list_call)
        assert provider.capabilities.list_call is list_call
        seen = provider.observe([*states, *states], Kind.IMAGE)
    assert len(seen) == count
    assert len(server.requests) == count
    assert server.connections <= 8  # at most so many side by side, and connections are used again


def test_listing_that_is_throttled_is_no_news_and_no_storm() -> None:
    account = Account({f"r-{n}": "RUNNING" for n in range(50)})
    account.list_answer = 429
    with RawServer(account) as server:
        seen = adapter(server.url).observe(list(account.states), Kind.IMAGE)
    assert {type(one) for one in seen.values()} == {Unreadable}
    assert len(seen) == 50
    assert len(server.requests) == 1


def test_listing_that_is_forbidden_is_done_without() -> None:
    account = Account({f"r-{n}": "RUNNING" for n in range(10)})
    account.list_answer = 403
    with RawServer(account) as server:
        seen = adapter(server.url).observe(list(account.states), Kind.IMAGE)
    assert set(seen.values()) == {Working(word="RUNNING")}


def test_throttled_query_ends_the_round_early() -> None:
    with RawServer(answering(429, {"code": "Throttling"})) as server:
        seen = adapter(server.url, list_call=False, side_by_side=2).observe([f"r-{n}" for n in range(100)], Kind.IMAGE)
    assert {type(one) for one in seen.values()} == {Unreadable}
    assert len(server.requests) <= 4
    assert len(seen) == len(server.requests)


def test_round_ends_in_time_and_leaves_out_who_was_not_asked() -> None:
    def script(conn: Conn) -> None:
        while request := conn.request():
            if b"/r-0 " in request:
                conn.hold()
            conn.answer(b'{"output": {"task_status": "RUNNING"}}', close=False)

    with RawServer(script) as server:
        provider = adapter(server.url, list_call=False, side_by_side=1, round_s=0.3)
        seen = provider.observe(["r-0", "r-1"], Kind.IMAGE)
    assert "r-1" not in seen
    assert all(isinstance(one, Unreadable) for one in seen.values())


# --- with the simulator ---


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(image_s=(0, 0), video_s=(0, 0)) as running:
        yield running


@pytest.mark.parametrize("model", MODELS)
def test_simulator_takes_every_model_as_we_send_it(sim: Simulator, model: str) -> None:
    outcome = adapter(f"{sim.url}/dashscope").submit(resolved(model, "a red cup [[sim: stuck]]"))
    assert isinstance(outcome, Accepted), outcome


@pytest.mark.parametrize(
    ("directive", "kind", "jobs"),
    [
        ("lost-answer", FailureKind.UNREADABLE, 1),
        ("half", FailureKind.UNREADABLE, 1),
        ("accepted-502", FailureKind.SERVER_ERROR, 1),
        ("accepted-524", FailureKind.SERVER_ERROR, 1),
        ("reset", FailureKind.UNREADABLE, 0),
        ("502", FailureKind.SERVER_ERROR, 0),
    ],
)
def test_lost_answer_is_doubt_whether_or_not_the_job_was_made(
    sim: Simulator, directive: str, kind: FailureKind, jobs: int
) -> None:
    before = len(list(sim.world.ledger.accepted(0)))
    outcome = adapter(f"{sim.url}/dashscope").submit(resolved("wan2.2-t2i-flash", f"a cup [[sim: {directive}]]"))
    assert isinstance(outcome, Uncertain)
    assert outcome.error.kind is kind
    assert len(list(sim.world.ledger.accepted(0))) - before == jobs


def test_sure_no_of_the_simulator_is_not_accepted(sim: Simulator) -> None:
    outcome = adapter(f"{sim.url}/dashscope").submit(resolved("wan2.2-t2i-flash", "a cup [[sim: 429 1 7]]"))
    assert isinstance(outcome, NotAccepted)
    assert outcome.retry_after_s == 7.0
