"""What the sweep looks for in the queue: late rows, lost wake-ups, open questions, expired keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from models import line, marks, retention, watch
from models.db import Database, UnitOfWork
from models.fields import Kind
from models.lifecycle import FINAL, Stage, Status
from models.settings import Idempotency
from tests import factories

OPEN = factories.settings()


def found(uow: UnitOfWork, what: str) -> set[UUID]:
    """The ids that one of the sweep's questions gives."""
    rows = {
        "late": lambda: watch.past_deadline(uow, 10),
        "overdue": lambda: watch.overdue(uow, 10, 10),
        "reconcile": lambda: watch.to_reconcile(uow, 3, 10),
    }[what]()
    return {row["id"] for row in rows}


def test_past_its_deadline_is_every_live_task_and_no_other(db: Database) -> None:
    with db.unit_of_work() as uow:
        ids = {s: factories.add_task(uow, s, deadline_at=timedelta(seconds=-1)) for s in Status}
        factories.add_task(uow, deadline_at=timedelta(seconds=1))
        assert found(uow, "late") == {i for s, i in ids.items() if s not in FINAL}


@pytest.mark.parametrize(
    ("columns", "lost"),
    [
        ({"wake_at": timedelta(seconds=-11)}, True),
        ({"wake_at": timedelta(seconds=-9)}, False),
        ({"wake_at": None, "updated_at": timedelta(seconds=-11)}, True),
        ({"wake_at": None, "updated_at": timedelta(seconds=-9)}, False),
        ({"wake_at": timedelta(seconds=-11), "deadline_at": timedelta(seconds=-1)}, False),
    ],
)
def test_a_running_task_is_overdue_past_its_wake_up_and_grace(
    db: Database, columns: dict[str, Any], *, lost: bool
) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING, **columns)
        factories.add_task(uow, wake_at=timedelta(seconds=-99))
        assert found(uow, "overdue") == ({id_} if lost else set())


def test_a_timeout_is_asked_about_with_doubling_pauses_and_then_no_more(db: Database) -> None:
    pauses = []
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.TIMEOUT, wake_at=timedelta())
        while found(uow, "reconcile"):
            pauses.append(uow.scalar("select extract(epoch from wake_at - now())::float from tasks"))
            uow.execute("update tasks set wake_at = now() where wake_at is not null")
    assert pauses == [120, 240, None]
    assert factories.row_of(db, id_)["version"] == 1


@pytest.mark.parametrize(
    ("status", "columns"),
    [
        (Status.TIMEOUT, {"certain": True}),
        (Status.TIMEOUT, {"wake_at": timedelta(seconds=5)}),
        (Status.TIMEOUT, {"wake_at": None}),
        (Status.FAILED, {}),
        (Status.RUNNING, {}),
    ],
)
def test_nothing_else_is_reconciled(db: Database, status: Status, columns: dict[str, Any]) -> None:
    with db.unit_of_work() as uow:
        factories.add_task(uow, status, **{"wake_at": timedelta(seconds=-5)} | columns)
        assert found(uow, "reconcile") == set()


@pytest.mark.parametrize("what", ["late", "overdue", "reconcile"])
def test_a_row_that_somebody_is_changing_is_passed_over(db: Database, what: str) -> None:
    status = {"late": Status.PENDING, "overdue": Status.RUNNING, "reconcile": Status.TIMEOUT}[what]
    times: dict[str, Any] = {
        "wake_at": timedelta(seconds=-99),
        "deadline_at": timedelta(seconds=-1 if what == "late" else 99),
    }
    with db.unit_of_work() as uow:
        held, free = (factories.add_task(uow, status, **times) for _ in range(2))
    with db.unit_of_work() as holder, db.unit_of_work() as sweeper:
        holder.execute("select 1 from tasks where id = :id for update", id=held)
        assert found(sweeper, what) == {free}


def test_one_sweep_at_a_time(db: Database) -> None:
    with db.unit_of_work() as first, db.unit_of_work() as second:
        assert watch.try_sweep_lock(first)
        assert not watch.try_sweep_lock(second)
    with db.unit_of_work() as third:
        assert watch.try_sweep_lock(third)


@pytest.mark.parametrize(
    ("status", "age", "kept"),
    [
        (Status.SUCCESS, timedelta(days=29), True),
        (Status.SUCCESS, timedelta(days=31), False),
        (Status.FAILED, timedelta(hours=23), True),
        (Status.FAILED, timedelta(hours=25), False),
        (Status.CANCELED, timedelta(hours=25), False),
        (Status.TIMEOUT, timedelta(hours=25), False),
    ],
)
def test_a_key_is_forgotten_when_its_time_is_over(db: Database, status: Status, age: timedelta, *, kept: bool) -> None:
    with db.unit_of_work() as uow:
        key: dict[str, Any] = {"idempotency_key": "k", "fingerprint": b"f"}
        id_ = factories.add_task(uow, status, finished_at=-age, **key)
        assert retention.forget_expired_keys(uow, OPEN, 10) == (0 if kept else 1)
    assert (factories.row_of(db, id_)["idempotency_key"] is not None) is kept


def test_the_key_of_a_live_task_is_not_forgotten(db: Database) -> None:
    brief = replace(OPEN, idempotency=Idempotency(success_days=1, ended_hours=1, live_hours=1))
    with db.unit_of_work() as uow:
        factories.add_task(uow, created_at=timedelta(days=-9), idempotency_key="k", fingerprint=b"f")
        assert retention.forget_expired_keys(uow, brief, 10) == 0


def test_keys_are_forgotten_in_bounded_batches(db: Database) -> None:
    with db.unit_of_work() as uow:
        for n in range(3):
            key: dict[str, Any] = {"idempotency_key": f"k{n}", "fingerprint": b"f"}
            factories.add_task(uow, Status.CANCELED, finished_at=timedelta(days=-2), **key)
        assert [retention.forget_expired_keys(uow, OPEN, 2) for _ in range(3)] == [2, 1, 0]


def test_a_mark_says_when_something_last_ran(db: Database) -> None:
    with db.unit_of_work() as uow:
        marks.mark(uow, "sweep")
        uow.execute("update marks set at = at - interval '1 day'")
        marks.mark(uow, "sweep")
        assert uow.scalar("select at = now() from marks where name = 'sweep'")


def test_stages_other_than_generating_do_not_count_as_something_to_poll(db: Database) -> None:
    with db.unit_of_work() as uow:
        for stage in (Stage.SUBMITTING, Stage.FETCHING):
            factories.add_task(uow, Status.RUNNING, stage=stage)
        assert line.lost_waves(uow, 10) == []
        assert line.next_due_s(uow, "sim", Kind.IMAGE) is None
