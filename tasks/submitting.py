"""Submit: claim, commit, call, commit. And finding out what became of a call whose verdict was lost.

The claim is durable before the vendor hears of the task, so that a crash leaves a row which says "may have been
sent" and is never sent again blindly. No transaction is open during a call.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

from models import backoff, ids, line, store
from models.db import TRANSIENT, IntegrityError, Row, UnitOfWork
from models.failures import FAILURES, FailureKind
from models.fields import Kind
from models.lifecycle import Change, Error, Reason, Stage, Status
from models.seats import credential_of
from models.settings import Retries
from providers.calls import recorded
from providers.port import Accepted, Call, FindAnswer, NotAccepted, Outcome, Provider, Refused, Uncertain
from tasks import bell, failover, fetching, moves
from tasks.pacing import Pacer
from tasks.runtime import Runtime

log = logging.getLogger("weir.submit")

_ASKED_AGAIN = 3  # times the vendor is asked again about a submit without a verdict before the task ends in doubt
_ASK_AGAIN_S = 15.0  # until the first of them; each ring of the sweep gives it longer
_MARGIN_S = 10.0  # on top of a call's own time-outs: scheduling, the commit, a slow thread


def submit(rt: Runtime, id_: UUID, version: int) -> None:
    """Submit one waiting task if its version is current and there is room; else do nothing."""
    claimed = _claim(rt, id_, version)
    if claimed is None:
        return
    row, provider = claimed.row, rt.providers[claimed.row["seat"]]
    with recorded() as calls:
        outcome = provider.submit(moves.job_of({**row, "claimed_at": row["now"]}))
        found = ask(rt, provider, row, outcome) if isinstance(outcome, Uncertain) else outcome
    if found is not None:
        settle(rt, {**row, "claimed_by": claimed.by}, claimed.version, found, calls)
        return
    # It stays as it is, "may have been sent": the sweep rings, each time later, and the vendor is asked anew.
    with rt.db.unit_of_work() as uow:
        moves.record(uow, row, calls)
        store.extend(uow, id_, claimed.version, _ASK_AGAIN_S)


def _claim(rt: Runtime, id_: UUID, version: int) -> line.Claimed | None:
    """The claim, committed; None if the wake-up is stale or there is no room.

    A connection that is cut inside COMMIT leaves it open whether the claim holds. Asked again by `by`, it is either
    ours, and goes on, or it never was; without that, a task which was never sent would end unconfirmed.
    """
    by = uuid4()
    with rt.db.unit_of_work() as uow:
        waiting = store.get(uow, id_)
    if waiting is None or waiting["version"] != version:
        return None
    conf = rt.settings.providers.get(waiting["provider"])
    if conf is None or not conf.enabled:
        _leave(rt, waiting)
        return None
    seat, hold_s = _seat(rt, waiting)
    if seat not in rt.providers:
        return None  # in doubt, and the credential that may have it is not in the configuration: it waits for it
    if hold_s > 0:
        _defer(rt, waiting, hold_s)
        return None
    budget = budget_s(rt, waiting["provider"])
    credential = credential_of(seat)
    bound = {"seat": seat, "credential": credential}
    try:
        with rt.db.unit_of_work() as uow:
            claimed = line.claim(uow, id_, version, rt.settings, budget, by=by, credential=credential)
        return None if claimed is None else replace(claimed, row={**claimed.row, **bound})
    except TRANSIENT:
        ours = rt.persist(lambda: _renew(rt, id_, version, by, budget), budget)
        if ours is None:
            raise
        return line.Claimed(row={**waiting, **bound}, version=ours, by=by)


def _seat(rt: Runtime, row: Row) -> tuple[str, float]:
    """With which of the provider's credentials it is to be bought, and for how many seconds that is held; 0.0: not.

    The one with the fewest tasks at work among those that may go. A task that one account may have taken already stays
    with it.
    """
    kind, seats = Kind(row["type"]), rt.seats(row["provider"])
    if row["risk"] or len(seats) == 1:
        seat = row["seat"] if row["risk"] else seats[0]
        return seat, rt.hold_s(seat, "submit", kind)
    held = {seat: rt.hold_s(seat, "submit", kind) for seat in seats}
    with rt.db.unit_of_work() as uow:
        load = line.running_by_seat(uow, row["provider"])
    best = min(seats, key=lambda seat: (held[seat], load.get(seat, 0)))
    return best, held[best]


def _defer(rt: Runtime, row: Row, hold_s: float) -> None:
    """The gate is shut: another provider makes it, or it waits in line, and nothing of it is spent.

    A pause that the vendor asked for ends in seconds, so that nothing goes elsewhere for it.
    """
    held = "the provider is failing, pausing or refusing its credential"
    move = None if row["risk"] or not rt.refuses(row["provider"], Kind(row["type"])) else failover.elsewhere(rt, row)
    wait = Change(
        reason=Reason.DEFERRED,
        to=Status.PENDING,
        wake_in_s=hold_s + rt.jitter(),  # not all at the very moment it opens
        detail={"why": held, "wait_s": round(hold_s, 1)},
    )
    _put(rt, row, move.change(Reason.DEFERRED, {"after": held}, {}) if move is not None else wait)


def _leave(rt: Runtime, row: Row) -> None:
    """The provider is switched off or taken out: another one makes it, or it waits for the provider to come back."""
    move = None if row["risk"] else failover.elsewhere(rt, row)
    if move is not None:
        _put(rt, row, move.change(Reason.DEFERRED, {"after": "the provider is switched off"}, {}))


def _put(rt: Runtime, row: Row, change: Change) -> None:
    """Back into a line, and rung when it is due there."""
    with rt.db.unit_of_work() as uow:
        moved = store.apply(uow, row["id"], row["version"], change)
    if moved is not None:
        bell.ring(row["type"], "submit", row["id"], moved, change.wake_in_s or 0, row["priority"])


def _renew(rt: Runtime, id_: UUID, version: int, by: UUID, budget: float) -> int | None:
    with rt.db.unit_of_work() as uow:
        return line.renew(uow, id_, version, by, budget)


def budget_s(rt: Runtime, provider: str) -> float:
    """Seconds past which the submit call and its repeats are surely over."""
    conf = rt.settings.providers.get(provider)
    if conf is None:
        return _MARGIN_S
    retries = rt.settings.retries
    repeats = 1 + max(retries.async_submit, retries.sync_submit)
    asking = rt.providers[provider].capabilities.find  # an unclear answer is followed by a question, and its repeats
    questions = (1 + retries.reads) * (conf.connect_s + conf.query_read_s + backoff.RETRY_CAP_S) if asking else 0.0
    return repeats * (conf.connect_s + backoff.RETRY_CAP_S) + conf.submit_read_s + questions + _MARGIN_S


def ask(rt: Runtime, provider: Provider, row: Row, doubt: Uncertain) -> Outcome | None:
    """What became of a submit without a verdict: ask by our own id; repeat only where that cannot buy twice.

    None: the vendor could not say now, and is worth asking again. `rings` counts how often it was.
    """
    answer: str | FindAnswer = FindAnswer.UNCLEAR
    if provider.capabilities.find:
        answer = provider.find(moves.job_of(row))
        if not isinstance(answer, FindAnswer):
            return Accepted(receipt=answer)
        if answer is FindAnswer.ABSENT:
            error = Error(kind=FailureKind.NOT_SENT, message="The provider does not have the task.")
            return NotAccepted(error=error, absent=True)
    conf = rt.settings.providers[row["provider"]]
    if provider.capabilities.honours_reference or conf.resubmit == "safe":
        return NotAccepted(error=doubt.error)
    return None if answer is FindAnswer.LATER and row["rings"] < _ASKED_AGAIN else doubt


def settle(rt: Runtime, row: Row, version: int, outcome: Outcome, calls: Sequence[Call]) -> None:
    """Write what a submit came to, whatever it takes until the deadline, then see to what follows."""
    kind = Kind(row["type"])
    if isinstance(outcome, Accepted):
        # Before the write, which may never come: then this line is all that knows of the vendor's job.
        log.info("task %s: accepted by %s as %s", ids.encode("task", row["id"]), row["provider"], outcome.receipt)
    change = _elsewhere(rt, row, outcome) or outcome_change(
        row, outcome, rt.settings.retries, rt.jitter(), _first_s(rt, row)
    )
    left_s = max(30.0, (row["deadline_at"] - row["now"]).total_seconds())
    if isinstance(outcome, Accepted) and outcome.finished is not None:
        change = rt.persist(partial(fetching.begin, rt, row, outcome.finished, outcome.receipt), left_s)
    try:
        moved = rt.persist(lambda: _write(rt, row, version, change, outcome, calls), left_s)
    except IntegrityError:  # the vendor named a job that is another task's: what it did with ours is not known
        unsure = Uncertain(error=Error(kind=FailureKind.UNREADABLE, message="The receipt is another task's."))
        change = outcome_change(row, unsure, rt.settings.retries, rt.jitter(), 0.0)
        moved = rt.persist(lambda: _write(rt, row, version, change, unsure, calls), left_s)
    if moved is None:
        return
    if change.to is Status.RUNNING and change.fields["stage"] == Stage.FETCHING:
        bell.ring(kind, "fetch", row["id"], moved)
    elif change.to is Status.RUNNING:
        moves.hurry_wave(rt, row["seat"], kind, change.wake_in_s or 0)
        _pass_on_cancel(rt, row)
    else:
        if change.to is Status.PENDING:
            bell.ring(kind, "submit", row["id"], moved, change.wake_in_s or 0, row["priority"])
        moves.wake_next(rt)


def _write(rt: Runtime, row: Row, version: int, change: Change, outcome: Outcome, calls: Sequence[Call]) -> int | None:
    """Commit the outcome; the new version, or None when the row has ended meanwhile.

    Safe to repeat: a receipt that is in the row already was written by an earlier try whose COMMIT was cut.
    """
    with rt.db.unit_of_work() as uow:
        moved = store.apply(uow, row["id"], version, change)
        there = store.get(uow, row["id"]) if moved is None else None
        if there is not None and _still_ours(row, there):
            moved = store.apply(uow, row["id"], there["version"], change)
        if moved is not None:
            moves.record(uow, row, calls)
            return _or_canceled(uow, row["id"], moved, change)
        if there is None or not isinstance(outcome, Accepted):
            return None
        if there["receipt"] == outcome.receipt:
            return int(there["version"])
        # The row ended while the vendor was accepting. Keep the receipt, so that the vendor is asked later.
        moves.record(uow, row, calls)
        store.adopt_receipt(uow, row["id"], row["attempt"], outcome.receipt)
        store.note_late(uow, row["id"], {"what": "accepted by the vendor after the end", "receipt": outcome.receipt})
    return None


def _still_ours(row: Row, there: Row) -> bool:
    """Whether only the sweep's ring moved the row meanwhile: the claim is still the one whose call this was."""
    same = there["claimed_by"] is not None and there["claimed_by"] == row["claimed_by"]
    return same and there["stage"] == Stage.SUBMITTING and there["attempt"] == row["attempt"]


