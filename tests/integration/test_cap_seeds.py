"""Seeded races over all caps at once, Redis flushed and workers dying meanwhile; and no crowd delays another user."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
import redis

from models import line, store
from models.db import Database, Row, UnitOfWork
from models.fields import Kind
from models.lifecycle import Change, Reason, Status
from tests import factories

THREADS, TASKS = 8, 60
SEEDS = range(1, 1 + int(os.environ.get("CAP_SEEDS", "5")))  # all twenty: CAP_SEEDS=20
ENDED = Change(reason=Reason.REFUSED, to=Status.FAILED, fields={"error_code": "internal_error", "certain": True})


@pytest.fixture
def wide(database_url: str) -> Iterator[Database]:
    """The test's database with a connection for every thread and for the watcher."""
    with Database(database_url, pool=THREADS + 2, wait_s=20) as opened:
        yield opened


class Race:
    """Workers that claim, end, give back and die; and somebody who counts all the while."""

    def __init__(self, db: Database, seed: int) -> None:
        """Caps and tasks are drawn from the seed."""
        self.db, self.dice = db, random.Random(seed)
        self.caps: dict[str, Any] = {
            "total": self.dice.randint(4, 8),
            "image": self.dice.randint(2, 6),
            "video": self.dice.randint(2, 6),
            "running": self.dice.randint(1, 4),
            "providers": {"sim": self.dice.randint(2, 5), "other": self.dice.randint(1, 4)},
        }
        self.settings = factories.settings(**self.caps)
        self.done, self.exceeded = threading.Event(), list[str]()
        with db.unit_of_work() as uow:
            self.ids = [
                factories.add_task(
                    uow,
                    user=self.dice.choice(["ann", "bob", "cy"]),
                    type=self.dice.choice(list(Kind)),
                    provider=self.dice.choice(["sim", "other"]),
                )
                for _ in range(TASKS)
            ]

    def work(self, seed: int) -> None:
        """Take any waiting task; end it, put it back, or die with the claim in hand."""
        dice = random.Random(seed)
        while not self.done.is_set():
            with self.db.unit_of_work() as uow:
                rows = uow.all("select id, version from tasks where status = 'PENDING' limit 20")
            if not rows:
                return
            row = dice.choice(rows)
            with self.db.unit_of_work() as uow:
                claimed = line.claim(uow, row["id"], row["version"], self.settings, 60.0)
            if claimed is not None:
                self._after(dice, row["id"], claimed.version)

    def _after(self, dice: random.Random, id_: UUID, version: int) -> None:
        fate = dice.random()
        if fate < 0.1:
            with self.db.engine.connect() as connection:  # died inside the ending: nothing of it holds
                store.apply(UnitOfWork(connection), id_, version, ENDED)
                connection.rollback()
        again = Change(reason=Reason.NOT_ACCEPTED, to=Status.PENDING, wake_in_s=0.0)
        with self.db.unit_of_work() as uow:
            assert store.apply(uow, id_, version, again if fate > 0.85 else ENDED) is not None

    def watch(self, redis_url: str) -> None:
        """Count what runs, against every cap; flush Redis now and then."""
        with redis.Redis.from_url(redis_url) as client:
            while not self.done.is_set():
                with self.db.unit_of_work() as uow:
                    running = uow.all("select type, provider, user_id from tasks where status = 'RUNNING'")
                self.exceeded += self._above(running)
                client.flushall()

    def _above(self, running: Sequence[Row]) -> list[str]:
        found = Counter({"total": len(running)})
        most: dict[str, Any] = {"total": self.caps["total"], **{str(k): self.caps[str(k)] for k in Kind}}
        most |= {f"at {name}": cap for name, cap in self.caps["providers"].items()}
        for row in running:
            found.update([row["type"], f"at {row['provider']}", f"of {row['user_id']}"])
        return [f"{what}: {n}" for what, n in found.items() if n > most.get(what, self.caps["running"])]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_cap_is_exceeded_and_no_slot_leaks(wide: Database, redis_url: str, seed: int) -> None:
    race = Race(wide, seed)
    watcher = threading.Thread(target=race.watch, args=(redis_url,))
    watcher.start()
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(race.work, (seed * 100 + n for n in range(THREADS))))
    finally:
        race.done.set()
        watcher.join()
    assert race.exceeded == []
    with wide.unit_of_work() as uow:
        left = uow.all("select status, count(*) as n from tasks group by status")
    assert {row["status"]: row["n"] for row in left} == {"FAILED": TASKS}, "every task ended: no slot was lost"


def test_five_hundred_tasks_of_one_user_do_not_delay_one_of_another(db: Database) -> None:
    settings = factories.settings(total=10, image=10, running=3, providers={"sim": 10})
    with db.unit_of_work() as uow:
        crowd = [factories.add_task(uow, user="ann") for _ in range(500)]
    with db.unit_of_work() as uow:
        first = line.next_up(uow, settings)
    assert len(first) == 3, "her own cap, and no more of the ten places"
    for row in first:
        with db.unit_of_work() as uow:
            assert line.claim(uow, row["id"], row["version"], settings, 60.0) is not None
    with db.unit_of_work() as uow:
        (single,) = [factories.add_task(uow, user="bob")]
    with db.unit_of_work() as uow:
        assert [row["id"] for row in line.next_up(uow, settings)] == [single], "at once, behind none of the other 497"
    assert single not in crowd
