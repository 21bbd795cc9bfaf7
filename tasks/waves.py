"""Poll: one self-re-scheduling chain per seat (a provider with a credential) and type, over all rows that are due.

A round takes the chain's row (its version fences the wake-up), asks the vendor for all due receipts in as few calls
as its API allows, decides each row, writes all changes in one guarded statement, and re-schedules itself with a
countdown. Nothing waits in a worker, and a task costs a row, not a message.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from uuid import UUID

from celery import Task

from models import backoff, line, metrics, store
from models.db import Row, UnitOfWork
from models.fields import Kind
from models.lifecycle import Change, Decision, End, Fetch, Observation, Reason, Stage, Status, View, Wait, decide
from models.seats import provider_of
from providers.calls import recorded
from providers.port import Call
from tasks import app, bell, fetching, moves
from tasks.pacing import Pacer
from tasks.runtime import Runtime, runtime

log = logging.getLogger("weir.waves")

_MARGIN_S = 15.0
_EVERYTHING = 5000  # rows of one listing round: one call covers a hundred of them


def _poll(kind: Kind, task: Task[..., None], seat: str, version: int) -> None:
    rt = runtime()
    planned = round_of(rt, seat, kind, version)
    if planned is not None:
        next_version, countdown = planned
        # the one place where polling re-schedules itself
        task.apply_async((seat, next_version), **bell.wave_options(seat, kind, next_version, countdown))


@app.task(name="image.poll", bind=True)
def poll_image(self: Task[..., None], seat: str, version: int) -> None:
    """One round of an image chain."""
    _poll(Kind.IMAGE, self, seat, version)


@app.task(name="video.poll", bind=True)
def poll_video(self: Task[..., None], seat: str, version: int) -> None:
    """One round of a video chain."""
    _poll(Kind.VIDEO, self, seat, version)


def round_of(rt: Runtime, seat: str, kind: Kind, version: int) -> tuple[int, int] | None:
    """One round. (version, countdown in whole seconds) of the next, or None: stale wake-up, or nothing left to poll."""
    adapter, provider = rt.providers.get(seat), provider_of(seat)
    if adapter is None or provider not in rt.settings.providers:
        log.warning("nobody can ask about the %s tasks of %s: it is not in the configuration any more", kind, seat)
        return None
    conf, polling = rt.settings.providers[provider], rt.settings.polling
    ticking = adapter.capabilities.list_call and conf.list_call
    with rt.db.unit_of_work() as uow:
        mine = line.claim_wave(uow, seat, kind, version, polling.round_s + conf.query_read_s + _MARGIN_S)
        if mine is None:
            return None
        ticking = ticking and line.generating(uow, seat, kind) >= adapter.capabilities.list_from
        limit = _EVERYTHING if ticking else polling.batch
        rows = line.due(uow, seat, kind, everything=ticking, limit=limit)
        pacer = Pacer.load(rt, uow, provider, kind, rows)
        idle_rounds = line.idle_rounds(uow, seat, kind)
    hold_s = rt.hold_s(seat, "observe")
    if hold_s > 0:  # nobody is asked; rows and counters stay as they are
        return _pause(rt, seat, kind, mine, hold_s, idle_rounds)
    with recorded() as calls:
        seen = adapter.observe([row["receipt"] for row in rows], kind) if rows else {}
    ended = settle(pacer, rows, seen, calls)
    if rows:
        metrics.POLL_ROUNDS.labels(provider, kind, "ended" if ended else "idle").inc()
    tick_s = pacer.tick_s(len(rows) - ended) if ticking else None
    return _plan(rt, seat, kind, mine, tick_s=tick_s, idle_rounds=0 if ended else idle_rounds + 1)


def _pause(rt: Runtime, seat: str, kind: Kind, version: int, hold_s: float, idle_rounds: int) -> tuple[int, int] | None:
    """Skip this round: the provider's gate is shut for `hold_s`."""
    wait_s = backoff.whole_seconds(hold_s)
    with rt.db.unit_of_work() as uow:
        planned = line.plan_wave(uow, seat, kind, version, wake_in_s=wait_s, idle_rounds=idle_rounds)
    return None if planned is None else (planned, wait_s)


def settle(pacer: Pacer, rows: Sequence[Row], seen: Mapping[str, Observation], calls: Sequence[Call]) -> int:
    """Decide every row that was answered, write all of it in one transaction, and see to what follows.

    How many rows left the chain (ended or went on to fetching).
    """
    rt, provider, kind = pacer.rt, pacer.provider, pacer.kind
    decided = [(row, _decide(pacer, row, seen[row["receipt"]])) for row in rows if row["receipt"] in seen]
    done = [row for row, decision in decided if isinstance(decision, Fetch)]
    proposals, touches = [], []
    for row, decision in decided:
        change = _change(rt, row, decision)
        if change is not None:
            proposals.append(store.Proposal(id=row["id"], version=row["version"], change=change))
        elif isinstance(decision, Wait) and _worth_a_write(row, decision):
            touches.append(_touch(row, decision))
    by_receipt = {row["receipt"]: row["id"] for row in rows}
    tries = itertools.count()

    def write() -> dict[UUID, int]:
        with rt.db.unit_of_work() as uow:
            if next(tries) and (before := _written_before(uow, proposals)):
                return before
            moved = store.apply_all(uow, proposals)
            store.touch(uow, touches)
            pacer.learn(uow, done)
            moves.record_calls(uow, provider, calls, by_receipt, [row["id"] for row in rows])
        return moved

    # Without patience a database that is away for a moment would cost the whole harvest, and then the chain: it has no
    # next wake-up, and the sweep finds that out only when this round's budget is over.
    moved = rt.persist(write, _MARGIN_S)
    left = [p for p in proposals if p.id in moved and _leaves(p.change)]
    _follow(rt, kind, left, moved)
    return len(left)


