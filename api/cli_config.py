"""`weir config`: the settings in force, secrets masked; and whether a file is one that processes would take."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

import click

from api.beside import beside_up
from api.cli_output import example, settings_in_force
from api.up_setup import InvalidSettingsError, load_settings
from models.settings import Settings, SettingsError

_PASSWORD = re.compile(r"(?<=:)[^:@/]*(?=@)")
MASK = "***"


@click.group()
def config() -> None:
    """Show or check the configuration."""


@config.command(epilog=example("weir config show", "weir config show --json"))
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of one line per key.")
def show(*, as_json: bool) -> None:
    """Show every setting in force: shipped file, your file, environment. Secrets are masked."""
    shown = masked(settings_in_force())
    port = beside_up(os.environ).get("PORT", "")
    if port.isdecimal():  # what the web process listens on before it looks at the file
        shown["server"]["port"] = int(port)
    if as_json:
        click.echo(json.dumps(shown, ensure_ascii=False))
        return
    for line in _lines(shown, ""):
        click.echo(line)


@config.command(epilog=example("weir config check", "weir config check new.toml && mv new.toml weir.toml"))
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
def check(file: str | None) -> None:
    """Say what is wrong with FILE, or with the one in force, as a process would that reads it. Changes nothing."""
    from tasks import runtime  # noqa: PLC0415  loads Celery, which no other command of this group needs

    settings = load_settings(beside_up(os.environ) | ({"WEIR_CONFIG": file} if file else {}))
    try:
        runtime.check(settings)
    except SettingsError as exc:
        raise InvalidSettingsError(str(exc)) from None
    click.echo("valid")


@config.command(epilog=example('eval "$(weir config env)"', "celery -A tasks inspect active"))
def env() -> None:
    """Print what a running `weir up` told its processes, for your shell: then celery finds it too. Holds secrets."""
    told = beside_up({"WEIR_DATA": os.environ.get("WEIR_DATA", "")})
    if "WEIR_DATABASE_URL" not in told:
        raise click.ClickException("no `weir up` runs over this data folder; start one, or name another in WEIR_DATA")
    for name, value in sorted(told.items()):
        click.echo(f"export {name}={shlex.quote(value)}")


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as plain values; of a secret only whether it is set, of an address no password."""
    shown: dict[str, Any] = dataclasses.asdict(settings)
    env = settings.env
    image, video, spare = settings.workers.shares()
    shown["workers"]["shares"] = {"image": image, "video": video, "default": spare}
    shown["env"] = {
        "database_url": _PASSWORD.sub(MASK, env.database_url),
        "redis_url": _PASSWORD.sub(MASK, env.redis_url),
        "broker_url": _PASSWORD.sub(MASK, env.broker_url),
        "secret": _set(env.secret),
        "flower_auth": _set(env.flower_auth),
        "data_dir": str(env.data_dir),
        "log_level": env.log_level,
        "vendor_keys": {name: _set(key) for name, key in env.vendor_keys.items()},
    }
    return shown


def _set(secret: str) -> str:
    return MASK if secret else ""


def _lines(value: object, path: str) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for key, inner in value.items() for line in _lines(inner, f"{path}.{key}" if path else key)]
    return [f"{path} = {json.dumps(value, ensure_ascii=False, default=str)}"]
