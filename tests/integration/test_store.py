"""The statements of the store: one transition, polls without news, the insert, and the small ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.exc import IntegrityError

from models import store
from models.db import Database, Row
from models.lifecycle import Change, Reason, Stage, Status
from tests import factories

OBSERVED = Change(reason=Reason.OBSERVED, to=Status.RUNNING, wake_in_s=5)
FAILED = Change(reason=Reason.REFUSED, to=Status.FAILED, fields={"error_code": "internal_error"})


def seconds_from_now(db: Database, id_: object, column: str) -> float | None:
    """How far a time of the row lies ahead of the database's clock."""
    with db.unit_of_work() as uow:
        value = uow.scalar(f"select extract(epoch from {column} - now())::float from tasks where id = :id", id=id_)  # noqa: S608
    return None if value is None else float(value)


# --- apply ---


def test_apply_twice_at_one_version_moves_the_row_once(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING)
        assert store.apply(uow, id_, 1, OBSERVED) == 2
        assert store.apply(uow, id_, 1, OBSERVED) is None
    assert [e["version"] for e in factories.events_of(db, id_)] == [2]


def test_apply_to_an_unknown_task_moves_nothing(db: Database) -> None:
    with db.unit_of_work() as uow:
        assert store.apply(uow, uuid4(), 1, OBSERVED) is None


def test_apply_all_of_nothing_is_nothing(db: Database) -> None:
    with db.unit_of_work() as uow:
        assert store.apply_all(uow, []) == {}


def test_apply_all_moves_the_winners_and_names_only_them(db: Database) -> None:
    with db.unit_of_work() as uow:
        winner, stale, ended = (
            factories.add_task(uow, Status.RUNNING),
            factories.add_task(uow, Status.RUNNING, version=2),
            factories.add_task(uow, Status.SUCCESS),
        )
        proposals = [store.Proposal(id=i, version=1, change=OBSERVED) for i in (winner, stale, ended)]
        assert store.apply_all(uow, proposals) == {winner: 2}


def test_apply_that_is_rolled_back_leaves_neither_change_nor_event(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING)
    before = factories.row_of(db, id_)

    def die_after_the_change() -> None:
        with db.unit_of_work() as uow:
            store.apply(uow, id_, 1, OBSERVED)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        die_after_the_change()
    assert factories.row_of(db, id_) == before
    assert factories.events_of(db, id_) == []


@pytest.mark.parametrize("name", ["status", "version", "finished_at", "deadline_at", "user_id", "no_such_column"])
def test_a_change_may_not_set_what_the_store_derives(db: Database, name: str) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING)
        change = Change(reason=Reason.OBSERVED, to=Status.RUNNING, fields={name: None})
        with pytest.raises(ValueError, match=name):
            store.apply(uow, id_, 1, change)


def test_a_field_that_is_not_named_keeps_its_value(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING, **factories.generating(), progress=0.5, poll_count=7)
        store.apply(uow, id_, 1, Change(reason=Reason.OBSERVED, to=Status.RUNNING, fields={"progress": 0.6}))
    row = factories.row_of(db, id_)
    assert (row["progress"], row["poll_count"], row["receipt"], row["stage"]) == (0.6, 7, "r-1", "generating")


def test_a_field_set_to_none_is_null(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING, upstream_outputs=[{"url": "x"}], receipt="r", progress=0.1)
        fields = {"upstream_outputs": None, "receipt": None, "progress": None}
        store.apply(uow, id_, 1, Change(reason=Reason.OBSERVED, to=Status.RUNNING, fields=fields))
    row = factories.row_of(db, id_)
    assert (row["upstream_outputs"], row["receipt"], row["progress"]) == (None, None, None)


def test_fields_come_back_as_they_went_in(db: Database) -> None:
    fields: dict[str, object] = {
        "last_error": 'it\'s "quoted", 100 % \\n :bound \u6f22\u5b57 \U0001f98a',
        "upstream_outputs": [{"url": "https://a.example/?a=1&b=%20", "seed": 2**40, "nested": [None, True, 1.5]}],
        "progress": 0.1,
        "poll_count": 3,
        "partial": True,
        "risk": True,
    }
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING)
        store.apply(uow, id_, 1, Change(reason=Reason.OBSERVED, to=Status.RUNNING, fields=fields))
    row = factories.row_of(db, id_)
    assert {name: row[name] for name in fields} == fields


