"""The sweep and what it sets going: deadlines, lost wake-ups, stuck rows, dead chains, questions after a TIMEOUT."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from models import ids, store, watch
from models.failures import FailureKind
from models.fields import Kind
from models.lifecycle import Error, Failed, Unknown, Working
from providers.port import CancelAnswer
from tasks import app, sweep
from tests.conftest import MakeSettings
from tests.scripted import done
from tests.world import TOML, World


@pytest.fixture
def world(make_settings: MakeSettings) -> Iterator[World]:
    """A gateway with room for a hundred."""
    made = World.build(make_settings(TOML))
    yield made
    made.rt.db.close()


def _past_deadline(world: World, id_: UUID) -> None:
    world.sql("update tasks set deadline_at = now() - interval '1 second' where id = :id", id=id_)


def _timed_out(world: World) -> UUID:
    id_ = world.add()
    world.submit(id_)
    _past_deadline(world, id_)
    world.sweep()
    return id_


def test_waiting_task_past_its_deadline_times_out_certain(world: World) -> None:
    id_ = world.add()
    _past_deadline(world, id_)
    assert world.sweep()["timed_out"] == 1
    row = world.row(id_)
    assert (row["status"], row["error_code"], row["certain"], row["wake_at"]) == (
        "TIMEOUT",
        "deadline_exceeded",
        True,
        None,
    )


def test_generating_task_past_its_deadline_is_asked_about_a_minute_later(world: World) -> None:
    row = world.row(_timed_out(world))
    assert (row["status"], row["certain"], row["risk"]) == ("TIMEOUT", False, True)
    assert 50 < (row["wake_at"] - row["now"]).total_seconds() <= 60


def test_late_result_is_delivered_and_charged_once(world: World) -> None:
    id_ = _timed_out(world)
    world.provider.on_observe = lambda _: done()
    world.sql("update tasks set wake_at = now()")
    assert world.sweep()["reconciling"] == 1
    row = world.reconcile(id_)
    assert (row["status"], row["cost_micros"], row["error_code"], row["risk"]) == ("SUCCESS", 100, None, False)
    assert world.reasons(id_)[-1] == "reconciled"
    again = world.reconcile(id_)
    assert (again["version"], len(world.provider.submits)) == (row["version"], 1)


def test_late_failure_becomes_certain(world: World) -> None:
    id_ = _timed_out(world)
    world.provider.on_observe = lambda _: Failed(error=Error(kind=FailureKind.PROVIDER_ERROR))
    row = world.reconcile(id_)
    assert (row["status"], row["error_code"], row["certain"], row["risk"]) == ("FAILED", "provider_error", True, False)


def test_vendor_that_forgot_a_late_task_leaves_the_risk(world: World) -> None:
    id_ = _timed_out(world)
    world.provider.on_observe = lambda _: Unknown()
    row = world.reconcile(id_)
    assert (row["status"], row["error_code"], row["risk"]) == ("FAILED", "upstream_lost", True)


def test_questions_after_a_timeout_are_bounded(world: World) -> None:
    id_ = _timed_out(world)
    world.provider.on_observe = lambda _: Working()
    for _ in range(world.rt.settings.retries.reconcile_attempts):
        world.sql("update tasks set wake_at = now()")
        assert world.sweep()["reconciling"] == 1
        world.reconcile(id_)
    row = world.row(id_)
    assert (row["status"], row["wake_at"], row["risk"]) == ("TIMEOUT", None, True)
    assert "reconciling" not in world.sweep()


def test_waiting_task_whose_message_was_lost_is_rung_again(world: World) -> None:
    id_ = world.add()
    world.sql("update tasks set rung_at = now() - interval '11 seconds'")
    world.sweep()
    assert world.messages() == [f"{ids.encode('task', id_)}.1"]


def test_waiting_task_that_was_just_rung_is_left_alone(world: World) -> None:
    world.add()
    world.sweep()
    assert world.messages() == []


def test_sweep_rings_no_more_than_there_is_room_for(make_settings: MakeSettings) -> None:
    world = World.build(make_settings(TOML.replace("max_in_flight = 100", "max_in_flight = 2")))
    for _ in range(5):
        world.add()
    world.sql("update tasks set rung_at = null")
    world.sweep()
    assert len(world.messages()) == 2


def test_lost_fetch_is_rung_again(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    world.sql("update tasks set wake_at = now() - interval '1 minute'")
    assert world.sweep()["rewoken"] == 1
    assert f"{ids.encode('task', id_)}.{world.row(id_)['version']}" in world.messages()
    assert world.fetch(id_)["status"] == "SUCCESS"


def test_chain_whose_wake_up_was_lost_is_restarted(world: World) -> None:
    world.submit(world.add())
    world.sql("update waves set wake_at = now() - interval '1 minute'")
    assert world.sweep()["waves_restarted"] == 1
    assert world.messages()[-1] == "wan.image.2"


def test_chain_that_is_on_time_is_not_restarted(world: World) -> None:
    world.submit(world.add())
    assert "waves_restarted" not in world.sweep()


def test_row_that_stands_still_though_rung_three_times_is_stuck(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    for _ in range(3):
        world.sql("update tasks set wake_at = now() - interval '1 minute'")
        world.sql(
            "update waves set wake_at = now() - interval '1 minute'"
        )  # its chain does not live, or it had served it
        world.sweep()
        assert world.row(id_)["status"] == "RUNNING"
    world.sql("update tasks set wake_at = now() - interval '1 minute', updated_at = now() - interval '11 minutes'")
    world.sql("update waves set wake_at = now() - interval '1 minute'")
    assert world.sweep()["stuck"] == 1
    row = world.row(id_)
    assert (row["status"], row["error_code"]) == ("TIMEOUT", "stuck")


def test_row_that_moves_between_rings_is_not_stuck(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    for _ in range(5):
        world.sql("update tasks set wake_at = now() - interval '1 minute'")
        world.sweep()
        world.poll()
        world.sql("update tasks set updated_at = now() - interval '11 minutes'")
    assert world.row(id_)["status"] == "RUNNING"


def test_second_sweep_of_the_moment_does_nothing(world: World) -> None:
    id_ = world.add()
    _past_deadline(world, id_)
    with world.rt.db.unit_of_work() as uow:
        assert watch.try_sweep_lock(uow)
        assert world.sweep() == {}
    assert world.sweep()["timed_out"] == 1


def test_sweep_passes_over_a_locked_row(world: World) -> None:
    locked, free = world.add(), world.add()
    _past_deadline(world, locked)
    _past_deadline(world, free)
    with world.rt.db.unit_of_work() as uow:
        uow.execute("select 1 from tasks where id = :id for update", id=locked)
        assert world.sweep()["timed_out"] == 1
    assert (world.row(locked)["status"], world.row(free)["status"]) == ("PENDING", "TIMEOUT")


def test_freed_slot_of_a_timed_out_task_is_given_on(make_settings: MakeSettings) -> None:
    world = World.build(make_settings(TOML.replace("max_in_flight = 100", "max_in_flight = 1")))
    first, second = world.add(), world.add()
    world.submit(first)
    world.submit(second)
    _past_deadline(world, first)
    world.sweep()
    assert f"{ids.encode('task', second)}.1" in world.messages()
    assert world.submit(second)["status"] == "RUNNING"


def test_sweep_counts_video_and_image_lines_apart(world: World) -> None:
    world.add(kind=Kind.VIDEO)
    world.add()
    world.sql("update tasks set rung_at = null")
    world.sweep()
    assert len(world.messages()) == 2


def test_cancel_whose_wake_up_was_lost_is_asked_again_until_it_is_answered(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    with world.rt.db.unit_of_work() as uow:
        assert store.request_cancel(uow, id_)
    assert "cancels_rung" not in world.sweep(), "it is young"
    world.sql("update tasks set cancel_requested_at = now() - interval '1 minute'")
    assert world.sweep()["cancels_rung"] == 1
    world.provider.on_cancel = lambda _: CancelAnswer.UNCLEAR
    world.cancel(id_)
    assert world.sweep()["cancels_rung"] == 1
    world.provider.on_cancel = lambda _: CancelAnswer.REFUSED
    world.cancel(id_)
    assert "cancels_rung" not in world.sweep()


def test_wish_to_cancel_what_does_not_run_is_not_noted(world: World) -> None:
    id_ = world.add()
    with world.rt.db.unit_of_work() as uow:
        assert not store.request_cancel(uow, id_)
    assert world.row(id_)["cancel_requested_at"] is None


def test_fetch_that_nobody_began_is_looked_at_within_a_minute(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    row = world.row(id_)
    latest_s = (row["wake_at"] - row["now"]).total_seconds() + world.rt.settings.sweep.grace_s
    assert latest_s + world.rt.settings.sweep.every_s <= 60


def test_fetch_under_way_is_not_begun_a_second_time(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    world.sql("update tasks set wake_at = now() - interval '1 minute'")
    put_file, seen = world.rt.storage.put_file, []

    def slow_store(*args: object) -> object:
        seen.append(world.sweep())
        return put_file(*args)  # type: ignore[arg-type]  # passed through

    world.rt.storage.put_file = slow_store  # type: ignore[method-assign,assignment]  # a store that takes its time
    assert world.fetch(id_)["status"] == "SUCCESS"
    assert seen == [{}]


def test_line_that_shares_a_cap_is_not_starved_by_another(make_settings: MakeSettings) -> None:
    world = World.build(make_settings(TOML.replace("max_in_flight = 100", "max_in_flight = 1")))
    world.provider.on_observe = lambda _: done()
    first = world.add()
    world.submit(first)
    video = world.add(kind=Kind.VIDEO)
    world.sql("update tasks set priority = 0, created_at = now() - interval '20 minutes' where id = :id", id=video)
    later = [world.add() for _ in range(3)]
    world.sql("update tasks set rung_at = null where status = 'PENDING'")
    world.poll()
    world.fetch(first)
    assert f"{ids.encode('task', video)}.1" in world.messages()
    assert all(f"{ids.encode('task', id_)}.1" not in world.messages() for id_ in later)


def test_sweep_that_has_just_been_is_not_done_again_by_an_old_message(world: World) -> None:
    id_ = world.add()
    assert sweep.sweep_once(world.rt, apart_s=5.0) == {}
    _past_deadline(world, id_)
    assert sweep.sweep_once(world.rt, apart_s=5.0) == {}
    assert world.row(id_)["status"] == "PENDING"
    world.sql("update marks set at = now() - interval '6 seconds' where name = 'sweep'")
    assert sweep.sweep_once(world.rt, apart_s=5.0)["timed_out"] == 1


def test_no_message_of_beats_can_be_thrown_away_by_a_fast_clock() -> None:
    schedule = app.conf.beat_schedule
    assert {"sweep", "probe", "retention"} <= set(schedule)
    assert [name for name, entry in schedule.items() if "expires" in entry.get("options", {})] == []


def test_o62_two_beats_are_told_and_a_successor_is_not(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for beat in ("gen1@a", "gen1@a", "gen2@b", "gen2@b"):  # one was followed by another
        sweep.watch_beats(world.rt, beat)
    assert "two beats" not in caplog.text
    world.sql("update marks set at = now() - interval '1 hour' where name = 'beat'")
    sweep.watch_beats(world.rt, "gen1@a")  # taken back into service, long after
    sweep.watch_beats(world.rt, "gen3@c")
    assert "two beats" not in caplog.text
    sweep.watch_beats(world.rt, "gen1@a")
    assert "two beats are at work, gen1@a and gen3@c" in caplog.text


def test_o56_receipt_is_in_the_log_before_it_is_written(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "weir.submit")
    row = world.submit(world.add())
    assert f"{ids.encode('task', row['id'])}: accepted by wan as {row['receipt']}" in caplog.text
