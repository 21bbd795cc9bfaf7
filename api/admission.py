"""The one use case of POST /v1/tasks: replay or admit, exactly one task per intention.

Order: replay look-up, validation, rate, then one transaction: insert with its key, cap under the user's row lock,
commit, and only then the wake-up. A replay is never rate limited; a refused request counts against the rate, or
guessing would be free. A concurrent twin waits on the unique index for the first to commit and then replays it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from uuid_utils.compat import uuid7

from api import limits
from api.errors import Problem
from api.keys import Key
from api.parts import parts
from api.schemas import Wanted, wanted
from models import ids, intake, metrics, reads, store
from models.accounts import Caller
from models.db import TRANSIENT, Row, UnitOfWork
from models.lifecycle import FINAL, Change, Reason, Status
from tasks import bell

_ROUNDS = 3  # a key that is forgotten and taken again between two statements; more often is no accident

# What a new attempt begins with. Totals (upstream_call_count, retry_count) go on: they are of all attempts.
_AFRESH: Mapping[str, object] = {
    "receipt": None, "rings": 0, "submit_tries": 0, "tried": [], "fetch_tries": 0, "fetch_starts": 0,
    "fetch_until": None, "reconcile_tries": 0, "poll_count": 0, "failed_polls": 0, "lost_polls": 0, "empty_polls": 0,
    "last_error": None, "progress": None, "upstream_outputs": None, "upstream_usage": None, "outputs": [],
    "partial": False, "missing": [], "error_code": None, "error_message": None,
    "upstream_code": None, "certain": False, "risk": False, "cost_micros": 0, "cancel_requested_at": None,
    "cancel_answered_at": None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The task that a request is answered with; `reused`: an earlier request made it."""

    row: Row
    reused: bool


def recall(uow: UnitOfWork, caller: Caller, key: Key | None) -> Row | None:
    """The task that the caller's key made, `expired` or not; None: there is no key, or it is new."""
    if key is None:
        return None
    return intake.recall(uow, caller.user_id, key.order_id, key.key, parts().settings.idempotency)


def submit(caller: Caller, body: Mapping[str, object], key: Key | None, known: Row | None) -> Answer:
    """Make the task that `body` asks for, or answer with the one its key made: `known`. Raises Problem."""
    if key is not None and known is not None and not known["expired"]:
        limits.look(caller)
        return _again(caller, key, known)
    wish = _valid(caller, body)
    for _ in range(_ROUNDS):
        made = _admit(caller, wish, key)
        if made is None:
            continue
        if isinstance(made, Answer):
            return made
        assert key is not None  # only a key leads to somebody else's row
        return _again(caller, key, made)
    raise Problem("idempotency-in-progress", "The key is changing hands; try again.", headers={"Retry-After": "1"})


def preview(caller: Caller, body: Mapping[str, object]) -> tuple[Wanted, bool]:
    """What `submit` would admit now, and whether its seed is yet to be drawn. Stores nothing. Raises Problem."""
    limits.spend_preview(caller)
    drawn: list[int] = []

    def note(low: int, _: int) -> int:
        drawn.append(low)
        return low

    return wanted(body, parts(), caller.models, note), bool(drawn)


def _valid(caller: Caller, body: Mapping[str, object]) -> Wanted:
    """What the body asks for, the request being counted whatever it asks. A rate that is used up comes first."""
    try:
        wish = wanted(body, parts(), caller.models)
    except Problem:
        limits.spend(caller)
        raise
    limits.spend(caller)
    return wish


def _admit(caller: Caller, wish: Wanted, key: Key | None) -> Answer | Row | None:
    """One transaction: an Answer with the new task, the row that has the key already, or None: look again."""
    with parts().db.unit_of_work() as uow:
        intake.limit_lock_waits(uow)
        id_ = _insert(uow, caller, wish, key)
        if id_ is None:
            row = recall(uow, caller, key)
            if row is None or not row["expired"]:
                return row
            store.forget_key(uow, row["id"])
            id_ = _insert(uow, caller, wish, key)
            if id_ is None:
                return None
        _check_active(uow, caller, caller.key_id, wish.priority)
        fresh = reads.task(uow, caller.user_id, id_)
        assert fresh is not None  # this transaction has just written it
        uow.after_commit(partial(bell.ring, wish.type, "submit", id_, fresh["version"], priority=wish.priority))
    return Answer(row=fresh, reused=False)


