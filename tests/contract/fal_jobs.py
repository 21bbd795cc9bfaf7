"""Jobs, an adapter with short limits and scripted answers, shared by the tests of the fal adapter."""

from __future__ import annotations

import json
from pathlib import Path

from models.contract import resolve
from models.presets import Presets
from models.settings import Polling, ProviderSettings, Retries
from providers.fal import Fal
from providers.fal_models import BOUNDS
from providers.port import Job

KEY = "kid-for-the-tests:secret-0123456789"
PICTURE, CLIP = "fal-ai/flux/dev", "fal-ai/kling-video/o3/pro/text-to-video"
FRAME = "https://h.example/a.png"
ID = "024ca5b1-45d3-4afd-883e-ad3abe2a1c4d"
RECEIPT = f"fal-ai/flux/{ID}"
AT = f"/fal-ai/flux/requests/{ID}"
PAYLOADS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "payloads" / "fal").glob("*.json"))
}


def job(model: str = PICTURE, **asked: object) -> Job:
    """A job as the contract makes it, with a receipt; with the picture that the model cannot do without."""
    bounds = BOUNDS[model]
    wanted: dict[str, object] = {"prompt": "a red cup"}
    wanted |= dict.fromkeys(bounds.required & {"first_frame", "image"}, FRAME)
    none = Presets.from_tables({})
    found = resolve(bounds.kind, wanted | asked, bounds, none, strict=False, draw=lambda _low, _high: 5)
    return Job(
        task_id="task_x",
        attempt=1,
        kind=bounds.kind,
        model=model,
        effective=found.effective,
        reference="task_x.1",
        receipt=RECEIPT,
        claimed_at_s=1_796_000_000,
    )


def adapter(url: str) -> Fal:
    settings = ProviderSettings(adapter="fal", base_url=url, connect_s=1, submit_read_s=1, query_read_s=1)
    return Fal("fal", settings, KEY, retries=Retries(reads=0, async_submit=0, sync_submit=0), polling=Polling())
