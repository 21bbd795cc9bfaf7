"""What is forgotten, and when: result bytes after their days, idempotency keys, whole tasks into the archive.

Only chooses and writes; deleting bytes and writing archives is for tasks/retention.py, outside of any transaction.
Every step is safe to repeat: bytes are deleted before their record says so, a task is deleted after its line is kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

from models.db import Row, UnitOfWork
from models.settings import Settings


def forget_expired_keys(uow: UnitOfWork, settings: Settings, limit: int) -> int:
    """Take expired idempotency keys off ended tasks; how many. They were ignored from the moment they expired.

    One walk for each lifetime, from the oldest: a single one would look at every SUCCESS younger than its days.
    """
    kept = settings.idempotency
    ended = _forget_keys(uow, "status <> 'SUCCESS'", kept.ended_hours, limit)
    return ended + _forget_keys(uow, "status = 'SUCCESS'", 24 * kept.success_days, limit)


def _forget_keys(uow: UnitOfWork, which: str, hours: int, limit: int) -> int:
    return uow.execute(
        f"""update tasks set idempotency_key = null, fingerprint = null where id in (
                select id from tasks
                 where idempotency_key is not null and {which}
                   and finished_at < now() - make_interval(hours => :hours)
                 order by finished_at limit :limit for update skip locked)""",  # noqa: S608  of the two above
        hours=hours,
        limit=limit,
    ).rowcount


def expired_results(uow: UnitOfWork, limit: int) -> Sequence[Row]:
    """Stored files whose days are over and whose bytes are still there: task_id, n, key."""
    return uow.all(
        """select task_id, n, key from assets where removed_at is null and expires_at < now()
            order by expires_at limit :limit""",
        limit=limit,
    )


def note_removed(uow: UnitOfWork, rows: Sequence[Row]) -> None:
    """The bytes of these are gone; their records stay until the task is archived."""
    uow.execute(
        """update assets a set removed_at = now()
             from jsonb_to_recordset(cast(:rows as jsonb)) as w(task_id uuid, n smallint)
            where a.task_id = w.task_id and a.n = w.n and a.removed_at is null and a.expires_at < now()""",
        rows=json.dumps([{"task_id": str(r["task_id"]), "n": r["n"]} for r in rows]),
    )


def to_archive(uow: UnitOfWork, days: int, limit: int) -> Sequence[UUID]:
    """Ended tasks older than `days` that hold no bytes and no key any more and are not being asked about."""
    rows = uow.all(
        """select t.id from tasks t
            where t.finished_at < now() - make_interval(days => :days) and t.idempotency_key is null
              and (t.wake_at is null or t.certain) and not t.risk
              and not exists (select 1 from assets a where a.task_id = t.id and a.removed_at is null)
            order by t.finished_at, t.id limit :limit""",
        days=days,
        limit=limit,
    )
    return [row["id"] for row in rows]


def without_result(uow: UnitOfWork, ids: Sequence[UUID]) -> Sequence[Row]:
    """Those of `ids` that were sent to a vendor and have no result: a process that died may have left a file."""
    return uow.all(
        "select id, created_at from tasks where id = any(:ids) and status <> 'SUCCESS' and started_at is not null",
        ids=list(ids),
    )


def archive_lines(uow: UnitOfWork, ids: Sequence[UUID]) -> Sequence[str]:
    """One JSON object a task: the row, its events, its upstream calls and its files' records."""
    rows = uow.all(
        """select cast(jsonb_build_object(
                  'task', to_jsonb(t) - 'fingerprint',
                  'events', coalesce((select jsonb_agg(to_jsonb(e) order by e.id) from task_events e
                                       where e.task_id = t.id), '[]'),
                  'calls', coalesce((select jsonb_agg(to_jsonb(c) - 'task_ids' order by c.id) from upstream_calls c
                                      where c.task_ids @> array[t.id]), '[]'),
                  'files', coalesce((select jsonb_agg(to_jsonb(a) order by a.n) from assets a
                                      where a.task_id = t.id), '[]')) as text) as line
             from tasks t where t.id = any(:ids) order by t.id""",
        ids=list(ids),
    )
    return [row["line"] for row in rows]


def forget_tasks(uow: UnitOfWork, ids: Sequence[UUID]) -> int:
    """Delete archived tasks with their events and file records; how many."""
    return uow.execute("delete from tasks where id = any(:ids) and finished_at is not null", ids=list(ids)).rowcount


def forget_calls(uow: UnitOfWork, days: int, limit: int) -> int:
    """Delete upstream calls older than `days`; how many. Those of archived tasks are in the archive."""
    return uow.execute(
        """delete from upstream_calls where id in (
               select id from upstream_calls where started_at < now() - make_interval(days => :days)
                order by id limit :limit)""",
        days=days,
        limit=limit,
    ).rowcount
