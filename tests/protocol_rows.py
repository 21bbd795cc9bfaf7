"""What the model of tests/protocol.py is made of: a row, a worker, a message, and the moves of a row.

A move applies the real lifecycle.TRANSITIONS, guards included. What else a row holds does not decide what may happen
to it, and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from models.lifecycle import FINAL, TRANSITIONS, Guard, Reason, Stage, Status


class Row(NamedTuple):
    """What of a task's row decides what may happen to it."""

    status: Status = Status.PENDING
    stage: Stage | None = None
    receipt: bool = False
    certain: bool = False
    unconfirmed: bool = False
    cancel: bool = False
    doubt: bool = False  # a submit of this attempt may have been accepted, and may be repeated
    attempt: int = 0


# Messages, as bits of `net`.
SUBMIT, FETCH, RECONCILE, CANCEL, POLL = 1, 2, 4, 8, 16
UNDER_WAY = (32, 64)  # a submit call of attempt 0 or 1 that was cut and may still reach the vendor
BITS = (SUBMIT, FETCH, RECONCILE, CANCEL, POLL, *UNDER_WAY)
UNFENCED = sum(UNDER_WAY) | CANCEL  # a cancel is the caller's wish, whatever the version
# What the vendor has of one attempt.
NOTHING, WORKING, DONE, DEAD = range(4)
# Where a worker is.
IDLE, CALL, ANSWERED, ADOPTED, ASKING, FOUND, FETCHED, STOPPING, CONFIRMED = range(9)
BEGUN, DUE, OBSERVED, LOOKING, PLANNING, RECHECKING = range(9, 15)
# What it has in hand.
ACCEPTED, REFUSED, NOT_TAKEN, UNCLEAR, GOOD, BAD = range(6)


class Worker(NamedTuple):
    """One thread of a worker. `task_current`, `chain_current`: the version it holds is still the row's."""

    at: int = IDLE
    hand: int = 0
    task_current: bool = False
    chain_current: bool = False
    attempt: int = 0


def on_task(at: int, attempt: int, hand: int = 0) -> Worker:
    """A worker that holds the row's own version."""
    return Worker(at=at, hand=hand, task_current=True, attempt=attempt)


def on_chain(at: int, *, current: bool = True) -> Worker:
    """A worker in a round of the chain."""
    return Worker(at=at, chain_current=current)


class State(NamedTuple):
    """Everything at one moment. `row` is an index into ROWS, `jobs` what the vendor has of attempts 0 and 1."""

    row: int
    jobs: tuple[int, int]
    awake: bool
    net: int
    workers: tuple[Worker, Worker]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The protocol. The first four are its rules, the next four faults to plant, the last two other worlds."""

    task_fence: bool = True
    chain_fence: bool = True
    claim_before_call: bool = True
    recheck: bool = True
    resubmit: bool = False  # send a row without receipt again
    doubt_is_certain: bool = False  # let a task that may be running at the vendor start again
    doubt_forgotten: bool = False  # take a no to a repeated submit for a no to the first
    faultless: bool = False  # no loss, no death, no sweep: what must work without being rescued
    honours_reference: bool = False  # the vendor gives the same job for the same reference; then a repeat is allowed
    restarts: bool = True  # False: whether a restart would be safe is checked, where it leads is not searched


class Violation(Exception):  # noqa: N818  what the search looks for, not an error
    """A promise is broken."""


ROWS: list[Row] = []
_PLACES: dict[Row, int] = {}


def place(row: Row) -> int:
    """The index of a row in ROWS."""
    if row not in _PLACES:
        _PLACES[row] = len(ROWS)
        ROWS.append(row)
    return _PLACES[row]


def holds(guard: Guard, row: Row) -> bool:
    """The guard of a transition, as store.py has it in SQL."""
    return {
        Guard.NONE: True,
        Guard.NO_RECEIPT: not row.receipt,
        Guard.RECEIPT: row.receipt,
        Guard.DOUBTFUL: not row.certain and (row.status is Status.TIMEOUT or row.unconfirmed),
        Guard.CERTAIN: row.certain,
    }[guard]


class Move:
    """One kind of Change: what store.apply makes of a row whose version is right."""

    def __init__(self, reason: Reason, to: Status, **patch: Any) -> None:  # noqa: ANN401  fields of Row
        self.reason, self.to, self.patch = reason, to, patch
        self._known: dict[int, int] = {}

    def __call__(self, index: int) -> int:
        """The index of the row afterwards; -1 when the transition is not legal."""
        if index not in self._known:
            self._known[index] = self._apply(ROWS[index])
        return self._known[index]

    def _apply(self, row: Row) -> int:
        legal = any(
            t.start is row.status and t.reason is self.reason and t.to is self.to and holds(t.guard, row)
            for t in TRANSITIONS
        )
        if not legal:
            return -1
        if row.status in FINAL and self.to in FINAL and self.reason is not Reason.RECONCILED:
            raise Violation("one attempt ended twice")
        kept = row._replace(status=self.to, **self.patch)
        if self.to is not Status.RUNNING:
            kept = kept._replace(stage=None)
        if self.reason is Reason.RESTARTED:
            kept = Row(attempt=row.attempt + 1)
        return place(kept)


R, S = Reason, Status
CLAIMED = Move(R.CLAIMED, S.RUNNING, stage=Stage.SUBMITTING)
CLAIMED_LATE = Move(R.CLAIMED, S.RUNNING, stage=Stage.GENERATING, receipt=True)
RECEIVED = Move(R.OBSERVED, S.RUNNING, stage=Stage.GENERATING, receipt=True)
READY = Move(R.OBSERVED, S.RUNNING, stage=Stage.FETCHING)
RETURNED = Move(R.NOT_ACCEPTED, S.PENDING)
RETURNED_IN_DOUBT = Move(R.NOT_ACCEPTED, S.PENDING, doubt=True)
NO = Move(R.REFUSED, S.FAILED, certain=True)
NO_IDEA = Move(R.REFUSED, S.FAILED, unconfirmed=True)
NO_BYTES = Move(R.REFUSED, S.FAILED)
STORED = Move(R.FINISHED, S.SUCCESS)
STOPPED = Move(R.CANCELLED, S.CANCELED, certain=True)
STOPPED_IN_DOUBT = Move(R.CANCELLED, S.CANCELED)
RUNG = Move(R.REWOKEN, S.RUNNING)
NEVER_BEGUN = Move(R.DEADLINE, S.TIMEOUT, certain=True)
GIVEN_UP = (Move(R.DEADLINE, S.TIMEOUT), Move(R.STUCK, S.TIMEOUT))
GIVEN_UP_WRONGLY = (Move(R.DEADLINE, S.TIMEOUT, certain=True),)
SETTLED = {
    GOOD: Move(R.RECONCILED, S.SUCCESS, unconfirmed=False),
    BAD: Move(R.RECONCILED, S.FAILED, certain=True, unconfirmed=False),
    UNCLEAR: Move(R.RECONCILED, S.FAILED, unconfirmed=False),
}
AGAIN = Move(R.RESTARTED, S.PENDING)
NOBODY = Worker()
START = State(row=place(Row()), jobs=(NOTHING, NOTHING), awake=False, net=SUBMIT, workers=(NOBODY, NOBODY))
