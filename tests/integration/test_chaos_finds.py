"""What the chaos run found, each made small and certain."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from kombu import Connection
from sqlalchemy.exc import OperationalError

from celeryconfig import broker_transport_options
from models import ids, intake, line, store
from models.db import UnitOfWork
from models.failures import FailureKind
from models.fields import Kind
from models.lifecycle import Canceled, Error, Finished, Observation, Output, Reason, Unknown, Working
from models.settings import Settings
from providers.port import Job, NotAccepted, Outcome, ProviderError, Uncertain
from tasks import app, fetching, moves, waves
from tests.conftest import MakeSettings
from tests.faults import Proxy
from tests.scripted import done
from tests.world import TOML, World


def _lost(url: str, transport: str | None = None) -> tuple[Connection, Any]:
    """A connection that was given up after its broker went away for good, and the channel that held a message on it."""
    with Proxy.before(url) as proxy:
        connection = Connection(proxy.url, transport=transport) if transport else app.connection_for_read(url=proxy.url)
        channels: list[Any] = [connection.default_channel, connection.channel()]
        place = {"exchange": "", "routing_key": "default"}
        message = channels[0].prepare_message("", properties={"delivery_info": place, "delivery_tag": "one"})
        channels[0]._put("default", message)
        assert channels[0].basic_get("default") is not None, "held: received and not acknowledged"
        for channel in channels:  # each waits for more
            channel.client.connection = channel.client.connection_pool.get_connection()
            channel.client.connection.send_command("BRPOP", "empty", 5)
            channel._in_poll = channel.client.connection
        proxy.refuse()
        with contextlib.suppress(OSError):
            connection.collect()  # as Celery does with a connection that was lost
    return connection, channels[0]


def _ends_the_worker(redis_url: str, then: Callable[[Connection, Any], object], transport: str | None = None) -> bool:
    """Whether what Celery does next raises what nothing in a worker catches."""
    connection, channel = _lost(redis_url, transport)
    try:
        then(connection, channel)
    except connection.connection_errors:
        return False
    except AttributeError:
        return True
    finally:
        channel.qos._delivered.clear()  # or it tries to give it back when the test run ends
    return False


def _acknowledge_late(_: Connection, channel: Any) -> None:  # noqa: ANN401  kombu's channel has no types
    """A thread finishes after its channel was closed."""
    channel._disconnect_pools()
    channel.basic_ack("one")


_THEN: dict[str, Callable[[Connection, Any], object]] = {
    "gives back": lambda connection, _: connection.close(),
    "acknowledges": _acknowledge_late,
}


@pytest.mark.parametrize("then", _THEN)
def test_worker_outlives_a_broker_that_goes_while_messages_are_held(redis_url: str, then: str) -> None:
    assert not _ends_the_worker(redis_url, _THEN[then])


@pytest.mark.parametrize("then", _THEN)
def test_with_kombus_own_transport_it_does_not(redis_url: str, then: str) -> None:
    # When this fails, kombu has closed the hole, and tasks/transport.py can go.
    assert _ends_the_worker(redis_url, _THEN[then], "kombu.transport.redis:Transport")


def test_half_open_broker_connection_costs_less_than_the_promised_minute() -> None:
    # kombu takes a silent connection for dead after BRPOP's second and up to twice this interval; then the sweep rings.
    deaf_s = 1 + 2 * int(str(broker_transport_options["health_check_interval"]))
    sweep = Settings.load({}).sweep
    assert deaf_s + sweep.grace_s + sweep.every_s <= 60


@pytest.fixture
def world(make_settings: MakeSettings) -> Iterator[World]:
    """A gateway with room for a hundred."""
    made = World.build(make_settings(TOML))
    yield made
    made.rt.db.close()


def test_cancel_asked_for_during_a_submit_that_was_not_accepted_buys_nothing(world: World) -> None:
    id_ = world.add()

    def meanwhile(_job: Job) -> Outcome:
        with world.rt.db.unit_of_work() as uow:
            store.request_cancel(uow, id_)
        return NotAccepted(error=Error(kind=FailureKind.RATE_LIMITED))

    world.provider.on_submit = meanwhile
    row = world.submit(id_)
    assert (row["status"], row["certain"], row["upstream_call_count"]) == ("CANCELED", True, 0)
    assert world.reasons(id_) == ["accepted", "claimed", "not_accepted", "cancelled"]
    world.submit(id_)
    assert len(world.provider.submits) == 1


def test_cancel_of_a_submit_that_the_vendor_may_have_is_not_believed_done(world: World) -> None:
    # With a vendor that honours our reference a doubtful submit goes back to the line and may be running there.
    id_ = world.add()
    world.provider.can(honours_reference=True)

    def meanwhile(_job: Job) -> Outcome:
        with world.rt.db.unit_of_work() as uow:
            store.request_cancel(uow, id_)
        return Uncertain(error=Error(kind=FailureKind.READ_TIMEOUT))

    world.provider.on_submit = meanwhile
    row = world.submit(id_)
    assert (row["status"], row["risk"]) == ("PENDING", True)


def test_harvest_of_a_round_outlives_a_database_that_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    written = store.apply_all
    away = iter([OperationalError("", {}, Exception("away"))])

    def apply_all(uow: UnitOfWork, proposals: Sequence[store.Proposal]) -> dict[UUID, int]:
        for error in away:
            raise error
        return written(uow, proposals)

    monkeypatch.setattr(store, "apply_all", apply_all)
    world.poll()
    assert world.row(id_)["stage"] == "fetching"
    assert len(world.provider.asked) == 1


def test_harvest_whose_commit_was_cut_is_followed_up_and_written_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    record = moves.record_calls
    cut = iter([OperationalError("", {}, Exception("cut"))])

    def committed_and_cut(uow: UnitOfWork, *told: Any) -> None:  # noqa: ANN401  as moves.record_calls
        record(uow, *told)
        for error in cut:
            uow._connection.commit()
            raise error

    monkeypatch.setattr(moves, "record_calls", committed_and_cut)
    world.poll()
    assert world.reasons(id_) == ["accepted", "claimed", "observed", "observed"]
    assert f"{ids.encode('task', id_)}.4" in world.messages(), "the fetch was rung"


def test_plan_of_a_round_outlives_a_database_that_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.submit(world.add())
    planned = line.plan_wave
    away = iter([OperationalError("", {}, Exception("away"))])

    def plan_wave(*args: Any, **named: Any) -> int | None:  # noqa: ANN401  as line.plan_wave
        for error in away:
            raise error
        return planned(*args, **named)

    monkeypatch.setattr(line, "plan_wave", plan_wave)
    assert world.poll() is not None


@pytest.mark.parametrize(
    "word", [Unknown(), Canceled(), Working(), Finished(outputs=())], ids=lambda w: type(w).__name__
)
def test_result_in_hand_at_the_deadline_is_delivered_whatever_the_vendor_says_later(
    world: World, word: Observation
) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    world.sql("update tasks set deadline_at = now() where id = :id", id=id_)
    assert world.sweep()["timed_out"] == 1
    world.provider.on_observe = lambda _: word
    row = world.reconcile(id_)
    assert (row["status"], row["cost_micros"], row["risk"]) == ("SUCCESS", 100, False)
    assert world.reasons(id_)[-2:] == ["deadline", "reconciled"]


STALE = Output(url="http://127.0.0.1:9/gone.png")


def _half_fetched_at_the_deadline(world: World) -> UUID:
    """One of two pictures is stored, the other's link is dead, and the task has ended TIMEOUT."""
    id_ = world.add(count=2)
    world.submit(id_)
    world.provider.on_observe = lambda _: Finished(outputs=(*done().outputs, STALE))
    world.poll()
    assert world.fetch(id_)["stage"] == "fetching"
    world.sql("update tasks set deadline_at = now() where id = :id", id=id_)
    world.sweep()
    return id_


