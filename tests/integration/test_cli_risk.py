"""Upstream money at risk, as an operator sees and settles it; over the real store and the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from models import ids
from models.db import Database, Row
from models.fields import Kind
from models.lifecycle import Status
from providers import catalogue
from providers.port import Accepted, Job
from providers.sim import Simulator
from tests import factories
from tests.service import TOML
from tests.shell import MakeShell, Shell

EFFECTIVE = {"prompt": "a fox", "seed": 7, "image_count": 2, "width": 512, "height": 512}
DOUBT: dict[str, Any] = {
    "provider": "wan", "effective": EFFECTIVE, "risk": True, "error_code": "submit_unconfirmed",
    "upstream_call_count": 1, "currency": "EUR",
}  # fmt: skip


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """A vendor of this test's own."""
    with Simulator(image_s=(0, 0.01)) as vendor:
        yield vendor


@pytest.fixture
def shell(make_shell: MakeShell, sim: Simulator) -> Shell:
    """A terminal where `wan` is the simulator and `spare` is away."""
    return make_shell(TOML.replace("http://127.0.0.1:9", sim.dashscope, 1))


def in_doubt(db: Database, status: Status = Status.FAILED, **columns: Any) -> UUID:  # noqa: ANN401  columns of tasks
    """A task of which nobody knows whether the vendor has it."""
    with db.unit_of_work() as uow:
        return factories.add_task(uow, status, **{**DOUBT, **columns})


def named(id_: UUID) -> str:
    """The id as people write it."""
    return ids.encode("task", id_)


def ordered(shell: Shell, prompt: str = "a fox") -> str:
    """The receipt of a job that the vendor has."""
    effective = {**EFFECTIVE, "prompt": prompt, "image_count": 1}
    job = Job(task_id="t", attempt=1, kind=Kind.IMAGE, model="wan2.2-t2i-flash", effective=effective, reference="r")
    outcome = catalogue(shell.settings)["wan"].submit(job)
    assert isinstance(outcome, Accepted)
    return outcome.receipt


def told(db: Database, id_: UUID) -> Row:
    """The last event."""
    return factories.events_of(db, id_)[-1]


def settled(db: Database, id_: UUID) -> tuple[object, ...]:
    """What matters of the row."""
    row = factories.row_of(db, id_)
    return tuple(row[name] for name in ("status", "error_code", "certain", "risk", "cost_micros"))


def test_what_is_at_risk_is_listed_for_all_users_with_what_it_may_have_cost(db: Database, shell: Shell) -> None:
    first = in_doubt(db, receipt="r-1", finished_at=timedelta(hours=-3))
    second = in_doubt(db, Status.TIMEOUT, user="bob", error_code="deadline_exceeded")
    lost = in_doubt(db, error_code="result_unavailable")
    in_doubt(db, risk=False)
    rows = shell.weir("tasks", "list", "--risk")
    assert [row["task_id"] for row in rows] == [named(lost), named(second), named(first)]
    assert [row["resolvable"] for row in rows] == [False, True, True]
    row = rows[2]
    assert (row["user"], row["provider"], row["receipt"], row["code"]) == ("ann", "wan", "r-1", "submit_unconfirmed")
    assert (row["may_have_cost_micros"], row["may_have_cost"], row["age"]) == (200, "0.0002 EUR", "3 h")
    assert rows[1]["user"] == "bob"
    assert len(shell.weir("tasks", "list", "--risk", "--limit", "1")) == 1
    assert "--limit only" in shell.refused("tasks", "list", "--risk", "--type", "image", code=2)


@pytest.mark.parametrize(
    ("status", "code"), [(Status.FAILED, "submit_unconfirmed"), (Status.TIMEOUT, "deadline_exceeded")]
)
def test_a_loss_the_operator_is_sure_of_ends_the_doubt(db: Database, shell: Shell, status: Status, code: str) -> None:
    id_ = in_doubt(db, status, error_code=code, wake_at=timedelta(seconds=60))
    (row,) = shell.weir("tasks", "resolve", named(id_), "--lost")
    assert (row["status"], row["certain"], row["risk"], row["asked_again"]) == ("FAILED", True, False, False)
    assert settled(db, id_) == ("FAILED", "upstream_lost", True, False, 0)
    event = told(db, id_)
    assert (event["reason"], event["from_status"], event["detail"]["by"]) == ("reconciled", status, "operator")
    assert shell.weir("tasks", "list", "--risk") == []


