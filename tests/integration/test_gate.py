"""The gate before every call, over a real Valkey and the simulator: what it holds, what it learns, who waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.failures import FailureKind
from models.fields import Kind
from providers.port import Accepted, Job, NotAccepted
from providers.sim import Simulator
from tasks.runtime import Runtime, build
from tests.conftest import MakeSettings
from tests.scripted import done
from tests.world import TOML, World

QUICK = "connect_s = 1.0\nsubmit_read_s = 2.0\nquery_read_s = 2.0\nmax_in_flight = 100"


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """A vendor of this test's own."""
    with Simulator(image_s=(0, 0.02)) as running:
        yield running


@pytest.fixture
def rt(make_settings: MakeSettings, sim: Simulator) -> Iterator[Runtime]:
    """A worker's real runtime: DashScope's adapter behind its gate."""
    toml = TOML.replace("http://127.0.0.1:9", sim.dashscope.removesuffix("/api/v1"))
    made = build(make_settings(toml.replace("max_in_flight = 100", QUICK)))
    yield made
    made.db.close()


@pytest.fixture
def world(rt: Runtime) -> World:
    """The steps over that runtime."""
    world = World.build(rt.settings)
    world.rt.db.close()
    world.rt = rt
    return world


def _job(prompt: str = "a fox") -> Job:
    effective = {"prompt": prompt, "width": 512, "height": 512, "seed": 1, "image_count": 1}
    return Job(task_id="t", attempt=1, kind=Kind.IMAGE, model="wan2.2-t2i-flash", effective=effective, reference="r")


def _accepted(sim: Simulator) -> int:
    return int(sim.world.ledger.totals()["dashscope"]["accepted"])


def test_vendor_that_asks_to_slow_down_is_left_alone_by_everybody(rt: Runtime, sim: Simulator) -> None:
    outcome = rt.providers["wan"].submit(_job("[[sim: 429 1 30]]"))
    assert isinstance(outcome, NotAccepted)
    assert outcome.error.kind is FailureKind.RATE_LIMITED
    again = rt.providers["wan"].submit(_job())
    assert isinstance(again, NotAccepted)
    assert (again.error.kind, 25 < (again.retry_after_s or 0) <= 31) == (FailureKind.HELD, True)
    assert 25 < rt.hold_s("wan", "submit") <= 30
    assert _accepted(sim) == 0


def test_refused_credential_is_taken_out_and_burns_no_task(world: World, sim: Simulator) -> None:
    sim.world.faults.add([{"on": "submit", "do": {"status": 401, "code": "InvalidApiKey"}}])
    first, second = world.add(), world.add()
    assert world.submit(first)["status"] == "PENDING"
    row = world.submit(second)
    assert (row["status"], row["submit_tries"], world.reasons(second)[-1]) == ("PENDING", 0, "deferred")
    assert world.rt.gates["wan"].dam.credentials.dead("wan", ["DASHSCOPE_API_KEY"]) != {}
    assert sim.world.ledger.totals()["dashscope"]["submit"] == 1


def test_revived_credential_serves_at_once(world: World, sim: Simulator) -> None:
    world.rt.gates["wan"].dam.credentials.kill("wan", "DASHSCOPE_API_KEY", "provider_auth")
    id_ = world.add()
    assert world.submit(id_)["status"] == "PENDING"
    world.rt.gates["wan"].dam.credentials.revive("wan", "DASHSCOPE_API_KEY")
    world.sql("update tasks set wake_at = now()")
    assert world.submit(id_)["status"] == "RUNNING"
    assert _accepted(sim) == 1


def test_failing_vendor_is_asked_once_per_interval(world: World, sim: Simulator) -> None:
    sim.world.faults.add([{"on": "submit", "do": {"status": 503, "code": "ModelUnavailable"}}])
    all_ = [world.add() for _ in range(40)]
    for id_ in all_:
        world.submit(id_)
    calls = sim.world.ledger.totals()["dashscope"]["submit"]
    assert 10 <= calls <= 12, "ten calls trip it, then nobody calls"
    assert {world.row(id_)["status"] for id_ in all_} == {"PENDING"}
    assert world.reasons(all_[-1])[-1] == "deferred"


