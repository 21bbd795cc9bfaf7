"""Many workers claim at one moment: no cap is ever exceeded, and no slot is left empty."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from models import line, store
from models.db import Database, UnitOfWork
from models.fields import Kind
from models.lifecycle import Change, Reason, Status
from models.settings import Settings
from tests import factories
from tests.racing import at_once

THREADS = 30
CAP = 5
OTHER = {"sim": 1000, "other": 1000}
# The cap, the settings that set it, and the columns of every second task, so that only this cap binds them together.
CAPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "provider": ({"providers": {"sim": CAP}}, {"type": Kind.VIDEO, "user": "bob"}),
    "total": ({"total": CAP, "providers": OTHER}, {"type": Kind.VIDEO, "user": "bob", "provider": "other"}),
    "type": ({"image": CAP, "providers": OTHER}, {"user": "bob", "provider": "other"}),
    "user": ({"running": CAP, "providers": OTHER}, {"type": Kind.VIDEO, "provider": "other"}),
}
ENDED = Change(reason=Reason.REFUSED, to=Status.FAILED, fields={"error_code": "internal_error", "certain": True})


@pytest.fixture
def wide(database_url: str) -> Iterator[Database]:
    """The test's database with a connection for every thread."""
    with Database(database_url, pool=THREADS + 1, wait_s=20) as opened:
        yield opened


def waiting(db: Database, count: int, every_second: dict[str, Any]) -> list[UUID]:
    """Tasks that want to run."""
    with db.unit_of_work() as uow:
        return [factories.add_task(uow, **(every_second if n % 2 else {})) for n in range(count)]


def claim(id_: UUID, settings: Settings, uow: UnitOfWork) -> int | None:
    """The version that the claim gave."""
    claimed = line.claim(uow, id_, 1, settings, 60.0)
    return None if claimed is None else claimed.version


@pytest.mark.parametrize("cap", CAPS)
def test_claims_at_one_moment_fill_the_cap_and_no_more(wide: Database, cap: str) -> None:
    caps, every_second = CAPS[cap]
    settings = factories.settings(**caps)
    ids = waiting(wide, THREADS, every_second)
    won = at_once(wide, [partial(claim, i, settings) for i in ids])
    assert sum(v is not None for v in won) == CAP
    with wide.unit_of_work() as uow:
        assert uow.scalar("select count(*) from tasks where status = 'RUNNING'") == CAP


@pytest.mark.parametrize("cap", CAPS)
def test_a_cap_is_never_exceeded_while_tasks_come_and_go(wide: Database, cap: str) -> None:
    caps, every_second = CAPS[cap]
    settings = factories.settings(**caps)
    ids = waiting(wide, THREADS, every_second)

    def work(id_: UUID) -> int:
        """Claim as soon as there is room, look around, end; the most that ran at once."""
        version = None
        while version is None:
            with wide.unit_of_work() as uow:
                version = claim(id_, settings, uow)
        with wide.unit_of_work() as uow:
            seen: int = uow.scalar("select count(*) from tasks where status = 'RUNNING'")
            assert store.apply(uow, id_, version, ENDED) is not None
        return seen

    with ThreadPoolExecutor(2 * CAP) as pool:
        most = list(pool.map(work, ids))
    assert 1 <= max(most) <= CAP
    with wide.unit_of_work() as uow:
        assert uow.scalar("select count(*) from tasks where status = 'FAILED'") == THREADS


def test_one_task_claimed_by_many_is_claimed_once(wide: Database) -> None:
    (id_,) = waiting(wide, 1, {})
    won = at_once(wide, [partial(claim, id_, factories.settings())] * 10)
    assert sum(v is not None for v in won) == 1
    row = factories.row_of(wide, id_)
    assert (row["version"], row["upstream_call_count"]) == (2, 1)


def test_a_slot_is_not_held_by_a_claim_that_died_before_its_commit(db: Database) -> None:
    settings = factories.settings(total=1)
    first, second = waiting(db, 2, {})
    with db.engine.connect() as connection:
        assert claim(first, settings, UnitOfWork(connection)) == 2
        connection.rollback()
    with db.unit_of_work() as uow:
        assert claim(second, settings, uow) == 2


def test_two_at_once_ring_each_waiting_task_once(db: Database) -> None:
    for _ in range(10):
        ids = waiting(db, 6, {"user": "bob"})
        both = at_once(db, [lambda uow: line.next_up(uow, factories.settings())] * 2)
        rung = [row["id"] for rows in both for row in rows]
        assert sorted(rung) == sorted(ids)
