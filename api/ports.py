"""TCP ports of this machine: which are free, and who has the others."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Container, Iterator
from pathlib import Path

HOST = "127.0.0.1"
_NEAR = 100
_LISTENS = "0A"  # the state in /proc/net/tcp


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int, host: str = HOST) -> bool:
    """Whether `port` could be listened on now; leftovers of closed connections do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def next_free_port(port: int, host: str, taken: Container[int]) -> int:
    """The first one above `port` that could be listened on and is not among `taken`; any, if none is near."""
    near = range(port + 1, min(port + _NEAR, 65_536))
    return next((one for one in near if one not in taken and port_is_free(one, host)), 0) or free_port()


def holder(port: int) -> str:
    """Who listens on `port`: "gunicorn (process 4711)", or "another process" where the system does not tell."""
    sockets = set(_listening(port))
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or just gone
            for descriptor in (process / "fd").iterdir():
                if str(descriptor.readlink()) in sockets:
                    return f"{_name(process)} (process {process.name})"
    return "another process"


def _listening(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    yield f"socket:[{words[9]}]"


def _name(process: Path) -> str:
    """The program as its owner would know it: for an interpreter the script it runs."""
    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    program = Path(words[0]).name
    script = next((word for word in words[1:] if word and not word.startswith("-")), "")
    return Path(script).name if program.startswith("python") and script else program
