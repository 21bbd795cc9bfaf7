"""The queue as rows: claiming with caps, who is next, and the polling chains.

Every count that guards a cap is taken under one advisory lock in the transaction that claims, so a slot can neither
leak nor be sold twice. Every change of a task goes through store.apply; this module only chooses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from models import store
from models.db import Row, UnitOfWork
from models.fairness import Caps, Line, Room, Waiting, choose, room_of
from models.fields import Kind
from models.lifecycle import Change, Reason, Stage, Status
from models.settings import Settings

_CLAIM_LOCK = 0x57454952_01  # "WEIR", one number for all claims of the installation

_COUNTED = """
select t.*, now() as now, cast(extract(epoch from clock_timestamp() - now()) as double precision) as lock_wait_s,
       (select running_limit from users u where u.id = t.user_id) as user_cap,
       r.total, r.of_type, r.of_provider, r.of_user
  from tasks t, lateral (
       select count(*) as total,
              count(*) filter (where x.type = t.type) as of_type,
              count(*) filter (where x.provider = t.provider) as of_provider,
              count(*) filter (where x.user_id = t.user_id) as of_user
         from tasks x where x.status = 'RUNNING') r
 where t.id = :id and t.version = :version and t.status = 'PENDING'
   and (t.wake_at is null or t.wake_at <= now() + interval '0.3 s') and t.deadline_at > now()
"""


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A row that this caller, and no other, may submit once: as it was, and the version the claim gave it."""

    row: Row
    version: int
    by: UUID | None = None


def claim(  # noqa: PLR0913  one claim: which row, at which version, within which limits, by whom, with what
    uow: UnitOfWork,
    id_: UUID,
    version: int,
    settings: Settings,
    budget_s: float,
    *,
    by: UUID | None = None,
    credential: str | None = None,
) -> Claimed | None:
    """PENDING -> RUNNING if the version is current and every cap has room; None otherwise, nothing changed.

    Commit before the upstream call. `budget_s` is past every time-out of that call: only then may the sweep ask what
    became of it. `upstream_call_count` is raised here and taken back when the vendor surely did not accept. `by`, drawn
    anew for each call, tells afterwards whose claim it was when the connection is cut inside COMMIT. `credential`: the
    one it is to be bought with, None for the provider's first.
    """
    _lock_claims(uow)
    row = uow.one(_COUNTED, id=id_, version=version)
    conf = settings.providers.get(row["provider"]) if row is not None else None
    if row is None or conf is None or not conf.enabled:
        return None
    if not _room(row, settings).admits():
        uow.execute("update tasks set rung_at = null where id = :id and version = :version", id=id_, version=version)
        return None
    change = Change(
        reason=Reason.CLAIMED,
        to=Status.RUNNING,
        fields={
            "stage": Stage.SUBMITTING,
            "claimed_by": str(by) if by else None,
            "credential": credential,
            "rings": 0,
            "upstream_call_count": row["upstream_call_count"] + 1,
            "retry_count": row["retry_count"] + (row["claimed_at"] is not None),
        },
        wake_in_s=budget_s + row["lock_wait_s"],  # now() is when the transaction began, before it waited for its turn
    )
    moved = store.apply(uow, id_, version, change)
    return None if moved is None else Claimed(row=row, version=moved, by=by)


def running_by_seat(uow: UnitOfWork, provider: str) -> dict[str, int]:
    """How many tasks of a provider are RUNNING with each credential."""
    rows = uow.all(
        "select seat, count(*) as n from tasks where status = 'RUNNING' and provider = :provider group by seat",
        provider=provider,
    )
    return {row["seat"]: row["n"] for row in rows}


def renew(uow: UnitOfWork, id_: UUID, version: int, by: UUID, budget_s: float) -> int | None:
    """After a COMMIT of `claim` whose end is not known: the claim's version if it is ours and its time is not up.

    Gives it the whole of `budget_s` anew. None: the claim never was, or the sweep may be asking about it already.
    """
    version_now: int | None = uow.scalar(
        """update tasks set wake_at = now() + make_interval(secs => :budget_s)
            where id = :id and version = :version + 1 and claimed_by = :by and stage = 'submitting' and wake_at > now()
           returning version""",
        id=id_,
        version=version,
        by=by,
        budget_s=budget_s,
    )
    return version_now


def _lock_claims(uow: UnitOfWork) -> None:
    uow.execute("select pg_advisory_xact_lock(:lock)", lock=_CLAIM_LOCK)


def _room(row: Row, settings: Settings) -> Room:
    caps = settings.caps
    return Room(
        total=row["total"],
        total_cap=caps.total,
        of_type=row["of_type"],
        type_cap=caps.image if row["type"] == Kind.IMAGE else caps.video,
        of_provider=row["of_provider"],
        provider_cap=settings.providers[row["provider"]].max_in_flight,
        of_user=row["of_user"],
        user_cap=settings.users.running if row["user_cap"] is None else row["user_cap"],
    )


