"""The statements of admission: which task a key names, whose turn it is to count, how many live tasks a user has.

All within the caller's transaction. The row itself is written by store; expiry of a key is computed here and nowhere
else: a key counts from the end of its task, or from the start of the attempt while the task lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from models.db import Row, UnitOfWork
from models.settings import Idempotency

ASKED_S = 10  # a question that a caller brought about is under way for so long; then the sweep asks, too
LOCK_TIMEOUT_S = 2  # how long a request waits for its twin, or for its user's row


def limit_lock_waits(uow: UnitOfWork) -> None:
    """From here to the end of the transaction no wait for a lock is longer than LOCK_TIMEOUT_S."""
    uow.execute(f"set local lock_timeout = '{LOCK_TIMEOUT_S}s'")


def lock_timed_out(exc: BaseException) -> bool:
    """Whether a database error is a lock wait that `limit_lock_waits` ended."""
    return getattr(getattr(exc, "orig", None), "pgcode", None) == "55P03"


_RECALL = """
select t.id, t.user_id, t.key_id, t.type, t.status, t.stage, t.version, t.attempt, t.model, t.provider,
       t.order_id, t.priority, t.input, t.effective, t.adjustments, t.metadata, t.progress, t.outputs, t.partial,
       t.missing, t.error_code, t.error_message, t.upstream_code, t.certain, t.risk, t.cost_micros, t.currency,
       t.upstream_call_count, t.retry_count, t.poll_count, t.failed_polls, t.last_error, t.created_at,
       t.claimed_at, t.started_at, t.finished_at, t.deadline_at, t.cancel_requested_at, t.fingerprint, now() as now,
       now() >= case
           when t.status = 'SUCCESS' then t.finished_at + make_interval(days => :success_days)
           when t.finished_at is not null then t.finished_at + make_interval(hours => :ended_hours)
           else t.deadline_at - make_interval(secs => t.deadline_s) + make_interval(hours => :live_hours)
       end as expired
  from tasks t
 where t.user_id = :user_id and t.order_id = :order_id and t.idempotency_key = :key
"""


def recall(uow: UnitOfWork, user_id: UUID, order_id: str, key: str, kept: Idempotency) -> Row | None:
    """The task that carries this key, with `expired` and `now`; None: the key is new.

    A live task's key counts from the start of its attempt, which is not `created_at` once it was restarted.
    """
    return uow.one(
        _RECALL,
        user_id=user_id,
        order_id=order_id,
        key=key,
        success_days=kept.success_days,
        ended_hours=kept.ended_hours,
        live_hours=kept.live_hours,
    )


@dataclass(frozen=True, kw_only=True)
class Active:
    """Live tasks: all of a user, and those of priority `high` that one key asked for."""

    of_user: int
    high_of_key: int


def count_active(uow: UnitOfWork, user_id: UUID, key_id: UUID | None) -> Active:
    """A user's live tasks, those of this transaction included, with the user's row locked until its end.

    The lock makes concurrent requests of one user count one after the other. It is the one that does not collide
    with the foreign key of an insert: with FOR UPDATE two inserts would wait for each other.
    """
    uow.execute("select id from users where id = :user_id for no key update", user_id=user_id)
    row = uow.one(
        """select count(*) as of_user, count(*) filter (where priority = 0 and key_id = :key_id) as high_of_key
             from tasks where user_id = :user_id and status in ('PENDING', 'RUNNING')""",
        user_id=user_id,
        key_id=key_id,
    )
    assert row is not None  # a count is one row
    return Active(of_user=row["of_user"], high_of_key=row["high_of_key"])


def count_replay(uow: UnitOfWork, id_: UUID) -> None:
    """Note that the key of this task was repeated. No transition: the row stays what it is."""
    uow.execute("update tasks set replay_count = replay_count + 1 where id = :id", id=id_)


def hurry_question(uow: UnitOfWork, id_: UUID) -> int | None:
    """Have the vendor asked now about a TIMEOUT that nobody knows the truth of. The version to ring.

    None: that is about to be, or the row is settled. No transition: the row stays what it is. Should the ring be lost,
    the sweep asks ASKED_S later; due at once, it would ask beside it, and both would fetch what there is.
    """
    version: int | None = uow.scalar(
        """update tasks set wake_at = now() + make_interval(secs => :asked_s)
            where id = :id and status = 'TIMEOUT' and not certain
              and (wake_at is null or wake_at > now() + make_interval(secs => :asked_s))
        returning version""",
        id=id_,
        asked_s=ASKED_S,
    )
    return version