def test_result_of_which_a_part_is_in_hand_is_completed_with_fresh_links_after_the_deadline(world: World) -> None:
    id_ = _half_fetched_at_the_deadline(world)
    world.provider.on_observe = lambda _: done(2)
    row = world.reconcile(id_)
    assert (row["status"], row["partial"], row["cost_micros"]) == ("SUCCESS", False, 200)


def test_result_of_which_a_part_is_in_hand_is_delivered_as_partial_when_there_is_no_more(world: World) -> None:
    id_ = _half_fetched_at_the_deadline(world)
    world.provider.on_observe = lambda _: Unknown()
    row = world.reconcile(id_)
    assert (row["status"], row["partial"], row["cost_micros"]) == ("SUCCESS", True, 100)


def test_link_that_fails_after_the_deadline_has_as_many_chances_as_there_are_questions(world: World) -> None:
    id_ = _half_fetched_at_the_deadline(world)
    assert world.reconcile(id_)["status"] == "TIMEOUT"
    world.sql("update tasks set wake_at = null where id = :id", id=id_)  # that was the last one
    row = world.reconcile(id_)
    assert (row["status"], row["partial"]) == ("SUCCESS", True)


def test_part_that_one_question_brought_home_is_there_at_the_next(world: World) -> None:
    id_ = world.add(count=2)
    world.submit(id_)
    world.sql("update tasks set deadline_at = now() where id = :id", id=id_)
    world.sweep()
    world.provider.on_observe = lambda _: Finished(outputs=(*done().outputs, STALE))
    assert world.reconcile(id_)["status"] == "TIMEOUT"
    world.provider.on_observe = lambda _: Unknown()
    row = world.reconcile(id_)
    assert (row["status"], row["partial"], row["cost_micros"]) == ("SUCCESS", True, 100)


