"""Web, two worker hosts, a host for database and broker, and the vendor, each in a network of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from api.cli_http import Gateway, GatewayError
from api.embedded import EmbeddedServers
from api.ports import free_port
from api.processes import Child, last_lines, read_procfile, stop_all, with_our_programs
from models import accounts, migrations
from models.db import Database, Row
from tests.conftest import SECRET
from tests.faults import Proxy
from tests.hosts import Lan
from tests.live import until

FINAL = ("SUCCESS", "FAILED", "TIMEOUT", "CANCELED")
FAST_S = 300  # by how much one worker host's clock is ahead
CONFIG = """
[users]
running = 100
active = 1000
submits_per_minute = 10000
[caps]
total = 100
image = 100
video = 100
[sweep]
every_s = 5
[retries]
async_submit = 0
sync_submit = 0
[providers.wan]
adapter = "dashscope"
base_url = "{sim}/dashscope"
api_key_env = "DASHSCOPE_API_KEY"
max_in_flight = 30
requests_per_minute = 100000
connect_s = 2.0
submit_read_s = 4.0
query_read_s = 4.0
"""


class Estate:
    """The product spread over hosts that share nothing but the network and the folder of results."""

    def __init__(self, lan: Lan, servers: EmbeddedServers, stack: ExitStack, folder: Path) -> None:
        """Starts everything and waits until it serves."""
        self.lan, self._servers, self._logs = lan, servers, folder / "logs"
        self._logs.mkdir()
        port, sim_port = free_port(), free_port()
        data, vendor = lan["data"], lan["vendor"]
        config = folder / "hosts.toml"
        config.write_text(CONFIG.replace("{sim}", f"http://{vendor.address}:{sim_port}"), encoding="utf-8")
        with data.inside():
            addresses = [
                stack.enter_context(Proxy.before(url, listen=data.address)).url
                for url in (servers.database_url, servers.redis_url)
            ]
        self._environ = with_our_programs(
            {
                "WEIR_DATABASE_URL": addresses[0],
                "WEIR_REDIS_URL": addresses[1],
                "WEIR_SECRET": SECRET,
                "WEIR_DATA": str(folder),
                "WEIR_CONFIG": str(config),
                "DASHSCOPE_API_KEY": "sk-for-tests",
                "PORT": str(port),
                "IMAGE_SLOTS": "4",
                "VIDEO_SLOTS": "2",
                "DONT_FAKE_MONOTONIC": "1",  # faketime is to move the wall clock alone
            }
        )
        procfile = read_procfile()
        lines = {
            "sim": vendor.command(f"weir sim --host 0.0.0.0 --port {sim_port}"),
            "web": lan["web"].command(procfile["web"]),
            "beat": lan["web"].command(procfile["beat"]),
            "image1": lan["work1"].command(procfile["worker_image"]),
            "video1": lan["work1"].command(procfile["worker_video"]),
            "image2": lan["work2"].command(procfile["worker_image"], clock_off_s=FAST_S),
            "video2": lan["work2"].command(procfile["worker_video"], clock_off_s=FAST_S),
        }
        self._children = {name: self._child(name, line) for name, line in lines.items()}
        stack.callback(lambda: stop_all(self._children.values(), within_s=15))
        for child in self._children.values():
            child.start()
        with data.inside(), Database(servers.database_url, pool=1) as database, database.unit_of_work() as uow:
            _, key = accounts.create_key(uow, SECRET, user="tester", scopes=accounts.SCOPES)
        self._gateway = Gateway(url=f"http://127.0.0.1:{port}", key=key)
        self._vendor = Gateway(url=f"http://127.0.0.1:{sim_port}")
        for name in ("image1", "video1", "image2", "video2"):
            until(lambda name=name: "ready." in self._log(name), within_s=60, saying=self.tails)  # type: ignore[misc]  # default binds the loop's name
        until(self._serves, within_s=60, saying=self.tails)

    def _child(self, name: str, line: str) -> Child:
        return Child(name, line, log=self._logs / f"{name}.log", environ=self._environ)

    def _log(self, name: str) -> str:
        return self._children[name].log.read_text(encoding="utf-8", errors="replace")

    def tails(self) -> str:
        """The last lines of every log."""
        return "\n".join(f"--- {name}\n{last_lines(child.log)}" for name, child in self._children.items())

    def _serves(self) -> bool:
        try:
            with self.lan["web"].inside():
                self._gateway.get("/readyz")
            return bool(self.sim("/_sim/health"))
        except GatewayError:
            return False

    def sim(self, path: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        """The simulator's control."""
        with self.lan["vendor"].inside():
            return (self._vendor.get(path) if body is None else self._vendor.post(path, body)).body

    def submit(self, n: int, about: str, **more: object) -> None:
        """`n` tasks with prompts of their own."""
        with self.lan["web"].inside():
            for i in range(n):
                self._gateway.post("/v1/tasks", {"prompt": f"{about} {i}", **more})

    def rows(self) -> Sequence[Row]:
        """Every task."""
        url = self._servers.database_url
        with self.lan["data"].inside(), Database(url, pool=1) as database, database.unit_of_work() as uow:
            return uow.all("select status, error_code, risk from tasks")

    def states(self) -> dict[str, int]:
        """Tasks by status."""
        found = [row["status"] for row in self.rows()]
        return {status: found.count(status) for status in sorted(set(found))}

    def all_final(self, n: int) -> Callable[[], bool]:
        """Whether `n` tasks have ended."""
        return lambda: sum(self.states().get(status, 0) for status in FINAL) == n


