"""A RabbitMQ of the test's own: Debian's server with a node, ports and folders that are nobody else's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from kombu import Connection

from api.ports import free_port
from api.processes import Child, last_lines
from tests.live import until

# The one in PATH is Debian's wrapper, which changes to a user of the system's.
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class Rabbit:
    """One node. For the main thread."""

    def __init__(self, folder: Path) -> None:
        """Nothing starts here; `folder` must exist and be short of other things."""
        self.port = free_port()
        self.log = folder / "rabbit.log"
        environ = _environment(folder, self.port)
        epmd = f"epmd -address 127.0.0.1 -port {environ['ERL_EPMD_PORT']}"
        # Started by us, or the node would leave one behind as a daemon.
        self._epmd = Child("epmd", epmd, log=folder / "epmd.log", environ=environ)
        self._node = Child("rabbit", str(_SERVER), log=self.log, environ=environ)

    @property
    def url(self) -> str:
        """amqp://guest:guest@127.0.0.1:port//."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def start(self) -> None:
        """Start and wait until it takes connections."""
        self._epmd.start()
        self._node.start()
        until(self._answers, within_s=60, every_s=0.2, saying=lambda: last_lines(self.log, 30))

    def kill(self) -> None:
        """SIGKILL; what it has confirmed is on disk."""
        self._node.kill()

    def _answers(self) -> bool:
        assert self._node.returncode is None, f"RabbitMQ ended:\n{last_lines(self.log, 30)}"
        with contextlib.suppress(OSError), Connection(self.url, connect_timeout=2) as connection:
            connection.connect()
            return True
        return False

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it and its name server."""
        self._node.kill()
        self._epmd.kill()


def _environment(folder: Path, port: int) -> Mapping[str, str]:
    plugins = folder / "plugins"
    plugins.write_text("[].\n", encoding="ascii")
    return {
        "PATH": f"{os.defpath}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(folder),  # the cookie is made there
        "LANG": "C.UTF-8",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(free_port()),
        "RABBITMQ_NODENAME": f"weir{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_PID_FILE": str(folder / "rabbit.pid"),
    }
