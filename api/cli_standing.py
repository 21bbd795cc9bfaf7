"""`weir status` and `weir usage`: how the installation is doing, and what the caller's tasks came to."""

from __future__ import annotations

import json

import click

from api.cli_http import Gateway
from api.cli_output import api_options, example, json_option, show


@click.command(epilog=example("weir status", "weir status --json"))
@api_options
@json_option
def status(gateway: Gateway, *, as_json: bool) -> None:
    """Show queues, workers, states and the last sweep."""
    body = gateway.get("/v1/status").body
    if as_json:
        click.echo(json.dumps(body, ensure_ascii=False))
        return
    show(body["queues"], ("type", "waiting", "running", "cap", "oldest_waiting_s"), as_json=False)
    click.echo()
    if body["workers"] is None:
        click.echo("Workers: unknown, Redis is away.")
    else:
        show(body["workers"], ("queue", "workers", "slots"), as_json=False)
    click.echo()
    show([body["live"] | body["ended_last_day"]], (*body["live"], *body["ended_last_day"]), as_json=False)
    age_s = body["sweep_age_s"]
    click.echo("No sweep yet." if age_s is None else f"Last sweep {age_s:.0f} s ago. Final states: of the last day.")


@click.command(epilog=example("weir usage --days 7"))
@click.option("--days", type=click.IntRange(1, 90), default=30, show_default=True, help="How far back.")
@api_options
@json_option
def usage(gateway: Gateway, *, days: int, as_json: bool) -> None:
    """Show cost, upstream money that may be lost and repeats, by day, model and provider."""
    body = gateway.get("/v1/usage", days=days).body
    columns = (
        "day", "model", "provider", "tasks", "succeeded", "outputs", "cost_micros", "lost_micros", "currency", "replays"
    )  # fmt: skip
    show(body["data"], columns, as_json=as_json, spare=("outputs", "provider"))
    if not as_json:
        click.echo(f"Duplicate rate {body['duplicate_rate']:.2%}")
