"""The product's processes, really running: what `weir up` starts, over servers and a configuration of the test's.

    with Live(database_url=..., redis_url=..., data_dir=...) as live:
        live.start()
        task = live.gateway().post("/v1/tasks", {"prompt": "a red fox"}).body

The commands are the Procfile's. Processes are ended by their own id only, and by the kernel if the test dies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from api.cli_http import Gateway, GatewayError
from api.ports import free_port
from api.processes import Child, last_lines, read_procfile, stop_all, with_our_programs
from models import accounts
from models.db import Database
from tests.conftest import SECRET

T = TypeVar("T")

ALL = ("sim", "web", "worker_image", "worker_video", "worker_default", "beat")
WORKERS = ("worker_image", "worker_video", "worker_default")

# `{sim}` stands for the simulator's address; used where a test's TOML names no provider of its own.
PROVIDERS = """
[providers.wan]
adapter = "dashscope"
base_url = "{sim}/dashscope"
api_key_env = "DASHSCOPE_API_KEY"
"""


def until(
    condition: Callable[[], T], *, within_s: float = 30.0, every_s: float = 0.05, saying: str | Callable[[], str] = ""
) -> T:
    """The first true result of `condition`. Fails after `within_s` seconds with what `saying` says."""
    deadline = time.monotonic() + within_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            said = saying() if callable(saying) else saying
            raise AssertionError(f"not true within {within_s:.0f} s: {said or condition}")
        time.sleep(every_s)


class Live:
    """Web, workers, beat and simulator of one test. For the main thread."""

    def __init__(
        self,
        *,
        database_url: str,
        redis_url: str,
        data_dir: Path,
        toml: str = "",
        slots: tuple[int, int, int] = (4, 4, 1),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing starts here. The database must be migrated. `slots` are the threads of the three workers.

        `toml` is laid over the shipped file, `{sim}` in it replaced; `environ` adds variables.
        """
        self.port, self.sim_port = free_port(), free_port()
        self.data_dir = data_dir
        self.database_url = database_url
        self._logs = data_dir / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        text = toml if "[providers" in toml else toml + PROVIDERS
        config = data_dir / "live.toml"
        config.write_text(text.replace("{sim}", self.sim_url), encoding="utf-8")
        image, video, spare = slots
        self.environ = {
            "WEIR_DATABASE_URL": database_url,
            "WEIR_REDIS_URL": redis_url,
            "WEIR_SECRET": SECRET,
            "WEIR_DATA": str(data_dir),
            "WEIR_CONFIG": str(config),
            "WEIR_FLOWER_AUTH": "weir:for-tests",
            "DASHSCOPE_API_KEY": "sk-for-tests",
            "PORT": str(self.port),
            "FLOWER_PORT": str(free_port()),
            "IMAGE_SLOTS": str(image),
            "VIDEO_SLOTS": str(video),
            "DEFAULT_SLOTS": str(spare),
            **(environ or {}),
        }
        commands = {"sim": f"weir sim --port {self.sim_port}", **read_procfile()}
        inherited = with_our_programs(self.environ)
        self._children = {
            name: Child(name, command, log=self._logs / f"{name}.log", environ=inherited)
            for name, command in commands.items()
        }

    @property
    def url(self) -> str:
        """The API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def sim_url(self) -> str:
        """The simulator."""
        return f"http://127.0.0.1:{self.sim_port}"

    def start(self, *names: str) -> Self:
        """Start these, or all but Flower, and wait until each serves."""
        wanted = names or ALL
        before = {name: len(self.log(name)) for name in wanted}
        for name in wanted:
            self._children[name].start()
        for name in wanted:
            until(lambda name=name: self._serves(name, before[name]), within_s=60, saying=self.tails)  # type: ignore[misc]  # default binds the loop's name
        return self

    def kill(self, *names: str) -> None:
        """SIGKILL these and their children, as a crash of the machine would."""
        for name in names:
            self._children[name].kill()

    def stop(self, *names: str, within_s: float = 15.0) -> list[str]:
        """Ask these (or all) to stop; the names of those that had to be killed."""
        return stop_all([self._children[name] for name in names or self._children], within_s=within_s)

    def restart(self, *names: str) -> None:
        """Kill and start again."""
        self.kill(*names)
        self.start(*names)

    def pid(self, name: str) -> int | None:
        """The process id while it runs."""
        return self._children[name].pid

    def log(self, name: str) -> str:
        """All it has said, earlier lives included."""
        path = self._children[name].log
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def tails(self) -> str:
        """The last lines of every log, for a failed test."""
        return "\n".join(f"--- {name}\n{last_lines(child.log)}" for name, child in self._children.items())

    def gateway(self, user: str = "tester") -> Gateway:
        """The API with a new key of this user, all scopes."""
        with Database(self.database_url, pool=1) as database, database.unit_of_work() as uow:
            _, key = accounts.create_key(uow, SECRET, user=user, scopes=accounts.SCOPES)
        return Gateway(url=self.url, key=key)

    def sim(self, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """The simulator's control (`/_sim/...`): GET, or POST of `body`."""
        vendor = Gateway(url=self.sim_url)
        return (vendor.get(path) if body is None else vendor.post(path, body)).body

    def __enter__(self) -> Self:
        """Nothing starts here either: `start` says what."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all of it; a failed test shows the logs."""
        if error is not None:
            print(self.tails())  # noqa: T201  pytest shows it with the failure
            self.kill(*self._children)
        self.stop()

    def _serves(self, name: str, before: int) -> bool:
        child = self._children[name]
        assert child.returncode is None, f"{name} ended with {child.returncode}:\n{last_lines(child.log, 30)}"
        try:
            if name == "sim":
                return bool(Gateway(url=self.sim_url).get("/_sim/health"))
            if name == "web":
                return bool(Gateway(url=self.url).get("/readyz"))
        except GatewayError:
            return False
        words = {"beat": "beat: Starting", "flower": "Visit me at"}.get(name, "ready.")
        return words in self.log(name)[before:]
