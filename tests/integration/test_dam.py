"""The dam as callers and operators see it: who is held back, who is refused for it, and what the line does about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest

from models import accounts
from models.db import Row
from models.fields import Kind
from models.lifecycle import Working
from models.settings import SettingsError
from providers.breaker import Shared
from providers.gate import Dam, Gate
from providers.kv import connect
from providers.sim import Simulator
from tasks.runtime import build
from tests.conftest import MakeSettings
from tests.live import until
from tests.scripted import done
from tests.service import FOX, TOML, Got, Service, running, uuid_of
from tests.world import World

pytest_plugins = ("tests.service_fixtures",)

CLIP = {"type": "video", "prompt": "a boat"}
KEY = "DASHSCOPE_API_KEY"


def gate(service: Service, provider: str = "wan") -> Gate:
    """The gate of a provider as every process has it."""
    return service.parts.gates[provider]


def trip(service: Service, provider: str = "wan", operation: str = "submit_image") -> None:
    """Ten failures, as calls would report them."""
    breaker = service.parts.dam.breaker
    for _ in range(10):
        breaker.report(provider, operation, ok=False, probe=False, kind="provider_server_error")


def miss(service: Service, provider: str) -> None:
    """Three probes that come to nothing."""
    for _ in range(3):
        service.parts.dam.health.miss(provider, "provider_unreachable")


def standing(service: Service, provider: str = "wan") -> dict[str, Any]:
    """A provider's line of /v1/providers."""
    listed = service.get("/v1/providers").json["data"]
    return next(one for one in listed if one["provider"] == provider)


def why(service: Service, answer: Got) -> str:
    """Why a task's provider was chosen, from its history."""
    assert answer.status_code == 202, answer.text
    events = service.get(f"/v1/tasks/{answer.json['task_id']}/history").json["events"]
    return str(events[0]["detail"]["why"])


# --- /v1/providers ---


def test_a_quiet_provider_is_shown_as_it_is(service: Service) -> None:
    found = standing(service)
    assert set(found["breaker"]) == {"submit_image", "submit_video", "observe", "fetch"}
    assert found["breaker"]["observe"] == {
        "state": "closed", "since": None, "failure_rate": 0.0, "calls": 0, "last_error": None, "next_probe_s": None,
        "admits_percent": 100,
    }  # fmt: skip
    assert found["pause"] == {"paused_for_s": 0.0, "why": None}
    assert found["credential"] == {"alias": KEY, "state": "in_use", "why": None}
    assert found["health"] == {"healthy": True, "misses": 0, "why": None}


def test_what_is_wrong_with_a_provider_is_shown_with_its_reason(service: Service) -> None:
    trip(service)
    gate(service).dam.pace.pause("wan", KEY, 20, "provider_rate_limited")
    gate(service).dam.credentials.kill("wan", KEY, "provider_quota")
    miss(service, "wan")
    found = standing(service)
    submit = found["breaker"]["submit_image"]
    assert (submit["state"], submit["failure_rate"], submit["calls"]) == ("open", 1.0, 10)
    assert (submit["last_error"], submit["admits_percent"]) == ("provider_server_error", 0)
    assert 0 < submit["next_probe_s"] <= 10
    assert found["breaker"]["submit_video"]["state"] == "closed"
    assert 15 < found["pause"]["paused_for_s"] <= 20
    assert found["pause"]["why"] == "provider_rate_limited"
    assert found["credential"] == {"alias": KEY, "state": "out", "why": "provider_quota"}
    assert found["health"] == {"healthy": False, "misses": 3, "why": "provider_unreachable"}
    assert "sk-for-tests" not in service.get("/v1/providers").text
    assert standing(service, "spare")["health"]["healthy"] is True


def test_without_redis_nothing_is_made_up_and_nothing_fails(make_settings: MakeSettings) -> None:
    for service in running(make_settings(TOML, WEIR_REDIS_URL="redis://127.0.0.1:9/0")):
        found = standing(service)
        assert (found["breaker"], found["pause"], found["health"]) == (None, None, None)
        assert found["credential"] == {"alias": KEY, "state": "unknown", "why": None}
        assert service.post().json["provider"] == "wan"


# --- who is refused ---


