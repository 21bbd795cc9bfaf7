"""Polling chains: one live wake-up each, and no receipt is left unpolled, in whatever order things happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import combinations, product
from typing import Any
from uuid import UUID

import pytest

from models import line, store
from models.db import Database, UnitOfWork
from models.fields import Kind
from models.lifecycle import Change, Reason, Stage, Status
from tests import factories
from tests.factories import wave_of
from tests.racing import at_once

IMAGE = Kind.IMAGE


def claim(version: int, uow: UnitOfWork, round_s: float = 30.0) -> int | None:
    """Take the chain for a round of at most `round_s`."""
    return line.claim_wave(uow, "sim", IMAGE, version, round_s)


def plan(version: int, wake_in_s: float | None, uow: UnitOfWork) -> int | None:
    """Say when the next round is."""
    return line.plan_wave(uow, "sim", IMAGE, version, wake_in_s=wake_in_s, idle_rounds=0)


def hurry(wake_in_s: float, uow: UnitOfWork) -> int | None:
    """Make sure that the chain wakes."""
    return line.hurry_wave(uow, "sim", IMAGE, wake_in_s)


def chain(db: Database, **columns: Any) -> None:  # noqa: ANN401  columns of waves
    """A chain in some state."""
    with db.unit_of_work() as uow:
        factories.add_wave(uow, **columns)


# --- the fence ---


def test_a_wake_up_takes_its_chain_once(db: Database) -> None:
    chain(db, version=5, wake_at=timedelta())
    with db.unit_of_work() as uow:
        assert [claim(5, uow), claim(5, uow), claim(4, uow), claim(6, uow)] == [6, None, None, 7]


def test_a_round_under_way_is_late_only_after_its_budget(db: Database) -> None:
    chain(db, wake_at=timedelta(seconds=-60))
    with db.unit_of_work() as uow:
        claim(1, uow)
    assert 28 < wave_of(db)["in_s"] <= 30


def test_a_wake_up_of_an_unknown_chain_does_nothing(db: Database) -> None:
    with db.unit_of_work() as uow:
        assert claim(1, uow) is None
        assert plan(1, 5, uow) is None
        assert uow.scalar("select count(*) from waves") == 0


def test_a_superseded_round_cannot_plan(db: Database) -> None:
    chain(db)
    with db.unit_of_work() as uow:
        mine = claim(1, uow)
        line.restart_wave(uow, "sim", IMAGE)
        assert mine is not None
        assert plan(mine, 5, uow) is None
    assert wave_of(db)["version"] == 3


def test_a_plan_says_when_or_falls_asleep(db: Database) -> None:
    chain(db)
    with db.unit_of_work() as uow:
        assert line.plan_wave(uow, "sim", IMAGE, 1, wake_in_s=7, idle_rounds=3) == 2
        assert line.idle_rounds(uow, "sim", IMAGE) == 3
    assert 5 < wave_of(db)["in_s"] <= 7
    with db.unit_of_work() as uow:
        assert plan(2, None, uow) == 3
    assert wave_of(db)["wake_at"] is None


def test_chains_of_other_providers_and_types_are_left_alone(db: Database) -> None:
    chain(db)
    chain(db, provider="other")
    chain(db, kind=Kind.VIDEO)
    with db.unit_of_work() as uow:
        claim(1, uow)
        hurry(1, uow)
        line.restart_wave(uow, "sim", IMAGE)
    assert wave_of(db, "other")["version"] == wave_of(db, "sim", Kind.VIDEO)["version"] == 1


@pytest.mark.parametrize(
    ("columns", "rings"),
    [
        (None, True),  # never ran
        ({"wake_at": None}, True),
        ({"wake_at": timedelta(seconds=20)}, True),
        ({"wake_at": timedelta(seconds=4)}, False),
        ({"wake_at": timedelta(seconds=-5)}, False),
    ],
)
def test_a_chain_is_hurried_only_when_it_would_wake_too_late(
    db: Database, columns: dict[str, Any] | None, *, rings: bool
) -> None:
    if columns is not None:
        chain(db, idle_rounds=9, **columns)
    before = None if columns is None else wave_of(db)["version"]
    with db.unit_of_work() as uow:
        version = hurry(4, uow)
    after = wave_of(db)
    assert version == (after["version"] if rings else None)
    assert (after["version"] != before) is rings
    if rings:
        assert after["in_s"] <= 4
        assert after["idle_rounds"] == 0


def test_a_restart_makes_every_older_wake_up_stale(db: Database) -> None:
    with db.unit_of_work() as uow:
        versions = [line.restart_wave(uow, "sim", IMAGE) for _ in range(3)]
        assert versions == [1, 2, 3]
        assert [claim(v, uow) for v in versions] == [None, None, 4]


ROUNDS = 20


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (partial(claim, 1), partial(claim, 1)),
        (partial(claim, 1), partial(plan, 1, 5)),
        (partial(plan, 1, 5), partial(plan, 1, None)),
    ],
)
def test_of_two_wake_ups_of_one_version_one_acts(
    db: Database, first: Callable[[UnitOfWork], int | None], second: Callable[[UnitOfWork], int | None]
) -> None:
    for _ in range(ROUNDS):
        chain(db, wake_at=timedelta())
        won = at_once(db, [first, second])
        assert sorted(v for v in won if v is not None) == [2]
        with db.unit_of_work() as uow:
            uow.execute("delete from waves")


@pytest.mark.parametrize("columns", [None, {"wake_at": None}, {"wake_at": timedelta(seconds=60)}])
def test_two_that_hurry_one_chain_ring_it_once(db: Database, columns: dict[str, Any] | None) -> None:
    for _ in range(ROUNDS):
        if columns is not None:
            chain(db, **columns)
        rung = [v for v in at_once(db, [partial(hurry, 1)] * 3) if v is not None]
        assert rung == [wave_of(db)["version"]]
        with db.unit_of_work() as uow:
            uow.execute("delete from waves")


# --- what is due ---


def due(db: Database, *, everything: bool = False, limit: int = 10) -> list[UUID]:
    """The ids that a round would ask about."""
    with db.unit_of_work() as uow:
        return [row["id"] for row in line.due(uow, "sim", IMAGE, everything=everything, limit=limit)]


def polled(db: Database, n: int, **columns: Any) -> UUID:  # noqa: ANN401  columns of tasks
    """A row that a chain looks after."""
    with db.unit_of_work() as uow:
        return factories.add_task(uow, Status.RUNNING, **factories.generating(f"r-{n}", **columns))


def test_due_are_the_rows_whose_time_has_come_longest_overdue_first(db: Database) -> None:
    late = [polled(db, n, wake_at=timedelta(seconds=-n)) for n in range(3)]
    soon = polled(db, 10, wake_at=timedelta(seconds=9))
    assert due(db) == late[::-1]
    assert due(db, limit=2) == [late[2], late[1]]
    assert set(due(db, everything=True)) == {*late, soon}


@pytest.mark.parametrize(
    "columns",
    [{"provider": "other"}, {"type": Kind.VIDEO}, {"stage": Stage.FETCHING}, {"stage": Stage.SUBMITTING}],
)
def test_rows_of_others_and_of_other_stages_are_not_polled(db: Database, columns: dict[str, Any]) -> None:
    polled(db, 1, **columns)
    assert due(db, everything=True) == []


def test_a_row_that_is_being_changed_is_asked_about_next_time(db: Database) -> None:
    held, free = polled(db, 1), polled(db, 2)
    with db.unit_of_work() as uow:
        uow.execute("select 1 from tasks where id = :id for update", id=held)
        assert due(db) == [free]


def test_the_next_round_is_due_with_the_earliest_row(db: Database) -> None:
    polled(db, 1, wake_at=timedelta(seconds=9))
    polled(db, 2, wake_at=timedelta(seconds=4))
    with db.unit_of_work() as uow:
        seconds = line.next_due_s(uow, "sim", IMAGE)
    assert seconds is not None
    assert 3 < seconds <= 4


@pytest.mark.parametrize(
    ("columns", "lost"),
    [
        (None, True),
        ({"wake_at": None}, True),
        ({"wake_at": timedelta(seconds=-11)}, True),
        ({"wake_at": timedelta(seconds=-9)}, False),
        ({"wake_at": timedelta(seconds=30)}, False),
    ],
)
def test_a_chain_is_lost_when_something_generates_and_nothing_will_wake_it(
    db: Database, columns: dict[str, Any] | None, *, lost: bool
) -> None:
    if columns is not None:
        chain(db, **columns)
    with db.unit_of_work() as uow:
        assert line.lost_waves(uow, 10) == []
    polled(db, 1)
    with db.unit_of_work() as uow:
        assert [dict(row) for row in line.lost_waves(uow, 10)] == ([{"seat": "sim", "type": "image"}] if lost else [])


# --- falling asleep while a receipt comes in ---


@dataclass
class Scene:
    """A round that finds nothing to poll, and a submit that commits its receipt, step by step.

    `rung` holds every version that somebody sent a wake-up for.
    """

    db: Database
    id: UUID
    round_s: float
    recheck: bool = True
    rung: set[int] = field(default_factory=set)
    mine: int | None = None
    due_s: float | None = None

    def round_steps(self) -> list[Callable[[UnitOfWork], None]]:
        """What a wave does after its wake-up."""
        return [self.claim, self.look, self.plan, self.look_again]

    def submit_steps(self) -> list[Callable[[UnitOfWork], None]]:
        """What a submit does after the vendor's yes."""
        return [self.receive, self.hurry]

    def claim(self, uow: UnitOfWork) -> None:
        """Take the chain."""
        self.mine = claim(3, uow, self.round_s)

    def look(self, uow: UnitOfWork) -> None:
        """See whether anything is left."""
        self.due_s = line.next_due_s(uow, "sim", IMAGE)

    def plan(self, uow: UnitOfWork) -> None:
        """Wake again, or sleep."""
        if self.mine is not None:
            self.mine = plan(self.mine, self.due_s, uow)
            self._ring(self.mine if self.due_s is not None else None)

    def look_again(self, uow: UnitOfWork) -> None:
        """Asleep now: see whether a receipt has come in meanwhile."""
        if self.recheck and self.mine is not None and self.due_s is None:
            due_s = line.next_due_s(uow, "sim", IMAGE)
            if due_s is not None:
                self._ring(plan(self.mine, due_s, uow))

    def receive(self, uow: UnitOfWork) -> None:
        """Commit the receipt."""
        fields = {"stage": Stage.GENERATING, "receipt": f"r-{self.id}"}
        change = Change(reason=Reason.OBSERVED, to=Status.RUNNING, fields=fields, wake_in_s=2)
        assert store.apply(uow, self.id, 1, change) == 2

    def hurry(self, uow: UnitOfWork) -> None:
        """Make sure that it is polled."""
        self._ring(hurry(2, uow))

    def _ring(self, version: int | None) -> None:
        if version is not None:
            self.rung.add(version)

    def is_polled(self) -> bool:
        """Whether a wake-up of the chain's own version is on its way, in time."""
        wave = wave_of(self.db)
        return wave["version"] in self.rung and wave["in_s"] is not None and wave["in_s"] <= 31


