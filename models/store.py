"""Task rows: the one function that changes a status, and the statements around it.

`apply` proposes transitions; the UPDATE's WHERE clause, built from lifecycle.TRANSITIONS, decides. It touches a row
only if id, version, start state and guard all hold, and writes the event in the same statement. A row that is not in
the answer was moved by someone else first: the caller stops, does nothing, and that is no error.

May not: call a vendor, read a clock (the database's `now()` is the clock), or know HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from models import metrics
from models.db import Row, UnitOfWork, as_json
from models.lifecycle import FINAL, TRANSITIONS, Change, Guard, Status

# Columns a Change may set. What is not here is either derived below or never changes after the insert.
_PATCHABLE = (
    "stage", "attempt", "claimed_by", "receipt", "rings", "submit_tries", "fetch_tries", "fetch_starts", "fetch_until",
    "reconcile_tries", "poll_count", "failed_polls", "lost_polls", "empty_polls", "last_error", "progress",
    "upstream_outputs", "upstream_call_count", "upstream_usage", "retry_count", "outputs", "partial", "missing",
    "error_code", "error_message", "upstream_code", "certain", "risk", "cost_micros", "cancel_requested_at",
    "cancel_answered_at", "provider", "credential",
    "provider_model", "effective", "adjustments", "price_micros", "tried",
)  # fmt: skip

_GUARDS: Mapping[Guard, str] = {
    Guard.NONE: "true",
    Guard.NO_RECEIPT: "t.receipt is null",
    Guard.RECEIPT: "t.receipt is not null",
    Guard.DOUBTFUL: "not t.certain and (t.status = 'TIMEOUT' or t.error_code = 'submit_unconfirmed')",
    Guard.CERTAIN: "t.certain",
}


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


_LEGAL = " or ".join(
    f"(t.status = '{x.start}' and w.reason = '{x.reason}' and w.goal = '{x.to}' and {_GUARDS[x.guard]})"
    for x in TRANSITIONS
    if x.start is not None
)

_APPLY = f"""
with wanted as (
    select * from jsonb_to_recordset(cast(:changes as jsonb)) as w(
        id uuid, version int, reason text, goal text, wake_in_s double precision, patch jsonb, detail jsonb)
), changed as (
    update tasks t set
        status = w.goal,
        version = t.version + 1,
        updated_at = case when w.reason = 'rewoken' then t.updated_at else now() end,  -- a ring is no sign of life
        wake_at = now() + make_interval(secs => w.wake_in_s),
        rung_at = case when w.goal = 'PENDING' then now() + make_interval(secs => w.wake_in_s) end,
        claimed_at = case when w.reason = 'claimed' then now() else t.claimed_at end,
        started_at = case when w.reason = 'claimed' then coalesce(t.started_at, now())
                          when w.reason = 'restarted' then null else t.started_at end,
        deadline_at = case when w.reason = 'restarted' then now() + make_interval(secs => t.deadline_s)
                           else t.deadline_at end,
        finished_at = case when w.goal in ({_quoted(FINAL)}) then now() end,
        ({", ".join(_PATCHABLE)}) = (
            select {", ".join(f"r.{c}" for c in _PATCHABLE)} from jsonb_populate_record(t, w.patch) r)
    from wanted w join tasks b on b.id = w.id and b.version = w.version
    where t.id = w.id and t.version = w.version and ({_LEGAL})
    returning t.id, t.version, t.attempt, t.status, t.stage, b.status as before, w.reason, w.detail,
              t.type, t.model, t.provider,
              cast(extract(epoch from t.finished_at - t.created_at) as double precision) as age_s
), told as (
    insert into task_events (task_id, version, attempt, reason, from_status, to_status, stage, detail)
    select id, version, attempt, reason, before, status, stage, coalesce(detail, '{{}}') from changed
)
select id, version, type, model, provider, status, age_s from changed
"""  # noqa: S608  built from this module's own constants


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """One Change for one row at one version."""

    id: UUID
    version: int
    change: Change


def apply(uow: UnitOfWork, id_: UUID, version: int, change: Change) -> int | None:
    """Make one transition. The new version, or None: someone else was first (or it is not legal), nothing changed."""
    return apply_all(uow, [Proposal(id=id_, version=version, change=change)]).get(id_)


def apply_all(uow: UnitOfWork, proposals: Sequence[Proposal]) -> dict[UUID, int]:
    """Make many transitions in one statement; the ids that moved, with their new versions.

    At most one proposal per row. Raises ValueError for a field that a change may not set.
    """
    if not proposals:
        return {}
    changes = as_json([_wire(p) for p in sorted(proposals, key=lambda p: p.id.int)])
    moved = uow.all(_APPLY, changes=changes)
    uow.after_commit(lambda: _count(moved))
    return {row["id"]: row["version"] for row in moved}


def _count(moved: Iterable[Row]) -> None:
    for row in moved:
        if row["status"] in FINAL:
            metrics.TASKS_FINISHED.labels(row["type"], row["model"], row["provider"], row["status"]).inc()
            metrics.TASK_SECONDS.labels(row["type"], row["provider"]).observe(row["age_s"])


def _wire(proposal: Proposal) -> dict[str, object]:
    change = proposal.change
    patch = dict(change.fields)
    if change.to is not Status.RUNNING:
        patch["stage"] = None
    strange = patch.keys() - set(_PATCHABLE)
    if strange:
        raise ValueError(f"a change may not set {', '.join(sorted(strange))}")
    return {
        "id": str(proposal.id),
        "version": proposal.version,
        "reason": change.reason,
        "goal": change.to,
        "wake_in_s": change.wake_in_s,
        "patch": patch,
        "detail": dict(change.detail),
    }


_TOUCH = """
update tasks t set
    wake_at = now() + make_interval(secs => w.wait_s),
    updated_at = now(),
    rings = 0,
    poll_count = t.poll_count + 1,
    failed_polls = w.failed_polls,
    lost_polls = w.lost_polls,
    empty_polls = w.empty_polls,
    last_error = coalesce(w.last_error, t.last_error)