def test_the_wake_up_lies_as_far_ahead_as_the_change_says(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING)
        store.apply(uow, id_, 1, OBSERVED)
    ahead = seconds_from_now(db, id_, "wake_at")
    assert ahead is not None
    assert 3 < ahead <= 5


def test_a_change_without_a_wake_up_clears_it(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING)
        store.apply(uow, id_, 1, FAILED)
    assert factories.row_of(db, id_)["wake_at"] is None


def test_a_ring_does_not_count_as_a_sign_of_life(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING, updated_at=timedelta(minutes=-11))
        store.apply(uow, id_, 1, Change(reason=Reason.REWOKEN, to=Status.RUNNING, wake_in_s=1))
    untouched = seconds_from_now(db, id_, "updated_at")
    assert untouched is not None
    assert untouched < -600


def test_an_observation_counts_as_a_sign_of_life(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING, updated_at=timedelta(minutes=-11))
        store.apply(uow, id_, 1, OBSERVED)
    untouched = seconds_from_now(db, id_, "updated_at")
    assert untouched is not None
    assert untouched > -60


def test_the_first_claim_starts_a_task_and_later_ones_do_not_start_it_again(db: Database) -> None:
    claimed = Change(reason=Reason.CLAIMED, to=Status.RUNNING, fields={"stage": Stage.SUBMITTING})
    with db.unit_of_work() as uow:
        fresh = factories.add_task(uow)
        again = factories.add_task(uow, started_at=timedelta(minutes=-3), claimed_at=timedelta(minutes=-3))
        store.apply_all(uow, [store.Proposal(id=i, version=1, change=claimed) for i in (fresh, again)])
    assert factories.row_of(db, fresh)["started_at"] == factories.row_of(db, fresh)["claimed_at"]
    row = factories.row_of(db, again)
    assert row["claimed_at"] - row["started_at"] > timedelta(minutes=2)


def test_a_restart_begins_the_clock_and_the_deadline_anew(db: Database) -> None:
    restarted = Change(reason=Reason.RESTARTED, to=Status.PENDING, fields={"error_code": None, "attempt": 2})
    with db.unit_of_work() as uow:
        id_ = factories.add_task(
            uow, Status.FAILED, certain=True, started_at=timedelta(hours=-1), deadline_at=timedelta(hours=-1)
        )
        assert store.apply(uow, id_, 1, restarted) == 2
    row = factories.row_of(db, id_)
    assert (row["started_at"], row["finished_at"], row["attempt"]) == (None, None, 2)
    ahead = seconds_from_now(db, id_, "deadline_at")
    assert ahead is not None
    assert 890 < ahead <= 900


def test_a_reconciled_task_says_when_its_truth_was_found(db: Database) -> None:
    found = Change(reason=Reason.RECONCILED, to=Status.SUCCESS, fields={"error_code": None, "cost_micros": 5})
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.TIMEOUT, finished_at=timedelta(hours=-1))
        store.apply(uow, id_, 1, found)
    ago = seconds_from_now(db, id_, "finished_at")
    assert ago is not None
    assert ago > -60


def test_a_change_that_the_schema_refuses_is_an_error_and_changes_nothing(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING)
    before = factories.row_of(db, id_)
    wrong = Change(reason=Reason.REFUSED, to=Status.FAILED)  # without an error code
    with pytest.raises(IntegrityError, match="tasks_error_iff_failed_check"), db.unit_of_work() as uow:
        store.apply(uow, id_, 1, wrong)
    assert factories.row_of(db, id_) == before


