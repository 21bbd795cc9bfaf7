"""Running the simulator: in this process for tests, or as a process of its own.

May not know dialects or faults. Invariant: a stopped simulator holds no port and no connection.
"""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from providers.sim.app import create_sim_app
from providers.sim.config import Config
from providers.sim.server import SimServer, in_background
from providers.sim.world import World

log = logging.getLogger(__name__)


class Simulator:
    """A vendor on loopback, served by threads of this process.

    `with Simulator() as sim: requests.get(sim.url + "/_sim/health")`
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        image_s: tuple[float, float] | None = None,
        video_s: tuple[float, float] | None = None,
        config: Config | None = None,
    ) -> None:
        """Prepare it; `start` or `with` binds the port. `port` 0 takes a free one.

        `image_s` and `video_s` are the seconds a picture and a clip take, lowest and highest; they
        go before those of `config`. Raises BadSettingError for a range that makes no sense.
        """
        ranges = {"image_s": image_s, "video_s": video_s}
        wanted: dict[str, object] = {k: v for k, v in ranges.items() if v is not None}
        self._app = create_sim_app((config or Config()).changed(wanted))
        self._host, self._port = host, port
        self._server: SimServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def world(self) -> World:
        """Jobs, rules and settings, for a test in the same process."""
        world: World = self._app.extensions["sim"]
        return world

    @property
    def url(self) -> str:
        """The base address without a slash at its end. Raises RuntimeError when not started."""
        if self._server is None:
            message = "the simulator has not been started"
            raise RuntimeError(message)
        return self._server.url

    @property
    def dashscope(self) -> str:
        """The base for DashScope's SDK and for Weir's adapter."""
        return f"{self.url}/dashscope/api/v1"

    def start(self) -> Self:
        """Bind the port and serve in the background. Raises OSError when the port is taken."""
        self.world.stopping.clear()
        self._server = SimServer(self._host, self._port, self._app)
        # A simulator that is started again keeps its address, as a vendor does.
        self._port = int(self._server.server_address[1])
        self._thread = in_background(self._server)
        return self

    def stop(self) -> None:
        """Stop, cutting every open connection. Jobs are kept for another `start`. Idempotent."""
        self.world.stopping.set()
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()


def serve(host: str = "127.0.0.1", port: int = 8800, *, config: Config | None = None) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError when the port is taken.

    For the main thread of a process: it sets the handlers of both signals.
    """
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    with Simulator(host=host, port=port, config=config) as simulator:
        log.info("the simulator listens on %s", simulator.url)
        ended.wait()
