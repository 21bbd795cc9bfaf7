"""Jobs and an adapter with short limits, shared by the tests of the DashScope adapter."""

from __future__ import annotations

import json
from pathlib import Path

from models.contract import Kind, resolve
from models.presets import Presets
from models.settings import Polling, ProviderSettings, Retries
from providers.dashscope import DashScope
from providers.dashscope_models import MODELS
from providers.port import Job
from tests.contract.raw_server import Conn, Script

KEY = "sk-for-the-tests-0123456789"
PAYLOADS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "payloads" / "dashscope").glob("*.json"))
}
IMAGE = {"prompt": "a red cup", "width": 1024, "height": 768, "seed": 7, "image_count": 2}
CLIP = {"prompt": "it spins", "duration_s": 5, "resolution": "480p", "ratio": "16:9", "seed": 9}


def job(model: str = "wan2.2-t2i-flash", **effective: object) -> Job:
    kind = MODELS[model].bounds.kind
    return Job(
        task_id="task_x",
        attempt=1,
        kind=kind,
        model=model,
        effective={**(IMAGE if kind is Kind.IMAGE else CLIP), **effective},
        receipt="r-1",
    )


def resolved(model: str, prompt: str) -> Job:
    """A job with the contract's own defaults."""
    bounds = MODELS[model].bounds
    none = Presets.from_tables({})
    found = resolve(bounds.kind, {"prompt": prompt}, bounds, none, strict=False, draw=lambda _low, _high: 5)
    return Job(task_id="t", attempt=1, kind=bounds.kind, model=model, effective=found.effective)


def adapter(url: str, *, list_call: bool = True, reads: int = 0, **polling: object) -> DashScope:
    settings = ProviderSettings(
        adapter="dashscope",
        base_url=url,
        connect_s=1,
        submit_read_s=1,
        query_read_s=1,
        list_call=list_call,
    )
    return DashScope(
        "wan",
        settings,
        KEY,
        retries=Retries(reads=reads, async_submit=0),
        polling=Polling(**polling),  # type: ignore[arg-type]  # a test's own keywords
    )


def answering(status: int, body: object) -> Script:
    def script(conn: Conn) -> None:
        while conn.request():
            conn.answer(json.dumps(body).encode(), f"{status} x", close=False)

    return script
