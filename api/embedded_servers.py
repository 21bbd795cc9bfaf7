"""One embedded server as a child process: PostgreSQL, Valkey, and what both share.

A child runs in the foreground, in a session of its own (Ctrl-C reaches only us), and the kernel ends it when we die,
however we die. `api.embedded` decides where its files are and as whom it runs.

May not open a database connection: readiness is read from PostgreSQL's pid file and from a bare socket.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from api.ports import HOST
from api.processes import last_lines, tied_to_us

_START_S = 30.0
_STOP_S = 10.0
# Gone in a moment: the backends of a PostgreSQL that was killed notice it and leave.
_PASSING = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')


class ServerError(RuntimeError):
    """An embedded server cannot run; the message names the reason and, if any, the last lines of its log."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the servers' files are and as whom they run; `uid` None means as ourselves."""

    home: Path
    logs: Path
    postgres_bin: Path
    valkey_server: Path
    uid: int | None
    gid: int | None
    durable: bool

    def hand_over(self, path: Path) -> None:
        """Give a file or folder of ours to the user that the servers run as."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _works_in(pid: int, folder: Path) -> bool:
    """Whether process `pid` has `folder` as its working directory; where that cannot be read, it does not."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == folder
    except OSError:
        return False


class Server:
    """One server process. start, stop, kill and restart are for its owner's main thread.

    A child is tied to the thread that started it: started from a thread that ends, it is ended too.
    """

    name = ""
    _farewell = signal.SIGTERM

    def __init__(self, place: Place, port: int, password: str) -> None:
        """Nothing starts here."""
        self.port = port
        self.log = place.logs / f"{self.name}.log"
        self._place = place
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The main process's id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start and wait until connections are served; nothing if it runs. Raises ServerError."""
        if self.pid is not None:
            return
        self._end_leftover()
        deadline = time.monotonic() + _START_S
        while True:
            self._process = self._spawn()
            while self._process.poll() is None:
                if self._ready(self._process.pid):
                    return
                if time.monotonic() > deadline:
                    self.kill()
                    raise ServerError(f"{self.name} was not ready in {_START_S:.0f} s:\n{last_lines(self.log)}")
                time.sleep(0.02)
            words = last_lines(self.log, 4)
            if not any(passing in words for passing in _PASSING) or time.monotonic() > deadline:
                raise ServerError(f"{self.name} ended with {self._process.returncode}:\n{last_lines(self.log)}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop cleanly, by force after 10 s; nothing if it does not run."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self._farewell)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL, as a crash would; the data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop if it runs, then start on the same port with the same data."""
        self.stop()
        self.start()

    def _run(self, argv: list[str], stdin: bytes) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603  our own binaries
                argv,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder.parent,
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                user=self._place.uid,
                group=self._place.gid,
                extra_groups=None if self._place.uid is None else [],
                start_new_session=True,
                # After the change of user, which would clear it.
                preexec_fn=tied_to_us(self._farewell),  # noqa: PLW1509
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.close()
        return process

    def _end_leftover(self) -> None:
        """End a server of an earlier run that still uses our folder."""
        pid = self._recorded_pid()
        if pid is None or not _works_in(pid, self._folder):
            return
        for farewell in (self._farewell, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, farewell)
            deadline = time.monotonic() + _STOP_S
            while _works_in(pid, self._folder) and time.monotonic() < deadline:
                time.sleep(0.05)

    @property
    def _folder(self) -> Path:
        return self._place.home / self.name

    def _spawn(self) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def _ready(self, pid: int) -> bool:
        raise NotImplementedError

    def _recorded_pid(self) -> int | None:
        raise NotImplementedError


class Postgres(Server):
    """PostgreSQL with one role and one database, both named `weir`."""

    name = "postgres"
    _farewell = signal.SIGINT  # "fast": running statements are cancelled, data is written

    @property
    def url(self) -> str:
        """postgresql://weir:password@127.0.0.1:port/weir; the role is the superuser."""
        return f"postgresql://weir:{self._password}@{HOST}:{self.port}/weir"

    def initialise(self, *, new_password: bool) -> None:
        """Make the cluster if there is none. An existing one learns the password if it is new."""
        if not self._folder.exists():
            self._initdb()
        elif new_password:
            self._end_leftover()
            self._single_user(f"ALTER ROLE weir PASSWORD '{self._password}';\n", self._folder)

    def _initdb(self) -> None:
        # Made under another name and moved at the end: an interrupted run leaves no half cluster that looks whole.
        fresh = self._folder.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        password_file = self._folder.with_suffix(".password")
        password_file.touch(mode=0o600)
        password_file.write_text(self._password + "\n", encoding="ascii")
        self._place.hand_over(fresh)
        self._place.hand_over(password_file)
        # The built-in provider sorts by code point and needs no locale of the system.
        argv = [str(self._place.postgres_bin / "initdb"), "-D", str(fresh), "-U", "weir", "-A", "scram-sha-256"]
        argv += ["--pwfile", str(password_file), "--encoding=UTF8", "--no-instructions"]
        argv += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        argv += [] if self._place.durable else ["--no-sync"]
        try:
            if self._run(argv, b"").wait() != 0:
                raise ServerError(f"initdb failed:\n{last_lines(self.log)}")
        finally:
            password_file.unlink()
        self._single_user("CREATE DATABASE weir;\n", fresh)
        fresh.rename(self._folder)

    def _single_user(self, statement: str, folder: Path) -> None:
        argv = [str(self._place.postgres_bin / "postgres"), "--single", "-D", str(folder)]
        argv += [] if self._place.durable else ["-F"]
        if self._run([*argv, "postgres"], statement.encode()).wait() != 0:
            raise ServerError(f"postgres --single failed:\n{last_lines(self.log)}")

    def _spawn(self) -> subprocess.Popen[bytes]:
        options = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_min_error_statement": "panic",  # a statement that fails would be logged whole, prompt and all
        }
        if not self._place.durable:  # survives our crashes, not the machine's: for tests
            options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        argv = [str(self._place.postgres_bin / "postgres"), "-D", str(self._folder)]
        for name, value in options.items():
            argv += ["-c", f"{name}={value}"]
        return self._run(argv, b"")

    def _pid_file(self) -> list[str]:
        try:
            return (self._folder / "postmaster.pid").read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            return []

    def _ready(self, pid: int) -> bool:
        lines = self._pid_file()  # as pg_ctl does: our own pid in line 1, "ready" in line 8
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _recorded_pid(self) -> int | None:
        lines = self._pid_file()
        if not lines or not lines[0].isdigit():
            return None
        pid = int(lines[0])
        if _alive(pid) and not _works_in(pid, self._folder):
            # After a crash or a restart of the machine the number went to somebody else, and PostgreSQL, which
            # only sees that the process lives, would refuse to start.
            (self._folder / "postmaster.pid").unlink()
            return None
        return pid


