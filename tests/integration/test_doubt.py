"""What is not known of a submit is remembered, found out, and never bought again."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from models import store
from models.failures import FailureKind
from models.lifecycle import Error
from providers.port import Accepted, FindAnswer, Job, NotAccepted, Outcome, Refused, Uncertain
from tasks import moves, submitting
from tests.conftest import MakeSettings
from tests.scripted import done
from tests.world import TOML, World

LOST = Error(kind=FailureKind.READ_TIMEOUT, message="no answer")


@pytest.fixture
def world(make_settings: MakeSettings) -> Iterator[World]:
    """A gateway with room for a hundred."""
    made = World.build(make_settings(TOML))
    yield made
    made.rt.db.close()


def _in_doubt(world: World) -> UUID:
    """A waiting task whose first submit may have been taken, by a vendor that honours our reference."""
    id_ = world.add()
    world.provider.can(honours_reference=True)
    world.provider.on_submit = lambda _: Uncertain(error=LOST)
    assert world.submit(id_)["status"] == "PENDING"
    world.sql("update tasks set wake_at = now()")
    return id_


def test_doubt_outlives_a_refusal_of_the_repeat(world: World) -> None:
    id_ = _in_doubt(world)
    world.provider.on_submit = lambda _: Refused(error=Error(kind=FailureKind.INVALID_PARAMETER))
    row = world.submit(id_)
    assert (row["error_code"], row["certain"], row["risk"]) == ("submit_unconfirmed", False, True)


def test_doubt_outlives_a_busy_repeat(world: World) -> None:
    id_ = _in_doubt(world)
    world.provider.on_submit = lambda _: NotAccepted(error=Error(kind=FailureKind.RATE_LIMITED))
    row = world.submit(id_)
    assert (row["status"], row["risk"], row["upstream_call_count"]) == ("PENDING", True, 1)
    world.sql("update tasks set deadline_at = now() - interval '1 second'")
    world.sweep()
    assert (world.row(id_)["status"], world.row(id_)["certain"]) == ("TIMEOUT", False)


def test_doubt_outlives_a_cancel(world: World) -> None:
    id_ = _in_doubt(world)
    with world.rt.db.unit_of_work() as uow:
        row = world.row(id_)
        store.apply(uow, id_, row["version"], moves.canceled(row))
    assert (world.row(id_)["certain"], world.row(id_)["risk"]) == (False, True)


def test_doubt_ends_when_the_vendor_says_that_it_has_nothing(world: World) -> None:
    id_ = _in_doubt(world)
    world.provider.can(honours_reference=True, find=True)
    world.provider.on_find = lambda _: FindAnswer.ABSENT
    assert world.submit(id_)["risk"] is False


def test_receipt_that_is_written_late_is_kept_though_the_sweep_rang_meanwhile(world: World) -> None:
    id_ = world.add()

    def slow(job: Job) -> Outcome:
        world.sql("update tasks set wake_at = now() - interval '1 minute'")
        assert world.sweep()["rewoken"] == 1
        return Accepted(receipt=job.reference)

    world.provider.on_submit = slow
    row = world.submit(id_)
    assert (row["status"], row["stage"], row["receipt"] is not None) == ("RUNNING", "generating", True)


def test_receipt_of_a_task_that_was_given_up_is_asked_about_and_delivered(world: World) -> None:
    id_ = world.add()

    def slow(job: Job) -> Outcome:
        world.sql("update tasks set wake_at = now() - interval '1 minute'")
        world.sweep()
        assert world.reconcile(id_)["error_code"] == "submit_unconfirmed"
        return Accepted(receipt=job.reference)

    world.provider.on_submit = slow
    row = world.submit(id_)
    assert (row["status"], row["receipt"] is not None, row["wake_at"] is not None) == ("FAILED", True, True)
    world.provider.on_observe = lambda _: done()
    world.sql("update tasks set wake_at = now()")
    assert world.sweep()["reconciling"] == 1
    row = world.reconcile(id_)
    assert (row["status"], row["cost_micros"], row["risk"]) == ("SUCCESS", 100, False)
    assert len(world.provider.submits) == 1


def test_claim_of_somebody_else_is_not_answered_with_our_receipt(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.sql("update tasks set stage = 'submitting', receipt = null, claimed_by = gen_random_uuid()")
    row = world.row(id_)
    late = Accepted(receipt="of an older call")
    submitting.settle(world.rt, {**row, "claimed_by": None}, row["version"] - 1, late, ())
    assert (world.row(id_)["receipt"], world.row(id_)["stage"]) == (None, "submitting")


def test_receipt_that_is_another_tasks_is_no_receipt(world: World) -> None:
    first, second = world.add(), world.add()
    world.provider.on_submit = lambda _: Accepted(receipt="the same")
    assert world.submit(first)["receipt"] == "the same"
    row = world.submit(second)
    assert (row["status"], row["error_code"], row["risk"], row["receipt"]) == (
        "FAILED",
        "submit_unconfirmed",
        True,
        None,
    )


def test_vendor_that_cannot_say_yet_is_asked_again_before_the_doubt_is_told(world: World) -> None:
    world.provider.can(find=True)
    id_ = world.add()
    world.provider.on_submit = lambda _job: Uncertain(error=Error(kind=FailureKind.READ_TIMEOUT))
    world.provider.on_find = lambda _job: FindAnswer.LATER
    row = world.submit(id_)
    assert (row["status"], row["stage"], row["upstream_call_count"]) == ("RUNNING", "submitting", 1)
    for _ in range(2):
        world.sql("update tasks set wake_at = now() - interval '1 minute'")
        assert world.sweep()["rewoken"] == 1
        assert world.reconcile(id_)["stage"] == "submitting"
    world.provider.on_find = lambda job: f"found-{job.reference}"
    row = world.reconcile(id_)
    assert (row["stage"], row["upstream_call_count"], row["risk"]) == ("generating", 1, False)
    assert row["receipt"].startswith("found-")
    assert len(world.provider.submits) == 1


def test_vendor_that_can_never_say_leaves_the_doubt_after_three_more_questions(world: World) -> None:
    world.provider.can(find=True)
    id_ = world.add()
    world.provider.on_submit = lambda _job: Uncertain(error=Error(kind=FailureKind.READ_TIMEOUT))
    world.provider.on_find = lambda _job: FindAnswer.LATER
    world.submit(id_)
    questions = 0
    while world.row(id_)["status"] == "RUNNING":
        world.sql("update tasks set wake_at = now() - interval '1 minute'")
        world.sweep()
        world.reconcile(id_)
        questions += 1
    row = world.row(id_)
    assert (questions, row["status"], row["error_code"], row["risk"]) == (3, "FAILED", "submit_unconfirmed", True)
    assert len(world.provider.submits) == 1
