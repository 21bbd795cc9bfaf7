"""A task's way through submit, poll, fetch and cancel, on a real database, one step at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from models import ids
from models.failures import FailureKind
from models.fields import Kind
from models.lifecycle import Canceled, Error, Failed, Unknown, Unreadable, Working
from providers.port import Accepted, CancelAnswer, FindAnswer, Job, NotAccepted, Outcome, Refused, Uncertain
from tests.conftest import MakeSettings
from tests.scripted import done, png
from tests.world import TOML, World

LOST = Error(kind=FailureKind.READ_TIMEOUT, message="no answer")


@pytest.fixture
def world(make_settings: MakeSettings) -> Iterator[World]:
    """A gateway with room for a hundred."""
    made = World.build(make_settings(TOML))
    yield made
    made.rt.db.close()


def test_task_goes_from_pending_to_success_with_its_bytes_stored(world: World) -> None:
    id_ = world.add()
    assert world.submit(id_)["stage"] == "generating"
    world.provider.on_observe = lambda _: done()
    world.poll()
    row = world.fetch(id_)
    assert (row["status"], row["cost_micros"], row["partial"]) == ("SUCCESS", 100, False)
    stored = b"".join(world.rt.storage.open(row["outputs"][0]["key"]).chunks)
    assert stored == png()
    assert world.reasons(id_) == ["accepted", "claimed", "observed", "observed", "finished"]


def test_submit_of_a_stale_version_does_nothing(world: World) -> None:
    id_ = world.add()
    world.submit(id_, version=1)
    before = world.row(id_)
    world.submit(id_, version=1)
    assert world.provider.submits == [f"{ids.encode('task', id_)}.1"]
    assert dict(world.row(id_)) | {"now": None} == dict(before) | {"now": None}


def test_twenty_copies_of_one_wake_up_submit_once(world: World) -> None:
    id_ = world.add()
    threads = [threading.Thread(target=world.submit, args=(id_, 1)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(world.provider.submits) == 1


def test_claim_is_committed_before_the_vendor_is_called(world: World) -> None:
    id_ = world.add()
    seen: list[tuple[str, str, int]] = []

    def look(job: Job) -> Outcome:
        row = world.row(id_)
        seen.append((row["status"], row["stage"], row["upstream_call_count"]))
        return Accepted(receipt=job.reference)

    world.provider.on_submit = look
    world.submit(id_)
    assert seen == [("RUNNING", "submitting", 1)]


def test_refused_submit_ends_failed_and_counts_no_upstream_job(world: World) -> None:
    id_ = world.add()
    world.provider.on_submit = lambda _: Refused(error=Error(kind=FailureKind.CONTENT_FILTERED, upstream_code="X"))
    row = world.submit(id_)
    assert (row["status"], row["error_code"], row["upstream_code"]) == ("FAILED", "content_filtered", "X")
    assert (row["upstream_call_count"], row["certain"], row["cost_micros"]) == (0, True, 0)


def test_submit_surely_not_accepted_waits_its_turn_and_is_sent_again(world: World) -> None:
    id_ = world.add()
    world.provider.on_submit = lambda _: NotAccepted(error=Error(kind=FailureKind.NOT_SENT))
    row = world.submit(id_)
    assert (row["status"], row["submit_tries"], row["upstream_call_count"]) == ("PENDING", 1, 0)
    assert row["wake_at"] > row["now"]
    world.sql("update tasks set wake_at = now()")
    world.provider.on_submit = lambda job: Accepted(receipt=job.reference)
    row = world.submit(id_)
    assert (row["status"], row["retry_count"], row["upstream_call_count"]) == ("RUNNING", 1, 1)


def test_submit_never_accepted_ends_failed_after_the_configured_tries(world: World) -> None:
    id_ = world.add()
    world.provider.on_submit = lambda _: NotAccepted(error=Error(kind=FailureKind.NOT_SENT))
    for _ in range(world.rt.settings.retries.submit_attempts):
        world.sql("update tasks set wake_at = now()")
        row = world.submit(id_)
    assert (row["status"], row["error_code"], row["certain"]) == ("FAILED", "provider_unreachable", True)


def test_rate_limited_submit_spends_no_try_and_waits_as_long_as_the_vendor_says(world: World) -> None:
    id_ = world.add()
    slow = NotAccepted(error=Error(kind=FailureKind.RATE_LIMITED), retry_after_s=120)
    world.provider.on_submit = lambda _: slow
    row = world.submit(id_)
    assert (row["status"], row["submit_tries"]) == ("PENDING", 0)
    assert 110 < (row["wake_at"] - row["now"]).total_seconds() <= 120


def test_submit_without_a_verdict_ends_unconfirmed_and_is_a_risk(world: World) -> None:
    id_ = world.add()
    world.provider.on_submit = lambda _: Uncertain(error=LOST)
    row = world.submit(id_)
    assert (row["status"], row["error_code"], row["risk"]) == ("FAILED", "submit_unconfirmed", True)
    assert (row["certain"], row["upstream_call_count"]) == (False, 1)
    world.sweep()
    assert len(world.provider.submits) == 1


def test_submit_without_a_verdict_adopts_what_the_vendor_has(world: World) -> None:
    id_ = world.add()
    world.provider.can(find=True)
    world.provider.on_submit = lambda _: Uncertain(error=LOST)
    world.provider.on_find = lambda _: "theirs"
    row = world.submit(id_)
    assert (row["status"], row["stage"], row["receipt"]) == ("RUNNING", "generating", "theirs")


def test_submit_without_a_verdict_is_sent_again_when_the_vendor_surely_has_it_not(world: World) -> None:
    id_ = world.add()
    world.provider.can(find=True)
    world.provider.on_submit = lambda _: Uncertain(error=LOST)
    world.provider.on_find = lambda _: FindAnswer.ABSENT
    row = world.submit(id_)
    assert (row["status"], row["upstream_call_count"], row["risk"]) == ("PENDING", 0, False)


def test_same_reference_is_sent_again_where_the_vendor_honours_it(world: World) -> None:
    id_ = world.add()
    world.provider.can(honours_reference=True)
    world.provider.on_submit = lambda _: Uncertain(error=LOST)
    assert world.submit(id_)["risk"] is True
    world.sql("update tasks set wake_at = now()")
    world.provider.on_submit = lambda job: Accepted(receipt=job.reference)
    row = world.submit(id_)
    assert len(set(world.provider.submits)) == 1
    assert (row["status"], row["risk"]) == ("RUNNING", False)


def test_crash_between_claim_and_receipt_is_never_submitted_again(world: World) -> None:
    id_ = world.add()

    def die(_: Job) -> Outcome:
        raise SystemExit

    world.provider.on_submit = die
    with pytest.raises(SystemExit):
        world.submit(id_)
    world.sql("update tasks set wake_at = now() - interval '1 minute'")
    assert world.sweep()["rewoken"] == 1
    row = world.reconcile(id_)
    assert (row["status"], row["error_code"]) == ("FAILED", "submit_unconfirmed")
    assert len(world.provider.submits) == 1


def test_crash_between_claim_and_receipt_is_adopted_where_the_vendor_can_be_asked(world: World) -> None:
    id_ = world.add()
    world.provider.can(find=True)

    def die(_: Job) -> Outcome:
        raise SystemExit

    world.provider.on_submit = die
    with pytest.raises(SystemExit):
        world.submit(id_)
    world.provider.on_find = lambda _: "theirs"
    row = world.reconcile(id_)
    assert (row["status"], row["receipt"], row["upstream_call_count"]) == ("RUNNING", "theirs", 1)


def test_receipt_of_a_task_that_ended_meanwhile_is_kept(world: World) -> None:
    id_ = world.add()

    def late(job: Job) -> Outcome:
        world.sql("update tasks set deadline_at = now() - interval '1 second'")
        world.sweep()
        return Accepted(receipt=job.reference)

    world.provider.on_submit = late
    row = world.submit(id_)
    assert (row["status"], row["certain"]) == ("TIMEOUT", False)
    assert row["receipt"] is not None
    assert world.reasons(id_)[-1] == "late"


def test_poll_without_news_changes_no_version_and_moves_the_next_time(world: World) -> None:
    id_ = world.add()
    before = world.submit(id_)
    world.poll()
    after = world.row(id_)
    assert after["version"] == before["version"]
    assert (after["poll_count"], after["wake_at"] > after["now"]) == (1, True)


def test_poll_progress_is_news(world: World) -> None:
    id_ = world.add()
    before = world.submit(id_)
    world.provider.on_observe = lambda _: Working(progress=0.5)
    world.poll()
    row = world.row(id_)
    assert (row["version"], row["progress"]) == (before["version"] + 1, 0.5)


def test_unreadable_polls_never_end_a_task(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: Unreadable(error=Error(kind=FailureKind.UNREADABLE, message="a page"))
    for _ in range(20):
        world.poll()
    row = world.row(id_)
    assert (row["status"], row["failed_polls"], row["last_error"]) == ("RUNNING", 20, "a page")


def test_three_definite_no_such_job_end_it_upstream_lost(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: Unknown()
    for _ in range(3):
        assert world.row(id_)["status"] == "RUNNING"
        world.poll()
    assert world.row(id_)["error_code"] == "upstream_lost"


def test_vendor_failure_ends_the_task_certain(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: Failed(error=Error(kind=FailureKind.PROVIDER_ERROR, message="no GPU"))
    world.poll()
    row = world.row(id_)
    assert (row["status"], row["error_message"], row["certain"]) == ("FAILED", "no GPU", True)


def test_vendor_canceling_by_itself_is_a_failure(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: Canceled()
    world.poll()
    assert world.row(id_)["error_code"] == "upstream_canceled"


def test_one_round_serves_a_hundred_rows(world: World) -> None:
    all_ = [world.add() for _ in range(100)]
    for id_ in all_:
        world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    assert {world.row(id_)["stage"] for id_ in all_} == {"fetching"}
    assert len(world.provider.asked) == 100


def test_stale_wave_asks_nobody(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    assert world.poll(version=0) is None
    assert world.provider.asked == []


def test_wave_without_rows_falls_asleep_and_a_receipt_wakes_it(world: World) -> None:
    assert world.poll() is None
    world.submit(world.add())
    waves_sent = [m for m in world.messages() if m.startswith("wan.image.")]
    assert len(waves_sent) == 1


def test_wave_reschedules_itself_in_whole_seconds(world: World) -> None:
    world.submit(world.add())
    planned = world.poll()
    assert planned is not None
    assert planned[1] in range(1, 31)


def test_cancel_confirmed_by_the_vendor_ends_canceled(world: World) -> None:
    id_ = world.add()
    receipt = world.submit(id_)["receipt"]
    row = world.cancel(id_)
    assert (row["status"], world.provider.cancels) == ("CANCELED", [receipt])


def test_cancel_refused_by_the_vendor_lets_the_task_go_on(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_cancel = lambda _: CancelAnswer.REFUSED
    row = world.cancel(id_)
    assert (row["status"], world.reasons(id_)[-1]) == ("RUNNING", "late")
    world.provider.on_observe = lambda _: done()
    world.poll()
    assert world.fetch(id_)["status"] == "SUCCESS"


def test_cancel_asked_for_before_the_receipt_is_passed_on_with_it(world: World) -> None:
    id_ = world.add()

    def wish(job: Job) -> Outcome:
        assert world.cancel(id_)["status"] == "RUNNING"
        return Accepted(receipt=job.reference)

    world.provider.on_submit = wish
    world.submit(id_)
    assert world.provider.cancels == []
    assert any(m.endswith(".cancel") for m in world.messages())


def test_cap_keeps_the_rest_waiting_and_each_end_rings_one(make_settings: MakeSettings) -> None:
    world = World.build(make_settings(TOML.replace("max_in_flight = 100", "max_in_flight = 2")))
    first, second, third, fourth = (world.add() for _ in range(4))
    for id_ in (first, second, third, fourth):
        world.submit(id_)
    assert [world.row(i)["status"] for i in (first, second, third, fourth)] == ["RUNNING"] * 2 + ["PENDING"] * 2
    world.provider.on_observe = lambda r: done() if r == world.row(first)["receipt"] else Working()
    world.poll()
    world.fetch(first)
    rung = [m for m in world.messages() if m == f"{ids.encode('task', third)}.1"]
    assert len(rung) == 1
    assert f"{ids.encode('task', fourth)}.1" not in world.messages()


def test_message_carries_ids_and_versions_only(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    assert f"{ids.encode('task', id_)}.{world.row(id_)['version']}" in world.messages()


def test_video_counts_seconds(world: World) -> None:
    id_ = world.add(kind=Kind.VIDEO)
    world.submit(id_)
    world.provider.on_observe = lambda _: Failed(error=Error(kind=FailureKind.PROVIDER_ERROR))
    world.poll(Kind.VIDEO)
    assert (world.row(id_)["status"], world.row(id_)["cost_micros"]) == ("FAILED", 0)


def test_calls_of_a_scripted_provider_leave_no_line(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    assert world.calls(id_) == []