def _or_canceled(uow: UnitOfWork, id_: UUID, version: int, change: Change) -> int:
    """End what goes back to the line although its owner wanted it stopped; the version it then has.

    Asked while the vendor was asked, the wish waited for a receipt. There is none, and nothing is to be bought any
    more. Not where the vendor may have it after all: there only the vendor can say.
    """
    if change.to is not Status.PENDING or change.fields["risk"]:
        return version
    there = store.get(uow, id_)
    if there is None or there["cancel_requested_at"] is None:
        return version
    return store.apply(uow, id_, version, moves.canceled(there)) or version


def outcome_change(row: Row, outcome: Outcome, retries: Retries, jitter: float, first_s: float) -> Change:
    """The transition that one submit outcome means. Pure. `first_s`: when an accepted task is first asked about."""
    sent_before = row["upstream_call_count"]  # the claim raised it by one; taken back where nothing was taken
    match outcome:
        case Accepted():
            return Change(
                reason=Reason.OBSERVED,
                to=Status.RUNNING,
                fields={"stage": Stage.GENERATING, "receipt": outcome.receipt, "submit_tries": 0, "risk": False},
                wake_in_s=first_s,
                detail={"request_id": outcome.request_id},
            )
        case Refused() if row["risk"]:  # this repeat was refused; the call before it may have been taken
            return moves.failed(_unconfirmed(outcome.error), calls=sent_before)
        case Refused():
            return moves.failed(outcome.error, calls=sent_before)
        case NotAccepted():
            return _again(row, outcome, retries, jitter, sent_before)
        case Uncertain():
            return moves.failed(_unconfirmed(outcome.error))


