"""Every kind of row x reason x target, proposed to the real store: the legal ones move, the rest is untouched."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from models import store
from models.db import Database, Row
from models.lifecycle import FINAL, TRANSITIONS, Change, Guard, Reason, Stage, Status
from tests import factories

GENERATING, FETCHING = Stage.GENERATING, Stage.FETCHING
# Every kind of row that the guards tell apart, and more that they must not.
KINDS: dict[str, tuple[Status, dict[str, Any]]] = {
    "waiting": (Status.PENDING, {}),
    "submitting": (Status.RUNNING, {}),
    "generating": (Status.RUNNING, {"stage": GENERATING, "receipt": "r"}),
    "fetching": (Status.RUNNING, {"stage": FETCHING, "receipt": "r"}),
    "delivered": (Status.SUCCESS, {"cost_micros": 100}),
    "delivered, certain": (Status.SUCCESS, {"certain": True}),
    "refused": (Status.FAILED, {"error_code": "invalid_parameter", "certain": True}),
    "unconfirmed": (Status.FAILED, {"error_code": "submit_unconfirmed"}),
    "unconfirmed, settled": (Status.FAILED, {"error_code": "submit_unconfirmed", "certain": True}),
    "lost": (Status.FAILED, {"error_code": "upstream_lost", "receipt": "r"}),
    "late, never sent": (Status.TIMEOUT, {"certain": True}),
    "late": (Status.TIMEOUT, {"receipt": "r"}),
    "canceled": (Status.CANCELED, {"certain": True}),
    "canceled, in doubt": (Status.CANCELED, {}),
}
# Which kinds each guard lets through, by hand.
LETS_THROUGH: dict[Guard, set[str]] = {
    Guard.NONE: set(KINDS),
    Guard.NO_RECEIPT: set(KINDS) - {"generating", "fetching", "lost", "late"},
    Guard.RECEIPT: {"generating", "fetching", "lost", "late"},
    Guard.DOUBTFUL: {"unconfirmed", "late"},
    Guard.CERTAIN: {
        "delivered, certain", "refused", "unconfirmed, settled", "late, never sent", "canceled",
    },
}  # fmt: skip
VERSION = 4


def change(reason: Reason, to: Status) -> Change:
    """A proposal whose fields fit the target, so that only the transition itself can be refused."""
    fields: dict[str, object] = {"error_code": None, "cost_micros": 0}
    if to is Status.RUNNING:
        fields["stage"] = Stage.SUBMITTING
    if to in (Status.FAILED, Status.TIMEOUT):
        fields["error_code"] = "internal_error"
    return Change(reason=reason, to=to, fields=fields, detail={"n": 1})


def legal(kind: str, reason: Reason, to: Status) -> bool:
    """Whether the table allows it for this kind of row."""
    return any(
        (t.start, t.reason, t.to) == (KINDS[kind][0], reason, to) and kind in LETS_THROUGH[t.guard] for t in TRANSITIONS
    )


@dataclass
class Case:
    """One proposal and what became of it."""

    kind: str
    reason: Reason
    to: Status
    id: UUID
    before: Row
    after: Row
    moved: int | None
    events: list[Row]

    @property
    def named(self) -> str:
        """For the message of a failing test."""
        return f"{self.kind}: {self.reason} -> {self.to}"


def propose(db: Database, version: int) -> list[Case]:
    """Every combination on a row of its own, all proposed at `version` in one statement."""
    with db.unit_of_work() as uow:
        user_id = factories.add_user(uow)
        ids: dict[tuple[str, Reason, Status], UUID] = {}
        for n, (kind, reason, to) in enumerate(product(KINDS, Reason, Status)):
            status, columns = KINDS[kind]
            if "receipt" in columns:
                columns = columns | {"receipt": f"r-{n}"}
            made = factories.add_task(uow, status, user_id=user_id, version=VERSION, **columns)
            ids[kind, reason, to] = made
    before = _rows(db)
    with db.unit_of_work() as uow:
        moved = store.apply_all(
            uow, [store.Proposal(id=i, version=version, change=change(r, to)) for (_, r, to), i in ids.items()]
        )
    after = _rows(db)
    with db.unit_of_work() as uow:
        events: dict[UUID, list[Row]] = {}
        for event in uow.all("select * from task_events order by id"):
            events.setdefault(event["task_id"], []).append(event)
    return [
        Case(kind, reason, to, i, before[i], after[i], moved.get(i), events.get(i, []))
        for (kind, reason, to), i in ids.items()
    ]


def _rows(db: Database) -> dict[UUID, Row]:
    with db.unit_of_work() as uow:
        return {row["id"]: row for row in uow.all("select t.*, t::text as image from tasks t")}


@pytest.fixture
def cases(db: Database) -> list[Case]:
    """Every combination, proposed at the rows' own version."""
    return propose(db, VERSION)


def test_exactly_the_legal_transitions_move_a_row(cases: list[Case]) -> None:
    wrong = [c.named for c in cases if (c.moved is not None) is not legal(c.kind, c.reason, c.to)]
    assert wrong == []
    assert {(c.reason, c.to) for c in cases if c.moved} == {
        (t.reason, t.to) for t in TRANSITIONS if t.start is not None
    }


def test_a_move_raises_the_version_by_one_and_takes_the_status(cases: list[Case]) -> None:
    moved = [c for c in cases if c.moved is not None]
    assert [c.named for c in moved if not c.moved == c.after["version"] == VERSION + 1] == []
    assert [c.named for c in moved if c.after["status"] != c.to] == []


def test_a_move_writes_one_event_that_says_from_where_to_where(cases: list[Case]) -> None:
    for c in (c for c in cases if c.moved is not None):
        (event,) = c.events
        told = (event["version"], event["reason"], event["from_status"], event["to_status"], event["stage"])
        assert told == (VERSION + 1, c.reason, KINDS[c.kind][0], c.to, c.after["stage"]), c.named
        assert (event["attempt"], event["detail"]) == (c.after["attempt"], {"n": 1}), c.named


def test_finished_at_is_set_exactly_for_final_states(cases: list[Case]) -> None:
    assert [c.named for c in cases if (c.after["finished_at"] is not None) is not (c.after["status"] in FINAL)] == []


def test_a_stage_is_set_exactly_while_running(cases: list[Case]) -> None:
    assert [c.named for c in cases if (c.after["stage"] is not None) is not (c.after["status"] == "RUNNING")] == []


def test_a_refused_transition_leaves_the_row_as_it_was_and_writes_nothing(cases: list[Case]) -> None:
    lost = [c for c in cases if c.moved is None]
    assert [c.named for c in lost if c.before["image"] != c.after["image"]] == []
    assert [c.named for c in lost if c.events] == []


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_nothing_moves_for_a_wake_up_of_another_version(db: Database, version: int) -> None:
    cases = propose(db, version)
    assert [c.named for c in cases if c.moved is not None or c.before["image"] != c.after["image"] or c.events] == []
