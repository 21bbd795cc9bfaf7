"""Time and cancel, as others met them: a row that is odd, clocks that go back, a cancel at the worst moment.

O-53 plays its offsets over some milliseconds, which is where claim and cancel meet on this scale. O-54 is about the
call that leaves us; that ComfyUI is told the job by name is shown in tests/contract.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from celery.beat import Scheduler

from models import store
from models.lifecycle import Working
from providers.port import CancelAnswer, Job
from tasks import app, steps
from tests.conftest import MakeSettings
from tests.scripted import done
from tests.service import Service, running, uuid_of
from tests.world import TOML, World

ROUNDS = 40


@pytest.fixture
def world(make_settings: MakeSettings) -> Iterator[World]:
    """A gateway with room for a hundred."""
    made = World.build(make_settings(TOML))
    yield made
    made.rt.db.close()


@pytest.fixture
def both(make_settings: MakeSettings) -> Iterator[tuple[Service, World]]:
    """The API and the steps over one database, with room for many tasks of one user and one slot at the provider."""
    toml = TOML.replace("max_in_flight = 100", "max_in_flight = 1").replace('"image"', '"image"\ndefault = true', 1)
    toml += "submits_per_minute = 10000\n"
    settings = make_settings(toml)
    made = World.build(settings)
    for service in running(settings):
        yield service, made
    made.rt.db.close()


def test_o41_odd_row_stops_no_sweep(world: World) -> None:
    late = [world.add() for _ in range(10)]
    odd, lost = world.add(), world.add()
    for id_ in (*late, odd, lost):
        world.submit(id_)
    world.sql("update tasks set deadline_at = now() - interval '1 second' where id <> :id", id=lost)
    world.sql(
        "update tasks set wake_at = null, started_at = null, claimed_at = null where id in (:a, :b)", a=odd, b=lost
    )
    world.sql("update tasks set updated_at = now() - interval '1 h' where id = :id", id=lost)
    world.sql("update waves set wake_at = null")
    swept = world.sweep()
    assert (swept["timed_out"], swept["rewoken"]) == (11, 1)
    assert {world.row(id_)["status"] for id_ in (*late, odd)} == {"TIMEOUT"}
    assert {world.row(id_)["cost_micros"] for id_ in (*late, odd)} == {0}
    assert world.row(lost)["status"] == "RUNNING"
    assert world.row(lost)["wake_at"] is not None, "from now on it is like any other"
    assert "timed_out" not in world.sweep(), "the next one runs as well and ends nothing twice"


def test_o41_no_time_is_naive(world: World) -> None:
    with world.rt.db.unit_of_work() as uow:
        kinds = uow.all(
            "select table_name, column_name from information_schema.columns"
            " where table_schema = 'public' and data_type in ('timestamp without time zone', 'time without time zone')"
        )
    assert list(kinds) == []
    id_ = world.add()
    naive = (datetime.now(UTC) - timedelta(seconds=5)).replace(tzinfo=None)
    world.sql("update tasks set deadline_at = :naive", naive=naive)  # read as UTC wherever the host stands
    assert world.sweep()["timed_out"] == 1
    assert world.row(id_)["status"] == "TIMEOUT"


@pytest.fixture
def paris(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A host in Europe/Paris."""
    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_o42_beat_keeps_its_beat_while_the_clock_goes_back(world: World) -> None:
    began = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))  # the first of two; 00:30 UTC
    period = timedelta(seconds=world.rt.settings.sweep.every_s)
    runs: list[datetime] = []
    with time_machine.travel(began, tick=False) as clock:
        assert datetime.now().astimezone().utcoffset() == timedelta(hours=2), "summer time still"
        beat: Any = Scheduler(app=app)  # type: ignore[arg-type]  # its stubs know plain tasks only
        while datetime.now(UTC) < began.astimezone(UTC) + timedelta(hours=2):
            beat.tick()
            last = beat.schedule["sweep"].last_run_at
            if not runs or last != runs[-1]:
                runs.append(last)
            clock.shift(5)
        assert datetime.now().astimezone().utcoffset() == timedelta(hours=1), "the clock went back in between"
    gaps = [after - before for before, after in itertools.pairwise(runs)]
    assert max(gaps) <= 2 * period
    assert min(gaps) >= period, "and no hour is played twice"
    assert len(gaps) >= timedelta(hours=2) / (2 * period)


@pytest.mark.usefixtures("paris")
def test_o42_deadline_is_a_moment_and_not_a_time_of_day(world: World) -> None:
    id_ = world.add()
    with world.rt.db.unit_of_work() as uow:
        uow.execute("set local timezone to 'Europe/Paris'")
        night = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))  # the first of two
        later = uow.scalar("select cast(:night as timestamptz) + make_interval(secs => 3600)", night=night)
        assert later.astimezone(UTC) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    row = world.row(id_)
    assert (row["deadline_at"] - row["created_at"]).total_seconds() == row["deadline_s"]
    world.sql("update tasks set deadline_at = now()")
    assert [world.sweep().get("timed_out"), world.sweep().get("timed_out")] == [1, None]
    assert world.reasons(id_).count("deadline") == 1


