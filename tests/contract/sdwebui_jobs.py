"""Jobs, an adapter with short limits and a server with lists, shared by the tests of the WebUI adapter."""

from __future__ import annotations

import json
from pathlib import Path

from models.contract import Kind
from models.settings import Polling, ProviderSettings, Retries
from providers.port import Job
from providers.sdwebui import SdWebui
from providers.sim.sdwebui_lists import NEW
from tests.contract.raw_server import Conn

LOGIN = "operator:let-me-in"
PAYLOADS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "payloads" / "sdwebui").glob("*.json"))
}
EFFECTIVE = {
    "prompt": "a red bicycle",
    "negative_prompt": "blur",
    "width": 512,
    "height": 640,
    "steps": 20,
    "cfg_scale": 7.5,
    "sampler": "dpmpp_2m_karras",
    "seed": 42,
    "image_count": 2,
}


def job(model: str = "sdxl", reference: str = "task_x.1", **effective: object) -> Job:
    return Job(
        task_id="task_x",
        attempt=1,
        kind=Kind.IMAGE,
        model=model,
        effective={**EFFECTIVE, **effective},
        reference=reference,
        receipt=reference,
    )


def adapter(url: str, key: str = "", *, read_s: float = 3) -> SdWebui:
    settings = ProviderSettings(
        adapter="sdwebui", base_url=url, connect_s=1, submit_read_s=read_s, query_read_s=1, resubmit="safe"
    )
    retries = Retries(reads=0, async_submit=0, sync_submit=0)
    return SdWebui("gpu", settings, key, retries=retries, polling=Polling())


class Server:
    """Lists as a new server has them, and one answer to every generation."""

    def __init__(self, status: int, body: object, lists: dict[str, tuple[int, object]] | None = None) -> None:
        self.status, self.body = status, body
        self.lists = {"samplers": (200, NEW.sampler_list()), "schedulers": (200, NEW.scheduler_list()), **(lists or {})}
        self.asked: list[tuple[str, dict[str, object]]] = []

    def __call__(self, conn: Conn) -> None:
        while request := conn.request():
            head, _, body = request.partition(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            name = path.rpartition("/")[2]
            status, answer = self.lists.get(name, (self.status, self.body))
            if name not in self.lists:
                self.asked.append((path, json.loads(body)))
            conn.answer(json.dumps(answer).encode(), f"{status} x", close=False)
