"""Child processes of `weir up` and of the tests: the Procfile's lines, each with a log of its own.

A child runs in a session of its own, so that Ctrl-C reaches only us, and the kernel asks it to end when we die. It is
run by the shell, which replaces itself by the program: the process we signal is the program.

May not know what the programs are for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LINE = re.compile(r"([A-Za-z0-9_-]+):\s*(.+)")
_LOG_BYTES = 20_000_000
ROOT = Path(__file__).parents[1]  # the checkout, or where the wheel was installed: our modules win over the folder's


def tied_to_us(on_our_death: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn` that makes the kernel send a signal to the child when the thread that started it ends.

    Linux only; elsewhere it does nothing, and a killed parent leaves the child running.
    """
    us = os.getpid()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: after a fork it could deadlock

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, int(on_our_death), 0, 0, 0)
            if os.getppid() != us:  # we died between the fork and the line above
                os._exit(1)

    return prepare


def last_lines(log: Path, count: int = 12) -> str:
    """The last `count` lines of a log, or the empty string."""
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])
    except OSError:
        return ""


def read_procfile(path: Path = ROOT / "Procfile") -> dict[str, str]:
    """The commands by name, in the order of the file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {found[1]: found[2] for line in lines if (found := _LINE.fullmatch(line.strip()))}


def with_our_programs(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the folder of this interpreter's programs first in PATH, and output that is not held back."""
    path = os.pathsep.join((str(Path(sys.executable).parent), environ.get("PATH", os.defpath)))
    return {**environ, "PATH": path, "PYTHONUNBUFFERED": "1"}


class Child:
    """One process. start, stop and kill are for the main thread: a child ends with the thread that started it."""

    def __init__(self, name: str, command: str, *, log: Path, environ: Mapping[str, str]) -> None:
        """Nothing starts here. `command` is a line for the shell; `log` is appended to."""
        self.name = name
        self.log = log
        self._command = command
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def returncode(self) -> int | None:
        """How it ended, negative for a signal; None before that."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start it; nothing if it runs."""
        if self.pid is not None:
            return
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  a line of our Procfile
                ["/bin/sh", "-c", f"exec {self._command}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=self._environ,
                start_new_session=True,
                preexec_fn=tied_to_us(signal.SIGTERM),  # noqa: PLW1509  touches nothing that a thread could hold
            )

    def ask_to_stop(self) -> None:
        """SIGTERM; nothing if it does not run."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to it and to what it started, and wait until it is gone."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self, within_s: float = 10.0) -> None:
        """Ask, wait, then kill."""
        stop_all([self], within_s=within_s)

    def _send(self, number: signal.Signals) -> None:
        if self.pid is not None and self._process is not None:
            self._process.send_signal(number)


def stop_all(children: Iterable[Child], *, within_s: float) -> list[str]:
    """Ask all at once, kill those that still run after `within_s`; the names of the killed."""
    running = [child for child in children if child.pid is not None]
    for child in running:
        child.ask_to_stop()
    deadline = time.monotonic() + within_s
    while any(child.pid is not None for child in running) and time.monotonic() < deadline:
        time.sleep(0.05)
    late = [child for child in running if child.pid is not None]
    for child in running:
        child.kill()  # also what a child that ended in time has left behind in its session
    return [child.name for child in late]