from jsonb_to_recordset(cast(:touches as jsonb)) as w(
    id uuid, version int, wait_s double precision,
    failed_polls int, lost_polls int, empty_polls int, last_error text)
where t.id = w.id and t.version = w.version and t.status = 'RUNNING'
"""


@dataclass(frozen=True, kw_only=True)
class Touch:
    """A poll without news: the row's next time and its counters, no transition, no event, the same version."""

    id: UUID
    version: int
    wait_s: float
    failed_polls: int = 0
    lost_polls: int = 0
    empty_polls: int = 0
    last_error: str | None = None


def touch(uow: UnitOfWork, touches: Sequence[Touch]) -> None:
    """Note polls without news in one statement. Rows that moved meanwhile are left alone."""
    if touches:
        rows = sorted(touches, key=lambda t: t.id.int)
        uow.execute(_TOUCH, touches=as_json([{**vars(t), "id": str(t.id)} for t in rows]))


def note_late(uow: UnitOfWork, id_: UUID, detail: Mapping[str, object]) -> None:
    """Write an event for what came too late to change anything. `detail` holds no prompt, key or link."""
    uow.execute(
        """insert into task_events (task_id, version, attempt, reason, from_status, to_status, stage, detail)
           select id, version, attempt, 'late', status, status, stage, cast(:detail as jsonb)
             from tasks where id = :id""",
        id=id_,
        detail=as_json(dict(detail)),
    )


_JSON_COLUMNS = frozenset({"input", "effective", "adjustments", "metadata"})
_INSERT_COLUMNS = (
    "id", "user_id", "key_id", "type", "order_id", "idempotency_key", "fingerprint", "priority", "model", "provider",
    "provider_model", "input", "effective", "adjustments", "metadata", "deadline_s", "price_micros", "currency",
    "strict", "pinned",
)  # fmt: skip
_INSERT = f"""
with fresh as (
    insert into tasks ({", ".join(_INSERT_COLUMNS)}, status, version, wake_at, rung_at, deadline_at)
    values ({", ".join(f"cast(:{c} as jsonb)" if c in _JSON_COLUMNS else f":{c}" for c in _INSERT_COLUMNS)},
            'PENDING', 1, now(), now(), now() + make_interval(secs => :deadline_s))
    on conflict on constraint tasks_idempotency_key do nothing
    returning id
), told as (
    insert into task_events (task_id, version, attempt, reason, to_status, detail)
    select id, 1, 1, 'accepted', 'PENDING', cast(:detail as jsonb) from fresh
)
select id from fresh
"""  # noqa: S608  built from this module's own constants


def insert(uow: UnitOfWork, values: Mapping[str, object], detail: Mapping[str, object]) -> bool:
    """Insert a PENDING task of version 1 and its `accepted` event. False: the idempotency key is taken.

    `values` holds every column of _INSERT_COLUMNS, `strict` and `pinned` where they are true; `detail` says why this
    provider. Waits for a concurrent twin with the same key to commit or roll back.
    """
    values = {"strict": False, "pinned": False, **values}
    bound = {c: as_json(values[c]) if c in _JSON_COLUMNS else values[c] for c in _INSERT_COLUMNS}
    return uow.one(_INSERT, **bound, detail=as_json(dict(detail))) is not None


def get(uow: UnitOfWork, id_: UUID) -> Row | None:
    """The whole row with `now`, the database's clock; None if there is none. Not for callers: it knows no owner."""
    return uow.one("select t.*, now() as now from tasks t where t.id = :id", id=id_)


def versions(uow: UnitOfWork, ids: Sequence[UUID]) -> dict[UUID, int]:
    """The versions of these rows now."""
    rows = uow.all("select id, version from tasks where id = any(:ids)", ids=list(ids))
    return {row["id"]: row["version"] for row in rows}


