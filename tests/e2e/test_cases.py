"""Known troubles that need whole processes of their own."""

from __future__ import annotations

import time
from pathlib import Path

from api.embedded import EmbeddedServers
from models import migrations
from models.db import Database
from tests.live import Live, until


def test_o58_task_accepted_while_the_broker_is_away_runs_when_it_is_back(data_dir: Path) -> None:
    with EmbeddedServers(data_dir / "own", durable=False) as servers:
        migrations.upgrade(servers.database_url)
        addresses = {"database_url": servers.database_url, "redis_url": servers.redis_url}
        with Live(**addresses, data_dir=data_dir, slots=(1, 1, 1)) as live:  # type: ignore[arg-type]  # names and types
            live.start("sim", "web", "worker_image", "beat")
            live.sim("/_sim/config", {"image_s": [0, 0]})
            gateway = live.gateway()
            servers.valkey.kill()
            began = time.monotonic()
            accepted = gateway.post("/v1/tasks", {"prompt": "nobody hears it"})
            assert time.monotonic() - began < 5
            servers.valkey.start()

            def status() -> str:
                return str(gateway.get(f"/v1/tasks/{accepted.body['task_id']}").body["status"])

            until(lambda: status() == "SUCCESS", within_s=60, every_s=0.3, saying=live.tails)
            with Database(servers.database_url, pool=1) as database, database.unit_of_work() as uow:
                row = uow.one("select upstream_call_count, cost_micros from tasks")
            assert row is not None
            assert row["upstream_call_count"] == 1
            assert live.sim("/_sim/ledger?jobs=0")["totals"]["dashscope"]["accepted"] == 1
