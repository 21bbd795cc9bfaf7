"""`weir providers` and `weir breaker`: how vendors stand, what is wrong with one, and putting it right at once.

`list` asks the API, as anybody may; the others act on Redis and on the vendor themselves. A test goes past the gate and
tells the fleet nothing: this shell may have another key than the workers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from api.cli_http import Gateway
from api.cli_output import api_options, example, json_option, settings_in_force, show
from models.checked import suggest
from models.failures import FailureKind
from models.settings import ProviderSettings, Settings
from providers import catalogue
from providers.breaker import OPERATIONS, Shared
from providers.calls import within
from providers.gate import Dam, Gate
from providers.kv import Kv
from providers.port import ProviderError

_TEST_S = 15.0
_LISTED = ("provider", "adapter", "state", "in_flight", "max_in_flight", "waiting", "why")
_TESTED = ("provider", "ok", "ms", "found", "fix")

# What is wrong, and what mends it; {address}, {variable} and {name} are filled in.
_NO_API = (
    "what answers is not the vendor's API",
    "correct base_url ({address}): the address of the API itself, without its version",
)
_TROUBLE = ("the vendor has a trouble of its own", "wait, and see its status page; tasks wait and are not lost")
_WORDS: Mapping[FailureKind, tuple[str, str]] = {
    FailureKind.NOT_SENT: (
        "nobody can be reached there",
        "correct base_url ({address}), or open the way to it: name, port, proxy, firewall",
    ),
    FailureKind.READ_TIMEOUT: (
        "it does not answer in time",
        "see whether {address} is the right address and the vendor is well",
    ),
    FailureKind.PROVIDER_AUTH: (
        "it refuses the credential",
        "put a valid key into {variable}, restart the workers, then: weir providers revive {name}",
    ),
    FailureKind.PROVIDER_QUOTA: (
        "the account has nothing left",
        "top it up at the vendor, then: weir providers revive {name}",
    ),
    FailureKind.RATE_LIMITED: (
        "it asks to slow down",
        "lower requests_per_minute of {name}; tasks wait by themselves",
    ),
    FailureKind.UNREADABLE: _NO_API,
    FailureKind.INVALID_PARAMETER: _NO_API,
    FailureKind.SERVER_ERROR: _TROUBLE,
    FailureKind.OVERLOADED: _TROUBLE,
}


@click.group()
def providers() -> None:
    """Look at the ways to vendors, and test them."""


@providers.command("list", epilog=example("weir providers list"))
@json_option
@api_options
def list_(gateway: Gateway, *, as_json: bool) -> None:
    """List providers: whether they take tasks, and if not, why."""
    rows = gateway.get("/v1/providers").body["data"]
    if not as_json:
        rows = [row | dict(zip(("state", "why"), _state(row), strict=True)) for row in rows]
    show(rows, _LISTED, as_json=as_json, spare=("adapter", "max_in_flight"), free="why")


def _state(row: Mapping[str, Any]) -> tuple[str, str]:
    """What matters most of a provider, in a word, and why."""
    health, pause = row["health"], row["pause"]
    out = [one for one in row["credentials"] if one["state"] == "out"]
    if not row["enabled"]:
        return "off", "switched off in the configuration"
    if row["breaker"] is None:
        return "unknown", "Redis is away"
    shut = [f"{name} ({one['last_error']})" for name, one in row["breaker"].items() if one["state"] != "closed"]
    found = (
        ("refused", bool(out), ", ".join(f"the vendor refuses {one['alias']} ({one['why']})" for one in out)),
        ("away", not health["healthy"], f"{health['misses']} probes in a row came to nothing ({health['why']})"),
        ("failing", bool(shut), ", ".join(shut)),
        ("pausing", pause["paused_for_s"] > 0, f"for {pause['paused_for_s']:.0f} s more ({pause['why']})"),
    )
    return next(((word, why) for word, so, why in found if so), ("ok", ""))


@providers.command("test", epilog=example("weir providers test wan"))
@click.argument("name")
@json_option
def test(*, name: str, as_json: bool) -> None:
    """Ask a vendor something harmless with the credential of this shell; exit 1 and say how to mend what is wrong."""
    settings = settings_in_force()
    conf = _known(settings, name)
    row = _tested(settings, name, conf)
    if as_json:
        show([row], _TESTED, as_json=True)
    else:
        click.echo(f"{name}: {row['found']} ({row['ms']} ms)")
        for fix in filter(None, (row["fix"], row["note"])):
            click.echo(f"  -> {fix}")
    if not row["ok"]:
        raise SystemExit(1)


def _tested(settings: Settings, name: str, conf: ProviderSettings) -> dict[str, object]:
    provider, began = catalogue(settings)[name], time.monotonic()
    row: dict[str, object] = {"provider": name, "ok": True, "kind": None, "found": "it answers", "fix": ""}
    try:
        with within(_TEST_S):
            provider.check()
    except ProviderError as exc:
        found, fix = _WORDS.get(
            exc.kind, ("it does not answer as it should", "see whether {address} is its API, and the vendor well")
        )
        filled = fix.format(address=conf.base_url, variable=conf.api_key_env or "api_key_env's variable", name=name)
        row |= {"ok": False, "kind": exc.kind, "found": f"{found} ({exc})", "fix": filled}
    note = ""
    unset = [one for one in conf.credentials if one not in settings.env.vendor_keys]
    if unset:
        note = f"{', '.join(unset).replace('+', ' or ')} is not set in this shell"
    elif row["ok"] and _is_out(settings, name):
        note = f"its credential still counts as refused: weir providers revive {name}"
    return {**row, "ms": round((time.monotonic() - began) * 1000), "note": note}


def _is_out(settings: Settings, name: str) -> bool:
    with contextlib.suppress(click.ClickException), _gates(settings) as gates:
        return bool(gates[name].dam.credentials.dead(name, gates[name].credentials))
    return False


@providers.command("revive", epilog=example("weir providers revive wan"))
@click.argument("name")
@json_option
def revive(*, name: str, as_json: bool) -> None:
    """Take a provider's refused credentials back in at once, once mended. Workers find them within 30 s."""
    settings = settings_in_force()
    _known(settings, name)
    with _gates(settings) as gates:
        credentials, known = gates[name].dam.credentials, gates[name].credentials
        out = credentials.dead(name, known)
        for one in known:
            credentials.revive(name, one)
    rows = [{"provider": name, "credential": one, "was_out": out.get(one)} for one in known]
    if as_json:
        show(rows, _TESTED, as_json=True)
        return
    for row in rows:
        done = f"is back in (was out: {row['was_out']})" if row["was_out"] else "was not out; nothing changed"
        click.echo(f"{name}: {row['credential']} {done}")