def _written_before(uow: UnitOfWork, proposals: Sequence[store.Proposal]) -> dict[UUID, int]:
    """What an earlier try has written whose COMMIT was cut; empty when it has not.

    Then every row is one version on at least. Somebody else may have moved one; a wake-up for it finds nothing to do.
    """
    there = store.versions(uow, [p.id for p in proposals])
    if any(there.get(p.id) == p.version for p in proposals):
        return {}
    return {p.id: p.version + 1 for p in proposals if there.get(p.id) == p.version + 1}


def _leaves(change: Change) -> bool:
    return change.to is not Status.RUNNING or change.fields["stage"] == Stage.FETCHING


def _follow(rt: Runtime, kind: Kind, left: Sequence[store.Proposal], moved: Mapping[UUID, int]) -> None:
    for proposal in left:
        if proposal.change.to is Status.RUNNING:
            bell.ring(kind, "fetch", proposal.id, moved[proposal.id])
    if any(p.change.to is not Status.RUNNING for p in left):
        moves.wake_next(rt)


def _decide(pacer: Pacer, row: Row, seen: Observation) -> Decision:
    view = View(
        status=Status(row["status"]),
        stage=Stage(row["stage"]) if row["stage"] else None,
        deadline_at=row["deadline_at"],
        progress=row["progress"],
        poll_count=row["poll_count"],
        lost_polls=row["lost_polls"],
        empty_polls=row["empty_polls"],
        failed_polls=row["failed_polls"],
        cancel_requested=row["cancel_requested_at"] is not None,
    )
    return decide(view, seen, row["now"], pacer.wait_s(row))


def _change(rt: Runtime, row: Row, decision: Decision) -> Change | None:
    """A decision as a transition; None where none is due."""
    match decision:
        case Fetch():
            return fetching.begin(rt, row, decision.finished)
        case End(status=Status.CANCELED):
            return moves.canceled(row)
        case End(status=Status.TIMEOUT) if decision.error is not None:
            return moves.timed_out(row, decision.error, decision.reason)
        case End() if decision.error is not None:
            return moves.failed(decision.error)
        case Wait(news=True):
            return Change(
                reason=Reason.OBSERVED,
                to=Status.RUNNING,
                fields={"stage": Stage.GENERATING, "progress": decision.progress, "rings": 0,
                        "poll_count": row["poll_count"] + 1, "failed_polls": 0, "lost_polls": 0, "empty_polls": 0},
                wake_in_s=decision.wait_s,
                detail={"progress": decision.progress},
            )  # fmt: skip
        case _:
            return None


def _worth_a_write(row: Row, wait: Wait) -> bool:
    """Whether a look without news is noted in the row: at the row's own pace, however often a listing covers it."""
    strange = wait.error is not None or row["failed_polls"] or row["lost_polls"] or row["empty_polls"]
    return bool(strange) or row["wake_at"] is None or row["wake_at"] <= row["now"]


def _touch(row: Row, wait: Wait) -> store.Touch:
    return store.Touch(
        id=row["id"],
        version=row["version"],
        wait_s=wait.wait_s,
        failed_polls=wait.failed_polls,
        lost_polls=wait.lost_polls,
        empty_polls=wait.empty_polls,
        last_error=wait.error.message if wait.error else None,
    )


def _plan(
    rt: Runtime, seat: str, kind: Kind, version: int, *, tick_s: int | None, idle_rounds: int
) -> tuple[int, int] | None:
    """Commit when the next round is. A chain with nothing to poll sleeps, unless a receipt came in at that moment."""

    def write() -> tuple[int | None, int | None]:
        with rt.db.unit_of_work() as uow:
            due_s = line.next_due_s(uow, seat, kind)
            wait_s = None if due_s is None else _wait(due_s, tick_s=tick_s)
            return line.plan_wave(uow, seat, kind, version, wake_in_s=wait_s, idle_rounds=idle_rounds), wait_s

    planned, wait_s = rt.persist(write, _MARGIN_S)
    if planned is None:
        return None
    if wait_s is not None:
        return planned, wait_s
    # Asleep now. A submit that committed its receipt just before saw the chain awake and did not ring: look again.
    with rt.db.unit_of_work() as uow:
        due_s = line.next_due_s(uow, seat, kind)
        if due_s is None:
            return None
        wait_s = _wait(due_s, tick_s=tick_s)
        again = line.plan_wave(uow, seat, kind, planned, wake_in_s=wait_s, idle_rounds=0)
    return None if again is None else (again, wait_s)


def _wait(due_s: float, *, tick_s: int | None) -> int:
    """Whole seconds to the next round, 1 to 30: a steady tick where one call covers all, else to the next due row.

    A row's own time backs off while nothing comes of it (lifecycle.decide), and so does the chain.
    """
    if tick_s is not None:
        return tick_s
    return backoff.whole_seconds(max(due_s, 0.0))
