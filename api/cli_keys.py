"""`weir keys`: API keys, made and revoked in the database itself, since the first one has no key to ask with."""

from __future__ import annotations

from uuid import UUID

import click

from api.cli_output import example, json_option, show, with_database
from models import accounts
from models.checked import suggest
from models.db import Database
from models.settings import Settings

_DAY_S = 86_400


@click.group()
def keys() -> None:
    """Make, list and revoke API keys."""


@keys.command(
    epilog=example(
        "weir keys create --user shop --name checkout",
        "weir keys create --user shop --models sim-image,sim-video",
        "weir keys create --user ops --scope admin",
    )
)
@click.option("--user", required=True, help="Whose it is; made if new. Limits and tasks belong to users.")
@click.option("--name", default="", help="What it is for.")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(accounts.SCOPES), help="May be given several times."
)
@click.option("--models", "listed", default="", help="The only models it may ask for, by commas; all, if left out.")
@click.option("--days", type=click.IntRange(1, 3650), help="Days until it expires; never, if left out.")
@json_option
@with_database
def create(  # noqa: PLR0913  one argument per option
    settings: Settings,
    database: Database,
    *,
    user: str,
    name: str,
    scopes: tuple[str, ...],
    listed: str,
    days: int | None,
    as_json: bool,
) -> None:
    """Make a key. It is shown once; only a digest is kept."""
    if not settings.env.secret:
        raise click.UsageError("WEIR_SECRET is not set: keys are stored as digests under it")
    models = [word.strip() for word in listed.split(",") if word.strip()]
    for model in models:
        if model not in settings.models:
            raise click.UsageError(f"there is no model {model!r}{suggest(model, settings.models)}")
    with database.unit_of_work() as uow:
        key_id, key = accounts.create_key(
            uow,
            settings.env.secret,
            user=user,
            name=name,
            scopes=scopes or accounts.DEFAULT_SCOPES,
            expires_in_s=days * _DAY_S if days else None,
            models=models,
        )
    show([{"id": key_id, "user": user, "key": key}], ("id", "user", "key"), as_json=as_json)


@keys.command("list", epilog=example("weir keys list --user shop"))
@click.option("--user", help="Only this user's.")
@json_option
@with_database
def list_(settings: Settings, database: Database, *, user: str | None, as_json: bool) -> None:
    """List keys by their first characters; the keys themselves are not known."""
    del settings
    with database.unit_of_work() as uow:
        rows = [dict(row) for row in accounts.list_keys(uow, user)]
    columns = (
        "id",
        "user",
        "name",
        "prefix",
        "scopes",
        "models",
        "created_at",
        "expires_at",
        "revoked_at",
        "last_used_at",
    )
    show(rows, columns, as_json=as_json, spare=("created_at", "last_used_at", "name", "expires_at", "scopes", "models"))


@keys.command(epilog=example("weir keys revoke 0197b1c0-7a5e-7c3e-9b8a-0d6f5a1e2c3d"))
@click.argument("key_id", type=click.UUID)
@with_database
def revoke(settings: Settings, database: Database, *, key_id: UUID) -> None:
    """Revoke a key at once; running tasks go on."""
    del settings
    with database.unit_of_work() as uow:
        if not accounts.revoke_key(uow, key_id):
            raise click.ClickException(f"there is no key {key_id}")
    click.echo(f"{key_id} is revoked")