@pytest.fixture
def estate(data_dir: Path, needs: Callable[[str], str]) -> Iterator[Estate]:
    """Five hosts, all well."""
    for program in ("ip", "nsenter", "unshare", "faketime"):
        needs(program)
    with ExitStack() as stack:
        lan = stack.enter_context(Lan("web", "work1", "work2", "data", "vendor"))
        with lan["data"].inside():
            servers = stack.enter_context(EmbeddedServers(data_dir / "own", durable=False))
            migrations.upgrade(servers.database_url)
        yield Estate(lan, servers, stack, data_dir)


@pytest.mark.timeout(240)
def test_hosts_cut_off_and_a_wrong_clock_lose_and_double_nothing(estate: Estate) -> None:
    estate.sim("/_sim/config", {"image_s": [2, 6], "video_s": [3, 8], "share_media": True})
    _without_a_worker_host(estate)
    _without_the_database_host(estate)
    until(estate.all_final(70), within_s=100, every_s=0.5, saying=lambda: f"{estate.states()}\n{estate.tails()}")
    _nothing_lost_or_doubled(estate)


def _without_a_worker_host(estate: Estate) -> None:
    """The other one, five minutes ahead, must bring everything forward alone meanwhile."""
    estate.submit(30, "before")
    estate.submit(10, "clip", type="video")
    until(lambda: estate.states().get("RUNNING", 0) > 15, saying=estate.tails)
    estate.lan["work1"].unplug()
    cut = time.monotonic()
    estate.submit(10, "during")
    until(lambda: estate.states().get("SUCCESS", 0) >= 20, within_s=60, saying=estate.tails)
    time.sleep(max(0.0, 12.0 - (time.monotonic() - cut)))  # long enough that calls and connections have given up
    estate.lan["work1"].plug()


def _without_the_database_host(estate: Estate) -> None:
    estate.submit(20, "after")
    estate.lan["data"].unplug()
    began = time.monotonic()
    with pytest.raises(GatewayError) as refused:
        estate.submit(1, "nobody there")
    assert time.monotonic() - began < 20, "an answer within seconds, not when the kernel gives up"
    assert refused.value.http_status == 503
    time.sleep(3.0)
    estate.lan["data"].plug()


def _nothing_lost_or_doubled(estate: Estate) -> None:
    jobs = estate.sim("/_sim/ledger")["accepted"]
    prompts = [job["prompt"] for job in jobs]
    assert len(prompts) == len(set(prompts)), "a job was bought twice"
    odd = [row for row in estate.rows() if row["status"] != "SUCCESS"]
    # A submit whose answer was cut off with the host is the one thing that may stay in doubt, and it says so.
    assert {(row["error_code"], row["risk"]) for row in odd} <= {("submit_unconfirmed", True)}
    assert len(odd) <= 18, "at most one for each thread that was cut off, each time"
