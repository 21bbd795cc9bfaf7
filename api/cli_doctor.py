"""`weir doctor`: what keeps this installation from working, each with its fix."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import click

from api.beside import beside_up
from api.cli_http import Gateway, GatewayError
from api.cli_output import example, first_line, json_option, settings_in_force
from api.ports import holder, port_is_free
from api.up_setup import InvalidSettingsError
from models import migrations
from models.db import TRANSIENT, Database
from models.settings import Settings
from providers.storage import Storage, StorageError

_SKEW_S = 5.0
_REDIS_VERSION = (6, 2)
_ANSWER_S = 2.0  # for workers to say which queues they take
_QUEUES = ("image", "video", "default")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One finding. `ok` False comes with a `fix`; None means it is worth knowing, and nothing fails."""

    name: str
    ok: bool | None
    found: str
    fix: str = ""


@click.command(epilog=example("weir doctor"))
@json_option
def doctor(*, as_json: bool) -> None:
    """Check settings, database, Redis, storage, workers, vendor keys and ports; exit 1 if anything fails."""
    failed = False
    for check in checks():
        failed = failed or check.ok is False
        if as_json:
            click.echo(json.dumps(asdict(check)))
            continue
        mark = {True: "ok   ", False: "FAIL ", None: "note "}[check.ok]
        click.echo(f"{mark} {check.name:<12} {check.found}")
        if check.fix:
            click.echo(f"{'':<19}-> {check.fix}")
    raise SystemExit(1 if failed else 0)


def checks() -> Iterator[Check]:
    """Every check in order; without valid settings only that one."""
    try:
        settings = settings_in_force()
    except InvalidSettingsError as exc:
        yield Check(name="settings", ok=False, found=exc.message, fix="correct the file or variable named above")
        return
    yield Check(name="settings", ok=True, found="valid")
    looks: tuple[Callable[[Settings], Iterator[Check]], ...] = (
        _secret, _database, partial(_redis, "redis"), partial(_redis, "broker"), _storage, _workers, _keys, _port,
    )  # fmt: skip
    for look in looks:
        yield from look(settings)


def _secret(settings: Settings) -> Iterator[Check]:
    if not settings.env.secret:
        kept = settings.env.data_dir / "secret"
        fix = (
            f'export WEIR_SECRET="$(cat {kept})", which `weir up` has made'
            if kept.exists()
            else 'run `weir up`, which makes one; or export WEIR_SECRET="$(openssl rand -base64 48)" for every process'
        )
        yield Check(name="secret", ok=False, found="WEIR_SECRET is not set", fix=fix)


def _database(settings: Settings) -> Iterator[Check]:
    url = settings.env.database_url
    if not url:
        yield Check(name="database", ok=False, found="WEIR_DATABASE_URL is not set", fix="set it, or run `weir up`")
        return
    try:
        with Database(url, pool=1) as database, database.unit_of_work() as uow:
            before = time.time()
            there, version = (
                float(uow.scalar("select extract(epoch from clock_timestamp())")),
                uow.scalar("show server_version"),
            )
            skew_s = abs(there - (before + time.time()) / 2)
        here, newest = migrations.current(url)
    except TRANSIENT as exc:
        fix = "start PostgreSQL, or correct WEIR_DATABASE_URL"
        yield Check(name="database", ok=False, found=first_line(exc), fix=fix)
        return
    yield Check(name="database", ok=True, found=f"PostgreSQL {version}")
    current = here == newest
    fix = "" if current else "weir db upgrade"
    yield Check(name="migrations", ok=current, found=f"{here or 'none'} of {newest}", fix=fix)
    fix = "" if skew_s <= _SKEW_S else "let both machines follow a time server (timedatectl set-ntp true)"
    yield Check(name="clock", ok=skew_s <= _SKEW_S, found=f"{skew_s:.1f} s from the database's", fix=fix)