def test_question_that_a_caller_brought_about_is_not_asked_by_the_sweep_as_well(world: World) -> None:
    id_ = _half_fetched_at_the_deadline(world)
    with world.rt.db.unit_of_work() as uow:
        assert [intake.hurry_question(uow, id_) is None for _ in range(2)] == [False, True]
    assert world.sweep() == {}


def _overdue(world: World) -> UUID:
    """A generating task that should have been asked about long ago."""
    id_ = world.add()
    world.submit(id_)
    world.sql("update tasks set wake_at = now() - interval '1 h' where id = :id", id=id_)
    return id_


def test_sweep_that_restarts_a_lost_chain_makes_its_rows_due_at_once(world: World) -> None:
    _overdue(world)
    world.sql("update waves set wake_at = now() - interval '1 h'")
    assert world.sweep() == {"rewoken": 1, "waves_restarted": 1}
    with world.rt.db.unit_of_work() as uow:
        version = uow.scalar("select version from waves")
    waves.round_of(world.rt, "wan", Kind.IMAGE, version)
    assert len(world.provider.asked) == 1


def test_round_under_way_is_not_robbed_of_its_answers_by_the_sweep(world: World) -> None:
    # Many rows, one query each, a slow vendor: most are overdue while the chain works through them.
    id_ = _overdue(world)

    def meanwhile(_receipt: str) -> Observation:
        world.sweep()
        return done()

    world.provider.on_observe = meanwhile
    with world.rt.db.unit_of_work() as uow:
        version = line.restart_wave(uow, "wan", Kind.IMAGE)
    waves.round_of(world.rt, "wan", Kind.IMAGE, version)
    assert world.row(id_)["stage"] == "fetching"


def test_fetch_that_was_held_at_the_gate_spends_no_try_and_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    last = world.rt.settings.retries.fetch_attempts - 1
    world.sql("update tasks set fetch_tries = :last where id = :id", last=last, id=id_)

    def held(*_: object) -> None:
        raise ProviderError(FailureKind.HELD, "The provider is failing.")

    monkeypatch.setattr(fetching, "_bring_one", held)
    row = world.fetch(id_)
    assert (row["stage"], row["fetch_tries"]) == ("fetching", last)
    monkeypatch.undo()
    assert world.fetch(id_)["status"] == "SUCCESS"


@pytest.mark.parametrize("kind", FailureKind)
def test_result_that_could_not_be_fetched_was_paid_for_whatever_kept_it(world: World, kind: FailureKind) -> None:
    # A certain failure begins anew when its key is repeated, and would be bought again.
    row = world.row(world.add())
    missing = {"code": kind, "message": "", "upstream_code": None}
    items: list[fetching.Item] = [{"url": "u", "seed": None, "error": missing}]
    change = fetching.ending({**row, "missing": []}, items, Error(kind=kind), reason=Reason.FINISHED)
    assert (change.to, change.fields["certain"], change.fields["risk"]) == ("FAILED", False, True)
