"""A whole gateway without processes: rows, steps and a scripted provider, each step called by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID

import redis
from uuid_utils.compat import uuid7

from models import accounts, line, store
from models.db import Database, Row
from models.fields import Kind
from models.settings import Settings
from providers.fetch import Downloads
from providers.storage import Storage
from tasks import app, fetching, reconciling, steps, submitting, sweep, waves
from tasks.runtime import Runtime
from tests.scripted import Scripted

SIZE = {"width": 512, "height": 512}
TOML = """
[providers.wan]
adapter = "dashscope"
base_url = "http://127.0.0.1:9"
api_key_env = "DASHSCOPE_API_KEY"
max_in_flight = 100
[models.picture]
type = "image"
providers = [{ name = "wan", model = "wan2.2-t2i-flash" }]
price_micros = 100
[caps]
total = 100
image = 100
video = 100
[users]
running = 100
active = 1000
"""


@dataclass
class World:
    """Everything a test of the steps holds in its hands."""

    rt: Runtime
    provider: Scripted

    @classmethod
    def build(cls, settings: Settings, *, pool: int = 8) -> World:
        """Over the test's own database and Valkey."""
        app.conf.update(broker_url=settings.env.broker_url)
        provider = Scripted()
        rt = Runtime(
            settings=settings,
            db=Database(settings.env.database_url, pool=pool),
            providers={"wan": provider},
            storage=Storage(settings.results.url, settings.env.data_dir),
            downloads=Downloads(settings.results, settings.env.data_dir),
            jitter=lambda: 0.0,
        )
        return cls(rt=rt, provider=provider)

    def add(self, *, kind: Kind = Kind.IMAGE, user: str = "ann", count: int = 1, deadline_s: int = 900) -> UUID:
        """A PENDING task; its id."""
        id_ = uuid7()
        with self.rt.db.unit_of_work() as uow:
            values: dict[str, object] = {
                "id": id_, "user_id": accounts.ensure_user(uow, user), "key_id": None, "type": kind, "order_id": "",
                "idempotency_key": None, "fingerprint": None, "priority": 1, "model": "picture", "provider": "wan",
                "provider_model": "wan2.2-t2i-flash", "input": {}, "adjustments": [], "metadata": {},
                "effective": {"prompt": "a fox", "image_count": count, "seed": 7, "duration_s": 5, **SIZE},
                "deadline_s": deadline_s, "price_micros": 100, "currency": "USD",
            }  # fmt: skip
            store.insert(uow, values, {})
        return id_

    def row(self, id_: UUID) -> Row:
        """The row as it is now."""
        with self.rt.db.unit_of_work() as uow:
            row = store.get(uow, id_)
        assert row is not None
        return row

    def sql(self, statement: str, **values: object) -> None:
        """Set a scene that would take long to play."""
        with self.rt.db.unit_of_work() as uow:
            uow.execute(statement, **values)

    def submit(self, id_: UUID, version: int | None = None) -> Row:
        """One `submit` wake-up."""
        submitting.submit(self.rt, id_, version or self.row(id_)["version"])
        return self.row(id_)

    def poll(self, kind: Kind = Kind.IMAGE, version: int | None = None) -> tuple[int, int] | None:
        """One round of the polling chain, whatever is due being due now."""
        self.sql("update tasks set wake_at = now() where stage = 'generating'")
        if version is None:
            with self.rt.db.unit_of_work() as uow:
                version = line.restart_wave(uow, "wan", kind)
        return waves.round_of(self.rt, "wan", kind, version)

    def fetch(self, id_: UUID) -> Row:
        """One `fetch` wake-up."""
        fetching.fetch(self.rt, id_, self.row(id_)["version"])
        return self.row(id_)

    def cancel(self, id_: UUID) -> Row:
        """The caller's wish, and one `cancel` wake-up."""
        with self.rt.db.unit_of_work() as uow:
            store.request_cancel(uow, id_)
        steps.cancel(self.rt, id_, self.row(id_)["version"])
        return self.row(id_)

    def reconcile(self, id_: UUID) -> Row:
        """One `reconcile` wake-up."""
        reconciling.reconcile(self.rt, id_, self.row(id_)["version"])
        return self.row(id_)

    def sweep(self) -> dict[str, int]:
        """One sweep."""
        return dict(sweep.sweep_once(self.rt))

    def reasons(self, id_: UUID) -> list[str]:
        """The reasons of the task's events, in order."""
        with self.rt.db.unit_of_work() as uow:
            rows = uow.all("select reason from task_events where task_id = :id order by id", id=id_)
        return [r["reason"] for r in rows]

    def calls(self, id_: UUID) -> list[str]:
        """The operations of the task's upstream calls, in order."""
        with self.rt.db.unit_of_work() as uow:
            rows = uow.all("select operation from upstream_calls where :id = any(task_ids) order by id", id=id_)
        return [r["operation"] for r in rows]

    def messages(self) -> list[str]:
        """The Celery ids that lie in the broker now, of every queue and priority, oldest first within one."""
        found = []
        with redis.Redis.from_url(self.rt.settings.env.redis_url) as client:
            for key in sorted(client.scan_iter(match="*")):
                if client.type(key) == b"list":
                    found += [_id_of(raw) for raw in reversed(client.lrange(key, 0, -1))]
        return found


def _id_of(raw: bytes) -> str:
    return str(json.loads(raw)["headers"]["id"])