@pytest.fixture(params=["failing", "away", "refused credential"])
def held(request: pytest.FixtureRequest, service: Service) -> Service:
    """An API whose provider `wan` takes nothing, for each of the reasons."""
    if request.param == "failing":
        trip(service)
        trip(service, operation="submit_video")
    elif request.param == "away":
        miss(service, "wan")
    else:
        gate(service).dam.credentials.kill("wan", KEY, "provider_auth")
    return service


def test_a_held_provider_is_passed_over_and_the_event_says_why(held: Service) -> None:
    answer = held.post()
    assert answer.json["provider"] == "spare"
    assert why(held, answer).startswith("next in order; not wan, since ")


def test_when_every_provider_is_held_nothing_is_accepted(held: Service) -> None:
    answer = held.post(CLIP, idem="k")
    assert (answer.status_code, answer.json["code"]) == (503, "capacity_exhausted")
    assert answer.json["upstream_name"] == "wan"
    assert 1 <= int(answer.headers["Retry-After"]) <= 33
    assert held.count() == 0
    assert held.rung() == []


def test_a_pinned_provider_that_is_held_is_refused_by_its_name(held: Service) -> None:
    answer = held.post({**FOX, "provider": "wan"})
    assert (answer.status_code, answer.json["upstream_name"]) == (503, "wan")
    assert held.post({**FOX, "provider": "spare"}).status_code == 202


def test_a_fault_in_the_request_is_said_before_that_nobody_takes_it(held: Service) -> None:
    assert held.post({**CLIP, "duration_s": 7.5}).status_code == 422


def test_a_replay_is_answered_whatever_became_of_the_provider(service: Service) -> None:
    first = service.post(CLIP, idem="k")
    trip(service, operation="submit_video")
    again = service.post(CLIP, idem="k")
    assert (again.status_code, again.json["task_id"]) == (202, first.json["task_id"])
    service.become(first.json["task_id"], "FAILED", certain=True)
    restarted = service.post(CLIP, idem="k")
    assert (restarted.status_code, restarted.json["attempt"]) == (202, 2)


def test_a_paused_or_full_provider_refuses_nobody(service: Service) -> None:
    gate(service).dam.pace.pause("wan", KEY, 20, "provider_rate_limited")
    assert why(service, service.post(CLIP)) == "first enabled"
    service.sql("update tasks set status = 'RUNNING', stage = 'generating'")
    assert service.post(CLIP).status_code == 202


def test_a_paused_or_full_provider_is_passed_over_where_another_has_room(
    service: Service, make_settings: MakeSettings
) -> None:
    gate(service).dam.pace.pause("wan", KEY, 20, "provider_rate_limited")
    assert why(service, service.post()) == "next in order; not wan, since the vendor asked for a pause"
    gate(service).dam.pace.resume("wan", KEY)
    for tight in running(make_settings(TOML.replace("max_in_flight = 100", "max_in_flight = 2"))):
        chosen = [tight.post().json["provider"] for _ in range(9)]
        assert chosen == ["wan"] * 2 + ["spare"] * 4 + ["wan"] * 3, "both full: the first again, and tasks wait"


def test_a_circuit_that_is_due_for_its_probe_lets_a_request_in(service: Service) -> None:
    trip(service, operation="submit_video")
    assert service.post(CLIP).status_code == 503
    assert service.parts.kv.client is not None
    service.parts.kv.client.hset("weir:breaker:wan:submit_video", "ends", 1)  # as if its time were over
    assert standing(service)["breaker"]["submit_video"]["state"] == "open"
    assert service.post(CLIP).status_code == 202


# --- high priority is limited per key ---

URGENT = {**FOX, "priority": "high"}
TWO_HIGH = TOML.replace("[users]", "[users]\nhigh_active = 2\nactive = 5")


