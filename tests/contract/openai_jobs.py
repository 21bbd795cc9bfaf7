"""Jobs and an adapter with short limits, shared by the tests of the OpenAI adapter."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from pathlib import Path

from PIL import Image

from models.contract import Kind
from models.settings import Polling, ProviderSettings, Retries
from providers.openai import OpenAI
from providers.openai_models import BOUNDS
from providers.port import Job

KEY = "sk-for-the-tests-0123456789"
PAYLOADS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "payloads" / "openai").glob("*.json"))
}
IMAGE = {"prompt": "a red cup", "width": 1024, "height": 768, "image_count": 2}
CLIP = {"prompt": "it spins", "duration_s": 8, "resolution": "720p", "ratio": "16:9"}


def png(mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new(mode, (4, 3)).save(out, "PNG")
    return out.getvalue()


def inline(content: bytes) -> str:
    return "data:image/png;base64," + b64encode(content).decode()


def job(model: str = "gpt-image-2.6-flare", **effective: object) -> Job:
    kind = BOUNDS[model].kind
    return Job(
        task_id="task_x",
        attempt=1,
        kind=kind,
        model=model,
        effective={**(IMAGE if kind is Kind.IMAGE else CLIP), **effective},
        reference="task_x.1",
        receipt="video_1",
    )


def adapter(url: str, key: str = KEY, *, list_call: bool = True) -> OpenAI:
    settings = ProviderSettings(
        adapter="openai", base_url=url, connect_s=1, submit_read_s=1, query_read_s=1, list_call=list_call
    )
    retries = Retries(reads=0, async_submit=0, sync_submit=0)
    return OpenAI("openai", settings, key, retries=retries, polling=Polling())
