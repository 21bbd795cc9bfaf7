"""What the sweep looks for: past its time, lost, unanswered, in doubt. Each bounded, each passing over locked rows.

Only chooses; every change of a task goes through store.apply.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.db import Row, UnitOfWork

_SWEEP_LOCK = 0x57454952_02  # "WEIR", one number for all sweeps of the installation


def try_sweep_lock(uow: UnitOfWork) -> bool:
    """Whether this transaction is the one sweep of the moment; the lock ends with it."""
    return bool(uow.scalar("select pg_try_advisory_xact_lock(:lock)", lock=_SWEEP_LOCK))


def past_deadline(uow: UnitOfWork, limit: int) -> Sequence[Row]:
    """Live rows whose deadline has come."""
    return uow.all(
        """select id, version, type, provider, status, risk from tasks
            where status in ('PENDING', 'RUNNING') and deadline_at <= now()
            order by deadline_at limit :limit for update skip locked""",
        limit=limit,
    )


def overdue(uow: UnitOfWork, grace_s: int, limit: int) -> Sequence[Row]:
    """RUNNING rows whose wake-up must have been lost: `wake_at` is more than `grace_s` ago (or missing).

    Not those that a living chain works through: they wait their turn, and a new version would refuse its answers.
    """
    return uow.all(
        """select id, version, type, provider, status, stage, risk, rings,
                  extract(epoch from now() - updated_at) as untouched_s from tasks t
            where status = 'RUNNING' and coalesce(wake_at, updated_at) < now() - make_interval(secs => :grace_s)
              and deadline_at > now()
              and (stage <> 'generating' or not exists (
                   select from waves w where w.provider = t.seat and w.type = t.type
                      and w.wake_at >= now() - make_interval(secs => :grace_s)))
            order by wake_at limit :limit for update skip locked""",
        grace_s=grace_s,
        limit=limit,
    )


def stranded(uow: UnitOfWork, providers: Sequence[str], models: Sequence[str], limit: int) -> Sequence[Row]:
    """PENDING rows at one of `providers`, which are switched off, of one of `models`, which others make.

    Each at most once a minute: one that nobody else can make goes on waiting here.
    """
    return uow.all(
        """update tasks t set rung_at = now()
             from (select id from tasks
                    where status = 'PENDING' and provider = any(:providers) and model = any(:models)
                      and not pinned and not risk and deadline_at > now()
                      and (rung_at is null or rung_at < now() - interval '1 minute')
                    order by rung_at nulls first limit :limit for update skip locked) off
            where t.id = off.id returning t.id, t.version, t.type, t.priority""",
        providers=list(providers),
        models=list(models),
        limit=limit,
    )


def unanswered_cancels(uow: UnitOfWork, grace_s: int, limit: int) -> Sequence[Row]:
    """RUNNING rows whose cancel was asked of us over `grace_s` ago, ten minutes at most, and has no answer yet."""
    return uow.all(
        """select id, version, type from tasks
            where status = 'RUNNING' and receipt is not null and cancel_answered_at is null
              and cancel_requested_at between now() - interval '10 minutes'
                                          and now() - make_interval(secs => :grace_s)
            limit :limit""",
        grace_s=grace_s,
        limit=limit,
    )


def to_reconcile(uow: UnitOfWork, tries: int, limit: int) -> Sequence[Row]:
    """Rows in doubt about which the vendor is to be asked now. Each is given its next time: 2, 4, 8 ... minutes.

    After `tries` questions there is no next time.
    """
    return uow.all(
        """update tasks t set reconcile_tries = t.reconcile_tries + 1,
                  wake_at = case when t.reconcile_tries + 1 < :tries
                                 then now() + make_interval(mins => cast(power(2, t.reconcile_tries + 1) as int)) end
             from (select id from tasks where (status = 'TIMEOUT' or error_code = 'submit_unconfirmed')
                      and wake_at <= now() and not certain
                    order by wake_at limit :limit for update skip locked) due
            where t.id = due.id returning t.id, t.version, t.type""",
        tries=tries,
        limit=limit,
    )
