"""Servers, processes and proxies of one run, and what is done to them. For the main thread: children are tied to it."""

from __future__ import annotations

import contextlib
import heapq
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from api.cli_http import GatewayError
from api.embedded import EmbeddedServers
from api.processes import ROOT, Child, last_lines, read_procfile, with_our_programs
from tests.chaos.cutter import CommitCutter
from tests.chaos.plan import TOML, WORKERS, Blow
from tests.faults import Proxy
from tests.live import Live

NAMES = ("sim", "web", *WORKERS, "beat", "beat_2")
_SLOTS = (4, 3, 2)  # of each image worker, of the video worker, of the spare one
_SIM = {"image_s": [0.3, 2.5], "video_s": [0.5, 4.0], "pending_share": 0.4, "share_media": True}
_HELD_S = 0.25  # each chunk through a slow proxy


class Processes(Live):
    """Live with a second image worker and a second beat."""

    def __init__(self, *, database_url: str, redis_url: str, data_dir: Path, sim_at: Callable[[str], str]) -> None:
        """`sim_at` gives the address under which the processes shall know the simulator at its own."""
        super().__init__(database_url=database_url, redis_url=redis_url, data_dir=data_dir, slots=_SLOTS)
        config = TOML.replace("{sim}", sim_at(self.sim_url))
        (data_dir / "live.toml").write_text(config, encoding="utf-8")
        self.environ["PYTHONPATH"] = str(ROOT)  # the code beside this file, wherever it was installed from
        commands = {"sim": f"weir sim --port {self.sim_port}", **read_procfile()}
        commands["worker_image_2"] = commands["worker_image"].replace("image@", "image2@")
        commands["beat_2"] = commands["beat"]
        inherited = with_our_programs(self.environ)
        self._children = {
            name: Child(name, command, log=self._logs / f"{name}.log", environ=inherited)
            for name, command in commands.items()
        }

    def child(self, name: str) -> Child:
        """One process, to be started or killed without waiting for it."""
        return self._children[name]

    def _serves(self, name: str, before: int) -> bool:
        if name.startswith("beat"):
            return "beat: Starting" in self.log(name)[before:]
        return super()._serves(name, before)


