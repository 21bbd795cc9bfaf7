"""The Celery tasks of one task's way: submit, fetch, cancel, reconcile. Each a shell over a plain function.

Arguments are the task's id and the version the wake-up was meant for; a stale one does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from models import ids, store
from models.fields import Kind
from models.lifecycle import Stage, Status
from providers.calls import recorded
from providers.port import CancelAnswer
from tasks import app, fetching, moves, reconciling, submitting
from tasks.runtime import Runtime, runtime

log = logging.getLogger("weir.steps")

Step = Callable[[Runtime, UUID, int], None]
_APPLY_TRIES = 5


def cancel(rt: Runtime, id_: UUID, _version: int) -> None:
    """Ask the vendor to stop this task's job and no other; confirmed -> CANCELED, else it goes on and history says so.

    Without a receipt there is nothing to name yet: submit passes the wish on once it has one.
    """
    with rt.db.unit_of_work() as uow:
        row = store.get(uow, id_)
    if row is None or row["status"] != Status.RUNNING or row["cancel_requested_at"] is None:
        return
    provider = rt.providers.get(row["seat"])
    if row["stage"] == Stage.SUBMITTING or provider is None:
        return
    answer = CancelAnswer.REFUSED
    with recorded() as calls:
        if row["stage"] == Stage.GENERATING:
            answer = provider.cancel(moves.job_of(row))
    if answer is CancelAnswer.CONFIRMED and _end_canceled(rt, id_, row["receipt"]):
        moves.wake_next(rt)
    with rt.db.unit_of_work() as uow:
        moves.record(uow, row, calls)
        if answer is not CancelAnswer.UNCLEAR:
            store.answer_cancel(uow, id_)
        if answer is not CancelAnswer.CONFIRMED:
            store.note_late(uow, id_, {"what": f"cancel {answer} by the provider", "stage": row["stage"]})


def _end_canceled(rt: Runtime, id_: UUID, receipt: str) -> bool:
    """The vendor confirmed: end the task whatever its version by now, unless it ended or began anew meanwhile."""
    for _ in range(_APPLY_TRIES):
        with rt.db.unit_of_work() as uow:
            row = store.get(uow, id_)
            if row is None or row["status"] != Status.RUNNING or row["receipt"] != receipt:
                return False
            if store.apply(uow, id_, row["version"], moves.canceled(row)) is not None:
                return True
    return False


def _shell(kind: Kind, name: str, step: Step) -> None:
    """Register `step` as the Celery task `<type>.<name>`, so that routes and Flower tell the types apart."""

    def run(task_id: str, version: int) -> None:
        id_ = ids.decode("task", task_id)
        if id_ is None:
            log.error("not a task id: %r", task_id[:40])
            return
        step(runtime(), id_, version)

    app.task(name=f"{kind}.{name}")(run)


for _kind in Kind:
    _shell(_kind, "submit", submitting.submit)
    _shell(_kind, "fetch", fetching.fetch)
    _shell(_kind, "cancel", cancel)
    _shell(_kind, "reconcile", reconciling.reconcile)
