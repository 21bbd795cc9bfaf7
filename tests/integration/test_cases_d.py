"""Cases O-43 to O-47: one key, one task, one job at the vendor, one price.

Left out, with the reason:

- O-44, four processes: four applications with connections of their own, sharing only the database and Redis.
- O-47, the shifted clock: the task's end is moved back instead.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import redis

from providers.sim import Simulator
from tests.cases import PLAIN, PRICE, Case, bought, playing
from tests.conftest import MakeSettings
from tests.service import Got, Service, running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ("tests.cases_fixtures",)

AT_ONCE = 48


@contextmanager
def _another(case: Case) -> Iterator[Service]:
    yield from running(case.settings)


def test_o43_an_equal_body_replays_and_another_is_refused_and_one_is_bought(case: Case) -> None:
    first = case.service.post(PLAIN, idem="K")
    same = json.dumps(dict(reversed(PLAIN.items())), indent=3).encode()
    again = case.service.raw(same, Idempotency_Key="K")
    other = case.service.post({**PLAIN, "seed": 8}, idem="K")
    task_id = first.json["task_id"]
    assert (again.status_code, again.json["task_id"], again.json["reused"]) == (202, task_id, True)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (other.status_code, other.json["code"], "task_id" in other.json) == (422, "idempotency_key_reused", False)
    assert bought(case.end(task_id)) == ("SUCCESS", PRICE)
    replayed = case.service.post(PLAIN, idem="K")
    assert (replayed.status_code, replayed.json["task_id"], bought(replayed.json)) == (200, task_id, ("SUCCESS", PRICE))
    assert (case.service.count(), case.totals("dashscope")["submit"]) == (1, 1)


def test_o44_many_at_once_with_one_key_buy_once(case: Case) -> None:
    gate = threading.Barrier(AT_ONCE)
    with ExitStack() as stack:
        services = [case.service, *(stack.enter_context(_another(case)) for _ in range(3))]

        def post(n: int) -> Got:
            gate.wait()
            return services[n % 4].post(PLAIN, idem="K", who=case.service.ann)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(post, range(AT_ONCE)))
    ok = [answer for answer in answers if answer.status_code == 202]
    assert {answer.status_code for answer in answers} <= {202, 409, 503}  # who waits too long may be told to come again
    assert len(ok) >= AT_ONCE // 2
    assert sum(not answer.json["reused"] for answer in ok) == 1
    (task_id,) = {answer.json["task_id"] for answer in ok}
    rung = [message for message in case.service.rung() if message.startswith(task_id)]
    assert (case.service.count(), len(rung)) == (1, 1)
    assert bought(case.end(task_id)) == ("SUCCESS", PRICE)
    assert case.totals("dashscope")["submit"] == 1


def test_o45_a_key_has_1_to_255_characters_and_is_never_cut(case: Case) -> None:
    keys = ["k" * length for length in (1, 64, 255)]
    tasks = [case.post(PLAIN, idem=key) for key in keys]
    assert len(set(tasks)) == 3
    for key in ("k" * 255 + "a", "k" * 255 + "b", ""):
        refused = case.service.post(PLAIN, idem=key)
        assert (refused.status_code, refused.json["code"]) == (400, "idempotency_key_invalid")
    assert case.service.count() == 3
    assert [bought(case.end(task_id)) for task_id in tasks] == [("SUCCESS", PRICE)] * 3
    assert case.totals("dashscope")["submit"] == 3


@pytest.mark.parametrize("key", ["绘图-001", "a b", "a\tb", "k\u0000"])
def test_o46_a_key_with_other_than_visible_ascii_is_refused(case: Case, key: str) -> None:
    answers = [case.service.post({**PLAIN, "idempotency_key": key})]
    if "\0" not in key:  # a header with it is no HTTP
        answers.append(case.service.post(PLAIN, idem=key.encode().decode("latin-1")))
    assert {(one.status_code, one.json["code"]) for one in answers} == {(400, "idempotency_key_invalid")}
    assert (case.service.count(), case.totals("dashscope")["submit"]) == (0, 0)


def test_o46_what_looks_like_a_path_or_sql_is_plain_text(case: Case) -> None:
    id_ = str(uuid4())
    # With its spaces the SQL-looking one is no key; without them it is as good as any.
    keys = ["../../k", "k'OR1=1;--", f"{id_.upper()}A", f"{id_.lower()}a"]
    tasks = [case.post(PLAIN, idem=key) for key in keys]
    assert (len(set(tasks)), case.service.count()) == (4, 4)
    assert [case.post(PLAIN, idem=key) for key in keys] == tasks
    assert case.service.post(PLAIN, idem="k' OR 1=1").status_code == 400


def test_o47_a_key_outlives_restarts_and_an_empty_redis(make_settings: MakeSettings, sim: Simulator) -> None:
    with playing(make_settings, sim) as case:
        task = case.play(PLAIN, idem="K")
        task_id, ann = task["task_id"], case.service.ann
    with redis.Redis.from_url(case.settings.env.redis_url) as client:
        client.flushall()
    with playing(make_settings, sim) as case:
        again = case.service.post(PLAIN, idem="K", who=ann)
        assert (again.status_code, again.json["task_id"], bought(again.json)) == (200, task_id, ("SUCCESS", PRICE))
        for age in ("1 day", "29 days"):
            case.world.sql(f"update tasks set finished_at = now() - interval '{age}'")  # noqa: S608  from this file
            assert case.service.post(PLAIN, idem="K", who=ann).json["task_id"] == task_id
        assert case.totals("dashscope")["submit"] == 1
        case.world.sql("update tasks set finished_at = now() - interval '31 days'")
        fresh = case.service.post(PLAIN, idem="K", who=ann)
        assert (fresh.status_code, fresh.json["reused"], fresh.json["task_id"] != task_id) == (202, False, True)
        assert bought(case.end(fresh.json["task_id"], who=ann)) == ("SUCCESS", PRICE)
        assert case.totals("dashscope")["submit"] == 2
