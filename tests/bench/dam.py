"""The dam on live processes, over the simulator: `python -m tests.bench.dam [burst] [many] [waiting]`, all by default.

    burst     200 images sent at once to a vendor that takes 20 submits and 20 queries a second
    many      1,600 clips in flight there at one moment
    waiting   10,000 pictures in flight on four threads, and one more that wants to go at once

Prints what was counted and whether it holds; exit status 1 if something does not. Each ends by itself: about 2, 5 and 3
minutes. Times are shown and judged loosely, since they are the machine's; counts are exact.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from uuid_utils.compat import uuid7

from api.embedded import EmbeddedServers
from models import accounts, migrations, store
from models.db import Database
from tests.live import Live, until

RATE = 20  # submits, and queries, in any one second
TOML = """
[caps]
total = 20000
image = 20000
video = 20000
[users]
running = 20000
active = 20000
submits_per_minute = 1000000
[deadlines]
image_s = 3600
video_s = 3600
[providers.wan]
adapter = "dashscope"
base_url = "{sim}/dashscope"
api_key_env = "DASHSCOPE_API_KEY"
max_in_flight = 20000
requests_per_minute = 1200
"""


class Bench:
    """One installation, and what it has to say for itself."""

    def __init__(self, live: Live, slots: int) -> None:
        self.live, self.slots, self.held = live, slots, True

    def sql(self, statement: str, **values: object) -> Any:  # noqa: ANN401  one value
        """The first value of the first row."""
        with Database(self.live.database_url, pool=1) as database, database.unit_of_work() as uow:
            return uow.scalar(statement, **values)

    def count(self, status: str) -> int:
        """Tasks of a status."""
        return int(self.sql("select count(*) from tasks where status = :status", status=status))

    def post(self, count: int, **body: object) -> None:
        """Tasks, eight at a time."""
        gateway = self.live.gateway()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: gateway.post("/v1/tasks", {"prompt": f"fox {n}", **body}), range(count)))

    def says(self, what: str, found: object, ok: bool | None = None) -> None:  # noqa: FBT001  a verdict
        """One line of the table."""
        self.held = self.held and ok is not False
        word = {True: "holds", False: "BROKEN", None: ""}[ok]
        print(f"  {what:<58}{found!s:>12}  {word}", flush=True)  # noqa: T201  that is what it is for

    def slowed(self) -> int:
        """Calls that the vendor answered 429."""
        return int(self.sql("select count(*) from upstream_calls where http_status = 429"))


@contextmanager
def installation(slots: tuple[int, int, int]) -> Iterator[Bench]:
    """Servers and processes of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="weir-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        with EmbeddedServers(folder / "own", durable=False) as servers:
            migrations.upgrade(servers.database_url)
            addresses = {"database_url": servers.database_url, "redis_url": servers.redis_url}
            with Live(**addresses, data_dir=folder, toml=TOML, slots=slots) as live:  # type: ignore[arg-type]  # names
                live.start()
                yield Bench(live, slots[0])


def burst() -> bool:
    """200 images at once."""
    with installation((8, 2, 1)) as bench:
        bench.live.sim(
            "/_sim/config",
            {"image_s": [10, 30], "share_media": True, "limits": {"queries_per_s": RATE, "submits_per_s": RATE}},
        )
        began = time.monotonic()
        bench.post(200)
        bench.says("accepted by us within, s", f"{time.monotonic() - began:.1f}")
        until(
            lambda: bench.count("SUCCESS") == 200, within_s=150, every_s=0.5, saying=lambda: str(bench.count("SUCCESS"))
        )
        bench.says("200 images delivered within, s", f"{time.monotonic() - began:.1f}")
        bench.says("answers 429", bench.slowed(), bench.slowed() == 0)
        bench.says("jobs bought", bought := _bought(bench), bought == 200)
        return bench.held