def _caps(settings: Settings) -> Caps:
    return Caps(
        total=settings.caps.total,
        types={Kind.IMAGE: settings.caps.image, Kind.VIDEO: settings.caps.video},
        providers={name: one.max_in_flight for name, one in settings.providers.items() if one.enabled},
    )


# The oldest of each user and priority of one line: nobody else can be next. A loose scan finds the users, so that ten
# thousand waiting tasks of a few users cost a few index look-ups.
_CANDIDATES = """
with recursive waiting as (
    (select user_id from tasks where status = 'PENDING' and provider = :provider and type = :type
      order by user_id limit 1)
    union all
    select (select t.user_id from tasks t
             where t.status = 'PENDING' and t.provider = :provider and t.type = :type and t.user_id > w.user_id
             order by t.user_id limit 1)
      from waiting w where w.user_id is not null
)
select c.id, c.version, c.priority, c.user_id, coalesce(u.running_limit, :user_cap) as user_cap,
       cast(extract(epoch from now() - c.created_at) as double precision) as waited_s
  from waiting w join users u on u.id = w.user_id
       cross join (values (0), (1), (2)) as p(priority)
       cross join lateral (
           select id, version, priority, user_id, created_at from tasks t
            where t.status = 'PENDING' and t.provider = :provider and t.type = :type
              and t.user_id = w.user_id and t.priority = p.priority
              and (t.wake_at is null or t.wake_at <= now()) and t.deadline_at > now()
              and (t.rung_at is null or t.rung_at < now() - make_interval(secs => :grace_s))
            order by t.id limit :room) c
"""


def next_up(uow: UnitOfWork, settings: Settings) -> Sequence[Row]:
    """The waiting tasks of all lines that are to be rung now: id, version, type, priority; as many as there is room.

    The order of fairness.choose. Notes that they are rung, so that nobody else rings them within the sweep's grace;
    taken under the claim's lock, so that a claim which finds no room is either seen here or sees the room itself.
    """
    _lock_claims(uow)
    slots = uow.all(
        "select provider, type, user_id, count(*) as n from tasks where status = 'RUNNING' group by 1, 2, 3"
    )
    running: Counter[Line] = Counter()
    load: Counter[str] = Counter()
    for slot in slots:
        running[slot["provider"], slot["type"]] += slot["n"]
        load[str(slot["user_id"])] += slot["n"]
    caps = _caps(settings)
    if sum(running.values()) >= caps.total:
        return []
    rows: dict[int, Row] = {}
    waiting: list[Waiting] = []
    for provider, kind in waiting_lines(uow):
        room = room_of((provider, kind), running, caps)
        for row in _candidates(uow, provider, kind, settings, room):
            rows[row["id"].int] = {**row, "type": kind}
            waiting.append(_waiting(row, (provider, kind)))
    chosen = [rows[w.key] for w in choose(waiting, running, load, caps)]
    if chosen:
        uow.execute(
            "update tasks set rung_at = now() where id = any(:ids) and status = 'PENDING'",
            ids=[row["id"] for row in chosen],
        )
    return chosen


def _candidates(uow: UnitOfWork, provider: str, kind: str, settings: Settings, room: int) -> Sequence[Row]:
    if not room:
        return []
    return uow.all(
        _CANDIDATES,
        provider=provider,
        type=kind,
        room=room,
        user_cap=settings.users.running,
        grace_s=settings.sweep.grace_s,
    )


def _waiting(row: Row, line: Line) -> Waiting:
    return Waiting(
        key=row["id"].int,
        priority=row["priority"],
        waited_s=row["waited_s"],
        user=str(row["user_id"]),
        user_cap=row["user_cap"],
        line=line,
    )


def waiting_lines(uow: UnitOfWork) -> list[Line]:
    """Every provider and type that has a PENDING task."""
    rows = uow.all(
        """with recursive lines as (
               (select provider, type from tasks where status = 'PENDING' order by provider, type limit 1)
               union all
               select n.provider, n.type from lines l cross join lateral (
                   select t.provider, t.type from tasks t
                    where t.status = 'PENDING' and (t.provider, t.type) > (l.provider, l.type)
                    order by t.provider, t.type limit 1) n
           ) select provider, type from lines"""
    )
    return [(row["provider"], row["type"]) for row in rows]


# --- waves: one polling chain per seat (a provider with one of its credentials) and type, fenced by its row ---


def claim_wave(uow: UnitOfWork, seat: str, kind: Kind, version: int, budget_s: float) -> int | None:
    """Take the chain for one round: its new version, or None if this wake-up is stale.

    `budget_s` is past the longest round: a wave later than that has lost its wake-up.
    """
    moved: int | None = uow.scalar(
        """update waves set version = version + 1, updated_at = now(),
                  wake_at = now() + make_interval(secs => :budget_s)
            where provider = :provider and type = :type and version = :version returning version""",
        provider=seat,
        type=kind,
        version=version,
        budget_s=budget_s,
    )
    return moved