def test_user_errors_trip_nothing(world: World, sim: Simulator) -> None:
    sim.world.faults.add([{"on": "submit", "do": {"status": 400, "code": "DataInspectionFailed"}}])
    all_ = [world.add() for _ in range(15)]
    for id_ in all_:
        assert world.submit(id_)["error_code"] == "content_filtered"
    assert sim.world.ledger.totals()["dashscope"]["submit"] == 15


def test_wave_asks_nobody_while_the_gate_is_shut(world: World, sim: Simulator) -> None:
    id_ = world.add()
    world.submit(id_)
    world.rt.gates["wan"].dam.pace.pause("wan", "DASHSCOPE_API_KEY", 20, "provider_rate_limited")
    planned = world.poll()
    assert planned is not None
    assert planned[1] in range(15, 22)
    row = world.row(id_)
    assert (row["poll_count"], row["failed_polls"], row["status"]) == (0, 0, "RUNNING")
    assert sim.world.ledger.totals()["dashscope"]["query"] == 0


def test_redis_away_lets_everything_through(make_settings: MakeSettings, sim: Simulator) -> None:
    toml = TOML.replace("http://127.0.0.1:9", sim.dashscope.removesuffix("/api/v1"))
    rt = build(make_settings(toml, WEIR_REDIS_URL="redis://127.0.0.1:9/0"))
    assert isinstance(rt.providers["wan"].submit(_job()), Accepted)
    assert rt.hold_s("wan", "submit") == 0.0


def test_requests_per_minute_are_kept(make_settings: MakeSettings, sim: Simulator) -> None:
    toml = TOML.replace("http://127.0.0.1:9", sim.dashscope.removesuffix("/api/v1"))
    rt = build(make_settings(toml.replace("max_in_flight = 100", "max_in_flight = 100\nrequests_per_minute = 60")))
    outcomes = [rt.providers["wan"].submit(_job(f"{n}")) for n in range(12)]
    held = [one for one in outcomes if isinstance(one, NotAccepted)]
    assert all(one.error.kind is FailureKind.HELD for one in held)
    assert _accepted(sim) == 12 - len(held)


def test_scripted_world_has_no_gate(make_settings: MakeSettings) -> None:
    world = World.build(make_settings(TOML))
    world.provider.on_observe = lambda _: done()
    id_ = world.add()
    assert world.submit(id_)["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("told", "held_s"),
    [("30", (25, 32)), ("abc", (0.5, 20)), ("999999", (60, 3700))],
    ids=["seconds", "no number", "more than anybody waits"],
)
def test_o72_pause_that_a_poll_was_asked_for_is_kept_by_all(
    world: World, sim: Simulator, told: str, held_s: tuple[float, float]
) -> None:
    ids = [world.add() for _ in range(20)]
    for id_ in ids:
        world.submit(id_)
    before = {id_: world.row(id_)["version"] for id_ in ids}
    slow_down = {"status": 429, "code": "Throttling.RateQuota", "retry_after": told}
    sim.world.faults.add([{"on": "list", "do": slow_down}, {"on": "query", "do": slow_down}])
    world.poll()
    asked = sim.world.ledger.totals()["dashscope"]
    calls = asked.get("list", 0) + asked.get("query", 0)
    assert 1 <= calls <= 12, "those that were on their way side by side, and no second round"
    planned = world.poll()
    assert planned is not None
    after = sim.world.ledger.totals()["dashscope"]
    assert after.get("list", 0) + after.get("query", 0) == calls, "nobody asks again meanwhile"
    assert held_s[0] <= world.rt.hold_s("wan", "observe") <= held_s[1]
    assert {id_: world.row(id_)["version"] for id_ in ids} == before
    assert sim.world.ledger.totals()["dashscope"]["submit"] == 20
