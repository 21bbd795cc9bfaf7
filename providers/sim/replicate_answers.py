"""How Replicate describes a prediction, and a file that was uploaded.

May not know HTTP. Invariant: a prediction that failed is told like any other, with a sentence as its only reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from providers.sim.faults import NO_FAULT, Fault
from providers.sim.ledger import Job, State

Links = Callable[[Job, int], str]
"""(job, output's index) -> its link."""

WORDS: Mapping[State, str] = {
    State.PENDING: "starting",
    State.RUNNING: "processing",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELED: "canceled",
}
SENSITIVE = "The input or output was flagged as sensitive. Please try again with different inputs. (E005)"
_BLACKED = "NSFW content detected. Try running it again, or try a different prompt."


def word_of(job: Job, now: float) -> str:
    """Return the status at `now`. A deadline that passes before the start aborts, one that passes later cancels."""
    deadline = job.order.extra.get("deadline_at")
    if isinstance(deadline, float) and deadline <= now and deadline < min(job.ends_at, job.canceled_at):
        return "aborted" if deadline < job.starts_at else "canceled"
    return WORDS[job.state(now)]


def prediction(
    job: Job, now: float, base: str, links: Links, told: Fault = NO_FAULT, *, ttl_s: float
) -> dict[str, object]:
    """Return a prediction as it is at `now`; its data is gone `ttl_s` after its end."""
    order = job.order
    word = told.status_word or word_of(job, now)
    removed = word in ("succeeded", "failed", "canceled") and now >= min(job.ends_at, job.canceled_at) + ttl_s
    at = f"{base}/v1/predictions/{job.id}"
    finished = word in ("succeeded", "failed")
    deadline = order.extra.get("deadline_at")
    return {
        "id": job.id,
        "model": order.model,
        "version": order.extra["version"],
        "status": word,
        "input": {} if removed else order.extra["input"],
        "output": None if removed else _output(job, now, links, word, told),
        "logs": "" if removed else _logs(job, word),
        "error": _sentence(job) if word == "failed" else None,
        "metrics": {"predict_time": round(job.ends_at - job.starts_at, 6)} if finished else {},
        "source": "api",
        "data_removed": removed,
        "deadline": _when(deadline) if isinstance(deadline, float) else None,
        "created_at": _when(job.created_at),
        "started_at": _when(job.starts_at) if job.starts_at <= now else None,
        "completed_at": _when(job.ends_at) if finished else None,
        "urls": {"get": at, "cancel": f"{at}/cancel", "web": f"https://replicate.com/p/{job.id}"},
    }


def _when(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _output(job: Job, now: float, links: Links, word: str, told: Fault) -> object:
    """The files: a text for one, a list for several, which grows while the model works."""
    if word not in ("processing", "succeeded") or told.no_payload:
        return None
    if job.order.extra["one"]:
        return links(job, 0) if word == "succeeded" or now >= job.ends_at else None
    there = job.good
    if word == "processing" and now < job.ends_at:
        part = (now - job.starts_at) / (job.ends_at - job.starts_at) if math.isfinite(job.ends_at) else 0.0
        there = int(there * part)
    return [links(job, index) for index in range(there)] or ([] if word == "succeeded" else None)


def _logs(job: Job, word: str) -> str:
    if word == "succeeded" and job.good < job.order.n:
        return "".join(f"NSFW content detected in image {index}\n" for index in range(job.good, job.order.n))
    return "" if word == "starting" else f"Using seed: {job.order.seed}\n"


def _sentence(job: Job) -> str:
    """Why a prediction failed. The script's codes are in it where this vendor writes codes."""
    code, message = job.failure or ("", "")
    if job.fault.partial == 0:
        return _BLACKED
    if code == "DataInspectionFailed":
        return SENSITIVE
    return f"{message} ({code})" if code.startswith("E") and code[1:].isdecimal() else message


def upload(name: str, size: int, media_type: str, base: str, now: float) -> dict[str, object]:
    """Return what is told of a file that was uploaded."""
    return {
        "id": name,
        "name": "content",
        "content_type": media_type,
        "size": size,
        "etag": name,
        "checksums": {},
        "metadata": {},
        "created_at": _when(now),
        "expires_at": _when(now + 86_400),
        "urls": {"get": f"{base}/v1/files/{name}"},
    }
