"""What kills workers, grows in them or crosses a fork; and money that is given back or taken once whoever looks."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from threading import Barrier
from typing import Any, BinaryIO
from uuid import UUID

import pytest
from PIL import Image

from api.processes import ROOT
from models import store
from models.failures import FailureKind
from models.lifecycle import Error, Failed, Finished, Output
from providers.storage import Stored
from tasks import fetching
from tests.conftest import OUTSIDE, SECRET, MakeSettings
from tests.scripted import done
from tests.service import Service, running, uuid_of
from tests.world import TOML, World

API_TOML = TOML.replace('"image"', '"image"\ndefault = true', 1) + "submits_per_minute = 10000\n"


@pytest.fixture
def world(make_settings: MakeSettings) -> Iterator[World]:
    """A gateway with room for a hundred."""
    made = World.build(make_settings(TOML))
    yield made
    made.rt.db.close()


def _killing(world: World, poison: UUID) -> None:
    """Whoever stores the result of `poison` dies of it, as the kernel ends a process that ate all memory."""
    put_file = world.rt.storage.put_file
    name = str(world.row(poison)["id"])

    def put(key: str, file: BinaryIO, media_type: str) -> Stored:
        if _of(key) == name:
            raise SystemExit
        return put_file(key, file, media_type)

    world.rt.storage.put_file = put  # type: ignore[method-assign]  # the one place where bytes are looked at


def _of(key: str) -> str:
    return str(next(found for part in key.split("/") if (found := uuid_of(part) if part.startswith("task_") else None)))


def test_o57_result_that_kills_its_worker_ends_after_three_of_them(world: World) -> None:
    poison, others = world.add(), [world.add() for _ in range(5)]
    for id_ in (poison, *others):
        world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    _killing(world, poison)
    for _ in range(fetching.STARTS_MAX):
        with pytest.raises(SystemExit):
            world.fetch(poison)
        world.sql(
            """update tasks set wake_at = now() - interval '1 minute', fetch_until = now() - interval '1 minute'
                where id = :id""",
            id=poison,
        )
        assert world.sweep()["rewoken"] >= 1
    row = world.fetch(poison)
    assert (row["status"], row["error_code"], row["risk"]) == ("FAILED", "internal_error", True)
    assert (row["cost_micros"], row["upstream_call_count"]) == (0, 1)
    assert {world.fetch(id_)["status"] for id_ in others} == {"SUCCESS"}


def test_o57_fetch_that_comes_back_does_not_count_however_often(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: Finished(outputs=(Output(url="http://127.0.0.1:9/x.png"),))
    world.poll()
    for _ in range(fetching.STARTS_MAX + 1):
        row = world.fetch(id_)
        assert (row["stage"], row["fetch_starts"]) == ("fetching", 0)


def test_o57_error_that_is_not_the_death_of_a_process_does_not_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()

    def broken(*_: object) -> bool:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(store, "extend", broken)
        for _ in range(fetching.STARTS_MAX + 1):
            with pytest.raises(RuntimeError):
                world.fetch(id_)
    assert world.fetch(id_)["status"] == "SUCCESS"


def test_o57_copies_of_one_wake_up_do_nothing_while_a_fetch_is_at_work(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    put_file, version = world.rt.storage.put_file, world.row(id_)["version"]

    def put(key: str, file: BinaryIO, media_type: str) -> Stored:
        for _ in range(fetching.STARTS_MAX + 1):
            fetching.fetch(world.rt, id_, version)
        return put_file(key, file, media_type)

    world.rt.storage.put_file = put  # type: ignore[method-assign]  # in the middle of the first one
    row = world.fetch(id_)
    assert (row["status"], row["version"]) == ("SUCCESS", version + 1)
    assert len([*world.rt.storage.list("results")]) == 1


def test_o57_late_result_that_kills_its_worker_is_left_to_the_operator(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.sql("update tasks set deadline_at = now() - interval '1 second'")
    world.sweep()
    world.provider.on_observe = lambda _: done()
    _killing(world, id_)
    for _ in range(fetching.STARTS_MAX):
        with pytest.raises(SystemExit):
            world.reconcile(id_)
    row = world.reconcile(id_)
    assert (row["status"], row["certain"], row["risk"]) == ("TIMEOUT", False, True)


_FORK = """
import json, multiprocessing, os
from tasks.runtime import runtime

def backends(_):
    with runtime().db.unit_of_work() as uow:
        return os.getpid(), uow.scalar("select pg_backend_pid()")

ours = backends(0)[1]
with multiprocessing.get_context("fork").Pool(4) as pool:
    seen = pool.map(backends, range(200), chunksize=1)
