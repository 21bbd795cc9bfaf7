r"""PURE  The state machine: what may happen to a task, as data, and what to do about what a vendor says.

    (new) --accepted--> PENDING --claimed--> RUNNING --finished--> SUCCESS
                          |  ^                 |  \--refused----> FAILED
                          |  '--not_accepted---'  \--cancelled--> CANCELED
                          '--refused, deadline, cancelled          \--deadline, stuck--> TIMEOUT

A final state has two exits and no more: `reconciled` (TIMEOUT, or FAILED submit_unconfirmed, whose truth was found
out later) and `restarted` (a failure that is certain, when the caller repeats key and body).

This module may not know a clock, a socket or a database: `now` and `jitter` are arguments. The invariant it keeps:
nothing outside TRANSITIONS ever happens, because store.apply builds its WHERE clause from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from models.failures import FailureKind


class Status(StrEnum):
    """What a caller sees. Who moves a row out of each, and what a crash leaves, is TRANSITIONS."""

    PENDING = "PENDING"  # accepted, waiting for a slot or for `wake_at`; a crash leaves it to the sweep
    RUNNING = "RUNNING"  # claimed: the vendor has it, or may have it; a crash leaves it to wave, sweep, reconcile
    SUCCESS = "SUCCESS"  # bytes are in our storage
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"  # past its deadline or stuck; the vendor is asked again later
    CANCELED = "CANCELED"


LIVE = frozenset({Status.PENDING, Status.RUNNING})
FINAL = frozenset(Status) - LIVE


class Stage(StrEnum):
    """Where a RUNNING task is. Null in every other state."""

    SUBMITTING = "submitting"  # no receipt yet
    GENERATING = "generating"  # receipt in hand
    FETCHING = "fetching"  # vendor done, bytes on the way; never generates again


class Reason(StrEnum):
    """Why a row changed; written with each event."""

    ACCEPTED = "accepted"
    DEFERRED = "deferred"
    CLAIMED = "claimed"
    NOT_ACCEPTED = "not_accepted"
    OBSERVED = "observed"
    REWOKEN = "rewoken"
    FINISHED = "finished"
    REFUSED = "refused"
    DEADLINE = "deadline"
    STUCK = "stuck"
    CANCELLED = "cancelled"
    RECONCILED = "reconciled"
    RESTARTED = "restarted"


class Guard(StrEnum):
    """What must hold of the row besides its status; store.py holds the SQL of each."""

    NONE = "none"
    NO_RECEIPT = "no_receipt"
    RECEIPT = "receipt"
    DOUBTFUL = "doubtful"  # TIMEOUT, or FAILED submit_unconfirmed, not yet certain
    CERTAIN = "certain"  # no job of ours is left at the vendor


@dataclass(frozen=True)
class Transition:
    """One legal change."""

    start: Status | None
    reason: Reason
    to: Status
    guard: Guard = Guard.NONE


S, R, G = Status, Reason, Guard
TRANSITIONS: tuple[Transition, ...] = (
    Transition(None, R.ACCEPTED, S.PENDING),
    Transition(S.PENDING, R.DEFERRED, S.PENDING),
    Transition(S.PENDING, R.CLAIMED, S.RUNNING),
    Transition(S.RUNNING, R.NOT_ACCEPTED, S.PENDING, G.NO_RECEIPT),
    Transition(S.RUNNING, R.OBSERVED, S.RUNNING),
    Transition(S.PENDING, R.REWOKEN, S.PENDING),
    Transition(S.RUNNING, R.REWOKEN, S.RUNNING),
    Transition(S.RUNNING, R.FINISHED, S.SUCCESS),
    Transition(S.PENDING, R.REFUSED, S.FAILED),
    Transition(S.RUNNING, R.REFUSED, S.FAILED),
    Transition(S.PENDING, R.DEADLINE, S.TIMEOUT),
    Transition(S.RUNNING, R.DEADLINE, S.TIMEOUT),
    Transition(S.RUNNING, R.STUCK, S.TIMEOUT),
    Transition(S.PENDING, R.CANCELLED, S.CANCELED),
    Transition(S.RUNNING, R.CANCELLED, S.CANCELED),
    Transition(S.TIMEOUT, R.RECONCILED, S.SUCCESS, G.DOUBTFUL),
    Transition(S.TIMEOUT, R.RECONCILED, S.FAILED, G.DOUBTFUL),
    Transition(S.FAILED, R.RECONCILED, S.SUCCESS, G.DOUBTFUL),
    Transition(S.FAILED, R.RECONCILED, S.FAILED, G.DOUBTFUL),
    Transition(S.FAILED, R.RESTARTED, S.PENDING, G.CERTAIN),
    Transition(S.CANCELED, R.RESTARTED, S.PENDING, G.CERTAIN),
    Transition(S.TIMEOUT, R.RESTARTED, S.PENDING, G.CERTAIN),
)


@dataclass(frozen=True, kw_only=True)
class Error:
    """Why a task ended without its result. `message` is cleaned: no key, no link, no page, no NUL."""

    kind: FailureKind
    message: str = ""
    upstream_code: str | None = None
    http_status: int | None = None


# What a poll, a find or a synchronous submit saw. A closed union: adapters can return nothing else.


@dataclass(frozen=True, kw_only=True)
class Output:
    """One result as the vendor offers it: a link, or the bytes themselves.

    `place` is its 0-based place among the images that were asked for, None when the vendor does not say; `seed` what
    the vendor says was used, None when it does not say (then it is the one that was sent, counted up by `place`).
    """

    url: str | None = None
    content: bytes | None = field(default=None, repr=False)
    place: int | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Missing:
    """One result that will not come, and why."""

    kind: FailureKind
    message: str = ""
    upstream_code: str | None = None


@dataclass(frozen=True, kw_only=True)
class Working:
    """Not yet. `progress` in [0, 1], None when the vendor gives none; `word` the vendor's own status word."""

    progress: float | None = None
    word: str = ""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The vendor is done: at least one output, or `missing` says why each is not there."""

    outputs: tuple[Output, ...]
    missing: tuple[Missing, ...] = ()
    usage: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The vendor's definite end without a result."""

    error: Error


