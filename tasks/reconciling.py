"""Reconcile: what became of a task that we lost sight of.

Two cases. A RUNNING row without a receipt, past every time-out of its submit: the process died between claim and
receipt. A TIMEOUT row: the vendor may have finished, and billed, after we gave up.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from models import store
from models.db import Row
from models.failures import FailureKind
from models.fields import Kind
from models.lifecycle import Canceled, Error, Failed, Finished, Observation, Reason, Stage, Status, Unknown
from providers.calls import recorded
from providers.port import Call, FindAnswer, Provider
from tasks import fetching, moves, submitting
from tasks.runtime import Runtime


def reconcile(rt: Runtime, id_: UUID, version: int) -> None:
    """Find out and write it down; do nothing for a row that has moved on."""
    with rt.db.unit_of_work() as uow:
        row = store.get(uow, id_)
    if row is None or row["version"] != version:
        return
    if row["stage"] == Stage.SUBMITTING:
        submitting.find_lost(rt, row)
    elif row["status"] == Status.TIMEOUT and not row["certain"]:
        _after_timeout(rt, row)


def _after_timeout(rt: Runtime, row: Row) -> None:
    # The deadline came while the bytes were on their way: what is here or can still be fetched is paid for, and the
    # vendor may have forgotten it by now, or (where the answer brought the bytes) may never have been able to tell.
    if row["upstream_outputs"] and _bring(rt, row, row["upstream_outputs"]):
        return
    provider = rt.providers.get(row["provider"])
    if provider is None:
        return  # the sweep asks again, in case the provider comes back into the configuration; then it stays a risk
    with recorded() as calls:
        receipt = row["receipt"] or _find(provider, row)
        if receipt is None:
            seen: Observation | None = None
        else:
            seen = provider.observe([receipt], Kind(row["type"])).get(receipt)
    if receipt is not None and row["receipt"] is None:
        with rt.db.unit_of_work() as uow:
            store.adopt_receipt(uow, row["id"], row["attempt"], receipt)
    match seen:
        case Finished(outputs=outputs) if outputs:
            _deliver(rt, row, seen)
        case Failed():
            moves.apply(rt, row, row["version"], moves.failed(seen.error, reason=Reason.RECONCILED), calls)
        case Canceled():
            _end(rt, row, FailureKind.UPSTREAM_CANCELED, calls)
        case Unknown():
            _end(rt, row, FailureKind.UPSTREAM_LOST, calls)
        case _:  # still working, unreadable or not to be found: the sweep has set the next time to ask, if any
            with rt.db.unit_of_work() as uow:
                moves.record(uow, row, calls)


def _find(provider: Provider, row: Row) -> str | None:
    if not provider.capabilities.find:
        return None
    answer = provider.find(moves.job_of(row))
    return None if isinstance(answer, FindAnswer) else answer


def _end(rt: Runtime, row: Row, kind: FailureKind, calls: list[Call]) -> None:
    moves.apply(rt, row, row["version"], moves.failed(Error(kind=kind), reason=Reason.RECONCILED), calls)


def _deliver(rt: Runtime, row: Row, finished: Finished) -> None:
    """Late, but paid for: bring it home. What cannot be fetched now is tried again at the next question."""
    plan = fetching.begin(rt, row, finished).fields
    _bring(rt, {**row, "missing": plan["missing"]}, plan["upstream_outputs"])  # type: ignore[arg-type]


def _bring(rt: Runtime, row: Row, outputs: Sequence[fetching.Item]) -> bool:
    """Fetch these outputs and end the task with what came; False, and nothing changed, when none did."""
    with recorded() as calls:
        items, error = fetching.bring(rt, row, outputs)
    if not any("stored" in item for item in items):
        with rt.db.unit_of_work() as uow:
            moves.record(uow, row, calls)
        return False
    fetching.finish(rt, row, fetching.ending(row, items, error, reason=Reason.RECONCILED), items, calls)
    return True
