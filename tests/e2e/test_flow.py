"""Live processes under what the product promises: waiting holds no slot, and no death loses or doubles a task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from api.embedded import EmbeddedServers
from models.db import Database
from tests.live import WORKERS, Live, until
from tests.rabbit import Rabbit

ROOM = """
[caps]
total = 1000
image = 1000
video = 1000
[users]
running = 200
active = 1000
submits_per_minute = 100000
[sweep]
every_s = 5
[retries]  # a call that was cut off by a death is over sooner, and its row may be looked at
async_submit = 0
sync_submit = 0
[providers.wan]
adapter = "dashscope"
base_url = "{sim}/dashscope"
api_key_env = "DASHSCOPE_API_KEY"
max_in_flight = 200
requests_per_minute = 100000
connect_s = 2.0
submit_read_s = 4.0
query_read_s = 4.0
"""
FINAL = ("SUCCESS", "FAILED", "TIMEOUT", "CANCELED")


@pytest.fixture
def live(request: pytest.FixtureRequest, database_url: str, redis_url: str, data_dir: Path) -> Iterator[Live]:
    """Two workers of four threads and a spare of one, room for 200, over the session's servers.

    With the parameter "rabbitmq" their messages go through RabbitMQ.
    """
    on_rabbit = getattr(request, "param", "redis") == "rabbitmq"
    environ = {"WEIR_BROKER_URL": request.getfixturevalue("rabbit").url} if on_rabbit else {}
    with Live(database_url=database_url, redis_url=redis_url, data_dir=data_dir, toml=ROOM, environ=environ) as running:
        yield running


@pytest.fixture
def own_servers(data_dir: Path) -> Iterator[EmbeddedServers]:
    """PostgreSQL and Valkey that a test may kill."""
    from models import migrations  # noqa: PLC0415  as in conftest

    with EmbeddedServers(data_dir / "own", durable=True) as running:
        migrations.upgrade(running.database_url)
        yield running


def _submit(live: Live, n: int, *, about: str = "fox", **more: object) -> list[str]:
    """`n` tasks, posted side by side; their ids."""
    gateway = live.gateway()

    def one(i: int) -> str:
        body: dict[str, object] = {"prompt": f"{about} {i}", "seed": i, "width": 512, "height": 512} | more
        return str(gateway.post("/v1/tasks", body).body["task_id"])

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(one, range(n)))


def _states(live: Live) -> dict[str, int]:
    with Database(live.database_url, pool=1) as database, database.unit_of_work() as uow:
        return {row["status"]: row["n"] for row in uow.all("select status, count(*) as n from tasks group by status")}


def _rows(live: Live) -> list[Mapping[str, Any]]:
    with Database(live.database_url, pool=1) as database, database.unit_of_work() as uow:
        return list(uow.all("select * from tasks"))


def _all_final(live: Live, n: int) -> Callable[[], bool]:
    return lambda: sum(count for status, count in _states(live).items() if status in FINAL) == n


def test_200_tasks_of_20_seconds_finish_within_two_minutes_on_two_workers_of_four(live: Live) -> None:
    live.start()
    live.sim("/_sim/config", {"image_s": [20, 20], "share_media": True})
    began = time.monotonic()
    _submit(live, 200)
    most_busy = 0

    def done() -> bool:
        nonlocal most_busy
        with Database(live.database_url, pool=1) as database, database.unit_of_work() as uow:
            busy = uow.scalar("select count(*) from tasks where stage in ('submitting', 'fetching')")
            waiting = uow.scalar("select count(*) from tasks where stage = 'generating'")
        most_busy = max(most_busy, waiting)
        return busy == 0 and _all_final(live, 200)()

    until(done, within_s=120, every_s=0.5, saying=lambda: f"{_states(live)}\n{live.tails()}")
    assert time.monotonic() - began < 120
    assert _states(live) == {"SUCCESS": 200}
    assert most_busy > 100, "with nine threads in all, more than a hundred were generating at one moment"
    assert live.sim("/_sim/ledger?jobs=0")["totals"]["dashscope"]["accepted"] == 200


def test_waiting_tasks_hold_no_worker_slot(live: Live) -> None:
    live.start()
    live.sim("/_sim/config", {"image_s": [60, 60]})
    _submit(live, 30)
    until(lambda: _states(live) == {"RUNNING": 30}, saying=live.tails)
    until(lambda: all(r["receipt"] for r in _rows(live)), saying=live.tails)
    from tasks import app  # noqa: PLC0415  over this test's broker

    app.conf.update(broker_url=live.environ["WEIR_REDIS_URL"])
    held = 0
    for _ in range(5):
        active = app.control.inspect(timeout=1.0).active() or {}
        held = max(held, sum(len(jobs) for jobs in active.values()))
    assert held <= 1, "one round of the wave at most"


@pytest.mark.parametrize("victim", ["web", "worker_image", "worker_video", "worker_default", "beat"])
def test_killed_process_loses_and_doubles_nothing(live: Live, victim: str) -> None:
    live.start()
    live.sim("/_sim/config", {"image_s": [3, 6], "video_s": [3, 6], "share_media": True})
    _submit(live, 40)
    _submit(live, 10, type="video", width=None, height=None)
    until(lambda: _states(live).get("RUNNING", 0) > 10, saying=live.tails)
    live.kill(victim)
    time.sleep(1.0)  # long enough for the others to meet its absence
    live.start(victim)
    _holds(live, 50)


@pytest.mark.parametrize("victim", ["valkey", "postgres"])
def test_killed_server_loses_and_doubles_nothing(own_servers: EmbeddedServers, data_dir: Path, victim: str) -> None:
    addresses = {"database_url": own_servers.database_url, "redis_url": own_servers.redis_url}
    with Live(**addresses, data_dir=data_dir, toml=ROOM) as live:  # type: ignore[arg-type]  # three names, three types
        live.start()
        live.sim("/_sim/config", {"image_s": [3, 6], "video_s": [3, 6], "share_media": True})
        _submit(live, 40)
        _submit(live, 10, type="video", width=None, height=None)
        until(lambda: _states(live).get("RUNNING", 0) > 10, saying=live.tails)
        server = getattr(own_servers, victim)
        server.kill()
        time.sleep(1.0)
        server.start()
        _holds(live, 50)


@pytest.mark.parametrize("live", ["redis", "rabbitmq"], indirect=True)
def test_all_workers_killed_at_once_resume_where_they_were(live: Live) -> None:
    live.start()
    live.sim("/_sim/config", {"image_s": [4, 8], "share_media": True})
    _submit(live, 50)
    until(lambda: _states(live).get("RUNNING", 0) > 20, saying=live.tails)
    live.kill(*WORKERS, "beat")
    live.start(*WORKERS, "beat")
    _holds(live, 50)


@pytest.mark.parametrize("live", ["rabbitmq"], indirect=True)
def test_killed_rabbitmq_loses_and_doubles_nothing(live: Live, rabbit: Rabbit) -> None:
    live.start()
    live.sim("/_sim/config", {"image_s": [3, 6], "video_s": [3, 6], "share_media": True})
    _submit(live, 40)
    _submit(live, 10, type="video", width=None, height=None)
    until(lambda: _states(live).get("RUNNING", 0) > 10, saying=live.tails)
    rabbit.kill()
    _submit(live, 5, about="while it is away")  # accepted all the same: the sweep wakes them
    rabbit.start()
    _holds(live, 55)


def test_rolling_restart_of_every_process_loses_and_doubles_nothing(live: Live) -> None:
    live.start()
    live.sim("/_sim/config", {"image_s": [3, 8], "video_s": [3, 8], "share_media": True})
    _submit(live, 30)
    for name in ("web", *WORKERS, "beat"):
        assert live.stop(name, within_s=30) == [], f"{name} did not stop when it was asked to"
        live.start(name)
        if name != "web":
            _submit(live, 5, about=name)
    _holds(live, 50)
    assert _states(live) == {"SUCCESS": 50}, "a process that is asked to stop finishes what it has in hand"


def _holds(live: Live, n: int) -> None:
    """Every task ends; the vendor took no job twice; what is not SUCCESS says that it is not known, and is flagged."""
    until(_all_final(live, n), within_s=120, every_s=0.5, saying=lambda: f"{_states(live)}\n{live.tails()}")
    jobs = live.sim("/_sim/ledger")["accepted"]
    prompts = [job["prompt"] for job in jobs]
    rows = _rows(live)
    asked = [row["effective"]["prompt"] for row in rows]
    assert sorted(set(prompts)) == sorted({p for p in asked if p in prompts})
    assert len(prompts) == len({(job["prompt"], job["model"]) for job in jobs}), "a job was bought twice"
    odd = [row for row in rows if row["status"] != "SUCCESS"]
    assert {(row["error_code"], row["risk"]) for row in odd} <= {("submit_unconfirmed", True)}
    assert len(odd) <= 9, "at most one for each thread that was killed in the middle of its submit"