def _elsewhere(rt: Runtime, row: Row, outcome: Outcome) -> Change | None:
    """To the next provider of the model, if this one surely has nothing of the task; None: it stays with this one."""
    if not isinstance(outcome, NotAccepted) or _doubtful(row, outcome):
        return None
    move = failover.elsewhere(rt, row)
    if move is None:
        return None
    error = outcome.error
    more = {"upstream_call_count": row["upstream_call_count"], "risk": False, "last_error": error.message}
    return move.change(Reason.NOT_ACCEPTED, {"code": error.kind}, more)


def _doubtful(row: Row, outcome: NotAccepted) -> bool:
    """Whether the vendor may have the task after all, from this call or one before it."""
    return not FAILURES[outcome.error.kind].certain or (row["risk"] and not outcome.absent)


def _first_s(rt: Runtime, row: Row) -> float:
    """Seconds from acceptance to the first question, learned from others of its kind where there are enough."""
    fresh = {**row, "claimed_at": row["now"], "poll_count": 0}
    try:
        with rt.db.unit_of_work() as uow:
            pacer = Pacer.load(rt, uow, row["provider"], Kind(row["type"]), [fresh])
    except TRANSIENT:  # the receipt matters, not when it is asked about
        pacer = Pacer(rt=rt, provider=row["provider"], kind=Kind(row["type"]), known={})
    return pacer.wait_s(fresh)


