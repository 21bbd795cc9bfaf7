"""What a case of another's trouble is played on: the API, the steps, every adapter, and the simulator as all vendors.

A request is posted through the real API; the steps that Celery would run are called by hand, in the order a task needs
them; what the user sees is read back through the API.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import requests

from models import line
from models.db import Row
from models.fields import Kind
from models.settings import Settings
from providers.sim import Simulator
from tasks import reconciling, waves
from tasks.runtime import build
from tests.conftest import MakeSettings
from tests.service import Got, Service, running, uuid_of
from tests.world import World

PRICE = 100
KEYS = {"ARK_API_KEY": "ark-for-tests", "OPENAI_API_KEY": "sk-openai-for-tests"}
FINAL = ("SUCCESS", "FAILED", "TIMEOUT", "CANCELED")
_PROVIDER = """
[providers.{name}]
adapter = "{adapter}"
base_url = "{url}/{adapter}"
{key}
connect_s = 1.0
submit_read_s = 3.0
query_read_s = 3.0
max_in_flight = 100
"""
_MODEL = """
[models.{name}]
type = "{type}"
providers = [{providers}]
price_micros = 100
"""
_LIMITS = """
[caps]
total = 100
image = 100
video = 100
[users]
running = 100
active = 1000
submits_per_minute = 1000
[retries]
reads = 0
async_submit = 0
sync_submit = 0
"""
_PROVIDERS = {
    "wan": ("dashscope", "DASHSCOPE_API_KEY"),
    "spare": ("dashscope", "DASHSCOPE_API_KEY"),
    "ark": ("ark", "ARK_API_KEY"),
    "openai": ("openai", "OPENAI_API_KEY"),
    "studio": ("comfyui", ""),
    "webui": ("sdwebui", ""),
}
_MODELS = {
    "picture": ("image", "wan=wan2.2-t2i-flash spare=wan2.2-t2i-flash"),
    "film": ("video", "wan=wan2.5-t2v-preview"),
    "seedream": ("image", "ark=doubao-seedream-4-0-250828"),
    "seedance": ("video", "ark=doubao-seedance-1-0-pro-250528"),
    "flare": ("image", "openai=gpt-image-2.6-flare"),
    "waves": ("video", "openai=video:sim-video"),
    "graph": ("image", "studio=txt2img"),
    "sdxl": ("image", "webui=sdxl"),
}

B: dict[str, object] = {"prompt": "a red kite over wheat", "width": 512, "height": 512, "seed": 7, "image_count": 1}
V: dict[str, object] = {
    "type": "video", "model": "seedance", "prompt": "a paper boat in rain", "duration_s": 5, "resolution": "480p",
}  # fmt: skip
PLAIN: dict[str, object] = {**B, "model": "picture"}
FILM: dict[str, object] = {**V, "model": "film"}
GRAPH: dict[str, object] = {**B, "model": "graph", "steps": 20, "cfg_scale": 7, "sampler": "euler_a"}
WEBUI: dict[str, object] = {**B, "model": "sdxl", "steps": 20, "cfg_scale": 7, "sampler": "euler_a"}
WAVES: dict[str, object] = {**V, "model": "waves", "duration_s": 1}
FLARE: dict[str, object] = {"model": "flare", "prompt": "a red kite over wheat", "width": 512, "height": 640}
GROUP: dict[str, object] = {"model": "seedream", "prompt": "a red kite over wheat", "width": 960, "height": 1024}


def _offer(providers: str) -> str:
    pairs = (one.split("=") for one in providers.split())
    return ", ".join(f'{{ name = "{name}", model = "{model}" }}' for name, model in pairs)


def toml(url: str, more: str = "") -> str:
    """A configuration with every adapter over the simulator at `url`."""
    parts = [
        _PROVIDER.format(name=name, adapter=adapter, url=url, key=f'api_key_env = "{key}"' if key else "")
        for name, (adapter, key) in _PROVIDERS.items()
    ]
    parts += [
        _MODEL.format(name=name, type=type_, providers=_offer(providers))
        for name, (type_, providers) in _MODELS.items()
    ]
    return "".join([*parts, _LIMITS, more])


@dataclass
class Case:
    """One gateway: what a user calls, what a worker does, what the vendor saw."""

    sim: Simulator
    service: Service
    world: World
    settings: Settings

    def post(self, body: object, *, idem: str | None = None, who: str | None = None) -> str:
        """The id of a task that was accepted with a 202."""
        return self.service.made(body, idem=idem, who=who)

    def see(self, task_id: str, *, who: str | None = None) -> Any:  # noqa: ANN401  JSON
        """The task as its user sees it."""
        got = self.service.get(f"/v1/tasks/{task_id}", who=who)
        assert got.status_code == 200, got.text
        return got.json

    def row(self, task_id: str) -> Row:
        """The row behind it."""
        return self.world.row(uuid_of(task_id))

    def script(self, *rules: dict[str, object]) -> None:
        """Rules for the simulator."""
        self.sim.world.faults.add(list(rules))

    def totals(self, vendor: str) -> dict[str, int]:
        """What the vendor counted."""
        return self.sim.world.ledger.totals().get(vendor, {"submit": 0, "accepted": 0, "query": 0, "fetch": 0})

    def poll(self, provider: str, kind: Kind) -> None:
        """One round of a provider's chain, everything being due."""
        self.world.sql("update tasks set wake_at = now() where stage = 'generating'")
        with self.world.rt.db.unit_of_work() as uow:
            version = line.restart_wave(uow, provider, kind)
        waves.round_of(self.world.rt, provider, kind, version)

    def step(self, task_id: str) -> str:
        """The next thing a worker would do for the task; the status it then has."""
        row = self.row(task_id)
        id_: UUID = row["id"]
        if row["status"] == "PENDING":
            self.world.sql("update tasks set wake_at = now() where id = :id", id=id_)
            self.world.submit(id_)
        elif row["stage"] == "generating":
            self.poll(row["provider"], Kind(row["type"]))
        elif row["stage"] == "fetching":
            self.world.fetch(id_)
        elif row["stage"] == "submitting":
            reconciling.reconcile(self.world.rt, id_, row["version"])
        return str(self.row(task_id)["status"])

    def end(self, task_id: str, *, who: str | None = None) -> Any:  # noqa: ANN401  JSON
        """Step until the task is final; as its user then sees it."""
        until = time.monotonic() + 20
        while self.step(task_id) not in FINAL:
            assert time.monotonic() < until, self.row(task_id)
        return self.see(task_id, who=who)

    def play(self, body: object, *, idem: str | None = None, who: str | None = None) -> Any:  # noqa: ANN401  JSON
        """Post and step to the end."""
        return self.end(self.post(body, idem=idem, who=who), who=who)

    def file(self, task: Any, n: int = 0) -> Got:  # noqa: ANN401  JSON
        """The bytes behind our own link."""
        got = self.service.get(task["outputs"][n]["url"])
        if got.status_code in (302, 303, 307):
            got = self.service.bare(got.headers["Location"])
        return got

    @staticmethod
    def fetched_from(url: str) -> bytes:
        """The bytes behind a vendor's link."""
        answer = requests.get(url, timeout=10)
        answer.raise_for_status()
        return answer.content

    def calls(self, task_id: str) -> list[Row]:
        """The lines of the task's upstream calls, in order."""
        return self.service.sql(
            "select * from upstream_calls where cast(:id as uuid) = any(task_ids) order by id",
            id=str(uuid_of(task_id)),
        )


@contextmanager
def playing(make_settings: MakeSettings, sim: Simulator, more: str = "") -> Iterator[Case]:
    """A case over `sim`, with `more` at the end of its configuration."""
    settings = make_settings(toml(sim.url, more), **KEYS)
    for service in running(settings):
        world = World.build(settings)
        world.rt.db.close()
        world.rt = build(settings, pool=4)
        yield Case(sim=sim, service=service, world=world, settings=settings)
        world.rt.db.close()


def bought(task: Any) -> tuple[str, int]:  # noqa: ANN401  JSON
    """(status, what it cost): how most cases end."""
    return task["status"], task["cost"]["micros"]


def failed(task: Any) -> tuple[str, str | None, int]:  # noqa: ANN401  JSON
    """(status, code, what it cost)."""
    return task["status"], (task["error"] or {}).get("code"), task["cost"]["micros"]