def test_a_receipt_belongs_to_one_task_of_its_provider(db: Database) -> None:
    received = Change(reason=Reason.OBSERVED, to=Status.RUNNING, fields={"receipt": "r-1"})
    with db.unit_of_work() as uow:
        factories.add_task(uow, Status.RUNNING, **factories.generating("r-1"))
        same = factories.add_task(uow, Status.RUNNING)
        elsewhere = factories.add_task(uow, Status.RUNNING, provider="other")
    with db.unit_of_work() as uow:
        assert store.apply(uow, elsewhere, 1, received) == 2
    with pytest.raises(IntegrityError, match="tasks_receipt_key"), db.unit_of_work() as uow:
        store.apply(uow, same, 1, received)


# --- touch ---


def test_a_touch_notes_a_poll_and_keeps_the_version(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(
            uow, Status.RUNNING, **factories.generating(), rings=2, poll_count=4, updated_at=timedelta(minutes=-9)
        )
        touch = store.Touch(id=id_, version=1, wait_s=8, failed_polls=1, lost_polls=2, empty_polls=3, last_error="no")
        store.touch(uow, [touch])
    row = factories.row_of(db, id_)
    assert (row["version"], row["rings"], row["poll_count"]) == (1, 0, 5)
    assert (row["failed_polls"], row["lost_polls"], row["empty_polls"], row["last_error"]) == (1, 2, 3, "no")
    ahead, ago = seconds_from_now(db, id_, "wake_at"), seconds_from_now(db, id_, "updated_at")
    assert ahead is not None
    assert ago is not None
    assert 6 < ahead <= 8
    assert ago > -60
    assert factories.events_of(db, id_) == []


def test_a_touch_without_an_error_keeps_the_last_one(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING, **factories.generating(), last_error="earlier")
        store.touch(uow, [store.Touch(id=id_, version=1, wait_s=1)])
    assert factories.row_of(db, id_)["last_error"] == "earlier"


@pytest.mark.parametrize(("status", "version"), [(Status.RUNNING, 2), (Status.PENDING, 1), (Status.SUCCESS, 1)])
def test_a_touch_leaves_a_row_alone_that_moved_on(db: Database, status: Status, version: int) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, status, version=version)
    before = factories.row_of(db, id_)
    with db.unit_of_work() as uow:
        store.touch(uow, [store.Touch(id=id_, version=1, wait_s=1)])
        store.touch(uow, [])
    assert factories.row_of(db, id_) == before


# --- insert ---


def test_an_inserted_task_waits_at_version_one_with_its_event(db: Database) -> None:
    with db.unit_of_work() as uow:
        values = factories.submission(factories.add_user(uow), metadata={"a": [1, None]}, deadline_s=60)
        assert store.insert(uow, values, {"provider": "sim"})
    row = factories.row_of(db, values["id"])
    assert (row["status"], row["version"], row["attempt"], row["stage"]) == ("PENDING", 1, 1, None)
    assert (row["metadata"], row["finished_at"], row["upstream_call_count"]) == ({"a": [1, None]}, None, 0)
    assert row["deadline_at"] - row["created_at"] == timedelta(seconds=60)
    (event,) = factories.events_of(db, values["id"])
    assert (event["reason"], event["from_status"], event["to_status"]) == ("accepted", None, "PENDING")
    assert (event["version"], event["detail"]) == (1, {"provider": "sim"})


def keyed(user_id: object, **columns: object) -> dict[str, object]:
    """A submission with an idempotency key."""
    made = factories.submission(user_id, idempotency_key="k", fingerprint=b"f")  # type: ignore[arg-type]  # a UUID
    return made | columns


def test_an_idempotency_key_is_taken_once_per_user_and_order(db: Database) -> None:
    with db.unit_of_work() as uow:
        ann, bob = factories.add_user(uow, "ann"), factories.add_user(uow, "bob")
        answers = [
            store.insert(uow, values, {})
            for values in (keyed(ann), keyed(ann), keyed(ann, order_id="o"), keyed(bob), keyed(ann, order_id="o"))
        ]
    assert answers == [True, False, True, True, False]


def test_a_refused_insert_writes_no_event(db: Database) -> None:
    with db.unit_of_work() as uow:
        ann = factories.add_user(uow)
        store.insert(uow, keyed(ann), {})
        again = keyed(ann)
        assert not store.insert(uow, again, {})
        assert store.get(uow, again["id"]) is None  # type: ignore[arg-type]  # a UUID
        assert uow.scalar("select count(*) from task_events") == 1