def _unconfirmed(error: Error) -> Error:
    return Error(
        kind=FailureKind.SUBMIT_UNCONFIRMED,
        message=f"It is not known whether the provider took the task ({error.kind}); it was not sent again.",
        upstream_code=error.upstream_code,
    )


def _again(row: Row, outcome: NotAccepted, retries: Retries, jitter: float, sent_before: int) -> Change:
    """Back to the line, or the end when it was tried often enough. What waits spends no try: waiting is not failing.

    `maybe`: the vendor may have it after all and honours the reference; the count stays raised and the row is a risk.
    A doubt is remembered through all that follows in this attempt, until the vendor itself settles it.
    """
    error = outcome.error
    maybe = not FAILURES[error.kind].certain
    doubt = _doubtful(row, outcome)
    spent = row["submit_tries"] + (not FAILURES[error.kind].waits)
    if spent >= retries.submit_attempts:
        calls = sent_before + maybe
        return moves.failed(_unconfirmed(error) if doubt else error, calls=calls)
    wait_s = backoff.submit_delay(row["submit_tries"], jitter, outcome.retry_after_s)
    return Change(
        reason=Reason.NOT_ACCEPTED,
        to=Status.PENDING,
        fields={
            "submit_tries": spent,
            "upstream_call_count": sent_before + maybe,
            "risk": doubt,
            "last_error": error.message,
        },
        wake_in_s=wait_s,
        detail={"code": error.kind, "wait_s": round(wait_s, 1)},
    )


def _pass_on_cancel(rt: Runtime, row: Row) -> None:
    """A cancel that was asked for while there was no receipt is asked of the vendor now."""
    with rt.db.unit_of_work() as uow:
        there = store.get(uow, row["id"])
    if there is not None and there["cancel_requested_at"] is not None:
        bell.ring(row["type"], "cancel", row["id"], there["version"])


def find_lost(rt: Runtime, row: Row) -> None:
    """Resolve a RUNNING row whose submit left no verdict (a crash between claim and receipt)."""
    provider = rt.providers.get(row["seat"])
    doubt = Uncertain(error=Error(kind=FailureKind.UNREADABLE, message="The answer was lost."))
    if provider is None and row["rings"] < _ASKED_AGAIN:
        return  # this process may have old settings, or the provider comes back: the sweep rings again
    if provider is None:
        settle(rt, row, row["version"], doubt, ())
        return  # the count stays raised: nobody can ask
    with recorded() as calls:
        outcome = ask(rt, provider, row, doubt)
    if outcome is None:
        with rt.db.unit_of_work() as uow:
            moves.record(uow, row, calls)
        return
    # the claim raised the count; settle counts from before the claim, as submit does
    settle(rt, {**row, "upstream_call_count": row["upstream_call_count"] - 1}, row["version"], outcome, calls)
