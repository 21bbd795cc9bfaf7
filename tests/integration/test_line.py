"""The queue as rows: claims under caps, and who is rung next, in the order of fairness."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from models import fairness, line
from models.db import Database
from models.fairness import AGEING_S, Caps, Waiting
from models.fields import Kind
from models.lifecycle import Status
from tests import factories

OPEN = factories.settings()


def claim(db: Database, id_: UUID, version: int = 1, settings: Any = OPEN) -> int | None:  # noqa: ANN401  Settings
    """The version that a claim gives, or None."""
    with db.unit_of_work() as uow:
        claimed = line.claim(uow, id_, version, settings, 60.0)
    return None if claimed is None else claimed.version


# --- claim ---


def test_a_claim_makes_the_row_say_that_it_may_have_been_sent(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, rings=2)
    assert claim(db, id_) == 2
    row = factories.row_of(db, id_)
    assert (row["status"], row["stage"], row["version"], row["rings"]) == ("RUNNING", "submitting", 2, 0)
    assert (row["upstream_call_count"], row["retry_count"]) == (1, 0)
    assert timedelta(seconds=59) < row["wake_at"] - row["claimed_at"] <= timedelta(seconds=61)
    assert [e["reason"] for e in factories.events_of(db, id_)] == ["claimed"]


def test_a_claim_gives_the_row_as_it_was(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow)
        claimed = line.claim(uow, id_, 1, OPEN, 60.0)
    assert claimed is not None
    assert (claimed.row["status"], claimed.row["version"], claimed.row["upstream_call_count"]) == ("PENDING", 1, 0)


def test_a_second_claim_of_one_task_counts_as_a_retry(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, claimed_at=timedelta(minutes=-1), retry_count=4)
    claim(db, id_)
    assert factories.row_of(db, id_)["retry_count"] == 5


@pytest.mark.parametrize(
    ("status", "columns"),
    [
        *((s, {}) for s in Status if s is not Status.PENDING),
        (Status.PENDING, {"version": 2}),
        (Status.PENDING, {"wake_at": timedelta(seconds=5)}),
        (Status.PENDING, {"deadline_at": timedelta(seconds=-1)}),
        (Status.PENDING, {"provider": "gone"}),
    ],
)
def test_what_may_not_be_claimed_is_left_as_it_is(db: Database, status: Status, columns: dict[str, Any]) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, status, **columns)
    before = factories.row_of(db, id_)
    assert claim(db, id_) is None
    assert factories.row_of(db, id_) == before


def test_an_unknown_task_is_not_claimed(db: Database) -> None:
    assert claim(db, uuid4()) is None


# One task runs already; the second meets exactly one closed cap.
CAPS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "total": ({"total": 1}, {"type": Kind.VIDEO, "provider": "other", "user": "bob"}, {}),
    "type": ({"image": 1}, {"provider": "other", "user": "bob"}, {"type": Kind.VIDEO}),
    "provider": ({"providers": {"sim": 1, "other": 9}}, {"user": "bob", "type": Kind.VIDEO}, {"provider": "other"}),
    "user": ({"running": 1}, {"type": Kind.VIDEO, "provider": "other"}, {"user": "bob"}),
}


@pytest.mark.parametrize("cap", CAPS)
def test_a_closed_cap_keeps_a_task_waiting_until_a_slot_is_free(db: Database, cap: str) -> None:
    caps, running, _ = CAPS[cap]
    settings = factories.settings(**{"providers": {"sim": 9, "other": 9}} | caps)
    with db.unit_of_work() as uow:
        first = factories.add_task(uow, Status.RUNNING, **running)
        second = factories.add_task(uow, rung_at=timedelta())
    assert claim(db, second, settings=settings) is None
    row = factories.row_of(db, second)
    assert (row["status"], row["version"]) == ("PENDING", 1)
    assert row["rung_at"] is None, "nobody would ring it again in time"
    with db.unit_of_work() as uow:
        uow.execute("delete from tasks where id = :id", id=first)
    assert claim(db, second, settings=settings) == 2


@pytest.mark.parametrize("cap", [c for c in CAPS if c != "total"])
def test_a_cap_does_not_close_for_others(db: Database, cap: str) -> None:
    caps, running, free = CAPS[cap]
    settings = factories.settings(**{"providers": {"sim": 9, "other": 9}} | caps)
    with db.unit_of_work() as uow:
        factories.add_task(uow, Status.RUNNING, **running)
        other = factories.add_task(uow, **free)
    assert claim(db, other, settings=settings) == 2


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.RUNNING}))
def test_only_running_tasks_hold_a_slot(db: Database, status: Status) -> None:
    settings = factories.settings(total=1)
    with db.unit_of_work() as uow:
        factories.add_task(uow, status)
        id_ = factories.add_task(uow)
    assert claim(db, id_, settings=settings) == 2


@pytest.mark.parametrize(("limit", "claimed"), [(0, 0), (1, 1), (3, 3), (None, 2)])
def test_a_users_own_limit_wins_over_the_default(db: Database, limit: int | None, claimed: int) -> None:
    settings = factories.settings(running=2)
    with db.unit_of_work() as uow:
        user_id = factories.add_user(uow, "own", running_limit=limit)
        ids = [factories.add_task(uow, user_id=user_id) for _ in range(4)]
    with db.unit_of_work() as uow:
        rung = line.next_up(uow, settings)
    assert len(rung) == claimed
    assert sum(claim(db, i, settings=settings) is not None for i in ids) == claimed


def test_a_claim_is_known_again_by_who_made_it_and_by_nobody_else(db: Database) -> None:
    mine = uuid4()
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow)
        assert line.claim(uow, id_, 1, OPEN, 60.0, by=mine) is not None
    with db.unit_of_work() as uow:
        assert line.renew(uow, id_, 1, uuid4(), 60.0) is None
        assert line.renew(uow, id_, 2, mine, 60.0) is None
        assert line.renew(uow, id_, 1, mine, 90.0) == 2
    row = factories.row_of(db, id_)
    assert row["wake_at"] - row["claimed_at"] > timedelta(seconds=89)


def test_a_claim_whose_time_is_up_is_not_renewed(db: Database) -> None:
    mine = uuid4()
    with db.unit_of_work() as uow:
        columns: dict[str, Any] = {"version": 2, "claimed_by": mine, "wake_at": timedelta(seconds=-1)}
        id_ = factories.add_task(uow, Status.RUNNING, **columns)
        assert line.renew(uow, id_, 1, mine, 60.0) is None


# --- who is next ---


class Undo(Exception):  # noqa: N818  not an error: takes the example's rows back
    """Ends a transaction without a trace."""


USERS = "abcd"
waiting_rows = st.fixed_dictionaries(
    {
        "user": st.sampled_from(USERS),
        "priority": st.integers(0, 2),
        "waited_s": st.integers(0, 3 * AGEING_S),
        "odd": st.sampled_from(["", "", "", "", "later", "late", "elsewhere", "video", "rung"]),
    }
)
ODD: dict[str, dict[str, Any]] = {
    "": {},
    "later": {"wake_at": timedelta(seconds=5)},
    "late": {"deadline_at": timedelta(seconds=-1)},
    "elsewhere": {"provider": "other"},
    "video": {"type": Kind.VIDEO},
    "rung": {"rung_at": timedelta(seconds=-1)},
}
populations = st.tuples(
    st.lists(waiting_rows, max_size=12),
    st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(Kind), st.sampled_from(["sim", "other"])), max_size=6),
    st.fixed_dictionaries(
        {k: st.integers(1, 8) for k in ("total", "image", "video", "running")}
        | {"providers": st.integers(1, 8).map(lambda cap: {"sim": cap, "other": 8})}
    ),
)


@limits(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(populations)
def test_whom_the_sql_finds_is_whom_fairness_chooses_among_all(
    db: Database,
    population: tuple[list[dict[str, Any]], list[tuple[str, Kind, str]], dict[str, Any]],
) -> None:
    waiting, running, caps = population
    waiting = sorted(waiting, key=lambda w: -int(w["waited_s"]))
    with pytest.raises(Undo), db.unit_of_work() as uow:  # noqa: PT012  the statement is the test
        for n, w in enumerate(waiting):  # ids rise with the time of acceptance, as UUIDv7 do
            columns = ODD[w["odd"]] | {"id": UUID(int=n + 1), "priority": w["priority"]}
            factories.add_task(uow, user=w["user"], created_at=timedelta(seconds=-w["waited_s"]), **columns)
        for user, kind, provider in running:
            factories.add_task(uow, Status.RUNNING, user, type=kind, provider=provider)
        rows = line.next_up(uow, factories.settings(**caps))
        assert [row["id"].int - 1 for row in rows] == expected(waiting, running, caps)
        raise Undo


def expected(waiting: list[dict[str, Any]], running: list[tuple[str, Kind, str]], caps: dict[str, Any]) -> list[int]:
    """The same by fairness.choose, over every line."""
    able = [
        Waiting(
            key=n,
            priority=w["priority"],
            waited_s=w["waited_s"],
            user=w["user"],
            user_cap=caps["running"],
            line=("other" if w["odd"] == "elsewhere" else "sim", "video" if w["odd"] == "video" else "image"),
        )
        for n, w in enumerate(waiting)
        if w["odd"] in ("", "elsewhere", "video")
    ]
    busy = Counter((provider, str(kind)) for _, kind, provider in running)
    load = Counter(user for user, _, _ in running)
    shared = Caps(
        total=caps["total"], types={"image": caps["image"], "video": caps["video"]}, providers=caps["providers"]
    )
    return [w.key for w in fairness.choose(able, busy, load, shared)]


def rung(db: Database, settings: Any = OPEN) -> list[UUID]:  # noqa: ANN401  Settings
    """Who is rung now."""
    with db.unit_of_work() as uow:
        return [row["id"] for row in line.next_up(uow, settings)]


def test_a_waiting_task_is_rung_once_within_the_grace(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow)
    assert (rung(db), rung(db)) == ([id_], [])


def test_a_task_whose_ring_was_lost_is_rung_again_after_the_grace(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, rung_at=timedelta(seconds=-OPEN.sweep.grace_s - 1))
    assert rung(db) == [id_]


def test_nobody_is_rung_for_a_provider_that_is_not_configured(db: Database) -> None:
    with db.unit_of_work() as uow:
        factories.add_task(uow, provider="gone")
        assert line.next_up(uow, OPEN) == []


def test_nobody_is_rung_without_room(db: Database) -> None:
    with db.unit_of_work() as uow:
        factories.add_task(uow, Status.RUNNING)
        factories.add_task(uow, user="bob")
    assert rung(db, factories.settings(total=1)) == []


def test_waiting_lines_are_the_providers_and_types_that_somebody_waits_for(db: Database) -> None:
    with db.unit_of_work() as uow:
        for status in Status:
            factories.add_task(uow, status, provider=f"of-{status}")
        factories.add_task(uow)
        factories.add_task(uow, type=Kind.VIDEO)
        factories.add_task(uow)
        lines = set(line.waiting_lines(uow))
    assert lines == {("of-PENDING", "image"), ("sim", "image"), ("sim", "video")}