def _redis(which: str, settings: Settings) -> Iterator[Check]:
    url = settings.env.redis_url if which == "redis" else settings.env.broker_url
    variable = f"WEIR_{which.upper()}_URL"
    if which == "broker" and url == settings.env.redis_url:
        return  # looked at already
    if not url:
        yield Check(name=which, ok=False, found=f"{variable} is not set", fix="set it, or run `weir up`")
        return
    from tasks import app  # noqa: PLC0415  reads the settings, which are known to be valid only here

    try:
        with app.connection(url, connect_timeout=3) as connection:
            connection.ensure_connection(max_retries=1, timeout=3)
            if not url.startswith(("redis", "unix")):
                yield Check(name=which, ok=True, found="reachable")
                return
            client = connection.default_channel.client  # type: ignore[attr-defined]  # the Redis transport's has one
            about = client.info("server")
            policy = client.config_get("maxmemory-policy").get("maxmemory-policy", "")
    except Exception as exc:  # noqa: BLE001  each transport has errors of its own
        fix = f"start the server, or correct {variable}"
        yield Check(name=which, ok=False, found=first_line(exc), fix=fix)
        return
    version = str(about.get("valkey_version") or about.get("redis_version"))
    recent = tuple(int(part) for part in str(about.get("redis_version", "0.0")).split(".")[:2]) >= _REDIS_VERSION
    fix = "" if recent else "use Redis 6.2 or newer, or Valkey"
    yield Check(name=which, ok=recent, found=f"version {version}", fix=fix)
    kept = policy == "noeviction"
    fix = "" if kept else "CONFIG SET maxmemory-policy noeviction: a broker must not forget messages"
    yield Check(name="eviction", ok=kept, found=policy or "unknown", fix=fix)


def _storage(settings: Settings) -> Iterator[Check]:
    storage = Storage(settings.results.url, settings.env.data_dir)
    where = settings.results.url or f"{settings.env.data_dir}/results"
    try:
        storage.put_bytes("doctor/check", b"weir", "text/plain")
        storage.delete(["doctor/check"])
    except (StorageError, OSError) as exc:
        fix = "give the user that runs Weir the right to write there, or correct `url` under [results]"
        yield Check(name="storage", ok=False, found=f"{where}: {first_line(exc)}", fix=fix)
        return
    yield Check(name="storage", ok=True, found=f"{where} can be written")


def _workers(settings: Settings) -> Iterator[Check]:
    if not settings.env.broker_url:
        return
    from tasks import app  # noqa: PLC0415  same as above

    try:
        # celeryconfig saw this shell's variables only, not what a `weir up` beside us uses.
        app.conf.update(broker_url=settings.env.broker_url, broker_transport_options={"socket_connect_timeout": 2})
        replies = app.control.inspect(timeout=_ANSWER_S).active_queues() or {}
    except Exception as exc:  # noqa: BLE001  same
        fix = "see the broker above"
        yield Check(name="workers", ok=False, found=f"nobody can be asked: {first_line(exc)}", fix=fix)
        return
    taken = {queue["name"] for queues in replies.values() for queue in queues}
    lonely = [name for name in _QUEUES if name not in taken]
    fix = f"`weir up`, or: celery -A tasks worker -Q {','.join(lonely)} -P threads -E" if lonely else ""
    found = f"no worker takes from {', '.join(lonely)}" if lonely else f"{len(replies)} workers, every queue has one"
    yield Check(name="workers", ok=not lonely, found=found, fix=fix)


def _keys(settings: Settings) -> Iterator[Check]:
    for name, provider in settings.providers.items():
        if not provider.enabled:
            continue
        local = provider.base_url.startswith(("http://127.", "http://localhost"))
        more = "; `weir up` gives its own simulator one" if local else ""
        for key in provider.credentials:
            present, variables = key in settings.env.vendor_keys, " and ".join(key.split("+"))
            found = f"{name}: {variables} {'is set' if present else 'is not set'}"
            fix = "" if present else f"export {variables}=..., for web and workers{more}"
            yield Check(name="vendor key", ok=present, found=found, fix=fix)


def _port(settings: Settings) -> Iterator[Check]:
    host, port = settings.server.host, int(beside_up(os.environ).get("PORT") or settings.server.port)
    if port_is_free(port, host):
        yield Check(name="port", ok=None, found=f"{port} is free: the API does not run here; `weir up` runs it")
        return
    try:
        Gateway(url=f"http://127.0.0.1:{port}").get("/livez")
    except GatewayError:
        fix = "stop that, or change `port` under [server]"
        yield Check(name="port", ok=False, found=f"{port} is taken by {holder(port)}, which is not the API", fix=fix)
    else:
        yield Check(name="port", ok=True, found=f"the API answers on {port}")
