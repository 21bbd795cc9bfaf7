"""One builder per row, defaults valid: what a test does not care about, it does not say.

Each `add_...` writes straight into the table, so that a test can begin in any state. A `timedelta` given for a time is
counted from the database's now().
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.dialects.postgresql import JSONB
from uuid_utils.compat import uuid7

from models import accounts, store, tables
from models.db import Database, Row, UnitOfWork
from models.failures import FAILURES, FailureKind
from models.fields import Kind
from models.lifecycle import (
    FINAL,
    Canceled,
    Change,
    Error,
    Failed,
    Finished,
    Missing,
    Observation,
    Output,
    Reason,
    Stage,
    Status,
    Unknown,
    Unreadable,
    Working,
)
from models.settings import Caps, ProviderSettings, Settings, UserLimits

SECRET = "for-tests-only-" + "0" * 32
ANY = 1_000_000  # a cap that never closes


NOISE = Error(kind=FailureKind.SERVER_ERROR, message="a page")
DONE = Finished(outputs=(Output(url="http://127.0.0.1:9/1.png"),))
# What a vendor may say, one of each kind that decide() tells apart.
OBSERVATIONS: list[Observation] = [
    Working(),
    Working(progress=0.4),
    Working(progress=0.2),
    DONE,
    Finished(outputs=()),
    Finished(outputs=(), missing=(Missing(kind=FailureKind.CONTENT_FILTERED),)),
    Failed(error=Error(kind=FailureKind.PROVIDER_ERROR)),
    Canceled(),
    Unknown(),
    Unreadable(error=NOISE),
    Unreadable(error=NOISE, retry_after_s=60),
]


def settings(
    *, total: int = ANY, image: int = ANY, video: int = ANY, running: int = ANY, providers: dict[str, int] | None = None
) -> Settings:
    """Settings with these caps; `providers` gives each its most in flight, `sim` is there by default."""
    made = {
        name: ProviderSettings(adapter="dashscope", base_url="http://127.0.0.1:9", max_in_flight=cap)
        for name, cap in (providers or {"sim": ANY}).items()
    }
    return Settings(caps=Caps(total=total, image=image, video=video), users=UserLimits(running=running), providers=made)


def _insert(uow: UnitOfWork, table: str, values: dict[str, Any]) -> None:
    columns = tables.METADATA.tables[table].c
    terms, bound = [], {}
    for name, value in values.items():
        if isinstance(value, timedelta):
            terms.append(f"now() + :{name}")
        elif isinstance(columns[name].type, JSONB) and value is not None:
            terms.append(f"cast(:{name} as jsonb)")
            value = json.dumps(value)  # noqa: PLW2901  bound as text
        else:
            terms.append(f":{name}")
        bound[name] = value
    uow.execute(f"insert into {table} ({', '.join(values)}) values ({', '.join(terms)})", **bound)  # noqa: S608


def add_user(uow: UnitOfWork, name: str = "ann", **columns: Any) -> UUID:  # noqa: ANN401  columns of users
    """A user; the one of this name if there is one and no column is given."""
    if not columns:
        return accounts.ensure_user(uow, name)
    id_ = uuid7()
    _insert(uow, "users", {"id": id_, "name": name, **columns})
    return id_


def task_row(status: Status = Status.PENDING, **columns: Any) -> dict[str, Any]:  # noqa: ANN401  columns of tasks
    """The columns of a task in `status`, consistent with it unless a test says otherwise."""
    row: dict[str, Any] = {
        "id": uuid7(), "type": Kind.IMAGE, "status": status, "version": 1, "model": "picture", "provider": "sim",
        "provider_model": "sim-1", "input": {"prompt": "a fox"}, "effective": {"prompt": "a fox", "seed": 7},
        "deadline_s": 900, "deadline_at": timedelta(seconds=900), "price_micros": 100,
    }  # fmt: skip
    if status is Status.RUNNING:
        row |= {"stage": Stage.SUBMITTING, "wake_at": timedelta(seconds=60), "claimed_at": timedelta()}
    if status in FINAL:
        row["finished_at"] = timedelta()
    if status in (Status.FAILED, Status.TIMEOUT):
        row |= {"error_code": "deadline_exceeded", "error_message": "It came to nothing."}
    return row | columns


def add_task(uow: UnitOfWork, status: Status = Status.PENDING, user: str = "ann", **columns: Any) -> UUID:  # noqa: ANN401
    """A task in `status`; its id. No event is written for it."""
    row = task_row(status, **columns)
    row.setdefault("user_id", add_user(uow, user))
    _insert(uow, "tasks", row)
    id_: UUID = row["id"]
    return id_


def generating(receipt: str = "r-1", **columns: Any) -> dict[str, Any]:  # noqa: ANN401  columns of tasks
    """What makes a RUNNING row one that is polled; due now."""
    return {"stage": Stage.GENERATING, "receipt": receipt, "wake_at": timedelta()} | columns


def submission(user_id: UUID, **columns: Any) -> dict[str, Any]:  # noqa: ANN401  columns of tasks
    """What store.insert wants."""
    return {
        "id": uuid7(), "user_id": user_id, "key_id": None, "type": Kind.IMAGE, "order_id": "", "idempotency_key": None,
        "fingerprint": None, "priority": 1, "model": "picture", "provider": "sim", "provider_model": "sim-1",
        "input": {"prompt": "a fox"}, "effective": {"prompt": "a fox", "seed": 7}, "adjustments": [], "metadata": {},
        "deadline_s": 900, "price_micros": 100, "currency": "USD",
    } | columns  # fmt: skip


def add_wave(uow: UnitOfWork, provider: str = "sim", kind: Kind = Kind.IMAGE, **columns: Any) -> None:  # noqa: ANN401
    """A polling chain, asleep unless `wake_at` is given."""
    _insert(uow, "waves", {"provider": provider, "type": kind, "version": 1, "wake_at": None} | columns)


def asset(task_id: UUID, **columns: Any) -> dict[str, Any]:  # noqa: ANN401  columns of assets
    """What store.record_assets wants."""
    return {
        "task_id": task_id, "n": 0, "attempt": 1, "key": "2026/01/a.png", "media_type": "image/png", "bytes": 68,
        "sha256": b"\0" * 32, "width": 1, "height": 1, "duration_s": None, "retention_days": 30,
    } | columns  # fmt: skip


def add_delivery(uow: UnitOfWork, task_id: UUID, **columns: Any) -> None:  # noqa: ANN401  columns
    """A webhook delivery, due now."""
    row = {"id": uuid7(), "task_id": task_id, "event": "task.succeeded", "version": 1, "url": "http://127.0.0.1:9/"}
    _insert(uow, "webhook_deliveries", row | {"next_attempt_at": timedelta()} | columns)


def failed(kind: FailureKind, reason: Reason = Reason.REFUSED) -> Change:
    """The end without a result."""
    fields = {"error_code": kind, "certain": FAILURES[kind].certain}
    return Change(reason=reason, to=Status.FAILED, fields=fields)


def timed_out(row: Row, reason: Reason) -> Change:
    """The end by time: certain only if no vendor ever heard of it."""
    certain = row["status"] == Status.PENDING
    fields = {"error_code": FailureKind.DEADLINE, "certain": certain}
    return Change(reason=reason, to=Status.TIMEOUT, fields=fields, wake_in_s=None if certain else 0)


def succeeded(reason: Reason) -> Change:
    """The end with a result, and its price."""
    return Change(reason=reason, to=Status.SUCCESS, fields={"error_code": None, "cost_micros": 100, "outputs": [{}]})


def row_of(db: Database, id_: UUID) -> Row:
    """A task's row as it stands now, without the clock."""
    with db.unit_of_work() as uow:
        row = store.get(uow, id_)
    assert row is not None
    return {name: value for name, value in row.items() if name != "now"}


def events_of(db: Database, id_: UUID) -> list[Row]:
    """A task's events, oldest first."""
    with db.unit_of_work() as uow:
        return list(uow.all("select * from task_events where task_id = :id order by id", id=id_))


def wave_of(db: Database, provider: str = "sim", kind: Kind = Kind.IMAGE) -> Row:
    """A chain's row with `in_s`, the seconds until its next wake-up."""
    with db.unit_of_work() as uow:
        row = uow.one(
            """select *, extract(epoch from wake_at - now())::float as in_s from waves
                where provider = :provider and type = :type""",
            provider=provider,
            type=kind,
        )
    assert row is not None
    return row