def _insert(uow: UnitOfWork, caller: Caller, wish: Wanted, key: Key | None) -> UUID | None:
    """The id of the new row, or None: the key is taken. Waits for a twin that has not committed yet."""
    id_ = uuid7()
    values = {
        "id": id_,
        "user_id": caller.user_id,
        "key_id": caller.key_id,
        "idempotency_key": key.key if key else None,
        "fingerprint": key.fingerprint if key else None,
        **{name: value for name, value in vars(wish).items() if name not in ("why", "candidates")},
    }
    try:
        told = {"provider": wish.provider, "why": wish.why, "candidates": wish.candidates}
        inserted = store.insert(uow, values, told)
    except TRANSIENT as exc:
        if intake.lock_timed_out(exc):
            raise _in_progress() from exc
        raise
    return id_ if inserted else None


def _in_progress() -> Problem:
    detail = "The first request with this key is still being accepted."
    return Problem("idempotency-in-progress", detail, headers={"Retry-After": "1"})


def _check_active(uow: UnitOfWork, caller: Caller, key_id: UUID | None, priority: int) -> None:
    """Raise Problem too-many-active-tasks, which rolls the transaction back, if there is one task too many."""
    try:
        active = intake.count_active(uow, caller.user_id, key_id)
    except TRANSIENT as exc:
        if intake.lock_timed_out(exc):
            detail = "Too many of this user's requests are being accepted at this moment."
            raise Problem("service-unavailable", detail, headers={"Retry-After": "1"}) from exc
        raise
    limits.check_active(caller, active, high=priority == 0)


def _again(caller: Caller, key: Key, row: Row) -> Answer:
    """Answer a repeated key: the task as it is, begun anew if its failure is certain, asked about if it is in doubt."""
    if bytes(row["fingerprint"]) != key.fingerprint:
        raise Problem(
            "idempotency-key-reused",
            "This key was sent before with another body.",
            original_task_id=ids.encode("task", row["id"]),
        )
    status = Status(row["status"])
    if status in FINAL and status is not Status.SUCCESS and row["certain"]:
        return _restart(caller, key, row)
    with parts().db.unit_of_work() as uow:
        intake.count_replay(uow, row["id"])
        uow.after_commit(metrics.REPLAYS.labels(row["type"]).inc)
        if status is Status.TIMEOUT:
            version = intake.hurry_question(uow, row["id"])
            if version is not None:
                uow.after_commit(partial(bell.ring, row["type"], "reconcile", row["id"], version))
    return Answer(row=row, reused=True)


def _restart(caller: Caller, key: Key, row: Row) -> Answer:
    """Begin a task anew whose failure is certain. Whoever comes second finds it begun and replays it.

    It counts against the rate, as a first request does: each is one more call to a vendor.
    """
    if caller.models is not None and row["model"] not in caller.models:
        raise Problem(
            "model-not-allowed", f"This key may not ask for the model {row['model']}.", models=[*caller.models]
        )
    limits.spend(caller)
    change = Change(
        reason=Reason.RESTARTED,
        to=Status.PENDING,
        fields={**_AFRESH, "attempt": row["attempt"] + 1},
        wake_in_s=0,
        detail={"after": row["status"], "code": row["error_code"]},
    )
    try:
        with parts().db.unit_of_work() as uow:
            intake.limit_lock_waits(uow)
            version = store.apply(uow, row["id"], row["version"], change)
            if version is not None:
                _check_active(uow, caller, row["key_id"], row["priority"])
                wake = partial(bell.ring, row["type"], "submit", row["id"], version, priority=row["priority"])
                uow.after_commit(wake)
            now = recall(uow, caller, key)
    except TRANSIENT as exc:
        if intake.lock_timed_out(exc):
            raise _in_progress() from exc
        raise
    return Answer(row=now or row, reused=True)
