"""`weir up`: embedded servers, simulator and every process of the Procfile as one tree.

It restarts nothing: a process that ends by itself is named with its last lines, and everything else is stopped. All
that its children need goes to them as WEIR_* variables; what must be the same next time is kept in the data folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import click

from api import beside, up_demo, up_setup
from api.cli_http import FAILED, INTERRUPTED, Gateway, GatewayError
from api.cli_output import first_line
from api.embedded import EmbeddedServers
from api.embedded_servers import Server, ServerError
from api.ports import holder, next_free_port, port_is_free
from api.processes import Child, last_lines, read_procfile, stop_all
from api.up_setup import Plan
from models import migrations
from models.db import TRANSIENT

_READY_S = 90.0
_STOP_S = 9.0  # for the Procfile's processes together; simulator and servers come after, all within 15
_SIM_STOP_S = 3.0
_LOOK_S = 0.2
_TWICE_S = 1.0  # sooner than this, a second signal is the first once more: `timeout` sends it to us and to our group


class StoppedError(BaseException):
    """Somebody asked us to stop. A BaseException: nothing on the way may take it for a fault."""


class ProcessEndedError(click.ClickException):
    """A process ended though nobody asked it to."""

    def __init__(self, name: str, how: str, log: Path) -> None:
        super().__init__(f"{name} ended {how}; everything is stopped. Its last lines ({log}):\n{last_lines(log)}")


@dataclass
class Tree:
    """Everything that runs, in the order it was started."""

    children: list[Child] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)
    ready: bool = False
    stopping_since: float | None = None  # of time.monotonic

    def stop(self) -> None:
        """From now on a signal kills, unless it is the echo of the first."""
        if self.stopping_since is None:
            self.stopping_since = time.monotonic()

    def check(self) -> None:
        """Raise ProcessEndedError if anything has ended."""
        for server in self.servers:
            if server.pid is None:
                raise ProcessEndedError(server.name, "by itself", server.log)
        for child in self.children:
            if child.returncode is not None:
                how = f"by signal {-child.returncode}" if child.returncode < 0 else f"with code {child.returncode}"
                raise ProcessEndedError(child.name, how, child.log)

    def kill(self) -> None:
        """End all of it now."""
        for child in self.children:
            child.kill()
        for server in self.servers:
            server.kill()


def up(options: up_setup.Options, environ: Mapping[str, str]) -> int:
    """Run until asked to stop, or with `once` until the demo is over; the exit code.

    Raises click.ClickException for what the caller can mend: settings, taken ports, a server that does not start.
    """
    plan = up_setup.plan(options, environ)
    _check_ports(plan, beside.unmarked(environ))
    tree = Tree()
    with _signals(tree):
        try:
            with ExitStack() as stack:
                stack.callback(_say_stopped, plan, tree)
                code = _run(plan, tree, stack)
                if not options.once:
                    plan.say("", "Ctrl-C stops everything; the data stays.")
                    _watch(tree, plan)
                return code
        except StoppedError:
            return 0 if tree.ready and not options.once else INTERRUPTED
        except ServerError as exc:
            raise click.ClickException(str(exc)) from None


def _run(plan: Plan, tree: Tree, stack: ExitStack) -> int:
    """Start everything, say where it is, run the demo; the exit code so far."""
    stack.callback(tree.stop)
    _start_servers(plan, tree, stack)
    stack.callback(_stop_children, tree)
    if plan.simulator_port is not None:
        _start(plan, tree, "sim", f"weir sim --port {plan.simulator_port}")
        plan.say("Simulator", f"http://127.0.0.1:{plan.simulator_port}, in the vendor's place")
    try:
        migrations.upgrade(plan.environ["WEIR_DATABASE_URL"])
    except TRANSIENT as exc:
        raise click.ClickException(f"the database cannot be reached: {first_line(exc)}") from None
    for name, command in read_procfile().items():
        _start(plan, tree, name, command)
    _await_ready(Gateway(url=plan.url), tree)
    key = up_setup.first_key(plan)  # only now: whoever waits for the file finds the API ready
    plan.note()
    stack.callback(plan.forget)
    tree.ready = True
    image, video, spare = plan.settings.workers.shares()
    plan.say("API", f"{plan.url}, documented at {plan.url}/docs")
    plan.say("Workers", f"{image} slots for images, {video} for videos, {spare} for any; beat sweeps")
    plan.say("Flower", f"http://127.0.0.1:{plan.flower_port}, user and password {plan.environ['WEIR_FLOWER_AUTH']}")
    plan.say("Key", f"{key}, kept in {plan.data / 'key'}")
    plan.say("Logs", str(plan.data / "logs"))
    outcomes = up_demo.run(Gateway(url=plan.url, key=key), plan, tree.check) if plan.options.demo else []
    plan.say_json(key, outcomes)
    return FAILED if any(outcome.file is None for outcome in outcomes) else 0


def _start_servers(plan: Plan, tree: Tree, stack: ExitStack) -> None:
    """Start what the environment does not name, and tell the children where it is."""
    missing = {name for name in ("WEIR_DATABASE_URL", "WEIR_REDIS_URL") if not plan.given(name)}
    if missing:
        postgres, valkey = "WEIR_DATABASE_URL" in missing, "WEIR_REDIS_URL" in missing
        servers = stack.enter_context(EmbeddedServers(plan.data, with_postgres=postgres, with_valkey=valkey))
        if postgres:
            plan.environ["WEIR_DATABASE_URL"] = servers.database_url
            tree.servers.append(servers.postgres)
        if valkey:
            plan.environ["WEIR_REDIS_URL"] = servers.redis_url
            tree.servers.append(servers.valkey)
    for title, name in (("PostgreSQL", "WEIR_DATABASE_URL"), ("Valkey", "WEIR_REDIS_URL")):
        where = urlsplit(plan.environ[name])
        ours = f"embedded, data in {plan.data}" if name in missing else f"yours, from {name}"
        plan.say(
            title if name in missing else title.replace("Valkey", "Redis"), f"{where.hostname}:{where.port}, {ours}"
        )


def _start(plan: Plan, tree: Tree, name: str, command: str) -> None:
    child = Child(name, command, log=plan.data / "logs" / f"{name}.log", environ=plan.environ)
    plan.follow(child.log)
    tree.children.append(child)
    child.start()


def _await_ready(gateway: Gateway, tree: Tree) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        tree.check()
        try:
            gateway.get("/readyz")
        except GatewayError as exc:
            if time.monotonic() > deadline:
                raise click.ClickException(f"the API was not ready in {_READY_S:.0f} s: {exc.message}") from None
        else:
            return
        time.sleep(_LOOK_S)


def _watch(tree: Tree, plan: Plan) -> None:
    while True:
        tree.check()
        plan.echo_logs()
        time.sleep(_LOOK_S)


def _check_ports(plan: Plan, environ: Mapping[str, str]) -> None:
    """Raise naming everybody who has a port that we need, and the command that takes others."""
    wanted = [("the API", plan.port, "port"), ("Flower", plan.flower_port, "flower_port")]
    if plan.simulator_port is not None:
        wanted.append(("the simulator", plan.simulator_port, "sim_port"))
    needed = {port for _, port, _ in wanted}
    faults: list[str] = []
    others: dict[str, int] = {}
    for what, port, option in wanted:
        host = plan.settings.server.host if what == "the API" else "127.0.0.1"
        if not port_is_free(port, host):
            flag = "--" + option.replace("_", "-")
            faults.append(
                f"port {port}, for {what}, is taken by {holder(port)}: stop that, or choose another with {flag}"
            )
            others[option] = next_free_port(port, host, needed)
            needed.add(others[option])
    if faults:
        command = up_setup.command_line(
            plan.options, others, program=sys.argv[0], config=environ.get("WEIR_CONFIG", "")
        )
        raise click.ClickException("\n".join([*faults, f"For example: {command}"]))


def _stop_children(tree: Tree) -> None:
    tree.stop()
    simulator = [child for child in tree.children if child.name == "sim"]
    late = stop_all([child for child in tree.children if child.name != "sim"], within_s=_STOP_S)
    late += stop_all(simulator, within_s=_SIM_STOP_S)
    if late:
        click.echo(f"killed, since they did not stop in time: {', '.join(late)}", err=True)


def _say_stopped(plan: Plan, tree: Tree) -> None:
    plan.echo_logs()
    if tree.children or tree.servers:  # a start that was refused has stopped nothing
        plan.say("Stopped", f"{plan.data} keeps the data")


@contextmanager
def _signals(tree: Tree) -> Iterator[None]:
    """The first Ctrl-C (SIGTERM, SIGHUP) asks, a second one kills."""

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if tree.stopping_since is None:
            tree.stop()
            raise StoppedError
        if time.monotonic() - tree.stopping_since > _TWICE_S:
            tree.kill()
            os._exit(INTERRUPTED)

    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}
    for name in names:
        before[name] = signal.signal(name, handle)
    try:
        yield
    finally:
        for name, handler in before.items():
            with contextlib.suppress(TypeError):
                signal.signal(name, handler)