def test_o53_cancel_around_the_submit_has_two_ends_only(
    both: tuple[Service, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, world = both
    provider = service.parts.providers["wan"]
    monkeypatch.setattr(provider, "capabilities", dataclasses.replace(provider.capabilities, cancel=False))
    world.provider.on_observe = lambda _: done()
    chance = random.Random(7)
    ends = set()
    for _ in range(ROUNDS):
        world.provider.submits.clear()
        task_id = service.made()
        id_, gate, wait_s = uuid_of(task_id), threading.Barrier(2), chance.uniform(-0.008, 0.008)

        def work(id_: Any = id_, gate: threading.Barrier = gate, wait_s: float = wait_s) -> None:  # noqa: ANN401
            gate.wait()
            threading.Event().wait(max(0.0, -wait_s))
            world.submit(id_, version=1)

        worker = threading.Thread(target=work)
        worker.start()
        gate.wait()
        threading.Event().wait(max(0.0, wait_s))
        answer = service.call("DELETE", f"/v1/tasks/{task_id}")
        worker.join()
        if world.row(id_)["status"] == "RUNNING":
            world.poll()
            world.fetch(id_)
        row = world.row(id_)
        ends.add((answer.status_code, row["status"], len(world.provider.submits), row["cost_micros"]))
        assert sum(reason in ("finished", "cancelled") for reason in world.reasons(id_)) == 1
    assert ends <= {(200, "CANCELED", 0, 0), (409, "SUCCESS", 1, 100)}


def test_o54_cancel_of_one_job_never_names_the_next(make_settings: MakeSettings) -> None:
    world = World.build(make_settings(TOML.replace("max_in_flight = 100", "max_in_flight = 1")))
    running_now: set[str] = set()
    lock = threading.Lock()

    def stop(job: Job) -> CancelAnswer:
        with lock:
            if job.receipt not in running_now:
                return CancelAnswer.REFUSED
            running_now.discard(job.receipt)
            return CancelAnswer.CONFIRMED

    world.provider.on_cancel = stop
    world.provider.on_observe = lambda receipt: Working() if receipt in running_now else done()
    for n in range(ROUNDS // 2):
        first, second = world.add(), world.add()
        mine = world.submit(first)["receipt"]
        running_now.add(mine)
        assert world.submit(second)["status"] == "PENDING"
        gate = threading.Barrier(2)
        with world.rt.db.unit_of_work() as uow:
            store.request_cancel(uow, first)

        def wish(gate: threading.Barrier = gate, first: Any = first) -> None:  # noqa: ANN401
            gate.wait()
            steps.cancel(world.rt, first, world.row(first)["version"])

        asker = threading.Thread(target=wish)
        asker.start()
        gate.wait()
        threading.Event().wait(n / 4000)
        with lock:
            ended_by_itself = mine in running_now
            running_now.discard(mine)
        if ended_by_itself:
            while world.row(first)["stage"] == "generating":  # a round passes over a row that is being written
                world.poll()
            world.fetch(first)
        asker.join()
        assert world.row(first)["status"] == ("SUCCESS" if ended_by_itself else "CANCELED")
        world.submit(second)
        world.poll()
        assert world.fetch(second)["status"] == "SUCCESS"
        assert set(world.provider.cancels) <= {mine}
        world.provider.cancels.clear()
    world.rt.db.close()


def test_o55_what_was_canceled_stays_so_after_a_restart_of_all_workers(both: tuple[Service, World]) -> None:
    service, world = both
    blocker = world.add()
    world.submit(blocker)
    waiting = [service.made() for _ in range(30)]
    wakeups = service.rung()
    for task_id in waiting:
        world.submit(uuid_of(task_id))
    codes = {service.call("DELETE", f"/v1/tasks/{task_id}").status_code for task_id in waiting}
    assert codes == {200}
    world.rt.db.close()
    fresh = World.build(world.rt.settings)  # nothing in it remembers
    fresh.cancel(blocker)
    for task_id in waiting:
        assert f"{task_id}.1" in wakeups
        fresh.submit(uuid_of(task_id), version=1)
        fresh.submit(uuid_of(task_id), version=2)
    fresh.sweep()
    rows = [fresh.row(uuid_of(task_id)) for task_id in waiting]
    assert {(row["status"], row["cost_micros"], row["upstream_call_count"]) for row in rows} == {("CANCELED", 0, 0)}
    assert (len(world.provider.submits), fresh.provider.submits) == (1, [])
    fresh.rt.db.close()
