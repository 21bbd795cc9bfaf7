"""Live workers and beat under what the dam shows: who is there, and which vendor is well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.live import Live, until


def _crew(live: Live, queue: str) -> tuple[int, int]:
    found = live.gateway().get("/v1/status").body["workers"]
    (row,) = [row for row in found if row["queue"] == queue]
    return row["workers"], row["slots"]


def _provider(live: Live) -> dict[str, Any]:
    (row,) = live.gateway().get("/v1/providers").body["data"]
    return dict(row)


def test_workers_are_seen_coming_and_going_and_a_vendor_too(database_url: str, redis_url: str, data_dir: Path) -> None:
    with Live(database_url=database_url, redis_url=redis_url, data_dir=data_dir, slots=(3, 2, 1)) as live:
        live.start()
        until(lambda: _crew(live, "image") == (2, 4) and _crew(live, "video") == (2, 3), within_s=10)
        live.stop("worker_image")
        until(lambda: _crew(live, "image") == (1, 1), within_s=10)
        until(lambda: live.sim("/_sim/ledger")["totals"].get("dashscope", {}).get("list", 0) >= 1, within_s=25)
        assert _provider(live)["health"] == {"healthy": True, "misses": 0, "why": None}
        live.kill("sim")
        until(lambda: not _provider(live)["health"]["healthy"], within_s=50, every_s=0.5)
        live.start("sim")
        until(lambda: _provider(live)["health"]["healthy"], within_s=25, every_s=0.5)
