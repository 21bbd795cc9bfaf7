"""The health prober over a real Valkey and the simulator: what it asks, how often, and what it concludes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from models.failures import FailureKind
from providers.pace import Condition
from providers.sim import Simulator
from tasks import app, probing
from tasks.runtime import Runtime, build
from tests.conftest import MakeSettings

KEY = "DASHSCOPE_API_KEY"
TOML = """
[providers.wan]
adapter = "dashscope"
base_url = "{url}"
api_key_env = "DASHSCOPE_API_KEY"
[providers.off]
adapter = "dashscope"
base_url = "http://127.0.0.1:9"
enabled = false
[models.picture]
type = "image"
providers = [{{ name = "wan", model = "wan2.2-t2i-flash" }}]
"""


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """A vendor of this test's own."""
    with Simulator() as running:
        yield running


@pytest.fixture
def rt(make_settings: MakeSettings, sim: Simulator) -> Iterator[Runtime]:
    """A worker's real runtime."""
    made = build(make_settings(TOML.format(url=sim.dashscope)))
    yield made
    made.db.close()


@pytest.fixture
def client(redis_url: str) -> Iterator[Redis]:
    """To let an interval pass without waiting for it."""
    with Redis.from_url(redis_url) as found:
        yield found


def probed(rt: Runtime, client: Redis) -> dict[str, FailureKind | None]:
    """A round in an interval of its own."""
    client.delete("weir:prober:wan")
    return probing.probe_once(rt)


def condition(rt: Runtime) -> Condition:
    """What the fleet knows of wan."""
    return rt.gates["wan"].dam.health.conditions(["wan"])["wan"]


def dead(rt: Runtime) -> dict[str, str]:
    """Credentials of wan that are out."""
    return rt.gates["wan"].dam.credentials.dead("wan", [KEY])


def asked(sim: Simulator) -> dict[str, int]:
    """What reached the vendor."""
    return {name: n for name, n in sim.world.ledger.totals().get("dashscope", {}).items() if n}


def test_a_probe_asks_something_harmless_of_what_is_switched_on(rt: Runtime, sim: Simulator) -> None:
    assert probing.probe_once(rt) == {"wan": None}
    assert asked(sim) == {"list": 1}


def test_one_of_the_fleet_probes_once_an_interval(rt: Runtime, sim: Simulator) -> None:
    with ThreadPoolExecutor(8) as pool:
        rounds = list(pool.map(lambda _: probing.probe_once(rt), range(16)))
    assert sorted(map(len, rounds)) == [0] * 15 + [1]
    assert asked(sim) == {"list": 1}


def test_three_misses_put_a_provider_out_and_one_answer_back(rt: Runtime, sim: Simulator, client: Redis) -> None:
    sim.world.faults.add([{"on": "list", "times": 3, "do": {"status": 502, "html": True}}])
    seen = []
    for _ in range(4):
        probed(rt, client)
        seen.append((condition(rt).misses, condition(rt).healthy))
    assert seen == [(1, True), (2, True), (3, False), (0, True)]


def test_a_vendor_that_is_away_is_a_miss_with_its_reason(make_settings: MakeSettings, client: Redis) -> None:
    rt = build(make_settings(TOML.format(url="http://127.0.0.1:9")))
    for _ in range(3):
        assert probed(rt, client) == {"wan": FailureKind.NOT_SENT}
    assert (condition(rt).healthy, condition(rt).why) == (False, "provider_unreachable")
    rt.db.close()


def test_a_refused_credential_is_taken_out_and_the_vendor_counts_as_there(
    rt: Runtime, sim: Simulator, client: Redis
) -> None:
    sim.world.faults.add([{"on": "list", "do": {"status": 401, "code": "InvalidApiKey"}}])
    assert probed(rt, client) == {"wan": FailureKind.PROVIDER_AUTH}
    assert dead(rt) == {KEY: "provider_auth"}
    assert condition(rt) == Condition()


def test_a_dead_credential_is_tried_when_its_time_has_come_and_taken_back_when_it_works(
    rt: Runtime, sim: Simulator, client: Redis
) -> None:
    rt.gates["wan"].dam.credentials.kill("wan", KEY, "provider_auth")
    assert probed(rt, client) == {}
    assert (asked(sim), dead(rt)) == ({}, {KEY: "provider_auth"})
    client.delete(f"weir:trial:wan:{KEY}")
    sim.world.faults.add([{"on": "list", "times": 1, "do": {"status": 401, "code": "InvalidApiKey"}}])
    assert probed(rt, client) == {"wan": FailureKind.PROVIDER_AUTH}
    assert probed(rt, client) == {}, "refused again: it rests for another interval"
    client.delete(f"weir:trial:wan:{KEY}")
    assert probed(rt, client) == {"wan": None}
    assert dead(rt) == {}


def test_a_vendor_that_asked_for_a_pause_is_left_in_peace(rt: Runtime, sim: Simulator, client: Redis) -> None:
    sim.world.faults.add([{"on": "list", "do": {"status": 429, "retry_after": "30"}}])
    assert probed(rt, client) == {"wan": FailureKind.RATE_LIMITED}
    assert condition(rt) == Condition(), "it answered"
    assert probed(rt, client) == {}
    assert asked(sim)["list"] == 1


def test_without_redis_the_round_is_made_and_nothing_fails(make_settings: MakeSettings, sim: Simulator) -> None:
    rt = build(make_settings(TOML.format(url=sim.dashscope), WEIR_REDIS_URL="redis://127.0.0.1:9/0"))
    assert probing.probe_once(rt) == {"wan": None}
    rt.db.close()


def test_beat_sends_a_probe_every_ten_seconds_to_the_default_queue() -> None:
    planned = app.conf.beat_schedule["probe"]
    assert (planned["task"], planned["schedule"]) == ("probe", 10.0)
    assert app.conf.task_routes["probe"] == {"queue": "default"}
    app.loader.import_default_modules()
    assert planned["task"] in app.tasks
