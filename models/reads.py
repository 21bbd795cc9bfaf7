"""What the API reads: a task for its owner, lists, history, the line, usage, counts. Changes nothing.

Every question about a single task names its owner, so that no caller of this module can forget to. Plain SQL by
primary key or by an index that tables.py names; nothing here looks at all rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from models.db import Row, UnitOfWork
from models.fairness import AGEING_S

# What a task's JSON is made of; the vendor's links and the caller's key stay in the row.
_SHOWN = """
id, type, status, stage, version, attempt, model, provider, provider_model, order_id, priority, input, effective,
adjustments, metadata, progress, outputs, partial, missing, error_code, error_message, upstream_code, certain, risk,
cost_micros, currency, upstream_call_count, retry_count, poll_count, failed_polls, last_error, created_at,
claimed_at, started_at, finished_at, deadline_at, cancel_requested_at, now() as now
"""


def etag_of(uow: UnitOfWork, user_id: UUID, id_: UUID) -> Row | None:
    """Version and whether a cancel was asked for; None: no such task of this user. One look at the primary key."""
    return uow.one(
        """select version, cancel_requested_at is not null as cancel, status, type from tasks
            where id = :id and user_id = :user_id""",
        id=id_,
        user_id=user_id,
    )


def task(uow: UnitOfWork, user_id: UUID, id_: UUID) -> Row | None:
    """The task as far as its owner may see it, with `now`; None: no such task of this user."""
    return uow.one(f"select {_SHOWN} from tasks where id = :id and user_id = :user_id", id=id_, user_id=user_id)  # noqa: S608  constant


def wake_at(uow: UnitOfWork, id_: UUID) -> datetime | None:
    """When somebody looks at the task next; None: nobody needs to."""
    found: datetime | None = uow.scalar("select wake_at from tasks where id = :id", id=id_)
    return found


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which of a user's tasks; what is empty or None does not matter."""

    status: tuple[str, ...] = ()
    type: str | None = None
    model: str | None = None
    provider: str | None = None
    order_id: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


def tasks(uow: UnitOfWork, user_id: UUID, filters: Filters, *, before: UUID | None, limit: int) -> Sequence[Row]:
    """At most `limit` tasks of a user, newest first, older than the id `before`.

    The id is the order of creation, so that new tasks never shift a page that was handed out.
    """
    return uow.all(
        f"""select {_SHOWN} from tasks
             where user_id = :user_id
               and (cast(:before as uuid) is null or id < cast(:before as uuid))
               and (cast(:status as text[]) is null or status = any(cast(:status as text[])))
               and (cast(:type as text) is null or type = :type)
               and (cast(:model as text) is null or model = :model)
               and (cast(:provider as text) is null or provider = :provider)
               and (cast(:order_id as text) is null or order_id = :order_id)
               and (cast(:after as timestamptz) is null or created_at >= :after)
               and (cast(:until as timestamptz) is null or created_at < :until)
               and metadata @> cast(:metadata as jsonb)
             order by id desc limit :limit""",  # noqa: S608  constant
        user_id=user_id,
        before=before,
        status=list(filters.status) or None,
        type=filters.type,
        model=filters.model,
        provider=filters.provider,
        order_id=filters.order_id,
        after=filters.created_after,
        until=filters.created_before,
        metadata=json.dumps(dict(filters.metadata)),
        limit=limit,
    )


def events(uow: UnitOfWork, id_: UUID, limit: int) -> Sequence[Row]:
    """The task's latest `limit` events, oldest first."""
    return uow.all(
        """select * from (
               select id, version, attempt, at, reason, from_status, to_status, stage, detail
                 from task_events where task_id = :id order by id desc limit :limit) e order by id""",
        id=id_,
        limit=limit,
    )


def calls(uow: UnitOfWork, id_: UUID, limit: int) -> Sequence[Row]:
    """The latest `limit` upstream calls that asked about the task, oldest first.

    `asked_about` counts the tasks of a batch call: others' ids are nobody's business.
    """
    return uow.all(
        """select * from (
               select id, provider, operation, started_at, ms, http_status, verdict, request_id, error,
                      cardinality(task_ids) as asked_about
                 from upstream_calls where task_ids @> array[cast(:id as uuid)] order by id desc limit :limit) c
            order by id""",
        id=id_,
        limit=limit,
    )


def asset(uow: UnitOfWork, user_id: UUID, id_: UUID, n: int) -> Row | None:
    """The record of one stored output of this user's task, with `gone`: its bytes are past their time."""
    return uow.one(
        """select a.*, a.removed_at is not null or a.expires_at <= now() as gone
             from assets a join tasks t on t.id = a.task_id
            where a.task_id = :id and a.n = :n and t.user_id = :user_id""",
        id=id_,
        n=n,
        user_id=user_id,
    )


