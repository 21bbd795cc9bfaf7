"""`weir tasks list --risk` and `weir tasks resolve`: upstream money that may be lost. Act on the database itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from api.cli_output import example, json_option, show, with_database
from models import ids, pricing, risks
from models.db import Database, Row
from models.fields import Kind
from models.settings import Settings

_COLUMNS = (
    "task_id", "user", "provider", "receipt", "status", "code", "may_have_cost", "age", "resolvable",
)  # fmt: skip


@with_database
def list_risks(settings: Settings, database: Database, *, limit: int, as_json: bool) -> None:
    """Show the newest tasks of all users that may have cost money for nothing."""
    del settings
    with database.unit_of_work() as uow:
        rows = [_shown(row) for row in risks.at_risk(uow, limit)]
    if not rows and not as_json:
        click.echo("no task is at risk")
        return
    show(rows, _COLUMNS, as_json=as_json, spare=("resolvable", "status", "user"))


def _shown(row: Row) -> dict[str, object]:
    kind, effective = Kind(row["type"]), row["effective"]
    micros = pricing.cost_micros(kind, effective, row["price_micros"])
    return {
        "task_id": ids.encode("task", row["id"]),
        "user": row["user_name"],
        "provider": row["provider"],
        "receipt": row["receipt"],
        "status": row["status"],
        "code": row["error_code"],
        "may_have_cost": f"{micros / 1_000_000:g} {row['currency']}",
        "may_have_cost_micros": micros,
        "currency": row["currency"],
        "upstream_call_count": row["upstream_call_count"],
        "age": _age(row["age_s"]),
        "age_s": round(row["age_s"]),
        "resolvable": risks.settleable(row),
    }


def _age(seconds: float) -> str:
    for name, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {name}"
    return f"{seconds:.0f} s"


@click.command(
    epilog=example(
        "weir tasks resolve task_01k2... --lost", "weir tasks resolve task_01k2... --adopt 0385dc79-5ff8-4d82"
    )
)
@click.argument("task_id")
@click.option("--lost", is_flag=True, help="Nothing was made: it ends FAILED for certain; its key may start it again.")
@click.option("--adopt", metavar="RECEIPT", help="The vendor has it under this id: it is asked what became of it.")
@json_option
@with_database
def resolve(
    settings: Settings, database: Database, *, task_id: str, lost: bool, adopt: str | None, as_json: bool
) -> None:
    """Say what became of a task that ended in doubt (TIMEOUT or submit_unconfirmed), having looked at the vendor's."""
    if lost == bool(adopt):
        raise click.UsageError("say one of --lost and --adopt RECEIPT")
    id_ = ids.decode("task", task_id)
    if id_ is None:
        raise click.UsageError(f"{task_id!r} is no task id")
    row = _resolved(settings, database, id_, adopt)
    told = {
        name: row[name] for name in ("status", "receipt", "error_code", "cost_micros", "currency", "certain", "risk")
    }
    told = {"task_id": task_id, **told, "asked_again": row["wake_at"] is not None}
    if as_json:
        show([told], tuple(told), as_json=True)
        return
    said = " ".join(filter(None, (row["status"], row["error_code"])))
    later = "; the vendor is not done, or its result cannot be had now: it is asked again in a minute"
    click.echo(f"{task_id} is {said}{later if told['asked_again'] else ''}")


def _resolved(settings: Settings, database: Database, id_: Any, receipt: str | None) -> Row:  # noqa: ANN401  a UUID
    # Celery's configuration is read with these; by now it is known to be valid.
    from providers import catalogue  # noqa: PLC0415  beside the two below
    from tasks import settling  # noqa: PLC0415  as said
    from tasks.runtime import build  # noqa: PLC0415  as said

    # Past the gate: an operator's one question is no matter for the fleet, and this shell may have another key.
    rt = dataclasses.replace(build(settings), db=database, providers=catalogue(settings), gates={})
    try:
        return settling.lost(rt, id_) if receipt is None else settling.adopt(rt, id_, receipt)
    except settling.NotSettledError as exc:
        raise click.ClickException(f"{exc}; nothing was changed") from None