def test_high_priority_has_a_cap_of_its_own_per_key(make_settings: MakeSettings) -> None:
    for service in running(make_settings(TWO_HIGH)):
        first = service.post(URGENT)
        assert '"active-high";q=2;qu="concurrent-requests"' in first.headers["RateLimit-Policy"]
        assert '"active-high";r=1' in first.headers["RateLimit"]
        service.made(URGENT)
        refused = service.post(URGENT, idem="k")
        assert (refused.status_code, refused.json["code"]) == (429, "too_many_active_tasks")
        assert refused.json["violated_policies"] == ["active-high"]
        assert (refused.json["active"], refused.json["limit"]) == (2, 2)
        assert refused.headers["RateLimit"].startswith('"active-high";r=0')
        assert int(refused.headers["Retry-After"]) >= 1
        normal = service.post()
        assert normal.status_code == 202
        assert "active-high" not in normal.headers["RateLimit-Policy"]
        assert service.post(URGENT, who=service.bob).status_code == 202
        assert service.post(URGENT, who=another_key(service)).status_code == 202
        service.become(first.json["task_id"], "CANCELED")
        assert service.post(URGENT, idem="k").status_code == 202  # a refusal is not remembered


def test_a_restart_counts_against_the_key_that_asked_first(make_settings: MakeSettings) -> None:
    for service in running(make_settings(TWO_HIGH)):
        failed = service.made(URGENT, idem="k")
        service.become(failed, "FAILED", certain=True)
        service.made(URGENT)
        service.made(URGENT)
        refused = service.post(URGENT, idem="k", who=another_key(service))
        assert (refused.status_code, refused.json["violated_policies"]) == (429, ["active-high"])


def another_key(service: Service, user: str = "ann") -> str:
    """One more key of a user."""
    with service.parts.db.unit_of_work() as uow:
        return accounts.create_key(uow, service.parts.settings.env.secret, user=user)[1]


# --- cases of others, by their number ---

WAN = {**FOX, "provider": "wan"}
ROOMY = TOML.replace("[users]", "[caps]\ntotal = 4\n[users]\nactive = 1000\nrunning = 100")


def work(service: Service, world: World) -> list[UUID]:
    """Take every wake-up out of the broker and do what it says; the tasks that began."""
    began, names = [], [name for name in world.messages() if name.startswith("task_")]
    assert service.parts.kv.client is not None
    service.parts.kv.client.delete("none", *service.parts.kv.client.scan_iter("*", _type="LIST"))
    for task_id, _, version in (name.partition(".") for name in names):
        id_ = uuid_of(task_id)
        if world.row(id_)["status"] == "PENDING" and world.submit(id_, int(version))["status"] == "RUNNING":
            began.append(id_)
    return began


def end(world: World, *ids: UUID) -> None:
    """Have the vendor finish these, and bring them home."""
    world.provider.on_observe = lambda receipt: done() if receipt in receipts else Working()
    receipts = {world.row(id_)["receipt"] for id_ in ids}
    world.poll()
    for id_ in ids:
        assert world.fetch(id_)["status"] == "SUCCESS"


@pytest.fixture
def small(make_settings: MakeSettings) -> Iterator[tuple[Service, World]]:
    """An API and its steps where four tasks run at one moment."""
    settings = make_settings(ROOMY)
    world = World.build(settings)
    for service in running(settings):
        yield service, world
    world.rt.db.close()


def test_o69_a_priority_out_of_range_is_refused_and_a_high_one_goes_next(small: tuple[Service, World]) -> None:
    service, world = small
    for strange in (50, -1, 9, 0, 1, "urgent", "HIGH"):
        assert service.post({**FOX, "priority": strange}).status_code == 422
    assert service.count() == 0
    low = [uuid_of(service.made({**WAN, "priority": "low"})) for _ in range(100)]
    assert work(service, world) == low[:4]
    high = uuid_of(service.made({**WAN, "priority": "high"}))
    assert work(service, world) == [], "every slot is taken"
    end(world, low[0])
    assert work(service, world) == [high]


def test_o70_one_user_with_two_hundred_tasks_holds_up_nobody(small: tuple[Service, World]) -> None:
    service, world = small
    others = [another_key(service, name) for name in ("cyd", "dan")]
    for _ in range(200):
        service.made(WAN)
    running_now = work(service, world)
    late = {uuid_of(service.made(WAN, who=key)) for key in others for _ in range(2)}
    started: set[UUID] = set()
    for _ in range(2):
        end(world, *running_now)
        running_now = work(service, world)
        started |= set(running_now)
    assert late <= started, "sent within two rounds"
    service.sql("update users set active_limit = 150 where name = 'ann'")
    before = service.count()
    refused = service.post()
    assert (refused.status_code, refused.json["code"], service.count()) == (429, "too_many_active_tasks", before)