def test_a_job_the_vendor_has_is_adopted_delivered_and_charged(db: Database, shell: Shell) -> None:
    id_, receipt = in_doubt(db), ordered(shell)
    (row,) = shell.weir("tasks", "resolve", named(id_), "--adopt", receipt)
    assert (row["status"], row["receipt"], row["error_code"]) == ("SUCCESS", receipt, None)
    assert settled(db, id_) == ("SUCCESS", None, True, False, 100)
    event = told(db, id_)
    assert (event["reason"], event["detail"]["by"]) == ("reconciled", "operator")
    with db.unit_of_work() as uow:
        assert uow.scalar("select count(*) from assets where task_id = :id", id=id_) == 1


def test_a_job_that_failed_there_fails_here_for_certain(db: Database, shell: Shell) -> None:
    id_, receipt = in_doubt(db), ordered(shell, "x [[sim: fail InternalError.Algo]]")
    (row,) = shell.weir("tasks", "resolve", named(id_), "--adopt", receipt)
    assert (row["status"], row["error_code"]) == ("FAILED", "provider_error")
    assert settled(db, id_)[2:] == (True, False, 0)
    assert told(db, id_)["detail"]["by"] == "operator"


def test_a_job_that_still_works_is_adopted_and_asked_about_again(db: Database, shell: Shell) -> None:
    id_, receipt = in_doubt(db), ordered(shell, "x [[sim: stuck]]")
    (row,) = shell.weir("tasks", "resolve", named(id_), "--adopt", receipt)
    assert (row["status"], row["receipt"], row["asked_again"]) == ("FAILED", receipt, True)
    assert settled(db, id_)[:4] == ("FAILED", "submit_unconfirmed", False, True)
    event = told(db, id_)
    assert (event["reason"], event["detail"]["by"], event["detail"]["receipt"]) == ("late", "operator", receipt)


def test_a_receipt_the_vendor_does_not_know_changes_nothing(db: Database, shell: Shell) -> None:
    id_ = in_doubt(db)
    before = factories.row_of(db, id_)
    said = shell.refused("tasks", "resolve", named(id_), "--adopt", str(uuid4()))
    assert "knows no job" in said
    assert factories.row_of(db, id_) == before


def test_a_vendor_that_cannot_be_asked_changes_nothing(db: Database, shell: Shell) -> None:
    away, gone = in_doubt(db, provider="spare"), in_doubt(db, provider="gone")
    assert "could not be asked" in shell.refused("tasks", "resolve", named(away), "--adopt", "r-1")
    assert "not in the configuration" in shell.refused("tasks", "resolve", named(gone), "--adopt", "r-1")
    assert factories.row_of(db, away)["receipt"] is None


def test_a_receipt_of_another_task_is_refused_by_its_owner(db: Database, shell: Shell) -> None:
    receipt = ordered(shell)
    owner = in_doubt(db, receipt=receipt)
    id_ = in_doubt(db)
    assert f"belongs to {named(owner)}" in shell.refused("tasks", "resolve", named(id_), "--adopt", receipt)
    other = ordered(shell, "another")
    assert f"has a receipt already: {receipt}" in shell.refused("tasks", "resolve", named(owner), "--adopt", other)


def test_what_is_not_in_doubt_cannot_be_settled(db: Database, shell: Shell) -> None:
    for columns in ({"error_code": "result_unavailable"}, {"certain": True}):
        id_ = in_doubt(db, **columns)
        assert "nothing was changed" in shell.refused("tasks", "resolve", named(id_), "--lost")
    for status in (Status.PENDING, Status.RUNNING, Status.SUCCESS, Status.CANCELED):
        id_ = in_doubt(db, status, error_code=None)
        assert f"the task is {status}" in shell.refused("tasks", "resolve", named(id_), "--lost")


def test_what_is_asked_wrongly_is_said(db: Database, shell: Shell) -> None:
    id_ = in_doubt(db)
    assert "there is no such task" in shell.refused("tasks", "resolve", named(uuid4()), "--lost")
    assert "no task id" in shell.refused("tasks", "resolve", "task_1", "--lost", code=2)
    assert "say one of" in shell.refused("tasks", "resolve", named(id_), code=2)
    assert "say one of" in shell.refused("tasks", "resolve", named(id_), "--lost", "--adopt", "r", code=2)
