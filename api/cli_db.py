"""`weir db`: the schema of the database in WEIR_DATABASE_URL."""

from __future__ import annotations

import click

from api.cli_output import database_url, example, first_line, json_option, settings_in_force, show
from models import migrations
from models.db import TRANSIENT


@click.group()
def db() -> None:
    """Bring the database to the newest schema."""


@db.command(epilog=example("weir db upgrade"))
@json_option
def upgrade(*, as_json: bool) -> None:
    """Run the migrations that are missing. Safe to repeat, and to run twice at once."""
    url = database_url(settings_in_force())
    try:
        migrations.upgrade(url)
    except TRANSIENT as exc:
        raise click.ClickException(f"the database cannot be reached: {first_line(exc)}") from None
    _show(url, as_json=as_json)


@db.command(epilog=example("weir db current"))
@json_option
def current(*, as_json: bool) -> None:
    """Show the revision of the database and the newest there is; exit 1 if they differ."""
    url = database_url(settings_in_force())
    try:
        there = _show(url, as_json=as_json)
    except TRANSIENT as exc:
        raise click.ClickException(f"the database cannot be reached: {first_line(exc)}") from None
    if not there:
        raise SystemExit(1)


def _show(url: str, *, as_json: bool) -> bool:
    here, newest = migrations.current(url)
    show([{"database": here, "newest": newest}], ("database", "newest"), as_json=as_json)
    return here == newest
