"""Several hosts on one machine: network namespaces on a bridge of their own, which reaches nothing outside.

    with Lan("web", "work1", "data") as lan:
        with lan["data"].inside(): ...      # this thread, and what it starts, is on that host
        command = lan["work1"].command("celery -A tasks worker ...")
        lan["work1"].unplug()               # silence, as a pulled cable gives; no reset, no error
        lan["work1"].plug()

Root only (CAP_NET_ADMIN). Every namespace is ours by its name and removed at the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_NETWORK = "10.77.0"
_NETNS = Path("/run/netns")  # where `ip netns` keeps its handles


def _ip(*words: str, inside: str = "") -> None:
    """One command of iproute2's, in a namespace. By nsenter: `ip -n` remounts /sys, which not every root lets it."""
    argv = [*(["nsenter", f"--net={_NETNS / inside}"] if inside else []), "ip", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")


def _enter(handle: Path | str) -> None:
    """Move this thread into a network namespace (setns(2); os.setns is there from 3.12 on)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(handle).open("rb") as namespace:
        if libc.setns(namespace.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), f"setns {handle}")


@dataclass(frozen=True, kw_only=True)
class Host:
    """One of them."""

    name: str
    address: str
    namespace: str
    cable: str  # our end of its link, on the bridge
    bridge: str

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread, and every thread and process it starts meanwhile, is on this host."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(_NETNS / self.namespace)
            yield
        finally:
            _enter(f"/proc/self/fd/{home}")
            os.close(home)

    def command(self, line: str, *, clock_off_s: int = 0) -> str:
        """`line` as run on this host, under its name, with its wall clock so many seconds off."""
        skewed = f"faketime -f {clock_off_s:+d}s {line}" if clock_off_s else line
        script = f"hostname {self.name} && exec {skewed}"
        return f"nsenter --net={_NETNS / self.namespace} unshare --uts sh -c {shlex.quote(script)}"

    def unplug(self) -> None:
        """Nothing comes in and nothing goes out; nobody is told."""
        _ip("link", "set", self.cable, "nomaster")

    def plug(self) -> None:
        """As before."""
        _ip("link", "set", self.cable, "master", self.bridge)


class Lan:
    """Hosts on one bridge."""

    def __init__(self, *names: str) -> None:
        """Nothing is made before `with`."""
        tag = f"w{os.getpid() % 100_000}"
        self._bridge = f"{tag}b"
        self._hosts = {
            name: Host(
                name=name,
                address=f"{_NETWORK}.{n}",
                namespace=f"{tag}-{name}",
                cable=f"{tag}c{n}",
                bridge=self._bridge,
            )
            for n, name in enumerate(names, start=1)
        }

    def __getitem__(self, name: str) -> Host:
        """A host by its name."""
        return self._hosts[name]

    def __enter__(self) -> Self:
        """Make bridge, namespaces and cables. Raises OSError where that is not allowed."""
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("link", "set", self._bridge, "up")
            for host in self._hosts.values():
                self._lay(host)
        except BaseException:
            self._clear()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove all of it."""
        self._clear()

    @staticmethod
    def _lay(host: Host) -> None:
        _ip("netns", "add", host.namespace)
        _ip("link", "add", host.cable, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        _ip("link", "set", host.cable, "up")
        _ip("link", "set", host.cable, "master", host.bridge)
        _ip("addr", "add", f"{host.address}/24", "dev", "eth0", inside=host.namespace)
        _ip("link", "set", "lo", "up", inside=host.namespace)
        _ip("link", "set", "eth0", "up", inside=host.namespace)

    def _clear(self) -> None:
        for host in self._hosts.values():
            with contextlib.suppress(OSError):
                _ip("netns", "del", host.namespace)  # its end of the cable goes with it, and so does ours
        with contextlib.suppress(OSError):
            _ip("link", "del", self._bridge)
