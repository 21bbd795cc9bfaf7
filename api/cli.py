"""`weir`: one command for running, looking after and trying out the gateway.

Exit codes: 0 done, 1 failed, 2 usage or settings, 3 timed out waiting (the task goes on), 4 no access, 5 the gateway
cannot be reached, 130 interrupted. Tables on a terminal, JSON lines with --json or into a pipe.

May not hold logic of its own: each verb is a few lines over functions that the rest of the product uses.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from api import cli_config, cli_db, cli_doctor, cli_keys, cli_providers, cli_standing, cli_tasks, cli_users
from api.cli_output import example
from api.up import up as run_up
from api.up_setup import Options
from providers import sim as simulator

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_PORT = click.IntRange(1, 65535)


@click.group(context_settings=_CONTEXT, epilog=example("weir up --demo"))
@click.version_option(package_name="weir-gateway", prog_name="weir")
def main() -> None:
    """Weir, a gateway to image and video generation that never buys twice and never loses a task."""


@main.command(epilog=example("weir up --demo", "weir up --once --json --data /tmp/try"))
@click.option("--port", type=_PORT, envvar="PORT", show_default="8000", help="Port of the API.")
@click.option("--flower-port", type=_PORT, envvar="FLOWER_PORT", show_default="5555", help="Port of Flower.")
@click.option("--sim-port", type=_PORT, show_default="9100", help="Port of the simulator.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="WEIR_DATA, or data",
    help="Folder that keeps everything.",
)
@click.option("--demo/--no-demo", default=False, show_default=True, help="Make one image and one video by the API.")
@click.option("--yes", is_flag=True, help="Let the demo buy from a real vendor; else it asks the simulator only.")
@click.option("--once", is_flag=True, help="Run the demo, say what came of it, stop. 0 only if both were delivered.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON on stdout: URL, key, ports, demo.")
@click.option("-v", "--verbose", is_flag=True, help="Show the logs of all processes.")
def up(  # noqa: PLR0913  one argument per option
    *,
    port: int | None,
    flower_port: int | None,
    sim_port: int | None,
    data: Path | None,
    demo: bool,
    yes: bool,
    once: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Start everything on this machine and stay until Ctrl-C.

    PostgreSQL and Valkey come from wheels unless WEIR_DATABASE_URL and WEIR_REDIS_URL name yours. Safe to repeat: data,
    key and passwords stay in the data folder.
    """
    options = Options(
        port=port,
        flower_port=flower_port,
        sim_port=sim_port,
        data=data,
        demo=demo or once,
        once=once,
        may_buy=yes,
        as_json=as_json,
        verbose=verbose,
    )
    sys.exit(run_up(options, os.environ))


@main.command(epilog=example("weir sim --port 9100"))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9100, show_default=True, help="Port; 0 takes a free one."
)
def sim(host: str, port: int) -> None:
    """Run the simulator alone: a vendor on loopback that makes real files and fails as told."""
    try:
        simulator.serve(host, port)
    except OSError as exc:
        raise click.ClickException(f"cannot listen on {host}:{port}: {exc.strerror}") from None


_OWN: tuple[click.Command, ...] = (
    cli_tasks.tasks, cli_keys.keys, cli_users.users, cli_providers.providers, cli_providers.breaker, cli_db.db,
    cli_config.config, cli_doctor.doctor, cli_standing.status, cli_standing.usage,
)  # fmt: skip
for command in _OWN:
    main.add_command(command)


def _whole_lines(group: click.Group) -> None:
    """Lists of commands show each one's first paragraph whole; click cuts it at the width of one line."""
    for command in group.commands.values():
        command.short_help = command.short_help or (command.help or "").split("\n\n")[0].replace("\n", " ")
        if isinstance(command, click.Group):
            _whole_lines(command)


_whole_lines(main)