def many() -> bool:
    """1,600 clips in flight."""
    with installation((2, 8, 1)) as bench:
        bench.live.sim(
            "/_sim/config",
            {"video_s": [130, 150], "share_media": True, "limits": {"queries_per_s": RATE, "submits_per_s": RATE}},
        )
        bench.post(1600, type="video", duration_s=5)
        most, ends = 0, time.monotonic() + 400
        while bench.count("SUCCESS") < 1600 and time.monotonic() < ends:
            most = max(most, int(bench.sql("select count(*) from tasks where stage = 'generating'")))
            time.sleep(1)
        queries = int(bench.sql("select count(*) from upstream_calls where operation = 'observe'"))
        bench.says("most in flight at one moment", most, most >= 1500)
        bench.says("clips delivered", bench.count("SUCCESS"), bench.count("SUCCESS") == 1600)
        bench.says("answers 429", bench.slowed(), bench.slowed() == 0)
        bench.says("queries a clip", f"{queries / 1600:.2f}", queries <= 2.5 * 1600)
        bench.says("jobs bought", bought := _bought(bench), bought == 1600)
        return bench.held


def waiting() -> bool:
    """10,000 pictures in flight on four threads."""
    with installation((4, 1, 1)) as bench:
        bench.live.sim("/_sim/config", {"image_s": [900, 900], "share_media": True})
        _in_flight(bench, 10_000)
        until(lambda: bench.sql("select max(poll_count) from tasks") >= 1, within_s=60, every_s=0.5)
        pid = bench.live.pid("worker_image")
        assert pid is not None
        cpu, began = _cpu_s(pid), time.monotonic()
        time.sleep(60)
        share = (_cpu_s(pid) - cpu) / (time.monotonic() - began)
        bench.says("CPU of the worker, share of one core", f"{share:.1%}")
        rss = _rss_mb(pid)
        bench.says("memory of the worker, MB", f"{rss:.0f}", rss < 512)
        posted = time.monotonic()
        bench.post(1)
        until(
            lambda: bool(
                bench.sql("select count(*) from tasks where receipt is not null and effective ->> 'prompt' = 'fox 0'")
            )
        )
        took = time.monotonic() - posted
        bench.says("one more is with the vendor after, s", f"{took:.2f}", took < 5)
        return bench.held


def _bought(bench: Bench) -> int:
    return int(bench.live.sim("/_sim/ledger?jobs=0")["totals"]["dashscope"]["accepted"])


def _in_flight(bench: Bench, count: int) -> None:
    """Rows as submits leave them, with jobs that the vendor knows."""
    url = f"{bench.live.sim_url}/dashscope/api/v1/services/aigc/text2image/image-synthesis"
    headers = {"Authorization": "Bearer sk-for-tests", "X-DashScope-Async": "enable"}
    body = {"model": "wan2.2-t2i-flash", "input": {"prompt": "a fox"}, "parameters": {"size": "512*512", "n": 1}}

    def one(_: int) -> str:
        with requests.post(url, json=body, headers=headers, timeout=30) as answer:
            return str(answer.json()["output"]["task_id"])

    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(one, range(count)))
    with Database(bench.live.database_url, pool=1, statement_s=120) as database, database.unit_of_work() as uow:
        user = accounts.ensure_user(uow, "tester")
        for receipt in receipts:
            store.insert(uow, _values(user), {})
            uow.execute(
                """update tasks set status = 'RUNNING', stage = 'generating', receipt = :receipt, version = 2,
                          claimed_at = now(), started_at = now(), wake_at = now(), upstream_call_count = 1
                    where status = 'PENDING'""",
                receipt=receipt,
            )


def _values(user: object) -> dict[str, object]:
    effective = {"prompt": "a fox", "width": 512, "height": 512, "seed": 1, "image_count": 1}
    return {
        "id": uuid7(), "user_id": user, "key_id": None, "type": "image", "order_id": "", "idempotency_key": None,
        "fingerprint": None, "priority": 1, "model": "sim-image", "provider": "wan",
        "provider_model": "wan2.2-t2i-flash",
        "input": {}, "effective": effective, "adjustments": [], "metadata": {}, "deadline_s": 3600, "price_micros": 0,
        "currency": "USD",
    }  # fmt: skip


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


SCENES: dict[str, Callable[[], bool]] = {"burst": burst, "many": many, "waiting": waiting}


def main() -> int:
    """Run the scenes that are named."""
    names = sys.argv[1:] or list(SCENES)
    held = True
    for name in names:
        print(f"{name}: {SCENES[name].__doc__}")  # noqa: T201  same
        held = SCENES[name]() and held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
