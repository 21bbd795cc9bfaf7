"""How Ark describes what it made: a video task, the images of a call, the events of a stream.

May not know HTTP. Invariant: an image that failed is an element with `error`, never one without a link.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

from providers.sim import clips, directives, pictures
from providers.sim.faults import Fault
from providers.sim.ledger import Job, State

Links = Callable[[Job, int], str]
"""(job, output's index) -> its link."""

QUEUED, RUNNING, SUCCEEDED, FAILED = "queued", "running", "succeeded", "failed"
CANCELLED, EXPIRED = "cancelled", "expired"
WORDS: Mapping[State, str] = {
    State.PENDING: QUEUED,
    State.RUNNING: RUNNING,
    State.SUCCEEDED: SUCCEEDED,
    State.FAILED: FAILED,
    State.CANCELED: CANCELLED,
}
# What the script says in no vendor's words.
_CODES = {
    "": "InternalServiceError",
    "InternalError": "InternalServiceError",
    "InternalError.Algo": "InternalServiceError",
}
_FILTERED = "DataInspectionFailed"
_CHINA = timezone(timedelta(hours=8))


def task_id(job: Job) -> str:
    """Return the vendor's name of a job, which begins with its local time."""
    stamp = datetime.fromtimestamp(job.created_at, UTC).astimezone(_CHINA).strftime("%Y%m%d%H%M%S")
    return f"cgt-{stamp}-{UUID(job.id).hex}"


def job_id(name: str) -> str:
    """Return the id of the job that `task_id` gave this name, '' for anything else."""
    try:
        return str(UUID(hex=name.rpartition("-")[2])) if name.startswith("cgt-") else ""
    except ValueError:
        return ""


def code_of(code: str, side: str) -> str:
    """Return a code of the script in this vendor's words; `side` is such as `OutputVideo`."""
    return f"{side}SensitiveContentDetected" if code == _FILTERED else _CODES.get(code, code)


def expires_at(job: Job) -> float:
    """Return when a task that has not ended is given up, in seconds since the epoch."""
    expires_s = job.order.extra.get("expires_s")
    return job.created_at + expires_s if isinstance(expires_s, int) else math.inf


def word_of(job: Job, now: float) -> str:
    """Return the state of a task at `now`."""
    state = job.state(now)
    live = state in (State.PENDING, State.RUNNING)
    return EXPIRED if live and now >= expires_at(job) else WORDS[state]


def task(job: Job, now: float, links: Links, told: Fault) -> dict[str, object]:
    """Return a task as a query, the list and a callback show it at `now`."""
    order, extra, word = job.order, job.order.extra, word_of(job, now)
    moments = (job.created_at, job.starts_at, job.ends_at, job.canceled_at)
    shown: dict[str, object] = {
        "id": task_id(job),
        "model": order.model,
        "status": told.status_word or word,
        "created_at": int(job.created_at),
        # Does not move between the start and the end, however long that takes.
        "updated_at": int(max(at for at in moments if at <= max(now, job.created_at))),
        "service_tier": extra["service_tier"],
        "execution_expires_after": extra["expires_s"],
    }
    if extra["safety_identifier"] is not None:
        shown["safety_identifier"] = extra["safety_identifier"]
    if word == FAILED and job.failure is not None:
        code, message = job.failure
        shown["error"] = {"code": code_of(code, "OutputVideo"), "message": message}
    if word == SUCCEEDED and told.status_word is None:
        shown |= _made(job, links, told)
    return shown


def _made(job: Job, links: Links, told: Fault) -> dict[str, object]:
    order, extra = job.order, job.order.extra
    tokens = order.width * order.height * (clips.FPS * order.duration_s + 1) / 1024
    content = {} if told.no_payload else {"video_url": links(job, 0)}
    if extra["last_frame"]:
        content["last_frame_url"] = links(job, 0)
    return {
        "content": content,
        "usage": {"completion_tokens": round(tokens), "total_tokens": round(tokens)},
        "seed": order.seed,
        "resolution": extra["resolution"],
        "ratio": "16:9" if extra["ratio"] == "adaptive" else extra["ratio"],
        "duration": int(order.duration_s),
        "framespersecond": clips.FPS,
        "generate_audio": extra["generate_audio"],
    }


def images(job: Job, links: Links) -> dict[str, object]:
    """Return the answer to a picture's submit, after the pictures have been made."""
    if job.fault.no_payload:
        return {"model": job.order.model, "created": int(job.created_at), "data": []}
    return {
        "model": job.order.model,
        "created": int(job.created_at),
        "data": [_image(job, index, links) for index in range(job.order.n)],
        "usage": _usage(job),
    }


def _usage(job: Job) -> dict[str, object]:
    tokens = job.good * job.order.width * job.order.height // 256
    used = {"generated_images": job.good, "output_tokens": tokens, "total_tokens": tokens}
    references = job.order.extra["references"]
    return {**used, "input_images": references} if references else dict(used)


def _image(job: Job, index: int, links: Links) -> dict[str, object]:
    order = job.order
    if index >= job.good:
        code = code_of(_FILTERED, "OutputImage")
        return {"error": {"code": code, "message": "The image may contain sensitive information."}}
    if order.extra["response_format"] == "url":
        return {"url": links(job, index), "size": order.extra["size"]}
    made = pictures.picture(
        directives.bare(order.prompt), order.seed + index, order.width, order.height, order.image_type
    )
    return {"b64_json": base64.b64encode(made).decode("ascii"), "size": order.extra["size"]}


def stream(job: Job, links: Links) -> Iterator[bytes]:
    """Yield the answer to a streaming submit: one event for each image, the bill, the end mark."""
    base = {"model": job.order.model, "created": int(job.created_at)}
    for index in range(job.order.n):
        image = _image(job, index, links)
        yield _event(
            "partial_failed" if "error" in image else "partial_succeeded", base | {"image_index": index} | image
        )
    yield _event("completed", base | {"usage": _usage(job)})
    yield b"data: [DONE]\n\n"


def _event(name: str, fields: Mapping[str, object]) -> bytes:
    kind = f"image_generation.{name}"
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n".encode()