print(json.dumps({"ours": ours, "seen": seen, "after": backends(0)[1]}))
"""


def test_o66_no_connection_crosses_a_fork(database_url: str, redis_url: str) -> None:
    environ = {"WEIR_DATABASE_URL": database_url, "WEIR_REDIS_URL": redis_url, "WEIR_SECRET": SECRET}
    run = subprocess.run(
        [sys.executable, "-c", _FORK],
        env={"PATH": OUTSIDE["PATH"], "DASHSCOPE_API_KEY": "sk-for-tests", **environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    users: dict[int, set[int]] = {}
    for pid, backend in told["seen"]:
        users.setdefault(backend, set()).add(pid)
    assert len(told["seen"]) == 200
    assert all(len(pids) == 1 for pids in users.values()), "two processes on one connection"
    assert told["ours"] not in users
    assert told["after"] == told["ours"], "the parent's own still works"


_SIDE = 250  # pixels; of noise, which no format makes smaller


def test_o74_worker_keeps_nothing_of_what_it_has_done(world: World) -> None:
    def round_of(count: int) -> None:
        for n in range(count):
            id_ = world.add()
            world.submit(id_)
            world.provider.on_observe = lambda _, n=n: _picture(n) if n % 2 else _failed(n)  # type: ignore[misc]
            world.poll()
            if n % 2:
                assert world.fetch(id_)["status"] == "SUCCESS"

    round_of(20)
    tracemalloc.start()
    try:
        round_of(10)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        round_of(60)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2 * _SIDE * _SIDE * 3, "not as much as two of the thirty pictures that went through"


def _picture(n: int) -> Finished:
    file = BytesIO()
    Image.frombytes("RGB", (_SIDE, _SIDE), os.urandom(_SIDE * _SIDE * 3)).save(file, "PNG")
    return Finished(outputs=(Output(content=file.getvalue(), seed=n),))


def _failed(n: int) -> Failed:
    kinds = (FailureKind.CONTENT_FILTERED, FailureKind.PROVIDER_ERROR)
    return Failed(error=Error(kind=kinds[n % 4 // 2], message="x" * 10_000))


@pytest.mark.parametrize("run", range(10))
def test_o77_three_paths_to_one_end(world: World, run: int) -> None:
    id_ = world.add()
    world.submit(id_)
    world.sql("update tasks set deadline_at = now() - interval '1 second', wake_at = now()")
    world.provider.on_observe = lambda _: _failed(run)
    together = Barrier(4)

    def at_once(act: Any) -> None:  # noqa: ANN401  whatever it answers
        together.wait()
        act()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(at_once, [world.poll, world.poll, world.sweep, world.sweep]))
    row = world.row(id_)
    assert row["status"] in ("FAILED", "TIMEOUT")
    with world.rt.db.unit_of_work() as uow:
        ends = uow.all(
            "select reason from task_events where task_id = :id and to_status <> 'RUNNING' and reason <> 'late'", id=id_
        )
    assert [one["reason"] for one in ends][1:] in (["refused"], ["deadline"]), "accepted, then one end"
    assert (row["cost_micros"], row["upstream_call_count"]) == (0, 1)


def test_o78_nobody_looks_and_it_is_charged_once_all_the_same(make_settings: MakeSettings) -> None:
    world = World.build(make_settings(API_TOML))
    for service in running(world.rt.settings):
        task_id = service.made()
        world.submit(uuid_of(task_id))
        world.provider.on_observe = lambda _: done()
        world.poll()
        before = world.fetch(uuid_of(task_id))
        assert (before["status"], before["cost_micros"]) == ("SUCCESS", 100)

        def look(_: int, service: Service = service, task_id: str = task_id) -> int:
            return int(service.get(f"/v1/tasks/{task_id}").json["cost"]["micros"])

        with ThreadPoolExecutor(10) as pool:
            assert set(pool.map(look, range(100))) == {100}
        after = world.row(uuid_of(task_id))
        assert (after["version"], after["cost_micros"]) == (before["version"], 100)
    world.rt.db.close()


def test_billed_output_that_cannot_be_had_is_a_risk_and_lost_money(make_settings: MakeSettings) -> None:
    world = World.build(make_settings(API_TOML))
    for service in running(world.rt.settings):
        task_id = service.made({"prompt": "two foxes", "image_count": 2})
        world.submit(uuid_of(task_id))
        one_is_gone = Finished(outputs=(done(1).outputs[0], Output(url="http://127.0.0.1:9/x.png")))
        world.provider.on_observe = lambda _, seen=one_is_gone: seen  # type: ignore[misc]  # binds the loop's name
        world.poll()
        for _ in range(world.rt.settings.retries.fetch_attempts):
            row = world.fetch(uuid_of(task_id))
        assert (row["status"], row["partial"], row["cost_micros"], row["risk"]) == ("SUCCESS", True, 100, True)
        assert [one["billed"] for one in row["missing"]] == [True]
        (line,) = service.get("/v1/usage").json["data"]
        assert (line["cost_micros"], line["lost_micros"]) == (100, 100)
    world.rt.db.close()