@dataclass(frozen=True, kw_only=True)
class Canceled:
    """The vendor says canceled."""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """The vendor definitely knows no such job."""


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """No news: network, 429, 5xx, a page, a cut body. `retry_after_s` is the vendor's own word, if any."""

    error: Error
    retry_after_s: float | None = None


Observation = Working | Finished | Failed | Canceled | Unknown | Unreadable


@dataclass(frozen=True, kw_only=True)
class View:
    """What `decide` needs to know of a row."""

    status: Status
    stage: Stage | None
    deadline_at: datetime
    progress: float | None = None
    poll_count: int = 0
    lost_polls: int = 0  # definite "no such job" in a row
    empty_polls: int = 0  # "done" without a result in a row
    failed_polls: int = 0  # unreadable answers in a row
    cancel_requested: bool = False


# What to do about it. A closed union, each mapped to one store call by tasks/.


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Ask again in `wait_s` seconds. `news`: something a caller can see changed."""

    wait_s: float
    news: bool
    progress: float | None
    lost_polls: int = 0
    empty_polls: int = 0
    failed_polls: int = 0
    error: Error | None = None


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """Bring the bytes home."""

    finished: Finished


@dataclass(frozen=True, kw_only=True)
class End:
    """A final state. TIMEOUT carries an Error too."""

    status: Status
    reason: Reason
    error: Error | None


@dataclass(frozen=True, kw_only=True)
class Ignore:
    """The row has ended or moved on: record, change nothing."""


Decision = Wait | Fetch | End | Ignore

PATIENCE = 3  # definite "no such job", or "done" without a result, in a row before the task is given up


def decide(  # noqa: PLR0911  one return an observation is the table it stands for
    task: View, seen: Observation, now: datetime, planned_s: float
) -> Decision:
    """What one observation means for one row. Total and pure.

    `now` is the database's clock, `planned_s` when the poll plan would ask again, in seconds from now. A row that is
    not generating ignores everything: submit and fetch have their own writers. A finished job is fetched even at the
    deadline: it is paid for, and the sweep, not this function, ends what does not arrive.
    """
    if task.status is not Status.RUNNING or task.stage is not Stage.GENERATING:
        return Ignore()
    match seen:
        case Finished(outputs=()) if not seen.missing:
            return _patience(task, Error(kind=FailureKind.RESULT_MISSING), now, planned_s, empty=1)
        case Finished(outputs=()):
            first = seen.missing[0]
            error = Error(kind=first.kind, message=first.message, upstream_code=first.upstream_code)
            return End(status=Status.FAILED, reason=Reason.REFUSED, error=error)
        case Finished():
            return Fetch(finished=seen)
        case Failed():
            return End(status=Status.FAILED, reason=Reason.REFUSED, error=seen.error)
        case Canceled():
            return _canceled(task)
        case Unknown():
            return _patience(task, Error(kind=FailureKind.UPSTREAM_LOST), now, planned_s, lost=1)
        case Working():
            progress = _risen(task.progress, seen.progress)
            news = progress != task.progress
            return _wait(task, Wait(wait_s=0, news=news, progress=progress), now, planned_s)
        case Unreadable():
            wait = Wait(
                wait_s=seen.retry_after_s or 0,
                news=False,
                progress=task.progress,
                lost_polls=task.lost_polls,
                empty_polls=task.empty_polls,
                failed_polls=task.failed_polls + 1,
                error=seen.error,
            )
            return _wait(task, wait, now, planned_s)
        case _:
            assert_never(seen)


def _canceled(task: View) -> End:
    """A cancel we asked for is the caller's; one we did not is the vendor's failure."""
    if task.cancel_requested:
        return End(status=Status.CANCELED, reason=Reason.CANCELLED, error=None)
    return End(status=Status.FAILED, reason=Reason.REFUSED, error=Error(kind=FailureKind.UPSTREAM_CANCELED))


def _patience(task: View, error: Error, now: datetime, planned_s: float, *, lost: int = 0, empty: int = 0) -> Decision:
    """A strange verdict is believed when it comes PATIENCE times in a row."""
    lost_polls, empty_polls = (task.lost_polls + 1) * lost, (task.empty_polls + 1) * empty
    if max(lost_polls, empty_polls) >= PATIENCE:
        return End(status=Status.FAILED, reason=Reason.REFUSED, error=error)
    wait = Wait(
        wait_s=0, news=False, progress=task.progress, lost_polls=lost_polls, empty_polls=empty_polls, error=error
    )
    return _wait(task, wait, now, planned_s)


def _wait(task: View, wait: Wait, now: datetime, planned_s: float) -> Decision:
    """`wait` with its seconds filled in, cut to the deadline; TIMEOUT when nothing is left."""
    left = (task.deadline_at - now).total_seconds()
    if left <= 0:
        return End(status=Status.TIMEOUT, reason=Reason.DEADLINE, error=Error(kind=FailureKind.DEADLINE))
    planned = max(planned_s, wait.wait_s)  # in this order NaN is passed over
    return Wait(**{**vars(wait), "wait_s": min(planned, left)})


def _risen(old: float | None, new: float | None) -> float | None:
    """Progress never goes back and stays within [0, 1]; None is no news."""
    if new is None:
        return old
    clamped = min(1.0, max(0.0, new))
    return clamped if old is None else max(old, clamped)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One proposed transition, for store.apply. `fields` names columns of `tasks`, `wake_in_s` moves `wake_at`.

    `wake_in_s` None clears `wake_at`. `detail` goes into the event, never a prompt, a key or a link.
    """

    reason: Reason
    to: Status
    fields: Mapping[str, object] = field(default_factory=dict)
    wake_in_s: float | None = None
    detail: Mapping[str, object] = field(default_factory=dict)