def test_tasks_without_a_key_never_collide(db: Database) -> None:
    with db.unit_of_work() as uow:
        ann = factories.add_user(uow)
        assert all(store.insert(uow, factories.submission(ann), {}) for _ in range(3))


def test_a_forgotten_key_can_be_taken_again(db: Database) -> None:
    with db.unit_of_work() as uow:
        ann = factories.add_user(uow)
        first = keyed(ann)
        store.insert(uow, first, {})
        store.forget_key(uow, first["id"])  # type: ignore[arg-type]  # a UUID
        assert store.insert(uow, keyed(ann), {})


# --- the small ones ---


def test_get_gives_the_whole_row_with_the_databases_clock(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow)
        row = store.get(uow, id_)
        assert row is not None
        assert row["now"] == uow.scalar("select now()")
        assert store.get(uow, uuid4()) is None


def test_a_late_result_is_an_event_and_nothing_else(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.SUCCESS, version=7)
    before = factories.row_of(db, id_)
    with db.unit_of_work() as uow:
        store.note_late(uow, id_, {"what": "a duplicate"})
    assert factories.row_of(db, id_) == before
    (event,) = factories.events_of(db, id_)
    assert (event["reason"], event["version"], event["detail"]) == ("late", 7, {"what": "a duplicate"})
    assert (event["from_status"], event["to_status"]) == ("SUCCESS", "SUCCESS")


def test_a_cancel_request_is_noted_once_and_keeps_the_version(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING)
        store.request_cancel(uow, id_)
    first = factories.row_of(db, id_)
    with db.unit_of_work() as uow:
        store.request_cancel(uow, id_)
    assert first["cancel_requested_at"] is not None
    assert first["version"] == 1
    assert factories.row_of(db, id_) == first


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.RUNNING}))
def test_a_cancel_request_touches_only_running_tasks(db: Database, status: Status) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, status)
        store.request_cancel(uow, id_)
    assert factories.row_of(db, id_)["cancel_requested_at"] is None


def test_a_receipt_on_its_way_in_is_not_refused_by_a_cancel_request(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING)
        store.request_cancel(uow, id_)
        fields = {"stage": Stage.GENERATING, "receipt": "r"}
        assert store.apply(uow, id_, 1, Change(reason=Reason.OBSERVED, to=Status.RUNNING, fields=fields)) == 2
    assert factories.row_of(db, id_)["cancel_requested_at"] is not None


def adopted(db: Database, status: Status, **columns: Any) -> Row:  # noqa: ANN401  columns of tasks
    """The row after a receipt for attempt 1 came too late."""
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, status, **columns)
        store.adopt_receipt(uow, id_, 1, "late")
    return factories.row_of(db, id_)


def test_an_ended_task_keeps_a_receipt_that_came_late(db: Database) -> None:
    row = adopted(db, Status.TIMEOUT)
    assert (row["receipt"], row["version"]) == ("late", 1)


@pytest.mark.parametrize(
    ("status", "columns"),
    [
        (Status.TIMEOUT, {"receipt": "own"}),
        (Status.TIMEOUT, {"attempt": 2}),
        (Status.PENDING, {}),
        (Status.RUNNING, {}),
    ],
)
def test_a_late_receipt_is_not_put_where_it_does_not_belong(
    db: Database, status: Status, columns: dict[str, object]
) -> None:
    assert adopted(db, status, **columns)["receipt"] == columns.get("receipt")


def test_a_file_recorded_again_replaces_its_record(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow)
        store.record_assets(uow, [factories.asset(id_), factories.asset(id_, n=1)])
        uow.execute("update assets set removed_at = now()")
        store.record_assets(uow, [factories.asset(id_, attempt=2, key="b.png", bytes=9)])
        store.record_assets(uow, [])
        rows = uow.all("select n, attempt, key, bytes, removed_at is null as there from assets order by n")
    assert [tuple(r.values()) for r in rows] == [(0, 2, "b.png", 9, True), (1, 1, "2026/01/a.png", 68, False)]
