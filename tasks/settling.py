"""Settle: an operator's word about a task of which nobody knows whether the vendor made, and billed, it.

    lost    nothing was made: FAILED and certain, so that the caller's key may start it again
    adopt   the vendor has it under this receipt: it is asked once, and what it says is what became of the task

Both are the transition `reconciled`, with `operator` in the event, and change nothing but a row that is in doubt.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from models import ids, risks, store
from models.db import IntegrityError, Row
from models.failures import FailureKind
from models.fields import Kind
from models.lifecycle import Error, Observation, Reason, Unknown, Unreadable, Working
from providers.calls import recorded
from tasks import fetching, moves, reconciling
from tasks.runtime import Runtime

BY = "operator"


class NotSettledError(Exception):
    """Nothing was changed, and why."""


def lost(rt: Runtime, id_: UUID) -> Row:
    """End the doubt about a task of which nothing was made. The row afterwards. Raises NotSettledError."""
    row = _in_doubt(rt, id_)
    found = Error(kind=FailureKind.UPSTREAM_LOST, message="The operator found that the provider made nothing.")
    change = moves.failed(found, reason=Reason.RECONCILED)
    change = replace(
        change,
        fields={**change.fields, "certain": True, "risk": False, "upstream_outputs": None},
        detail={**change.detail, "by": BY},
    )
    if moves.apply(rt, row, row["version"], change) is None:
        raise NotSettledError("the task has changed at this moment: look at it again")
    fetching.let_go(rt, row)
    return _row(rt, id_)


def adopt(rt: Runtime, id_: UUID, receipt: str) -> Row:
    """Give a task the job that the vendor has under `receipt`, and write what became of it. The row afterwards.

    A job that still works, or whose result cannot be fetched now, leaves the task in doubt; the sweep asks again.
    Raises NotSettledError.
    """
    row = _in_doubt(rt, id_)
    if row["receipt"] not in (None, receipt):
        raise NotSettledError(f"the task has a receipt already: {row['receipt']}; adopt that one, or say --lost")
    with recorded() as calls:
        seen = _asked(rt, row, receipt)
    _keep(rt, row, receipt)
    row = _in_doubt(rt, id_)
    reconciling.conclude(rt, row, None if isinstance(seen, Working) else seen, calls, by=BY)
    return _row(rt, id_)


def _asked(rt: Runtime, row: Row, receipt: str) -> Observation:
    """The vendor's word about a job, before anything is written: a receipt that was mistyped must not settle a task."""
    provider = rt.providers.get(row["seat"])
    if provider is None:
        raise NotSettledError(f"the provider {row['provider']} is not in the configuration")
    seen = provider.observe([receipt], Kind(row["type"])).get(receipt)
    if isinstance(seen, Unknown):
        raise NotSettledError(f"{row['provider']} knows no job {receipt}")
    if seen is None or isinstance(seen, Unreadable):
        said = seen.error.message if seen is not None else "no answer in time"
        raise NotSettledError(f"{row['provider']} could not be asked: {said}")
    return seen


def _keep(rt: Runtime, row: Row, receipt: str) -> None:
    try:
        with rt.db.unit_of_work() as uow:
            owner = risks.owner_of_receipt(uow, row["provider"], receipt)
            if owner not in (None, row["id"]):
                raise _taken(owner)
            store.adopt_receipt(uow, row["id"], row["attempt"], receipt)
            risks.ask_again(uow, row["id"])
            store.note_late(uow, row["id"], {"what": "receipt adopted", "by": BY, "receipt": receipt})
    except IntegrityError as exc:
        raise _taken(None) from exc


def _taken(owner: UUID | None) -> NotSettledError:
    whose = ids.encode("task", owner) if owner else "another task"
    return NotSettledError(f"this receipt belongs to {whose}")


def _in_doubt(rt: Runtime, id_: UUID) -> Row:
    row = _row(rt, id_)
    if not risks.settleable(row):
        said = " ".join(filter(None, (row["status"], row["error_code"])))
        raise NotSettledError(f"the task is {said}, and nothing about it is open for an operator to say")
    return row


def _row(rt: Runtime, id_: UUID) -> Row:
    with rt.db.unit_of_work() as uow:
        row = store.get(uow, id_)
    if row is None:
        raise NotSettledError("there is no such task")
    return row
