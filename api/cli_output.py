"""What the commands share: a table or JSON lines, the examples in --help, the options for the API and the database."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from api import cli_table
from api.beside import beside_up
from api.cli_http import Gateway
from api.up_setup import load_settings
from models.db import TRANSIENT, Database
from models.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
_DEFAULT_URL = "http://127.0.0.1:8000"


def example(*lines: str) -> str:
    """An epilog that shows how a command is used; click's mark keeps the lines as they are."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def json_option(command: Callable[P, R]) -> Callable[P, R]:
    """--json, as `as_json`; true also when the output goes into a pipe."""
    return click.option(
        "--json", "as_json", is_flag=True, default=lambda: not sys.stdout.isatty(), help="JSON lines, as in a pipe."
    )(command)


def api_options(command: Callable[..., R]) -> Callable[..., R]:
    """--url and --key; the command gets a Gateway as its first argument."""

    @click.option("--url", default=_url, help=f"The API (WEIR_URL); else the one of `weir up`, or {_DEFAULT_URL}.")
    @click.option("--key", envvar="WEIR_KEY", default="", help="The API key (WEIR_KEY); else the one of `weir up`.")
    @functools.wraps(command)
    def with_gateway(*args: object, url: str, key: str, **kwargs: object) -> R:
        return command(Gateway(url=url, key=key or _kept_key()), *args, **kwargs)

    return with_gateway


def _url() -> str:
    return beside_up(os.environ).get("WEIR_URL") or _DEFAULT_URL


def _kept_key() -> str:
    try:
        return (Path(os.environ.get("WEIR_DATA") or "data") / "key").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def settings_in_force() -> Settings:
    """The settings of this shell; beside a running `weir up`, with its servers and secret. Exit 2 if not valid."""
    return load_settings(beside_up(os.environ))


def database_url(settings: Settings) -> str:
    """Its address. Raises click.UsageError if nobody gave one."""
    if not settings.env.database_url:
        raise click.UsageError("WEIR_DATABASE_URL is not set, and no `weir up` keeps its data here (WEIR_DATA)")
    return settings.env.database_url


def with_database(command: Callable[..., R]) -> Callable[..., R]:
    """The command gets the settings and an open Database as its first arguments."""

    @functools.wraps(command)
    def run(*args: object, **kwargs: object) -> R:
        settings = settings_in_force()
        with Database(database_url(settings), pool=1) as database:
            try:
                return command(settings, database, *args, **kwargs)
            except TRANSIENT as exc:
                raise click.ClickException(f"the database cannot be reached: {first_line(exc)}") from None

    return run


def first_line(error: BaseException) -> str:
    """What a library's many lines begin with; they may go on to quote statements and their values."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def show(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    as_json: bool,
    spare: Sequence[str] = (),
    free: str = "",
) -> None:
    """Rows as a table of `columns`, or each whole as a line of JSON.

    On a narrow terminal the columns in `spare` go, first to last; `free` names a last column of text that may wrap.
    """
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, default=str, ensure_ascii=False))
        return
    width = shutil.get_terminal_size().columns
    head, *told = cli_table.lines(list(rows), columns, width=width, spare=spare, free=free)
    click.secho(head, bold=True)
    for line in told:
        click.echo(line)
