"""Two real connections want the same row: exactly one wins, the other changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from models import line, store
from models.db import Database, UnitOfWork
from models.lifecycle import TRANSITIONS, Change, Guard, Reason, Stage, Status, Transition
from tests import factories
from tests.racing import at_once, behind, until

ROUNDS = 20
OBSERVED = Change(reason=Reason.OBSERVED, to=Status.RUNNING, fields={"progress": 0.5}, wake_in_s=9)
MOVES = [t for t in TRANSITIONS if t.start is not None]


def change(move: Transition) -> Change:
    """The transition with fields that fit its target."""
    fields: dict[str, object] = {"error_code": None}
    if move.to is Status.RUNNING:
        fields["stage"] = Stage.SUBMITTING
    if move.to in (Status.FAILED, Status.TIMEOUT):
        fields["error_code"] = "internal_error"
    return Change(reason=move.reason, to=move.to, fields=fields)


def start_of(move: Transition) -> dict[str, Any]:
    """Columns of a row that the guard lets through, and with it every rival of the same kind."""
    columns: dict[str, Any] = {"certain": move.guard is Guard.CERTAIN}
    if move.start is Status.FAILED and move.guard is Guard.DOUBTFUL:
        columns["error_code"] = "submit_unconfirmed"
    return columns


def rivals(move: Transition) -> list[Transition]:
    """Every transition that could also be made of the row that `move` starts from."""
    plain = (Guard.NONE, Guard.NO_RECEIPT)
    return [t for t in MOVES if t.start is move.start and (t.guard is move.guard or {t.guard, move.guard} <= {*plain})]


@dataclass
class Race:
    """What came of two proposals for one row."""

    won: list[int | None]
    row: dict[str, Any]
    events: list[Any]


def race(db: Database, move: Transition, rival: Transition) -> Race:
    """Both proposed at one moment for the same version."""
    assert move.start is not None
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, move.start, **start_of(move))
    won = at_once(db, [lambda uow, m=m: store.apply(uow, id_, 1, change(m)) for m in (move, rival)])  # type: ignore[misc]
    return Race(won, dict(factories.row_of(db, id_)), factories.events_of(db, id_))


@pytest.mark.parametrize("move", MOVES, ids=lambda m: f"{m.start}-{m.reason}-{m.to}")
def test_exactly_one_of_two_connections_makes_a_transition(db: Database, move: Transition) -> None:
    against = rivals(move)
    for n in range(ROUNDS):
        rival = against[n % len(against)]
        result = race(db, move, rival)
        assert sorted(v for v in result.won if v is not None) == [2]
        winner = move if result.won[0] else rival
        (event,) = result.events
        assert (event["reason"], event["to_status"]) == (winner.reason, winner.to)
        assert (result.row["status"], result.row["version"]) == (winner.to, 2)


def running(db: Database, **columns: Any) -> UUID:  # noqa: ANN401  columns of tasks
    """A task that is being generated."""
    with db.unit_of_work() as uow:
        return factories.add_task(uow, Status.RUNNING, **factories.generating(**columns))


def observe(id_: UUID, uow: UnitOfWork) -> int | None:
    """The same transition for everyone."""
    return store.apply(uow, id_, 1, OBSERVED)


def test_who_waited_for_the_winner_to_commit_has_lost(db: Database) -> None:
    id_ = running(db)
    with db.engine.connect() as connection:
        holder = UnitOfWork(connection)
        assert observe(id_, holder) == 2
        with behind(db, holder, partial(observe, id_)) as second:
            connection.commit()
            assert second.result() is None
    assert len(factories.events_of(db, id_)) == 1


def test_who_waited_for_one_that_died_has_won(db: Database) -> None:
    id_ = running(db)
    with db.engine.connect() as connection:
        holder = UnitOfWork(connection)
        observe(id_, holder)
        with behind(db, holder, partial(observe, id_)) as second:
            connection.rollback()
            assert second.result() == 2
    assert len(factories.events_of(db, id_)) == 1


def poll(id_: UUID, uow: UnitOfWork) -> None:
    """A poll without news."""
    store.touch(uow, [store.Touch(id=id_, version=1, wait_s=1, failed_polls=5, last_error="from the loser")])


def test_a_touch_that_waited_for_a_transition_changes_nothing(db: Database) -> None:
    id_ = running(db)
    with db.engine.connect() as connection:
        holder = UnitOfWork(connection)
        observe(id_, holder)
        with behind(db, holder, partial(poll, id_)) as second:
            connection.commit()
            second.result()
    row = factories.row_of(db, id_)
    assert (row["version"], row["poll_count"], row["failed_polls"], row["last_error"]) == (2, 0, 0, None)


def test_a_transition_that_waited_for_a_touch_wins_and_keeps_its_counts(db: Database) -> None:
    id_ = running(db)
    with db.engine.connect() as connection:
        holder = UnitOfWork(connection)
        poll(id_, holder)
        with behind(db, holder, partial(observe, id_)) as second:
            connection.commit()
            assert second.result() == 2
    row = factories.row_of(db, id_)
    assert (row["progress"], row["poll_count"], row["failed_polls"]) == (0.5, 1, 5)


def test_a_cancel_request_that_came_in_between_is_kept(db: Database) -> None:
    id_ = running(db)
    with db.engine.connect() as connection:
        holder = UnitOfWork(connection)
        store.request_cancel(holder, id_)
        with behind(db, holder, partial(observe, id_)) as second:
            connection.commit()
            assert second.result() == 2
    assert factories.row_of(db, id_)["cancel_requested_at"] is not None


def test_touch_and_transition_at_one_moment_leave_one_story(db: Database) -> None:
    ids = [running(db, receipt=f"r-{n}") for n in range(ROUNDS)]
    for id_ in ids:
        acts: list[Callable[[UnitOfWork], int | None]] = [partial(observe, id_), partial(poll, id_)]
        moved, _ = at_once(db, acts)
        row = factories.row_of(db, id_)
        assert moved == 2
        assert (row["version"], row["progress"]) == (2, 0.5)
        assert (row["poll_count"], row["failed_polls"]) in {(0, 0), (1, 5)}


def test_two_batches_over_the_same_rows_share_them_out(db: Database) -> None:
    ids = [running(db, receipt=f"r-{n}") for n in range(20)]

    def batch(order: list[UUID], uow: UnitOfWork) -> dict[UUID, int]:
        return store.apply_all(uow, [store.Proposal(id=i, version=1, change=OBSERVED) for i in order])

    first, second = at_once(db, [partial(batch, ids), partial(batch, ids[::-1])])
    assert sorted([*first, *second]) == sorted(ids)


@pytest.mark.parametrize("commits", [True, False])
def test_a_twin_waits_for_the_first_request_with_its_key(db: Database, *, commits: bool) -> None:
    with db.unit_of_work() as uow:
        user_id = factories.add_user(uow)

    def insert(uow: UnitOfWork) -> bool:
        return store.insert(uow, factories.submission(user_id, idempotency_key="k", fingerprint=b"f"), {})

    with db.engine.connect() as connection:
        holder = UnitOfWork(connection)
        assert insert(holder)
        with behind(db, holder, insert) as second:
            connection.commit() if commits else connection.rollback()
            assert second.result() is not commits
    with db.unit_of_work() as uow:
        assert uow.scalar("select count(*) from tasks") == 1
        assert uow.scalar("select count(*) from task_events") == 1


def test_a_claim_counts_its_time_from_when_its_turn_came(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow)
    with db.engine.connect() as connection:
        holder = UnitOfWork(connection)
        line._lock_claims(holder)

        def claim(uow: UnitOfWork) -> bool:
            return line.claim(uow, id_, 1, factories.settings(), 60.0) is not None

        with behind(db, holder, claim) as second:
            began = holder.scalar("select clock_timestamp()")
            moment = "select extract(epoch from clock_timestamp() - :began) > 0.2"
            until(lambda: bool(holder.scalar(moment, began=began)), "some time passes")
            released = holder.scalar("select clock_timestamp()")
            connection.commit()
            assert second.result()
    assert (factories.row_of(db, id_)["wake_at"] - released).total_seconds() >= 60
