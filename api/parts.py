"""What one app is made of: settings, connections, providers, presets, storage. Built lazily connected, per process.

Nothing here opens a socket or a file at construction; gunicorn builds the app after its fork.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from flask import Flask, current_app, g, has_request_context
from itsdangerous import URLSafeSerializer, URLSafeTimedSerializer

from api.readiness import Readiness
from models import reads
from models.contract import ModelBounds, Presets
from models.db import Database, Row, UnitOfWork
from models.reload import Live
from models.settings import Route, Settings, SettingsError
from providers import catalogue
from providers.breaker import Shared
from providers.gate import Dam, Gate
from providers.kv import Kv
from providers.port import Provider
from providers.presence import Presence
from providers.storage import Storage
from tasks import routing

_POOL = 8  # connections per process; sixteen threads rarely hold more than a few at one moment
_WAIT_S = 2.0  # for a connection; then 503, instead of a request that hangs (case O-65)
_STATEMENT_S = 5.0
_TYPICAL_TTL_S = 15.0
_PLACES_TTL_S, _PLACES_MISS_S = 1.0, 0.1
_NAME = "weir"


class Typical:
    """How long a model's tasks usually take, asked of the database at most every 15 s per model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, float | None]] = {}

    def seconds(self, uow: UnitOfWork, model: str) -> float | None:
        """Median seconds of the model's last successes, up to 15 s old; None: none lately."""
        with self._lock:
            until, known = self._known.get(model, (-math.inf, None))
        if time.monotonic() < until:
            return known
        fresh = reads.typical_s(uow, model)
        with self._lock:
            self._known[model] = (time.monotonic() + _TYPICAL_TTL_S, fresh)
        return fresh


class Places:
    """Who stands where in the lines. Ranking a line costs as much as it is long, so one ranking serves a second."""

    def __init__(self, user_cap: int) -> None:
        self._user_cap = user_cap
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, Mapping[UUID, int]]] = {}

    def of(self, uow: UnitOfWork, row: Row) -> int | None:
        """The 1-based place of a PENDING task, up to a second old; None: it came within the last moment."""
        line = (row["provider"], row["type"])
        with self._lock:
            at, places = self._known.get(line, (-math.inf, {}))
        age = time.monotonic() - at
        if age > _PLACES_TTL_S or (row["id"] not in places and age > _PLACES_MISS_S):
            places = reads.waiting(uow, *line, self._user_cap)
            with self._lock:
                self._known[line] = (time.monotonic(), places)
        return places.get(row["id"])


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything a view may need. Thread-safe."""

    settings: Settings
    db: Database
    kv: Kv
    shared: Shared
    providers: Mapping[str, Provider]
    dam: Dam
    gates: Mapping[str, Gate]
    presence: Presence
    presets: Presets
    storage: Storage
    readiness: Readiness
    places: Places
    typical: Typical = field(default_factory=Typical)

    @classmethod
    def build(cls, settings: Settings, before: Parts | None = None) -> Parts:
        """The parts of one process. Where settings were read anew they share the connections of those `before`.

        Raises SettingsError naming all that keeps the API from working.
        """
        faults = [
            f"{name}: is not set; the API needs it"
            for name, value in (("WEIR_DATABASE_URL", settings.env.database_url), ("WEIR_SECRET", settings.env.secret))
            if not value
        ]
        presets = Presets()
        try:
            presets = Presets.from_tables(settings.presets)
        except ValueError as exc:
            faults.append(str(exc))
        if faults:
            raise SettingsError("\n".join(faults))
        providers = catalogue(settings)
        faults = routing.faults(settings, providers)
        if faults:
            raise SettingsError("\n".join(faults))
        return before.renewed(settings, providers, presets) if before else cls._first(settings, providers, presets)

    @classmethod
    def _first(cls, settings: Settings, providers: Mapping[str, Provider], presets: Presets) -> Parts:
        url = settings.env.database_url
        db = Database(url, pool=_POOL, wait_s=_WAIT_S, statement_s=_STATEMENT_S)
        kv = Kv(settings.env.redis_url)
        shared = Shared(kv.client)
        dam = Dam.build(shared, settings)
        return cls(
            settings=settings,
            db=db,
            kv=kv,
            shared=shared,
            readiness=Readiness(url, db, kv),
            providers=providers,
            dam=dam,
            gates=dam.gates(settings.providers),
            presence=Presence(shared),
            presets=presets,
            places=Places(settings.users.running),
            storage=Storage(settings.results.url, settings.env.data_dir),
        )

    def renewed(self, settings: Settings, providers: Mapping[str, Provider], presets: Presets) -> Parts:
        """The same connections, with all that hangs on settings made anew."""
        dam = Dam.build(self.shared, settings)
        return dataclasses.replace(
            self,
            settings=settings,
            providers=providers,
            dam=dam,
            gates=dam.gates(settings.providers),
            presets=presets,
            places=Places(settings.users.running),
        )

    def bounds(self, route: Route) -> ModelBounds | None:
        """What a model can make by this route; None: the provider does not have it."""
        return self.providers[route.name].capabilities.models.get(route.model)

    def cursors(self) -> URLSafeSerializer:
        """Signs the cursors of lists."""
        return URLSafeSerializer(self.settings.env.secret, salt="weir.cursor")

    def links(self) -> URLSafeTimedSerializer:
        """Signs links to local files; they carry their time."""
        return URLSafeTimedSerializer(self.settings.env.secret, salt="weir.file")

    def close(self) -> None:
        """Close every connection."""
        self.db.close()
        self.kv.close()


def attach(live: Live[Parts]) -> None:
    """Give the app being made its parts."""
    current_app.extensions[_NAME] = live


def parts() -> Parts:
    """The parts of the app that serves this request, the same from its beginning to its end."""
    if not has_request_context():
        return live().current()
    if "parts" not in g:
        g.parts = live().current()
    found = g.parts
    assert isinstance(found, Parts)
    return found


def live(app: Flask | None = None) -> Live[Parts]:
    """How the parts are kept up to date; of `app`, or of the one at work."""
    found = (app or current_app).extensions[_NAME]
    assert isinstance(found, Live)
    return found
