"""What a process needs to work: settings, connections, providers, storage. Built once per process, after the fork."""

from __future__ import annotations

import logging
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

import providers as vendors
from models import backoff
from models.contract import Presets
from models.db import TRANSIENT, Database
from models.fields import Kind
from models.reload import Live
from models.seats import alias, seat_of
from models.settings import Settings, SettingsError
from providers.breaker import Shared
from providers.fetch import Downloads
from providers.gate import Dam, Gate, Gated, behind
from providers.kv import connect
from providers.port import Provider
from providers.storage import Storage, StorageError
from tasks import routing

log = logging.getLogger("weir.runtime")

T = TypeVar("T")

_PERSIST = backoff.Policy(min_s=0.2, max_s=3.0)  # between two tries of a write that must not be lost


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The hands of a worker. Everything is thread-safe."""

    settings: Settings
    db: Database
    providers: dict[str, Provider]
    storage: Storage
    downloads: Downloads
    gates: Mapping[str, Gate] = field(default_factory=dict)
    shared: Shared = field(default_factory=lambda: Shared(None))
    jitter: Callable[[], float] = field(default=random.random)

    def hold_s(self, provider: str, operation: str, kind: Kind | None = None) -> float:
        """Seconds that a call of `operation` would be held at the provider's gate now; 0.0: it may go."""
        gate = self.gates.get(provider)
        return gate.hold_s(operation, kind) if gate is not None else 0.0

    def seats(self, provider: str) -> list[str]:
        """The seats among which a new task of this provider has the choice, at least one."""
        conf = self.settings.providers.get(provider)
        credentials = conf.credentials if conf is not None else ()
        return [seat_of(provider, alias(one)) for one in credentials] if len(credentials) > 1 else [provider]

    def refuses(self, provider: str, kind: Kind) -> bool:
        """Whether a new task of `kind` should go elsewhere: the provider fails, is away or refuses our credential."""
        gate = self.gates.get(provider)
        return gate is not None and gate.refuses(kind) is not None

    def gate(self, provider: str) -> AbstractContextManager[None]:
        """The gate around calls that do not go through a provider's own methods: downloads."""
        gate = self.gates.get(provider)
        return behind(gate) if gate is not None else nullcontext()

    def policy(self, kind: Kind) -> backoff.Policy:
        """The poll plan of a type."""
        plan = self.settings.polling.image if kind is Kind.IMAGE else self.settings.polling.video
        return backoff.Policy(min_s=plan.min_s, max_s=plan.max_s)

    def persist(self, write: Callable[[], T], within_s: float) -> T:
        """`write()`, repeated for at most `within_s` seconds while database or storage are away; then its error.

        For what exists nowhere else: a vendor's receipt or verdict. `write` must be safe to repeat, since a
        connection that is cut inside COMMIT leaves it open whether it was done.
        """
        until = time.monotonic() + within_s
        tries = 0
        while True:
            try:
                return write()
            except (*TRANSIENT, StorageError) as exc:
                wait = backoff.countdown(tries, _PERSIST, self.jitter())
                if time.monotonic() + wait > until:
                    raise
                log.warning("%s; the answer is kept and written again", type(exc).__name__)
                tries += 1
                time.sleep(wait)


def draw(low: int, high: int) -> int:
    """A random whole number in [low, high]."""
    return low + secrets.randbelow(high - low + 1)


_lock = threading.Lock()
_built: tuple[int, Live[Runtime]] | None = None


def build(settings: Settings, *, pool: int = 8, before: Runtime | None = None) -> Runtime:
    """A runtime of its own; `pool` is the most database connections. It shares those of `before`, if there is one.

    Raises SettingsError.
    """
    shared = before.shared if before is not None else Shared(connect(settings.env.redis_url))
    gates = Dam.build(shared, settings).gates(settings.providers)
    return Runtime(
        settings=settings,
        shared=shared,
        db=before.db if before is not None else Database(settings.env.database_url, pool=pool, wait_s=10.0),
        providers={name: Gated(one, gates[name]) for name, one in vendors.catalogue(settings).items()},
        gates=gates,
        storage=before.storage if before is not None else Storage(settings.results.url, settings.env.data_dir),
        downloads=Downloads(settings.results, settings.env.data_dir),
    )


def renewed(settings: Settings, before: Runtime | None) -> Runtime:
    """A runtime of settings that were read anew: what is in progress goes on with the providers it began with.

    Raises SettingsError naming whatever keeps a worker or the API from working with them.
    """
    if before is not None:
        check(settings)
    return build(settings, before=before)


def check(settings: Settings) -> None:
    """Raise SettingsError naming all that a process could not work with, beyond what Settings.load refuses."""
    faults = settings.missing_keys()
    try:
        Presets.from_tables(settings.presets)
    except ValueError as exc:
        faults.append(str(exc))
    try:
        faults += routing.faults(settings, vendors.catalogue(settings))
    except SettingsError as exc:
        faults.append(str(exc))
    if faults:
        raise SettingsError("\n".join(faults))


def runtime() -> Runtime:
    """The runtime of this process, built at the first call and again in a forked child; to be asked for every step.

    It is another one after the settings have changed: whoever has the old one goes on with it.
    """
    global _built  # noqa: PLW0603  one per process, and a process is what this is about
    with _lock:
        if _built is None or _built[0] != os.getpid():
            _built = (os.getpid(), Live(renewed, os.environ))
        live = _built[1]
    return live.current()


def hurry() -> None:
    """Have the settings read anew at the next step. Safe in a signal's handler."""
    if _built is not None:
        _built[1].hurry()
