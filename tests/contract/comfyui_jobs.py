"""Jobs, an adapter that repeats nothing and a scripted server, shared by the tests of the ComfyUI adapter."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from models.contract import Kind
from models.lifecycle import Finished, Observation, Output, Working
from models.settings import Polling, ProviderSettings, Retries
from models.workflows import WorkflowSettings
from providers.comfyui import ComfyUI
from providers.port import Accepted, Job
from tests.contract.comfyui_exchanges import PAYLOADS
from tests.contract.raw_server import Conn, Script

KEY = "proxy-key-for-the-tests-0123456789"
ID = "00000000-0000-4000-8000-00000000abcd"
PAYLOAD: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(PAYLOADS.glob("*.json"))
    if not path.stem.startswith("exchanges_")
}
IMAGE: dict[str, object] = {
    "prompt": "a red cup",
    "negative_prompt": "cracks",
    "width": 640,
    "height": 512,
    "steps": 12,
    "cfg_scale": 5.5,
    "sampler": "euler_a_karras",
    "seed": 7,
    "image_count": 2,
}
CLIP: dict[str, object] = {
    "prompt": "it spins",
    "negative_prompt": "",
    "resolution": "480p",
    "ratio": "9:16",
    "duration_s": 3,
    "seed": 9,
}
IDLE: dict[str, list[object]] = {"queue_running": [], "queue_pending": []}
_COUNT = itertools.count()
SMALL = {**IMAGE, "width": 64, "height": 96, "image_count": 1}
STUCK = "a red cup [[sim: stuck]]"
Answers = Callable[[str, str], tuple[int, object]]
"""(method, path) -> status, body."""


def job(model: str = "txt2img", *, attempt: int = 1, **effective: object) -> Job:
    kind = Kind.VIDEO if "video" in model else Kind.IMAGE
    return Job(
        task_id="task_x",
        attempt=attempt,
        kind=kind,
        model=model,
        effective={**(IMAGE if kind is Kind.IMAGE else CLIP), **effective},
        reference=f"task_x.{attempt}",
        receipt=ID,
    )


def adapter(
    url: str, workflows: Mapping[str, WorkflowSettings] | None = None, *, key: str = KEY, **polling: object
) -> ComfyUI:
    settings = ProviderSettings(
        adapter="comfyui",
        base_url=url,
        connect_s=5,
        submit_read_s=5,
        query_read_s=5,
        workflows=workflows or {},
    )
    quick = Retries(reads=0, async_submit=0)
    return ComfyUI("studio", settings, key, retries=quick, polling=Polling(**polling))  # type: ignore[arg-type]  # a test's own keywords


def answering(answers: Answers) -> Script:
    """A server that answers by method and path; a text goes out as it is."""

    def script(conn: Conn) -> None:
        while request := conn.request():
            method, path = request.decode("latin-1").split(" ")[:2]
            status, body = answers(method, path)
            text = body if isinstance(body, str) else json.dumps(body)
            conn.answer(text.encode(), f"{status} x", close=False)

    return script


def saying(payload: Mapping[str, Any]) -> Script:
    """A server with nothing in its queue that answers all else with a payload."""

    def answers(_method: str, path: str) -> tuple[int, object]:
        return (200, IDLE) if path == "/queue" else (payload["http_status"], payload["body"])

    return answering(answers)


def asked(request: bytes) -> tuple[str, str, Any]:
    """Method, path and JSON of a request."""
    head, _, body = request.partition(b"\r\n\r\n")
    method, path = head.decode("latin-1").split(" ")[:2]
    return method, path, json.loads(body) if body else None


# --- at the simulator ---


def new_job(prompt: str = "a red cup", model: str = "txt2img", **effective: object) -> Job:
    """A job that nobody had before."""
    kind = Kind.VIDEO if "video" in model else Kind.IMAGE
    given = {**(CLIP if kind is Kind.VIDEO else SMALL), "prompt": prompt, **effective}
    number = next(_COUNT)
    return Job(
        task_id=f"task_{number}", attempt=1, kind=kind, model=model, effective=given, reference=f"task_{number}.1"
    )


def taken(provider: ComfyUI, job: Job) -> Job:
    """The job with its receipt."""
    outcome = provider.submit(job)
    assert isinstance(outcome, Accepted), outcome
    return replace(job, receipt=outcome.receipt)


def seen(provider: ComfyUI, job: Job) -> Observation:
    """One look at one job."""
    assert job.receipt is not None
    return provider.observe([job.receipt], job.kind)[job.receipt]


def ended(provider: ComfyUI, job: Job) -> Observation:
    """The first observation that is more than "working"."""
    end = time.monotonic() + 10
    while isinstance(found := seen(provider, job), Working):
        assert time.monotonic() < end, "the job did not end"
    return found


def outputs(found: Observation) -> tuple[Output, ...]:
    """What a finished job made."""
    assert isinstance(found, Finished)
    return found.outputs