# Longer than the submit's first wait, the usual case: the submit takes the chain over. And shorter: it finds it awake.
ROUND_S = (30.0, 1.0)


def scene(db: Database, *, round_s: float, recheck: bool = True) -> Scene:
    """A chain whose wake-up has arrived, and a task that is being submitted."""
    with db.unit_of_work() as uow:
        uow.execute("delete from task_events")
        uow.execute("delete from tasks")
        uow.execute("delete from waves")
        factories.add_wave(uow, version=3, wake_at=timedelta())
        id_ = factories.add_task(uow, Status.RUNNING)
    return Scene(db=db, id=id_, round_s=round_s, recheck=recheck)


def orders(one: list[Any], two: list[Any]) -> Iterator[list[Any]]:
    """Every way to run two lists of steps, each in its own order."""
    length = len(one) + len(two)
    for places in combinations(range(length), len(one)):
        first, second = iter(one), iter(two)
        yield [next(first) if n in places else next(second) for n in range(length)]


def unpolled(db: Database, *, recheck: bool) -> list[list[str]]:
    """The orders after which the receipt is polled by nobody."""
    lost = []
    for round_s, order in product(ROUND_S, range(15)):
        made = scene(db, round_s=round_s, recheck=recheck)
        steps = list(orders(made.round_steps(), made.submit_steps()))[order]
        for step in steps:
            with db.unit_of_work() as uow:
                step(uow)
        if not made.is_polled():
            lost.append([step.__name__ for step in steps])
    return lost


def test_a_receipt_that_comes_while_the_chain_falls_asleep_is_polled_in_every_order(db: Database) -> None:
    assert unpolled(db, recheck=True) == []


def test_without_the_second_look_a_receipt_is_lost(db: Database) -> None:
    lost = unpolled(db, recheck=False)
    assert ["claim", "look", "receive", "hurry", "plan", "look_again"] in lost


def test_a_receipt_that_comes_at_the_same_moment_is_polled(db: Database) -> None:
    for n in range(2 * ROUNDS):
        made = scene(db, round_s=ROUND_S[n % 2])

        def run(steps: list[Callable[[UnitOfWork], None]], _: UnitOfWork) -> None:
            for step in steps:
                with db.unit_of_work() as uow:
                    step(uow)

        at_once(db, [partial(run, made.round_steps()), partial(run, made.submit_steps())])
        assert made.is_polled(), f"round {n}"
