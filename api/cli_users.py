"""`weir users`: each user's limits, changed while everything runs; they hold from the next request on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from api.cli_output import example, json_option, show, with_database
from models import accounts
from models.checked import suggest
from models.db import Database, Row, UnitOfWork
from models.settings import Settings

_DEFAULT = "default"
_MOST = 1_000_000
_COLUMNS = ("user", "running", "running_limit", "active", "active_limit", "submits_per_minute", "own")


class _Limit(click.ParamType[Any]):
    """A whole number, or `default`."""

    name = f"N|{_DEFAULT}"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """What is meant."""
        text = str(value)
        if text == _DEFAULT:
            return text
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST and len(text) <= 7):
            self.fail(f"{text!r} is not a whole number from 1 to {_MOST}, nor {_DEFAULT!r}", param, ctx)
        return int(text)


@click.group()
def users() -> None:
    """Show and change what single users may do."""


@users.command("list", epilog=example("weir users list"))
@json_option
@with_database
def list_(settings: Settings, database: Database, *, as_json: bool) -> None:
    """List users with their limits in force and what they have running."""
    with database.unit_of_work() as uow:
        rows = [_shown(row, settings) for row in accounts.list_users(uow)]
    show(rows, _COLUMNS, as_json=as_json, spare=("own", "submits_per_minute"))


@users.command("show", epilog=example("weir users show shop"))
@click.argument("name")
@json_option
@with_database
def show_(settings: Settings, database: Database, *, name: str, as_json: bool) -> None:
    """Show one user."""
    with database.unit_of_work() as uow:
        row = _one(uow, name)
    show([_shown(row, settings)], _COLUMNS, as_json=as_json)


@users.command(
    "set", epilog=example("weir users set shop --active 50 --running 5", "weir users set shop --active default")
)
@click.argument("name")
@click.option("--active", "active_limit", type=_Limit(), help="Tasks waiting or running at one moment.")
@click.option("--running", "running_limit", type=_Limit(), help="Tasks running at one moment.")
@click.option("--per-minute", "submits_per_minute", type=_Limit(), help="POST /v1/tasks a minute; replays are free.")
@json_option
@with_database
def set_(settings: Settings, database: Database, *, name: str, as_json: bool, **limits: int | str | None) -> None:
    """Give a user limits of its own, or with `default` the configuration's again. Holds at once, without a restart."""
    given: Mapping[str, int | None] = {
        column: None if value == _DEFAULT else int(value) for column, value in limits.items() if value is not None
    }
    if not given:
        raise click.UsageError("say what to set: --active, --running, --per-minute")
    with database.unit_of_work() as uow:
        _one(uow, name)
        accounts.set_limits(uow, name, given)
        row = _one(uow, name)
    show([_shown(row, settings)], _COLUMNS, as_json=as_json)


def _one(uow: UnitOfWork, name: str) -> Row:
    found = accounts.list_users(uow, name)
    if not found:
        known = [row["user"] for row in accounts.list_users(uow)]
        raise click.ClickException(f"there is no user {name!r}{suggest(name, known)}")
    return found[0]


def _shown(row: Row, settings: Settings) -> dict[str, object]:
    """The limits in force; `own` names those that are not the configuration's."""
    usual = settings.users
    defaults = {
        "running_limit": usual.running,
        "active_limit": usual.active,
        "submits_per_minute": usual.submits_per_minute,
    }
    own = [column for column in accounts.LIMITS if row[column] is not None]
    in_force = {column: row[column] if column in own else default for column, default in defaults.items()}
    return {**{name: row[name] for name in ("id", "user", "running", "active", "created_at")}, **in_force, "own": own}