def test_o73_pictures_are_down_and_clips_are_fine(make_settings: MakeSettings) -> None:
    with Simulator(image_s=(0, 0.01), video_s=(0, 0.01)) as sim:
        settings = make_settings(TOML.replace("http://127.0.0.1:9", sim.dashscope, 1))
        world = World.build(settings)
        world.rt.db.close()
        world.rt = build(settings)
        for service in running(settings):
            _pictures_down(service, world, sim)
        world.rt.db.close()


def _pictures_down(service: Service, world: World, sim: Simulator) -> None:
    broken = {"status": 502, "code": "InternalError", "message": "no"}
    sim.world.faults.add([{"on": "submit", "match": {"model": "wan2.2-t2i-flash"}, "do": broken}])

    def its_time_is_over() -> None:
        assert service.parts.kv.client is not None
        service.parts.kv.client.hset("weir:breaker:wan:submit_image", "ends", 1)

    def asked() -> int:
        return int(sim.world.ledger.totals()["dashscope"]["submit"])

    def post(body: dict[str, object]) -> Row | None:
        answer = service.post(body)
        assert answer.status_code in (202, 503)
        return world.submit(uuid_of(answer.json["task_id"])) if answer.status_code == 202 else None

    def clip_is_made() -> None:
        row = post({**CLIP, "resolution": "480p"})
        assert row is not None
        until(lambda: (world.poll(Kind.VIDEO), world.row(row["id"])["stage"] == "fetching")[1], within_s=10)
        assert world.fetch(row["id"])["status"] == "SUCCESS"

    answered = [post(WAN) for _ in range(15)]
    clip_is_made()
    taken = [row for row in answered if row is not None]
    assert len(taken) == 10, "ten calls trip it, and from then on nothing is accepted"
    assert {row["error_code"] for row in taken} == {"submit_unconfirmed"}
    refused = service.post(WAN)
    assert (refused.status_code, refused.json["upstream_name"], service.count()) == (503, "wan", 11)
    assert int(refused.headers["Retry-After"]) >= 1
    before = asked()
    for _ in range(2):  # each opening lets one call through
        its_time_is_over()
        assert post(WAN) is not None
        assert [post(WAN) for _ in range(5)] == [None] * 5
    assert asked() - before == 2
    clip_is_made()
    sim.world.faults.clear()
    its_time_is_over()
    after = [post(WAN) for _ in range(16)]
    statuses = Counter(row["status"] for row in after if row is not None)
    assert statuses.total() == 16, "closed: accepted again"
    assert 1 <= statuses["RUNNING"] <= 10, "but let through by and by"


def test_o76_the_last_place_is_sold_once(make_settings: MakeSettings) -> None:
    settings = make_settings(TOML)
    for one in running(settings):
        for other in running(settings):
            one.sql("update users set active_limit = 1 where name = 'ann'")
            with ThreadPoolExecutor(2) as pool:
                for n in range(1, 101):
                    first, second = sorted(pool.map(_at_once, (one, other), [one.ann] * 2, [Barrier(2)] * 2))
                    assert (first[0], second[0], one.count()) == (202, 429, n)
                    one.become(first[1], "CANCELED")


def _at_once(process: Service, who: str, gate_: Barrier) -> tuple[int, str]:
    """What one of two posts at the same moment comes to: its status, and the task's id."""
    gate_.wait()
    answer = process.post(who=who)
    return answer.status_code, str(answer.json.get("task_id"))


def test_breaker_opens_by_the_numbers_of_the_configuration(make_settings: MakeSettings) -> None:
    shared = Shared(connect(make_settings().env.redis_url))
    dam = Dam.build(shared, make_settings("[breaker]\nmin_calls = 3\nfailure_rate = 0.9\nopen_s = 30.0"))
    for _ in range(3):
        assert dam.breaker.allow("wan", "observe").allowed
        dam.breaker.report("wan", "observe", ok=False, probe=False, kind="provider_server_error")
    verdict = dam.breaker.allow("wan", "observe")
    assert not verdict.allowed
    assert verdict.retry_after_s > 20
    with pytest.raises(SettingsError, match=r"breaker.open_max_s: must be at least open_s, 200"):
        make_settings("[breaker]\nopen_s = 200")