@click.group()
def breaker() -> None:
    """Close circuits by hand."""


@breaker.command("reset", epilog=example("weir breaker reset wan", "weir breaker reset wan --operation submit_video"))
@click.argument("name", metavar="PROVIDER")
@click.option("--operation", type=click.Choice(OPERATIONS), help="Only this one; all of them, if left out.")
@json_option
def reset(*, name: str, operation: str | None, as_json: bool) -> None:
    """Close a provider's circuits and forget their failures: calls go again at once. Health and credential stay."""
    settings = settings_in_force()
    _known(settings, name)
    with _gates(settings) as gates:
        circuits = gates[name].dam.breaker
        before = [one for (_, one), state in circuits.states([name]).items() if state.name != "closed"]
        if not circuits.reset(name, operation):
            raise _away()
    closed = [one for one in before if operation in (None, one)]
    if as_json:
        show([{"provider": name, "closed": closed}], ("provider", "closed"), as_json=True)
        return
    click.echo(f"{name}: {', '.join(closed) + ' closed' if closed else 'all were closed; their windows are empty now'}")


def _known(settings: Settings, name: str) -> ProviderSettings:
    if name not in settings.providers:
        raise click.UsageError(f"there is no provider {name!r}{suggest(name, settings.providers)}")
    return settings.providers[name]


@contextlib.contextmanager
def _gates(settings: Settings) -> Iterator[Mapping[str, Gate]]:
    """The gates over the Redis in force, which answers."""
    kv = Kv(settings.env.redis_url)
    try:
        if not kv.ping():
            raise _away()
        yield Dam.build(Shared(kv.client), settings).gates(settings.providers)
    finally:
        kv.close()


def _away() -> click.ClickException:
    return click.ClickException("Redis cannot be reached, and nothing was changed: see WEIR_REDIS_URL, or weir doctor")
