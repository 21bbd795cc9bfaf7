"""Where a task stands and how long it has left: the same order that decides who starts, and what was learned."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from models import accounts, fairness, learning, reads
from models.db import Database
from models.fairness import Caps, Waiting
from models.lifecycle import Status
from tasks.pacing import bucket_of
from tests import factories
from tests.service import Service, uuid_of

pytest_plugins = ("tests.service_fixtures",)

USERS = ("ann", "bob", "cyd", "dan")
CAP = 3


def scene(db: Database, chance: random.Random) -> list[Any]:
    """A line of tasks and what is running, put into the database; the ids in the order of fairness.choose."""
    waiting, running, caps = [], Counter[str](), {}
    with db.unit_of_work() as uow:
        for user in USERS:
            caps[user] = chance.choice((CAP, CAP, 1, 6))
            accounts.ensure_user(uow, user)
            accounts.set_limits(uow, user, {"running_limit": None if caps[user] == CAP else caps[user]})
            running[user] = chance.randrange(4)
            for _ in range(running[user]):
                factories.add_task(uow, Status.RUNNING, user, provider="other")
        for n in range(20):
            user, priority, waited_s = chance.choice(USERS), chance.randrange(3), chance.choice((1, 290, 310, 700))
            id_ = factories.add_task(uow, user=user, priority=priority, created_at=timedelta(seconds=-waited_s))
            waiting.append((id_, Waiting(key=n, priority=priority, waited_s=waited_s, user=user, user_cap=caps[user])))
    free = Caps(total=100, types={"": 100}, providers={"": 100})
    chosen = fairness.choose([w for _, w in waiting], {}, running, free)
    return [waiting[w.key][0] for w in chosen]


@pytest.mark.parametrize("seed", range(8))
def test_places_are_the_order_in_which_tasks_will_start(db: Database, seed: int) -> None:
    order = scene(db, random.Random(seed))
    with db.unit_of_work() as uow:
        places = reads.waiting(uow, "sim", "image", CAP)
    assert sorted(places.values()) == list(range(1, 21))
    assert sorted(places, key=places.__getitem__)[: len(order)] == order, "who may start at all stands first"


def test_a_user_at_the_cap_stands_behind_those_who_may_start(service: Service) -> None:
    for _ in range(3):
        service.become(service.made(), "RUNNING")
    urgent = service.made({"prompt": "x", "priority": "high"})
    low = service.made({"prompt": "x", "priority": "low"}, who=service.bob)
    assert service.get(f"/v1/tasks/{low}", who=service.bob).json["queue_position"] == 1
    assert service.get(f"/v1/tasks/{urgent}").json["queue_position"] == 2


def _running(service: Service, elapsed_s: float) -> tuple[str, str]:
    task_id = service.made()
    service.become(task_id, "RUNNING", claimed_at=datetime.now(UTC) - timedelta(seconds=elapsed_s))
    (row,) = service.sql("select * from tasks where id = :id", id=uuid_of(task_id))
    return task_id, bucket_of(row)


def _eta_s(service: Service, task_id: str) -> int | None:
    found: int | None = service.get(f"/v1/tasks/{task_id}").json["eta_s"]
    return found


def test_the_time_left_is_what_others_like_it_had_left_at_this_age(service: Service) -> None:
    task_id, bucket = _running(service, 10)
    assert _eta_s(service, task_id) is None
    with service.parts.db.unit_of_work() as uow:
        learning.learn(uow, {bucket: [5.0] * 20 + [40.0] * 20})
    eta_s = _eta_s(service, task_id)
    assert eta_s is not None
    assert 24 <= eta_s <= 36, "half of them had ended before this age and say nothing any more"
    older, _ = _running(service, 500)
    assert _eta_s(service, older) is None, "older than any seen"
    service.become(task_id, "RUNNING", stage="fetching", claimed_at=datetime.now(UTC))
    assert _eta_s(service, task_id) is None


def test_what_waits_has_its_own_time_and_that_of_the_line_before_it(service: Service) -> None:
    one, two = service.made(), service.made()
    assert _eta_s(service, two) is None
    (row,) = service.sql("select * from tasks where id = :id", id=uuid_of(one))
    with service.parts.db.unit_of_work() as uow:
        learning.learn(uow, {bucket_of(row): [20.0] * 40})
    first, second = _eta_s(service, one), _eta_s(service, two)
    assert first is not None
    assert second is not None
    assert 18 <= first <= second <= 26, "a hundred places: the line is short"
    service.become(one, "RUNNING", claimed_at=datetime.now(UTC))
    left = _eta_s(service, one)
    assert left is not None
    assert left <= first