class Valkey(Server):
    """Valkey with an append-only file: a restart keeps the broker's messages."""

    name = "valkey"

    @property
    def url(self) -> str:
        """redis://:password@127.0.0.1:port/0."""
        return f"redis://:{self._password}@{HOST}:{self.port}/0"

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._place.hand_over(self._folder)
        lines = [
            f"port {self.port}",
            f"bind {HOST}",
            f'dir "{self._folder}"',
            f"requirepass {self._password}",
            "appendonly yes",
            f"appendfsync {'everysec' if self._place.durable else 'no'}",
            'save ""',
            # A broker must refuse writes rather than forget messages.
            "maxmemory-policy noeviction",
        ]
        # The configuration goes in by stdin: as arguments the password would be in the process list.
        process = self._run([str(self._place.valkey_server), "-"], "\n".join(lines).encode() + b"\n")
        self._pid_file.write_text(f"{process.pid}\n", encoding="ascii")
        return process

    def _ready(self, pid: int) -> bool:  # noqa: ARG002  the port is ours: it was free
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as link:
                link.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                return _answers(link) == [b"+OK", b"+PONG"]  # while it loads: -LOADING
        except OSError:
            return False

    @property
    def _pid_file(self) -> Path:
        return self._place.home / "valkey.pid"

    def _recorded_pid(self) -> int | None:
        try:
            return int(self._pid_file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None


def _answers(link: socket.socket) -> list[bytes]:
    """The two lines that AUTH and PING are answered with."""
    received = b""
    while received.count(b"\r\n") < 2:
        chunk = link.recv(256)
        if not chunk:
            break
        received += chunk
    return received.split(b"\r\n")[:2]