def linked_asset(uow: UnitOfWork, id_: UUID, n: int, attempt: int) -> Row | None:
    """The same for a signed link, which is its own permission; only of the attempt it was signed for."""
    return uow.one(
        """select a.*, a.removed_at is not null or a.expires_at <= now() as gone
             from assets a where a.task_id = :id and a.n = :n and a.attempt = :attempt""",
        id=id_,
        n=n,
        attempt=attempt,
    )


_LINE = """
with running as (
    select user_id, count(*) as n from tasks where status = 'RUNNING' group by user_id
), classed as (
    select t.id, t.user_id,
           greatest(0, t.priority - floor(extract(epoch from now() - t.created_at) / :ageing)) as class
      from tasks t where t.status = 'PENDING' and t.provider = :provider and t.type = :type
), waiting as (
    select c.id, c.class,
           coalesce(r.n, 0) + row_number() over (partition by c.user_id order by c.class, c.id) as turn,
           coalesce(u.running_limit, :user_cap) as cap
      from classed c join users u on u.id = c.user_id left join running r using (user_id)
)
select id from waiting order by turn > cap, class, turn, id
"""


def waiting(uow: UnitOfWork, provider: str, kind: str, user_cap: int) -> Mapping[UUID, int]:
    """The 1-based place of every PENDING task of one provider and type, in fairness.choose's order.

    Tasks that may start only once another of their own user has ended, since the user has as many running as the cap
    allows (`user_cap` where the user has none of its own), stand behind all that need no such thing.
    """
    rows = uow.all(_LINE, provider=provider, type=kind, ageing=AGEING_S, user_cap=user_cap)
    return {row["id"]: n for n, row in enumerate(rows, start=1)}


_TYPICAL_ROWS = 2000  # ended tasks looked at, so that a model nobody uses does not cost a walk through the table


def typical_s(uow: UnitOfWork, model: str) -> float | None:
    """Median seconds from first start to end of the last 100 successes of a model; None: none lately."""
    seconds: float | None = uow.scalar(
        """select percentile_cont(0.5) within group (order by extract(epoch from finished_at - started_at)) from (
               select finished_at, started_at from (
                   select model, status, started_at, finished_at from tasks
                    where finished_at is not null order by finished_at desc limit :rows) lately
                where model = :model and status = 'SUCCESS' and started_at is not null limit 100) ended""",
        rows=_TYPICAL_ROWS,
        model=model,
    )
    return seconds


def lines(uow: UnitOfWork) -> Sequence[Row]:
    """Live tasks per provider and type: `waiting`, `running`, `oldest_s` seconds the longest has waited."""
    return uow.all(
        """select provider, type,
                  count(*) filter (where status = 'PENDING') as waiting,
                  count(*) filter (where status = 'RUNNING') as running,
                  cast(max(extract(epoch from now() - created_at)) filter (where status = 'PENDING')
                       as double precision) as oldest_s
             from tasks where status in ('PENDING', 'RUNNING') group by provider, type order by provider, type"""
    )


def live_by_provider(uow: UnitOfWork) -> Mapping[str, int]:
    """How many PENDING and RUNNING tasks each provider has."""
    rows = uow.all("select provider, count(*) as n from tasks where status in ('PENDING', 'RUNNING') group by provider")
    return {row["provider"]: row["n"] for row in rows}


def ended(uow: UnitOfWork, hours: int) -> Mapping[str, int]:
    """How many tasks ended in each final state in the last `hours`."""
    rows = uow.all(
        """select status, count(*) as n from tasks
            where finished_at > now() - make_interval(hours => :hours) group by status""",
        hours=hours,
    )
    return {row["status"]: row["n"] for row in rows}


def usage(uow: UnitOfWork, user_id: UUID, days: int) -> Sequence[Row]:
    """What a user's tasks that ended in the last `days` came to, per UTC day, model, provider and currency."""
    return uow.all(
        """select cast(finished_at as date) as day, model, provider, currency, count(*) as tasks,
                  count(*) filter (where status = 'SUCCESS') as succeeded,
                  coalesce(sum(jsonb_array_length(outputs)), 0) as outputs,
                  coalesce(sum(cost_micros), 0) as cost_micros,
                  count(*) filter (where risk) as at_risk,
                  cast(coalesce(sum(price_micros * case
                      when status = 'SUCCESS' then (select count(*) from jsonb_array_elements(missing) m
                                                     where m -> 'billed' = 'true')
                      when type = 'image' then coalesce(cast(effective ->> 'image_count' as numeric), 1)
                      else coalesce(cast(effective ->> 'duration_s' as numeric), 1) end)
                      filter (where risk), 0) as bigint) as lost_micros,
                  sum(replay_count) as replays
             from tasks
            where user_id = :user_id and finished_at > now() - make_interval(days => :days)
            group by 1, 2, 3, 4 order by 1 desc, 2, 3, 4""",
        user_id=user_id,
        days=days,
    )
