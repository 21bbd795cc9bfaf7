"""Workers, broker and database, as others met them: what dies, goes away or comes twice loses and doubles no task.

Live processes that are killed are in tests/e2e and tests/chaos; here each case is small and certain. The rest:
tests/integration/test_cases_g_h.py, O-58 in tests/e2e/test_cases.py, O-75 in tests/contract/test_fetch.py.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from celeryconfig import broker_transport_options
from models import line
from models.fields import Kind
from models.lifecycle import Working
from providers.port import Accepted, Job, Outcome
from tasks import waves
from tasks.bell import MAX_COUNTDOWN_S
from tests.conftest import MakeSettings
from tests.faults import Proxy
from tests.scripted import done
from tests.service import Service, running, uuid_of
from tests.world import TOML, World

API_TOML = TOML.replace('"image"', '"image"\ndefault = true', 1) + "submits_per_minute = 10000\n"
MINUTE_S = 60


@pytest.fixture
def world(make_settings: MakeSettings) -> Iterator[World]:
    """A gateway with room for a hundred."""
    made = World.build(make_settings(TOML))
    yield made
    made.rt.db.close()


def test_o56_job_exists_though_its_id_could_not_be_saved(make_settings: MakeSettings, database_url: str) -> None:
    here = World.build(make_settings(TOML))
    with Proxy.before(database_url) as proxy:
        world = World.build(make_settings(TOML, WEIR_DATABASE_URL=proxy.url))
        id_ = here.add()
        back = threading.Timer(1.0, proxy.heal)

        def taken(job: Job) -> Outcome:
            proxy.refuse()
            back.start()
            return Accepted(receipt=f"r-{job.reference}")

        world.provider.on_submit = taken
        row = world.submit(id_, version=1)
        back.join()
        assert (row["stage"], row["receipt"]) == ("generating", f"r-{world.provider.submits[0]}")
        world.provider.on_observe = lambda _: done()
        world.poll()
        row = world.fetch(id_)
        assert (row["status"], row["cost_micros"], len(world.provider.submits)) == ("SUCCESS", 100, 1)
        world.rt.db.close()
    here.rt.db.close()


def test_o56_killed_between_the_answer_and_the_write_is_not_submitted_again(world: World) -> None:
    id_ = world.add()

    def killed(_: Job) -> Outcome:
        raise SystemExit

    world.provider.on_submit = killed
    with pytest.raises(SystemExit):
        world.submit(id_)
    world.provider.on_submit = lambda job: Accepted(receipt=job.reference)
    for version in (1, 2):  # the message again, as it was and as it might be
        world.submit(id_, version)
    world.sql("update tasks set wake_at = now() - interval '1 minute'")
    world.sweep()
    row = world.reconcile(id_)
    assert (row["status"], row["error_code"], row["risk"]) == ("FAILED", "submit_unconfirmed", True)
    assert (row["cost_micros"], len(world.provider.submits)) == (0, 1)


def test_o59_everything_in_redis_may_be_lost(make_settings: MakeSettings, redis_url: str) -> None:
    settings = make_settings(API_TOML)
    assert settings.sweep.grace_s + settings.sweep.every_s <= MINUTE_S
    world = World.build(settings)
    for service in running(settings):
        tasks = [service.made(idem=f"k{n}") for n in range(20)]
        sent, waiting = tasks[:10], tasks[10:]
        for task_id in sent:
            world.submit(uuid_of(task_id))
        with redis.Redis.from_url(redis_url) as client:
            client.flushall()
        late_s = settings.sweep.grace_s + 1
        world.sql("update tasks set rung_at = rung_at - make_interval(secs => :s)", s=late_s)
        world.sql("update waves set wake_at = now() - make_interval(secs => :s)", s=late_s)
        assert world.sweep()["waves_restarted"] == 1
        rung = world.messages()
        assert {f"{task_id}.1" for task_id in waiting} <= set(rung)
        assert len([m for m in rung if m.startswith("wan.image.")]) == 1
        world.provider.on_observe = lambda _: done()
        for task_id in waiting:
            world.submit(uuid_of(task_id), version=1)
        world.poll()
        assert {world.fetch(uuid_of(task_id))["status"] for task_id in tasks} == {"SUCCESS"}
        assert len(world.provider.submits) == len(set(world.provider.submits)) == len(tasks)
        again = [service.post(idem=f"k{n}").json for n in range(20)]
        assert [(one["task_id"], one["reused"]) for one in again] == [(task_id, True) for task_id in tasks]
        assert service.count() == len(tasks)
    world.rt.db.close()


def test_o60_copy_of_a_wake_up_begins_no_second_chain(world: World) -> None:
    visible_s = broker_transport_options["visibility_timeout"]
    assert isinstance(visible_s, int)
    assert visible_s >= 10 * MAX_COUNTDOWN_S, "no message waits in a worker until it is handed to another"
    for _ in range(20):
        world.submit(world.add())
    with world.rt.db.unit_of_work() as uow:
        version = line.restart_wave(uow, "wan", Kind.IMAGE)
    for _ in range(4):
        world.provider.asked.clear()
        world.sql("update tasks set wake_at = now()")
        with ThreadPoolExecutor(3) as pool:
            planned = list(pool.map(lambda v: waves.round_of(world.rt, "wan", Kind.IMAGE, v), [version] * 3))
        (following,) = [plan for plan in planned if plan is not None]
        assert len(world.provider.asked) == len(set(world.provider.asked)) == 20
        version = following[0]


def test_o61_wake_ups_in_memory_may_be_lost_with_their_worker(world: World, redis_url: str) -> None:
    conf = world.rt.settings.sweep
    assert MAX_COUNTDOWN_S + conf.grace_s + conf.every_s <= MINUTE_S
    tasks = [world.add() for _ in range(40)]
    for id_ in tasks:
        world.submit(id_)
    planned = world.poll()
    assert planned is not None
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()  # what a worker took into its memory is not in the broker either
    world.provider.asked.clear()
    world.sql("update waves set wake_at = now() - make_interval(secs => :s)", s=conf.grace_s + 1)
    swept = world.sweep()
    assert (swept["waves_restarted"], swept.get("timed_out")) == (1, None)
    (rung,) = [m for m in world.messages() if m.startswith("wan.image.")]
    world.provider.on_observe = lambda _: done()
    world.poll(version=int(rung.rpartition(".")[2]))
    assert len(world.provider.asked) == len(tasks)
    assert {world.fetch(id_)["status"] for id_ in tasks} == {"SUCCESS"}
    assert len(world.provider.submits) == len(tasks)


def test_o62_two_beats_end_and_ring_each_thing_once(world: World) -> None:
    tasks = [world.add() for _ in range(30)]
    for id_ in tasks:
        world.submit(id_)
    world.sql("update tasks set deadline_at = now() + interval '0.2 s' where id = any(:ids)", ids=tasks)
    swept = 0
    ends = time.monotonic() + 20
    with ThreadPoolExecutor(2) as beats:
        while swept < len(tasks) and time.monotonic() < ends:
            swept += sum(counts.get("timed_out", 0) for counts in beats.map(lambda _: world.sweep(), range(2)))
    assert swept == len(tasks)
    for id_ in tasks:
        row = world.row(id_)
        assert (row["status"], row["cost_micros"]) == ("TIMEOUT", 0)
        assert world.reasons(id_).count("deadline") == 1
    assert world.provider.asked == []


def test_o63_connections_that_the_server_closed_are_replaced(make_settings: MakeSettings) -> None:
    for service in running(make_settings(API_TOML)):
        task_id = service.made()
        _close_all(service)
        with ThreadPoolExecutor(4) as callers:
            post = callers.submit(service.post)
            gets = list(callers.map(service.get, [f"/v1/tasks/{task_id}"] * 6))
        assert (post.result().status_code, {got.status_code for got in gets}) == (202, {200})
        assert service.count() == 2


def _close_all(service: Service) -> None:
    with contextlib.closing(service.parts.db.engine.raw_connection()) as one:
        cursor = one.cursor()
        cursor.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


def test_o64_sweep_and_workers_lock_no_rows_crosswise(world: World) -> None:
    tasks = [world.add() for _ in range(48)]
    for id_ in tasks:
        world.submit(id_)
    half = tasks[::2]
    world.sql("update tasks set deadline_at = now() where id = any(:ids)", ids=half)
    world.provider.on_observe = lambda _: done()
    with ThreadPoolExecutor(7) as pool:
        polls = [pool.submit(world.poll) for _ in range(2)]
        sweeps = [pool.submit(world.sweep) for _ in range(3)]
        cancels = [pool.submit(world.cancel, id_) for id_ in tasks[::3]]
    for done_with in (polls, sweeps, cancels):
        assert all(one.exception() is None for one in done_with)
    while any(world.row(id_)["stage"] == "generating" for id_ in tasks):
        world.provider.on_observe = lambda _: done()
        world.poll()
        world.sweep()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(world.fetch, tasks))
    world.sweep()
    with world.rt.db.unit_of_work() as uow:
        assert uow.scalar("select deadlocks from pg_stat_database where datname = current_database()") == 0
        ends = "select count(*) from task_events where to_status in ('SUCCESS', 'FAILED', 'TIMEOUT', 'CANCELED')"
        assert uow.scalar(ends) == len(tasks)
        assert uow.scalar("select count(*) from tasks where status in ('PENDING', 'RUNNING')") == 0
        sums = uow.one("select sum(cost_micros) as cost, count(*) filter (where status = 'SUCCESS') as n from tasks")
        assert sums is not None
        assert (sums["cost"] or 0) == 100 * sums["n"]


def test_o65_who_waits_for_a_vendor_holds_no_connection(make_settings: MakeSettings) -> None:
    settings = make_settings(API_TOML)
    world = World.build(settings, pool=2)
    answers, inside = threading.Event(), threading.Semaphore(0)

    def slow(job: Job) -> Outcome:
        inside.release()
        answers.wait(30)
        return Accepted(receipt=job.reference)

    world.provider.on_submit = slow
    for service in running(settings):
        tasks = [service.made() for _ in range(6)]
        with ThreadPoolExecutor(6) as workers:
            busy = [workers.submit(world.submit, uuid_of(task_id), 1) for task_id in tasks]
            assert all(inside.acquire(timeout=20) for _ in tasks)
            took = []
            for _ in range(40):
                began = time.monotonic()
                assert service.get(f"/v1/tasks/{tasks[0]}").status_code == 200
                took.append(time.monotonic() - began)
            assert world.row(uuid_of(tasks[0]))["stage"] == "submitting", "the workers' own two connections are free"
            answers.set()
            assert {one.result()["stage"] for one in busy} == {"generating"}
        assert sorted(took)[37] < 0.5
    world.rt.db.close()


def test_o65_exhausted_pool_is_a_503_soon_and_passes(make_settings: MakeSettings) -> None:
    for service in running(make_settings(API_TOML)):
        with contextlib.ExitStack() as held:
            for _ in range(8):
                held.enter_context(service.parts.db.engine.connect())
            began = time.monotonic()
            answer = service.post()
            assert time.monotonic() - began < 4
            assert (answer.status_code, answer.json["status"]) == (503, 503)
            assert "Retry-After" in answer.headers
        assert service.count() == 0
        assert service.post().status_code == 202


def test_o67_no_transaction_is_open_while_a_vendor_is_asked(world: World) -> None:
    looks: list[int] = []

    def look() -> None:
        """As a migration would, while the call is under way."""
        with world.rt.db.unit_of_work() as uow:
            uow.execute("set local lock_timeout to '2s'")
            uow.execute("lock table tasks in access exclusive mode")
            idle = "select count(*) from pg_stat_activity where datname = current_database()"
            looks.append(uow.scalar(f"{idle} and state like 'idle in transaction%'"))

    def submit(job: Job) -> Outcome:
        look()
        return Accepted(receipt=job.reference)

    def observe(_receipt: str) -> Working:
        look()
        return Working()

    world.provider.on_submit, world.provider.on_observe = submit, observe
    on_cancel = world.provider.on_cancel
    world.provider.on_cancel = lambda job: (look(), on_cancel(job))[1]  # type: ignore[func-returns-value]  # in passing
    tasks = [world.add() for _ in range(5)]
    for id_ in tasks:
        world.submit(id_)
    world.poll()
    world.cancel(tasks[0])
    assert looks == [0] * 11