def idle_rounds(uow: UnitOfWork, seat: str, kind: Kind) -> int:
    """Rounds in a row in which nothing ended."""
    rounds = uow.scalar(
        "select idle_rounds from waves where provider = :provider and type = :type", provider=seat, type=kind
    )
    return int(rounds or 0)


def due(uow: UnitOfWork, seat: str, kind: Kind, *, everything: bool, limit: int) -> Sequence[Row]:
    """RUNNING rows with a receipt that are to be asked about, longest overdue first, with `now`.

    `everything`: also rows whose time has not come, for a vendor where one call answers for all. Rows that another
    transaction is changing right now are passed over.
    """
    return uow.all(
        """select t.*, now() as now from tasks t
            where status = 'RUNNING' and seat = :seat and type = :type and stage = 'generating'
              and (wake_at <= now() + interval '0.3 s' or (:everything and failed_polls = 0))
            order by wake_at limit :limit for update skip locked""",
        seat=seat,
        type=kind,
        everything=everything,
        limit=limit,
    )


def generating(uow: UnitOfWork, seat: str, kind: Kind) -> int:
    """How many tasks the chain has to ask about in all, due or not."""
    counted: int = uow.scalar(
        """select count(*) from tasks
            where status = 'RUNNING' and seat = :seat and type = :type and stage = 'generating'""",
        seat=seat,
        type=kind,
    )
    return counted


def next_due_s(uow: UnitOfWork, seat: str, kind: Kind) -> float | None:
    """Seconds until the next row of this chain is due, negative when overdue; None: nothing is generating."""
    seconds: float | None = uow.scalar(
        """select cast(extract(epoch from min(wake_at) - now()) as double precision) from tasks
            where status = 'RUNNING' and seat = :seat and type = :type and stage = 'generating'""",
        seat=seat,
        type=kind,
    )
    return seconds


def plan_wave(
    uow: UnitOfWork, seat: str, kind: Kind, version: int, *, wake_in_s: float | None, idle_rounds: int
) -> int | None:
    """Say when the chain's next round is (None: it sleeps). The version of that wake-up, or None if superseded."""
    moved: int | None = uow.scalar(
        """update waves set version = version + 1, updated_at = now(), idle_rounds = :idle_rounds,
                  wake_at = now() + make_interval(secs => :wake_in_s)
            where provider = :provider and type = :type and version = :version returning version""",
        provider=seat,
        type=kind,
        version=version,
        wake_in_s=wake_in_s,
        idle_rounds=idle_rounds,
    )
    return moved


def hurry_wave(uow: UnitOfWork, seat: str, kind: Kind, wake_in_s: float) -> int | None:
    """Make sure the chain wakes within `wake_in_s` seconds. The version to ring, or None: it does already.

    Starts a chain that sleeps or never ran, and pulls a later one forward (its old wake-up becomes stale).
    """
    planned = uow.one(
        """select wake_at is not null and wake_at <= now() + make_interval(secs => :wake_in_s + 1) as soon
             from waves where provider = :provider and type = :type""",
        provider=seat,
        type=kind,
        wake_in_s=wake_in_s,
    )
    if planned is not None and planned["soon"]:
        return None
    moved: int | None = uow.scalar(
        """insert into waves (provider, type, wake_at)
           values (:provider, :type, now() + make_interval(secs => :wake_in_s))
           on conflict (provider, type) do update
              set version = waves.version + 1, wake_at = excluded.wake_at, updated_at = now(), idle_rounds = 0
            where waves.wake_at is null or waves.wake_at > now() + make_interval(secs => :wake_in_s + 1)
           returning version""",
        provider=seat,
        type=kind,
        wake_in_s=wake_in_s,
    )
    return moved


def lost_waves(uow: UnitOfWork, grace_s: int) -> Sequence[Row]:
    """Chains that should be alive and are not: overdue, or asleep although something is generating."""
    return uow.all(
        """select distinct t.seat, t.type from tasks t left join waves w on w.provider = t.seat and w.type = t.type
            where t.status = 'RUNNING' and t.stage = 'generating'
              and (w.wake_at is null or w.wake_at < now() - make_interval(secs => :grace_s))""",
        grace_s=grace_s,
    )


def restart_wave(uow: UnitOfWork, seat: str, kind: Kind) -> int:
    """Begin the chain anew, whatever its state; the version to ring. Any older wake-up of it becomes stale."""
    version: int = uow.scalar(
        """insert into waves (provider, type, wake_at) values (:provider, :type, now())
           on conflict (provider, type) do update
              set version = waves.version + 1, wake_at = now(), updated_at = now(), idle_rounds = 0
           returning version""",
        provider=seat,
        type=kind,
    )
    return version
