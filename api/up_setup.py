"""What `weir up` decides before it starts anything: settings, ports, secrets, the environment of its children.

Secrets that nobody gave are made once and kept in the data folder, each in a file of mode 0600: `secret`, `flower`,
`key`. With the same folder the next run has the same.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from api import beside
from api.cli_http import USAGE
from api.embedded import write_private
from api.processes import with_our_programs
from models import accounts
from models.db import Database
from models.settings import SHIPPED, Settings, SettingsError

if TYPE_CHECKING:
    from api.up_demo import Outcome

SIMULATOR_PORT = 9100
FLOWER_PORT = 5555
_USER = "local"
_SHARED = ("PORT", "FLOWER_PORT", "IMAGE_SLOTS", "VIDEO_SLOTS", "DEFAULT_SLOTS")  # with other terminals, as all WEIR_*


class InvalidSettingsError(click.ClickException):
    """The configuration or the environment is wrong; the message lists every fault."""

    exit_code = USAGE


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line said; None means the configuration's or the usual value."""

    port: int | None = None
    flower_port: int | None = None
    sim_port: int | None = None
    data: Path | None = None
    demo: bool = False
    once: bool = False
    may_buy: bool = False
    as_json: bool = False
    verbose: bool = False


@dataclass
class Plan:
    """What will run. `environ` is what every child gets; addresses are added as servers start."""

    options: Options
    settings: Settings
    data: Path
    port: int
    flower_port: int
    simulator_port: int | None
    simulated: frozenset[str]  # providers at the simulator: what they make costs nothing
    environ: dict[str, str]
    _logs: dict[Path, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where this machine finds the API."""
        host = self.settings.server.host
        return f"http://{'127.0.0.1' if host in ('0.0.0.0', '') else host}:{self.port}"  # noqa: S104  read, not bound

    def given(self, name: str) -> str:
        """The address of a real server, or "" where it is for us to start."""
        env = self.settings.env
        return {"WEIR_DATABASE_URL": env.database_url, "WEIR_REDIS_URL": env.redis_url}[name]

    def say(self, title: str, text: str) -> None:
        """One line for people; on stderr when the one on stdout is JSON."""
        click.echo(f"{title:<11} {text}".rstrip(), err=self.options.as_json)

    def say_json(self, key: str, outcomes: Sequence[Outcome]) -> None:
        """The one line for programs, if it was asked for."""
        if not self.options.as_json:
            return
        user, _, password = self.environ["WEIR_FLOWER_AUTH"].partition(":")
        line = {
            "url": self.url,
            "key": key,
            "data": str(self.data),
            "ports": {"api": self.port, "flower": self.flower_port, "simulator": self.simulator_port},
            "flower": {"url": f"http://127.0.0.1:{self.flower_port}", "user": user, "password": password},
            "demo": [outcome.as_json() for outcome in outcomes],
        }
        click.echo(json.dumps(line))

    def note(self) -> None:
        """Keep, while it runs, what its processes were told, vendors' keys among it: for other terminals."""
        keys = {v for p in self.settings.providers.values() for c in p.credentials for v in c.split("+")}
        told = {n: v for n, v in self.environ.items() if n.startswith("WEIR_") or n in keys or n in _SHARED}
        told.pop("WEIR_KEY", None)  # the command line's, and whoever set it has it
        beside.note(self.data, {**self.settings.vendor_variables(), **told, "WEIR_URL": self.url})

    def forget(self) -> None:
        """It does not run any more."""
        beside.forget(self.data)

    def follow(self, log: Path) -> None:
        """Show what is added to this log from now on, with --verbose."""
        self._logs[log] = log.stat().st_size if log.exists() else 0

    def echo_logs(self) -> None:
        """Show what was added to the logs, each line with its process's name."""
        if not self.options.verbose:
            return
        for log, seen in self._logs.items():
            if log.exists() and log.stat().st_size > seen:
                with log.open("rb") as file:
                    file.seek(seen)
                    whole, _, _ = file.read().rpartition(b"\n")
                self._logs[log] = seen + len(whole) + 1 if whole else seen
                for line in whole.decode(errors="replace").splitlines():
                    click.echo(f"{log.stem:<15} {line}", err=True)


def plan(options: Options, environ: Mapping[str, str]) -> Plan:
    """Everything decided and checked; makes the data folder. Raises click.ClickException for invalid settings."""
    environ = beside.unmarked(environ)
    data = (options.data or Path(environ.get("WEIR_DATA") or "data")).absolute()
    (data / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
    given = _absolute(environ) | {"WEIR_DATA": str(data)}
    simulator_port = options.sim_port or SIMULATOR_PORT
    if options.sim_port is not None:
        given["WEIR_CONFIG"] = str(_moved_simulator(given.get("WEIR_CONFIG", ""), data, options.sim_port))
    settings = load_settings(given)
    there = frozenset(name for name, p in settings.providers.items() if _is_at(p.base_url, simulator_port))
    keys = _simulator_keys(settings, there)
    plan = Plan(
        options=options,
        settings=load_settings(given | keys),
        data=data,
        port=options.port or settings.server.port,
        flower_port=options.flower_port or FLOWER_PORT,
        simulator_port=simulator_port if there else None,
        simulated=there,
        environ={},
    )
    plan.environ = with_our_programs(given | _decided(plan) | keys)
    missing = plan.settings.missing_keys()
    if missing:
        raise InvalidSettingsError("\n".join(missing))
    return plan


def command_line(options: Options, ports: Mapping[str, int], *, program: str, config: str) -> str:
    """What to type for the same with other `ports`, by the options' names. `program`: as it was called."""
    known = shutil.which(Path(program).name)
    short = Path(program).is_absolute() and known is not None and Path(known).samefile(program)
    words = [f"WEIR_CONFIG={shlex.quote(config)}"] if config else []
    words += [Path(program).name if short else shlex.quote(program), "up"]
    flags = {"--demo": options.demo and not options.once, "--once": options.once, "--yes": options.may_buy}
    flags |= {"--json": options.as_json, "--verbose": options.verbose}
    words += [flag for flag, on in flags.items() if on]
    for name in ("port", "flower_port", "sim_port"):
        port = ports.get(name) or getattr(options, name)
        words += [f"--{name.replace('_', '-')}", str(port)] if port else []
    words += ["--data", shlex.quote(str(options.data))] if options.data else []
    return " ".join(words)


def _absolute(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with paths that hold from any folder: the children run elsewhere."""
    names = [name for name in environ if name == "WEIR_CONFIG" or name.endswith("_FILE")]
    return dict(environ) | {name: str(Path(environ[name]).absolute()) for name in names if environ[name]}


def _decided(plan: Plan) -> dict[str, str]:
    """What every child must see alike."""
    env = plan.settings.env
    image, video, spare = plan.settings.workers.shares()
    decided = {
        "WEIR_DATABASE_URL": env.database_url,
        "WEIR_REDIS_URL": env.redis_url,
        "WEIR_SECRET": env.secret or _kept(plan.data / "secret", lambda: secrets.token_urlsafe(48)),
        "WEIR_FLOWER_AUTH": env.flower_auth or _kept(plan.data / "flower", lambda: f"weir:{secrets.token_urlsafe(18)}"),
        "PORT": str(plan.port),
        "FLOWER_PORT": str(plan.flower_port),
        "IMAGE_SLOTS": str(image),
        "VIDEO_SLOTS": str(video),
        "DEFAULT_SLOTS": str(spare),
    }
    return {name: value for name, value in decided.items() if value}


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Settings, or a message with every fault and exit code 2."""
    try:
        return Settings.load(environ)
    except SettingsError as exc:
        raise InvalidSettingsError(str(exc)) from None


def first_key(plan: Plan) -> str:
    """The key in the data folder, valid; made if there is none or it was revoked."""
    secret = plan.environ["WEIR_SECRET"]
    path = plan.data / "key"
    with Database(plan.environ["WEIR_DATABASE_URL"], pool=1) as database:
        for _ in range(2):
            key = _kept(path, accounts.new_key)
            with database.unit_of_work() as uow:
                accounts.create_key(uow, secret, user=_USER, name="weir up", scopes=accounts.SCOPES, key=key)
                if accounts.find_caller(uow, secret, key) is not None:
                    return key
            path.unlink()  # revoked or expired: a new one
    raise click.ClickException("no API key could be made")


def _kept(path: Path, make: Callable[[], str]) -> str:
    """The content of a private file, made with `make` the first time."""
    try:
        found = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = make()
        write_private(path, found + "\n")
    return found


def _simulator_keys(settings: Settings, there: AbstractSet[str]) -> dict[str, str]:
    """A made-up key for each provider at the simulator, by its variable; one that a real vendor shares stays."""

    def variables(names: Iterable[str]) -> set[str]:
        return {v for name in names for c in settings.providers[name].credentials for v in c.split("+")}

    real = variables(name for name in settings.providers if name not in there)
    return dict.fromkeys(variables(there) - real, beside.SIMULATOR_KEY)


def _is_at(base_url: str, port: int) -> bool:
    where = urlsplit(base_url)
    return where.hostname in ("127.0.0.1", "localhost") and where.port == port


def _moved_simulator(config: str, data: Path, port: int) -> Path:
    """The configuration in force with the simulator's port replaced, as a file in the data folder."""
    source = Path(config) if config else SHIPPED
    try:
        text = source.read_text(encoding="utf-8")
    except OSError as exc:
        raise click.ClickException(f"WEIR_CONFIG: cannot read {config!r}: {exc.strerror}") from None
    target = beside.moved_config(data, port)
    moved = text.replace(f"127.0.0.1:{SIMULATOR_PORT}", f"127.0.0.1:{port}")
    fresh = target.with_suffix(f".{os.getpid()}")
    fresh.write_text(moved, encoding="utf-8")
    fresh.replace(target)
    return target
