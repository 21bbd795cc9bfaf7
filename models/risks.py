"""Tasks at risk: upstream money may have been spent without a result. For operators, who see every user's."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from models.db import Row, UnitOfWork
from models.failures import FailureKind
from models.lifecycle import Status


def settleable(row: Row) -> bool:
    """Whether an operator's word may still end the doubt: the rows that lifecycle's DOUBTFUL lets through."""
    unsure = row["status"] == Status.TIMEOUT or row["error_code"] == FailureKind.SUBMIT_UNCONFIRMED
    return unsure and row["status"] in (Status.TIMEOUT, Status.FAILED) and not row["certain"]


def at_risk(uow: UnitOfWork, limit: int) -> Sequence[Row]:
    """At most `limit` tasks of all users that may have cost money for nothing, newest first.

    `age_s`: seconds since it ended, or was accepted while it lives.
    """
    return uow.all(
        """select t.id, u.name as user_name, t.type, t.status, t.model, t.provider, t.receipt, t.attempt, t.error_code,
                  t.upstream_call_count, t.certain, t.effective, t.price_micros, t.currency,
                  cast(extract(epoch from now() - coalesce(t.finished_at, t.created_at)) as double precision) as age_s
             from tasks t join users u on u.id = t.user_id where t.risk order by t.id desc limit :limit""",
        limit=limit,
    )


def owner_of_receipt(uow: UnitOfWork, provider: str, receipt: str) -> UUID | None:
    """The task that has this receipt of this provider."""
    found: UUID | None = uow.scalar(
        "select id from tasks where provider = :provider and receipt = :receipt", provider=provider, receipt=receipt
    )
    return found


def ask_again(uow: UnitOfWork, id_: UUID) -> None:
    """Have the vendor asked about a task in doubt in a minute, and as often as ever. No transition."""
    uow.execute(
        """update tasks set reconcile_tries = 0, wake_at = now() + interval '60 seconds'
            where id = :id and status in ('TIMEOUT', 'FAILED') and not certain""",
        id=id_,
    )
