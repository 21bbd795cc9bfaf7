"""How fal's queue describes a request: its state, its result, its errors in both shapes, its callback.

May not know HTTP. Invariant: `logs` is there in every state but IN_QUEUE, null where nobody asked: the official client
breaks without it.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from PIL import Image

from providers.sim import clips, pictures
from providers.sim.faults import Fault
from providers.sim.ledger import Job, Order, State

Links = Callable[[Job, int], str]
"""(job, output's index) -> its link."""

WORDS: Mapping[State, str] = {
    State.PENDING: "IN_QUEUE",
    State.RUNNING: "IN_PROGRESS",
    State.SUCCEEDED: "COMPLETED",
    State.FAILED: "COMPLETED",
}
# What the script says, in this vendor's types.
TYPES: Mapping[str, str] = {
    "": "internal_error",
    "InternalError": "internal_error",
    "InternalError.Algo": "internal_error",
    "DataInspectionFailed": "content_policy_violation",
    "InvalidParameter": "value_error",
}
_OF_THE_INPUT = frozenset(
    {
        "content_policy_violation", "value_error", "missing", "literal_error", "int_type", "less_than_equal",
        "greater_than_equal", "image_load_error",
    }
)  # fmt: skip


def detail(kind: str, message: str, field: str = "prompt") -> dict[str, object]:
    """Return an error's body: a list for what is wrong with the input, flat for what the platform met."""
    if kind not in _OF_THE_INPUT:
        return {"detail": message, "error_type": kind}
    where = ["body", field]
    url = f"https://docs.fal.ai/errors#{kind}"
    return {"detail": [{"loc": where, "msg": message, "type": kind, "url": url, "ctx": {}, "input": None}]}


def urls(base: str, job: Job) -> dict[str, object]:
    """Return the three addresses: of the app, not of the model."""
    at = f"{base}/{job.order.extra['app']}/requests/{job.id}"
    return {"response_url": at, "status_url": f"{at}/status", "cancel_url": f"{at}/cancel"}


def failure(job: Job) -> tuple[int, dict[str, object]] | None:
    """Return status and body of a result that came to nothing; None for a good one."""
    wrong = job.order.extra["wrong"]
    if isinstance(wrong, tuple):
        return 422, detail(wrong[1], wrong[2], wrong[0])
    if job.failure is None:
        return None
    code, message = job.failure
    kind = TYPES.get(code, code)
    status = 422 if kind in _OF_THE_INPUT else 504 if kind.endswith("timeout") else 500
    return status, detail(kind, message)


def status(job: Job, now: float, base: str, told: Fault, *, logs: bool) -> dict[str, object]:
    """Return a request's state. A refused input is COMPLETED like any other; a platform's error is told here too."""
    word = told.status_word or WORDS[job.state(now)]
    shown: dict[str, object] = {"status": word, "request_id": job.id, **urls(base, job)}
    if word == "IN_QUEUE":
        return shown | {"queue_position": 0}
    started = datetime.fromtimestamp(job.starts_at, UTC).isoformat().replace("+00:00", "Z")
    line = {"message": "1/28", "level": "INFO", "source": "USER", "timestamp": started}
    shown["logs"] = [line] if logs else None
    if word == "COMPLETED":
        shown["metrics"] = {"inference_time": round(job.ends_at - job.starts_at, 3)}
        failed = failure(job)
        if failed is not None and "error_type" in failed[1]:
            shown |= {"error": failed[1]["detail"], "error_type": failed[1]["error_type"]}
    return shown


def result(job: Job, links: Links, told: Fault) -> dict[str, object]:
    """Return the model's own output. What the safety checker flags is a black picture in its place."""
    order = job.order
    if told.no_payload:
        return {"timings": {}, "seed": order.seed, "prompt": order.prompt}
    if order.kind == "video":
        return {"video": {"url": links(job, 0), "content_type": clips.MEDIA_TYPE, "file_name": "output.mp4"}}
    shown = [links(job, index) if index < job.good else _black(order) for index in range(order.n)]
    kind = pictures.MEDIA_TYPES[order.image_type]
    size = {"width": order.width, "height": order.height, "content_type": kind}
    return {
        "images": [{"url": url, **size} for url in shown],
        "timings": {"inference": round(job.ends_at - job.starts_at, 3)},
        "seed": order.seed,
        "has_nsfw_concepts": [index >= job.good for index in range(order.n)],
        "prompt": order.prompt,
    }


def _black(order: Order) -> str:
    out = io.BytesIO()
    Image.new("RGB", (order.width, order.height)).save(out, order.image_type)
    kind = pictures.MEDIA_TYPES[order.image_type]
    return f"data:{kind};base64,{base64.b64encode(out.getvalue()).decode()}"


def callback(job: Job, links: Links) -> dict[str, object]:
    """Return the body of the call that tells the end."""
    told: dict[str, object] = {"request_id": job.id, "gateway_request_id": job.id}
    failed = failure(job)
    if failed is not None:
        return told | {"status": "ERROR", "error": f"Invalid status code: {failed[0]}", "payload": failed[1]}
    return told | {"status": "OK", "payload": result(job, links, job.fault)}
