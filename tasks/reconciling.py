"""Reconcile: what became of a task that we lost sight of.

Two cases. A RUNNING row without a receipt, past every time-out of its submit: the process died between claim and
receipt. A TIMEOUT row: the vendor may have finished, and billed, after we gave up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from models import store
from models.db import Row
from models.failures import FailureKind
from models.fields import Kind
from models.lifecycle import Canceled, Change, Error, Failed, Finished, Observation, Reason, Stage, Status, Unknown
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
    elif row["status"] in (Status.TIMEOUT, Status.FAILED) and not row["certain"]:
        _after_timeout(rt, row)


def _after_timeout(rt: Runtime, row: Row) -> None:
    with fetching.under_way(rt, row), recorded() as calls:
        starts = fetching.start(rt, row)
        if starts is None or starts > fetching.STARTS_MAX:
            return  # it moved on; or whoever fetched it was never heard of again, and the operator sees it as a risk
        # The deadline may have come while the bytes were on their way. What is here, or can still be fetched, is paid
        # for; the vendor may have forgotten it by now, or (where its answer brought the bytes) can never tell.
        items, error = fetching.bring(rt, row, row["upstream_outputs"] or ())
        seen = None if items and all("stored" in item for item in items) else _ask(rt, row)
    conclude(rt, row, seen, calls, items=items, error=error)


def conclude(  # noqa: PLR0913  what is known of a row, and who found it out
    rt: Runtime,
    row: Row,
    seen: Observation | None,
    calls: Sequence[Call],
    *,
    items: Sequence[fetching.Item] = (),
    error: Error | None = None,
    by: str = "",
) -> None:
    """Write what the vendor's word means for a task that was given up, if it settles it.

    `items`: its outputs as far as they are known, `error`: why one could not be fetched, `by`: who brought this about,
    for the event.
    """
    here = [item for item in items if "stored" in item]
    match seen:
        case Finished(outputs=outputs) if outputs:  # late, but paid for; with links that are fresh
            row, items, error, more = _bring_fresh(rt, row, seen, here)
            calls = [*calls, *more]
            here = [item for item in items if "stored" in item]
        case Finished(missing=(first, *_)) if not here:  # done, and none of it can be had
            error = Error(kind=first.kind, message=first.message, upstream_code=first.upstream_code)
            return _end(rt, row, error, calls, by)
        case Failed() if not here:
            return _end(rt, row, seen.error, calls, by)
        case Canceled() if not here:
            return _end(rt, row, Error(kind=FailureKind.UPSTREAM_CANCELED), calls, by)
        case Unknown() if not here:
            return _end(rt, row, Error(kind=FailureKind.UPSTREAM_LOST), calls, by)
    # A link that failed this once is asked about again: what is delivered now is all that will ever be delivered.
    later = error is not None and row["wake_at"] is not None and not isinstance(seen, Failed | Canceled | Unknown)
    if here and not later:
        change = fetching.ending(row, items, error, reason=Reason.RECONCILED)
        fetching.finish(rt, row, _said(change, by), items, calls)
        return None
    # Still working, unreadable, not to be found or not to be fetched: the sweep has set the next time to ask, if any.
    with rt.db.unit_of_work() as uow:
        moves.record(uow, row, calls)
        store.keep_outputs(uow, row["id"], row["version"], items)
    return None


def _bring_fresh(
    rt: Runtime, row: Row, seen: Finished, here: Sequence[fetching.Item]
) -> tuple[Row, list[fetching.Item], Error | None, Sequence[Call]]:
    """Fetch by the links the vendor gives now what is not here yet; the row with what it says is missing."""
    plan = fetching.begin(rt, row, seen).fields
    row = {**row, "missing": plan["missing"]}
    kept = {item["place"]: item for item in here}
    fresh: Sequence[fetching.Item] = plan["upstream_outputs"]  # type: ignore[assignment]  # as begin makes them
    with recorded() as calls:
        items, error = fetching.bring(rt, row, [kept.get(item["place"], item) for item in fresh])
    return row, items, error, calls


def _ask(rt: Runtime, row: Row) -> Observation | None:
    """The vendor's word now; None where there is nobody or nothing to ask.

    A provider that is gone from the configuration may come back: the sweep asks again, and then it stays a risk.
    """
    provider = rt.providers.get(row["seat"])
    receipt = None if provider is None else row["receipt"] or _find(provider, row)
    if provider is None or receipt is None:
        return None
    if row["receipt"] is None:
        with rt.db.unit_of_work() as uow:
            store.adopt_receipt(uow, row["id"], row["attempt"], receipt)
    return provider.observe([receipt], Kind(row["type"])).get(receipt)


def _find(provider: Provider, row: Row) -> str | None:
    if not provider.capabilities.find:
        return None
    answer = provider.find(moves.job_of(row))
    return None if isinstance(answer, FindAnswer) else answer


def _end(rt: Runtime, row: Row, error: Error, calls: Sequence[Call], by: str) -> None:
    moves.apply(rt, row, row["version"], _said(moves.failed(error, reason=Reason.RECONCILED), by), calls)
    fetching.let_go(rt, row)


def _said(change: Change, by: str) -> Change:
    return replace(change, detail={**change.detail, "by": by}) if by else change
