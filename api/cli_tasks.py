"""`weir tasks`: tasks as their owner sees them, over the HTTP API; what is at risk, on the database (cli_risk.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from api.cli_http import Gateway
from api.cli_output import api_options, example, json_option, show
from api.cli_risk import list_risks, resolve
from api.cli_table import failure, money, words

_COLUMNS = ("task_id", "type", "status", "model", "provider", "created_at", "finished_at")
_STATUSES = ("PENDING", "RUNNING", "SUCCESS", "FAILED", "TIMEOUT", "CANCELED")


@click.group()
def tasks() -> None:
    """List, show and cancel tasks."""


@tasks.command("list", epilog=example("weir tasks list --status FAILED --limit 50", "weir tasks list --risk"))
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only these.")
@click.option("--type", "kind", type=click.Choice(("image", "video")), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Newest first.")
@click.option("--risk", is_flag=True, help="Of all users, what may have cost money for nothing; for operators.")
@json_option
@api_options
def list_(gateway: Gateway, *, status: str | None, kind: str | None, limit: int, risk: bool, as_json: bool) -> None:
    """List the newest tasks."""
    if risk:
        if status or kind:
            raise click.UsageError("--risk goes with --limit only")
        list_risks(limit=limit, as_json=as_json)
        return
    body = gateway.get("/v1/tasks", status=status and status.upper(), type=kind, limit=limit).body
    show(body["data"], _COLUMNS, as_json=as_json, spare=("provider", "finished_at", "model"))


@tasks.command("show", epilog=example("weir tasks show task_01k2..."))
@click.argument("task_id")
@json_option
@api_options
def show_(gateway: Gateway, *, task_id: str, as_json: bool) -> None:
    """Show a task and everything that happened to it."""
    task = gateway.get(f"/v1/tasks/{task_id}").body
    history = gateway.get(f"/v1/tasks/{task_id}/history").body
    if as_json:
        click.echo(json.dumps(task | {"history": history}, ensure_ascii=False))
        return
    for name, value in _told(task):
        click.echo(f"{name.replace('_', ' '):<20} {value}")
    click.echo()
    events = ("at", "reason", "from", "to", "stage", "version", "detail")
    show(history["events"], events, as_json=False, spare=("version", "from", "stage"), free="detail")
    click.echo()
    columns = ("at", "ms", "provider", "operation", "verdict", "http_status", "error")
    show(history["upstream_calls"], columns, as_json=False, spare=("provider", "http_status"), free="error")


def _told(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is worth a line, in words."""
    shown = ("stage", "attempt", "upstream_call_count", "cancel_requested_at", "risk")
    for name in (*_COLUMNS, *shown):
        yield name, words(task.get(name))
    yield "error", failure(task.get("error"))
    yield "cost", money(task["cost"])
    for output in task.get("outputs") or []:
        yield "output", f"{output['url']}  {output['media_type']}, {output['bytes']:,} bytes"


@tasks.command(epilog=example("weir tasks cancel task_01k2..."))
@click.argument("task_id")
@json_option
@api_options
def cancel(gateway: Gateway, *, task_id: str, as_json: bool) -> None:
    """Cancel a task; one that runs is canceled once the vendor confirms it."""
    answer = gateway.delete(f"/v1/tasks/{task_id}")
    show([answer.body], ("task_id", "status", "cancel_requested_at"), as_json=as_json)


tasks.add_command(resolve)
