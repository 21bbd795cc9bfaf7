"""What several steps need: a row as a Job, an ending as a Change, calls as history lines, and who is woken next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from models import ids, ledger, line, store
from models.db import Row, UnitOfWork
from models.failures import FAILURES, FailureKind
from models.fields import Kind
from models.lifecycle import Change, Error, Reason, Status
from providers.port import Call, Job
from tasks import bell
from tasks.runtime import Runtime

RECONCILE_AFTER_S = 60.0  # the first question after a TIMEOUT


def job_of(row: Row, *, attempt: int | None = None) -> Job:
    """The row as an adapter sees it. The reference is new with every attempt, and the same for all of one."""
    attempt = attempt or row["attempt"]
    task_id = ids.encode("task", row["id"])
    claimed = row["claimed_at"] or row["now"]
    return Job(
        task_id=task_id,
        attempt=attempt,
        kind=Kind(row["type"]),
        model=row["provider_model"],
        effective=row["effective"],
        reference=f"{task_id}.{attempt}",
        receipt=row["receipt"],
        claimed_at_s=claimed.timestamp(),
    )


def failed(error: Error, *, reason: Reason = Reason.REFUSED, calls: int | None = None) -> Change:
    """The change that ends a task FAILED. `calls` sets upstream_call_count, None leaves it."""
    fields: dict[str, object] = {**_error_fields(error), "certain": FAILURES[error.kind].certain}
    fields["risk"] = not FAILURES[error.kind].certain
    if calls is not None:
        fields["upstream_call_count"] = calls
    return Change(reason=reason, to=Status.FAILED, fields=fields, detail={"code": error.kind})


def timed_out(row: Row, error: Error, reason: Reason) -> Change:
    """The change that ends a live task TIMEOUT. One that never reached a vendor is certain; others are asked about."""
    certain = row["status"] == Status.PENDING and not row["risk"]
    return Change(
        reason=reason,
        to=Status.TIMEOUT,
        fields={**_error_fields(error), "certain": certain, "risk": not certain, "reconcile_tries": 0},
        wake_in_s=None if certain else RECONCILE_AFTER_S,
        detail={"code": error.kind},
    )


def canceled(row: Row) -> Change:
    """The change that ends a task CANCELED. Certain, unless an earlier call of a waiting task may have been taken."""
    doubt = row["status"] == Status.PENDING and row["risk"]
    return Change(reason=Reason.CANCELLED, to=Status.CANCELED, fields={"certain": not doubt, "risk": doubt})


def _error_fields(error: Error) -> dict[str, object]:
    return {
        "error_code": error.kind,
        "error_message": error.message or FAILURES[error.kind].message,
        "upstream_code": error.upstream_code,
        "cost_micros": 0,
    }


def internal(exc: BaseException) -> Error:
    """A mistake of ours as an Error; the exception's own words stay in the log."""
    return Error(kind=FailureKind.INTERNAL, message=f"{FAILURES[FailureKind.INTERNAL].message} ({type(exc).__name__})")


def record(uow: UnitOfWork, row: Row, calls: Sequence[Call]) -> None:
    """Write one task's upstream calls."""
    record_calls(uow, row["provider"], calls, {}, [row["id"]])


def record_calls(
    uow: UnitOfWork, provider: str, calls: Sequence[Call], by_receipt: Mapping[str, UUID], otherwise: Sequence[UUID]
) -> None:
    """Write upstream calls; each line names the tasks whose receipts it asked about, else `otherwise`."""
    lines = [
        ledger.CallLine(
            task_ids=[by_receipt[r] for r in call.receipts if r in by_receipt] or otherwise,
            provider=provider,
            operation=call.operation,
            started_at_s=call.started_at_s,
            ms=call.ms,
            verdict=call.verdict,
            http_status=call.http_status,
            request_id=call.request_id,
            error=call.error,
        )
        for call in calls
    ]
    ledger.record_calls(uow, lines)


def apply(rt: Runtime, row: Row, version: int, change: Change, calls: Sequence[Call] = ()) -> int | None:
    """One transition and the calls that led to it, in one transaction of its own. As store.apply."""
    with rt.db.unit_of_work() as uow:
        moved = store.apply(uow, row["id"], version, change)
        record(uow, row, calls)
    return moved


def wake_next(rt: Runtime) -> None:
    """Ring whoever may start now that a slot is free, of whatever provider and type: they share caps."""
    with rt.db.unit_of_work() as uow:
        chosen = line.next_up(uow, rt.settings)
    for row in chosen:
        bell.ring(row["type"], "submit", row["id"], row["version"], priority=row["priority"])


def hurry_wave(rt: Runtime, seat: str, kind: Kind, within_s: float) -> None:
    """See to it that the polling chain looks within so many seconds. Call after the receipt is committed."""
    with rt.db.unit_of_work() as uow:
        version = line.hurry_wave(uow, seat, kind, within_s)
    if version is not None:
        bell.ring_wave(seat, kind, version, within_s)