class House:
    """All of it, as a context manager; and the blows. `done` counts them."""

    def __init__(self, folder: Path, servers: EmbeddedServers) -> None:
        """The servers run and are migrated. Nothing else starts here."""
        self.folder, self.servers = folder, servers
        self.done: Counter[str] = Counter()
        self.fallen: list[str] = []  # processes that ended by themselves
        self._proxies = contextlib.ExitStack()
        self._down: set[str] = set()
        self._frozen: dict[str, int] = {}
        self._mend: list[tuple[float, int, Callable[[], None]]] = []

    def __enter__(self) -> Self:
        """Start the proxies and every process, and wait until each serves."""
        postgres = CommitCutter.before(self.servers.database_url)
        assert isinstance(postgres, CommitCutter)  # `before` says Proxy and means its own class
        self.postgres = postgres
        self.valkey = Proxy.before(self.servers.redis_url)
        for proxy in (self.postgres, self.valkey):
            self._proxies.enter_context(proxy)
        self.live = Processes(
            database_url=self.postgres.url, redis_url=self.valkey.url, data_dir=self.folder, sim_at=self._before_sim
        )
        self.live.start(*NAMES)
        self.live.sim("/_sim/config", _SIM)
        return self

    def _before_sim(self, url: str) -> str:
        self.sim = Proxy.before(url)
        self._proxies.enter_context(self.sim)
        return self.sim.url

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process and proxy."""
        self._thaw()
        self.live.kill(*(name for name in NAMES if name != "sim"))
        self.live.stop()
        self._proxies.close()

    # --- blows ---

    def strike(self, blow: Blow) -> None:
        """Do it, and see to its mending."""
        mend = self._acts()[blow.act](blow)
        self.done[f"{blow.act} {blow.target}".strip()] += 1
        if mend is not None:
            heapq.heappush(self._mend, (time.monotonic() + blow.lasts_s, id(blow), mend))

    def tend(self) -> None:
        """Mend what is due, and raise what ended by itself."""
        while self._mend and self._mend[0][0] <= time.monotonic():
            heapq.heappop(self._mend)[2]()
        for name in NAMES:
            child = self.live.child(name)
            if name not in self._down and child.pid is None:
                self.fallen.append(f"{name} ended with {child.returncode}:\n{last_lines(child.log, 60)}")
                child.start()

    def calm(self) -> None:
        """Mend everything, and wait until every process serves."""
        self._thaw()
        for proxy in (self.postgres, self.valkey, self.sim):
            proxy.heal()
        self.postgres.arm(0, heard=False)
        self.servers.postgres.start()
        self.servers.valkey.start()
        self._mend.clear()
        self._down.clear()
        for name in NAMES:
            if self.live.child(name).pid is None:
                self.live.child(name).start()
        for _ in range(40):  # the proxy may have listened before the server did
            with contextlib.suppress(GatewayError):
                if self.live._serves("web", 0):
                    break
            time.sleep(0.5)
        self._sim("DELETE")

    def _sim(self, method: str, body: object = None) -> None:
        import requests  # noqa: PLC0415  one call

        requests.request(method, f"{self.live.sim_url}/_sim/faults", json=body, timeout=5).raise_for_status()

    def provoke(self, rules: object) -> None:
        """Give the simulator its script."""
        self._sim("POST", rules)

    def _acts(self) -> Mapping[str, Callable[[Blow], Callable[[], None] | None]]:
        return {
            "kill": self._kill,
            "deploy": self._deploy,
            "freeze": self._freeze,
            "flush": self._flush,
            "purge": self._purge,
            "valkey_lost": self._valkey_lost,
            "postgres_stop": self._postgres_stop,
            "postgres_kill": self._postgres_kill,
            "commit_cut": self._commit_cut,
            "cut": lambda blow: self._proxy(blow).cut(),
            "delay": lambda blow: self._spoil(blow, lambda proxy: proxy.delay(_HELD_S)),
            "refuse": lambda blow: self._spoil(blow, Proxy.refuse),
            "black_hole": lambda blow: self._spoil(blow, Proxy.black_hole),
            "half_answer": lambda blow: self._spoil(blow, lambda proxy: proxy.cut_after(700)),
            "forget": self._forget,
        }

    def _kill(self, blow: Blow) -> Callable[[], None]:
        self._frozen.pop(blow.target, None)
        self._down.add(blow.target)
        self.live.child(blow.target).kill()

        def again() -> None:
            self._down.discard(blow.target)
            self.live.child(blow.target).start()

        return again

    def _deploy(self, blow: Blow) -> Callable[[], None]:
        """SIGTERM; who has not ended when the time is over is killed, as supervisors do. Then it begins anew."""
        self._wake(blow.target)
        self._down.add(blow.target)
        child = self.live.child(blow.target)
        child.ask_to_stop()

        def again() -> None:
            child.kill()
            self._down.discard(blow.target)
            child.start()

        return again

    def _freeze(self, blow: Blow) -> Callable[[], None] | None:
        pid = self.live.child(blow.target).pid
        if pid is None:
            return None
        self._frozen[blow.target] = pid
        os.killpg(pid, signal.SIGSTOP)
        return lambda: self._wake(blow.target)

    def _wake(self, name: str) -> None:
        pid = self._frozen.pop(name, None)
        if pid is not None and self.live.child(name).pid == pid:
            os.killpg(pid, signal.SIGCONT)

    def _thaw(self) -> None:
        for name in list(self._frozen):
            self._wake(name)

    def _flush(self, _blow: Blow) -> None:
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self.servers.redis_url) as client:
            client.flushall()

    def _purge(self, blow: Blow) -> None:
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self.servers.redis_url) as client:
            found = [key for key in client.scan_iter(match=f"{blow.target}*") if client.type(key) == b"list"]
            client.delete(blow.target, *found)

    def _valkey_lost(self, _blow: Blow) -> Callable[[], None]:
        self.servers.valkey.kill()
        shutil.rmtree(self.servers.valkey._folder / "appendonlydir", ignore_errors=True)
        return self.servers.valkey.start

    def _postgres_stop(self, _blow: Blow) -> Callable[[], None]:
        self.servers.postgres.stop()
        return self.servers.postgres.start

    def _postgres_kill(self, _blow: Blow) -> Callable[[], None]:
        self.servers.postgres.kill()
        return self.servers.postgres.start

    def _commit_cut(self, blow: Blow) -> Callable[[], None]:
        self.postgres.arm(3, heard=blow.target == "after")
        return lambda: self.postgres.arm(0, heard=False)

    def _proxy(self, blow: Blow) -> Proxy:
        return {"postgres": self.postgres, "valkey": self.valkey, "sim": self.sim}[blow.target]

    def _spoil(self, blow: Blow, how: Callable[[Proxy], None]) -> Callable[[], None]:
        proxy = self._proxy(blow)
        how(proxy)

        def mend() -> None:
            proxy.heal()
            if blow.act == "black_hole":
                proxy.cut()  # a stream that lost bytes does not go on: it is retransmitted or reset

        return mend

    def _forget(self, _blow: Blow) -> None:
        self.live.sim("/_sim/forget", {})
