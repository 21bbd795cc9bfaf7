"""Jobs, an adapter with short limits and scripted answers, shared by the tests of the Ark adapter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from models.contract import resolve
from models.presets import Presets
from models.settings import Polling, ProviderSettings, Retries
from providers.ark import Ark
from providers.ark_models import MODELS
from providers.port import Job
from tests.contract.raw_server import Conn, RawServer, Script

KEY = "ark-for-the-tests-0123456789"
TASKS = "/api/v3/contents/generations/tasks"
PICTURE, CLIP = "doubao-seedream-4-5-251128", "doubao-seedance-1-0-pro-250528"
FRAME = "https://h.example/a.png"
PAYLOADS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "payloads" / "ark").glob("*.json"))
}
Body = Mapping[str, object]


def job(model: str = CLIP, **asked: object) -> Job:
    """A job as the contract makes it, with a receipt; with a first frame where the model cannot do without."""
    bounds = MODELS[model].bounds
    wanted: dict[str, object] = {"prompt": "a red cup"}
    wanted |= dict.fromkeys(bounds.required & {"first_frame"}, FRAME)
    none = Presets.from_tables({})
    found = resolve(bounds.kind, wanted | asked, bounds, none, strict=False, draw=lambda _low, _high: 5)
    return Job(
        task_id="task_x",
        attempt=1,
        kind=bounds.kind,
        model=model,
        effective=found.effective,
        reference="task_x.1",
        receipt="cgt-1",
        claimed_at_s=1_796_000_000,
    )


def adapter(url: str, *, list_call: bool = True) -> Ark:
    settings = ProviderSettings(
        adapter="ark", base_url=url, connect_s=1, submit_read_s=1, query_read_s=1, list_call=list_call
    )
    return Ark("ark", settings, KEY, retries=Retries(reads=0, async_submit=0, sync_submit=0), polling=Polling())


def answering(status: int, body: object) -> Script:
    return scripted(lambda _method, _path, _query: (status, body))


def scripted(say: Callable[[str, str, dict[str, list[str]]], tuple[int, object]]) -> Script:
    """(method, path, query) -> status and body; None as body is an empty one."""

    def script(conn: Conn) -> None:
        while request := conn.request():
            method, target = request.split(b" ")[:2]
            parts = urlsplit(target.decode())
            status, body = say(method.decode(), parts.path, parse_qs(parts.query))
            conn.answer(b"" if body is None else json.dumps(body).encode(), f"{status} x", close=False)

    return script


def lines(server: RawServer) -> list[str]:
    return [" ".join(request.decode("latin-1").split(" ")[:2]) for request in server.requests]


def task(receipt: str, status: str, **more: object) -> dict[str, object]:
    return {"id": receipt, "model": CLIP, "status": status, "created_at": 1_796_000_000, **more}
