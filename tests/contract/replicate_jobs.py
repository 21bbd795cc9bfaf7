"""Jobs, an adapter with short limits and scripted answers, shared by the tests of the Replicate adapter."""

from __future__ import annotations

import json
from pathlib import Path

from models.contract import resolve
from models.presets import Presets
from models.settings import Polling, ProviderSettings, Retries
from providers.port import Job
from providers.replicate import Replicate
from providers.replicate_models import BOUNDS

KEY = "r8_for_the_tests_0123456789"
PICTURE, CLIP = "black-forest-labs/flux-dev", "bytedance/seedance-1-pro"
SDXL = "stability-ai/sdxl:7762fd07cf82c948538e41f63f77d685e02b063e37e496e96eefd46c929f9bdc"
FRAME = "https://h.example/a.png"
ID = "gw1abcdefghijklmnopqrstuvw"
AT = f"/v1/predictions/{ID}"
PAYLOADS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "payloads" / "replicate").glob("*.json"))
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
        receipt=ID,
        claimed_at_s=1_796_000_000,
    )


def adapter(url: str, *, list_call: bool = True) -> Replicate:
    settings = ProviderSettings(
        adapter="replicate", base_url=url, connect_s=1, submit_read_s=1, query_read_s=1, list_call=list_call
    )
    none = Retries(reads=0, async_submit=0, sync_submit=0)
    return Replicate("replicate", settings, KEY, retries=none, polling=Polling())