def request_cancel(uow: UnitOfWork, id_: UUID) -> bool:
    """Note that the caller wants it stopped. Does not raise `version`: a receipt on its way in must not be refused.

    False: it does not run any more, and nothing was noted.
    """
    found = uow.one(
        """update tasks set cancel_requested_at = coalesce(cancel_requested_at, now())
            where id = :id and status = 'RUNNING' returning id""",
        id=id_,
    )
    return found is not None


def answer_cancel(uow: UnitOfWork, id_: UUID) -> None:
    """Note that the vendor has answered the wish to cancel, so that it is not asked again."""
    uow.execute("update tasks set cancel_answered_at = now() where id = :id and status = 'RUNNING'", id=id_)


def extend(uow: UnitOfWork, id_: UUID, version: int, wake_in_s: float) -> bool:
    """A step that takes its time says that it is at work: nobody needs to look for `wake_in_s` seconds.

    No transition. False: the row has moved on, and the step stops.
    """
    found = uow.one(
        """update tasks set wake_at = now() + make_interval(secs => :wake_in_s), updated_at = now(),
                  fetch_until = case when fetch_until is not null then now() + make_interval(secs => :wake_in_s) end
            where id = :id and version = :version and status = 'RUNNING' returning id""",
        id=id_,
        version=version,
        wake_in_s=wake_in_s,
    )
    return found is not None


def begin_fetch(uow: UnitOfWork, id_: UUID, version: int, lease_s: float) -> int | None:
    """Count the start of a fetch, durably before it is made; how many have begun since one came back.

    Nobody needs to look at a RUNNING row for `lease_s` seconds, and no other fetch of it begins in that time. No
    transition. None: the row has moved on, or another fetch is at work.
    """
    starts: int | None = uow.scalar(
        """update tasks set fetch_starts = fetch_starts + 1,
                  fetch_until = now() + make_interval(secs => :lease_s),
                  updated_at = case when status = 'RUNNING' then now() else updated_at end,
                  wake_at = case when status = 'RUNNING' then now() + make_interval(secs => :lease_s) else wake_at end
            where id = :id and version = :version
              and (status <> 'RUNNING' or fetch_until is null or fetch_until < now())
            returning fetch_starts""",
        id=id_,
        version=version,
        lease_s=lease_s,
    )
    return starts


def fetch_came_back(uow: UnitOfWork, id_: UUID, version: int) -> None:
    """Take back the start of a fetch that ended in an error: its process lives. No transition; the sweep may ring."""
    uow.execute(
        """update tasks set fetch_starts = greatest(fetch_starts - 1, 0), fetch_until = null,
                  wake_at = case when status = 'RUNNING' then now() else wake_at end
            where id = :id and version = :version""",
        id=id_,
        version=version,
    )


def forget_key(uow: UnitOfWork, id_: UUID) -> None:
    """Take an expired idempotency key off its task, so that a new task may carry it."""
    uow.execute("update tasks set idempotency_key = null, fingerprint = null where id = :id", id=id_)


def adopt_receipt(uow: UnitOfWork, id_: UUID, attempt: int, receipt: str) -> None:
    """Keep the receipt of a job that was accepted after its task had ended, and have the vendor asked in a minute.

    A live row is left alone: it has been claimed anew, and a receipt that came without a version would bar its way.
    """
    uow.execute(
        """update tasks set receipt = :receipt,
                  wake_at = case when not certain and (status = 'TIMEOUT' or error_code = 'submit_unconfirmed')
                                 then now() + interval '60 seconds' end
            where id = :id and attempt = :attempt and receipt is null and finished_at is not null""",
        id=id_,
        attempt=attempt,
        receipt=receipt,
    )


def keep_outputs(uow: UnitOfWork, id_: UUID, version: int, outputs: Sequence[Mapping[str, object]]) -> None:
    """Note what is known of the outputs of a task that has ended, for the next question about it. No transition.

    It came back, so it is no fetch that ends workers. Empty: what was known stays.
    """
    uow.execute(
        """update tasks set fetch_starts = 0, fetch_until = null,
                  upstream_outputs = coalesce(nullif(cast(:outputs as jsonb), '[]'), upstream_outputs)
            where id = :id and version = :version and finished_at is not null""",
        id=id_,
        version=version,
        outputs=as_json(list(outputs)),
    )


_ASSET = """
insert into assets (task_id, n, attempt, key, media_type, bytes, sha256, width, height, duration_s, expires_at)
values (:task_id, :n, :attempt, :key, :media_type, :bytes, :sha256, :width, :height, :duration_s,
        now() + make_interval(days => :retention_days))
on conflict (task_id, n) do update set
    attempt = excluded.attempt, key = excluded.key, media_type = excluded.media_type, bytes = excluded.bytes,
    sha256 = excluded.sha256, width = excluded.width, height = excluded.height, duration_s = excluded.duration_s,
    expires_at = excluded.expires_at, removed_at = null
"""


def record_assets(uow: UnitOfWork, rows: Sequence[Mapping[str, object]]) -> None:
    """Write the records of stored result files; a repeat replaces them. Same transaction as the SUCCESS."""
    if rows:
        uow.executemany(_ASSET, rows)
