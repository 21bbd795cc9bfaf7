"""What workers counted and did is shown by the web process of their host, and by `weir`."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from api.cli import main
from tests.live import Live, until


def test_web_shows_what_the_workers_counted(database_url: str, redis_url: str, data_dir: Path) -> None:
    with Live(database_url=database_url, redis_url=redis_url, data_dir=data_dir) as live:
        live.start("sim", "web", "worker_image")
        gateway = live.gateway()
        task = gateway.post("/v1/tasks", {"prompt": "a fox nobody may read about"}).body
        until(lambda: gateway.get(f"/v1/tasks/{task['task_id']}").body["status"] == "SUCCESS")
        with urllib.request.urlopen(f"{live.url}/metrics", timeout=10) as answer:  # noqa: S310  loopback
            text = answer.read().decode()
        access = ("--url", live.url, "--key", gateway.key)
        (state,), (used,) = (
            [json.loads(line) for line in CliRunner().invoke(main, [verb, *access, "--json"]).stdout.splitlines()]
            for verb in ("status", "usage")
        )
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    calls = {s.labels["operation"] for s in samples if s.name == "weir_upstream_requests_total"}
    assert {"submit", "observe", "fetch"} <= calls
    assert [s.value for s in samples if s.name == "weir_tasks_finished_total"] == [1.0]
    assert "fox" not in text
    assert state["ended_last_day"]["SUCCESS"] == 1
    assert {crew["queue"]: crew["workers"] for crew in state["workers"]} == {"image": 1, "video": 0, "default": 1}
    assert (used["tasks"], used["succeeded"], used["provider"]) == (1, 1, "wan")
    assert task["task_id"] not in text
