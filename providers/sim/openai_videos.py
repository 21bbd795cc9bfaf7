"""How OpenAI tells of a clip: its record, and pages of records.

May not know HTTP. Invariant: a clip that failed is a record like any other; its status says so, not HTTP's.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from providers.sim.faults import Fault
from providers.sim.ledger import Job, State
from providers.sim.openai_orders import RefusedError

_PREFIX = "video_"
_KEPT_S = 3_600
_WORDS = {
    State.PENDING: "queued",
    State.RUNNING: "in_progress",
    State.SUCCEEDED: "completed",
    State.FAILED: "failed",
    State.CANCELED: "cancelled",
}
_MOST = 100
_USUAL = 20


def id_of(job: Job) -> str:
    """Return the vendor's id of a job."""
    return _PREFIX + job.id.replace("-", "")


def job_id_of(video_id: str) -> str | None:
    """Return the job's own id, None for what cannot be one."""
    try:
        return str(uuid.UUID(video_id.removeprefix(_PREFIX))) if video_id.startswith(_PREFIX) else None
    except ValueError:
        return None


def record(job: Job, now: float, failure: tuple[str, str] | None, told: Fault) -> dict[str, object]:
    """Return a clip's record; `told` may change the status word, or say "completed" without an id."""
    state, order = job.state(now), job.order
    ended = state in (State.SUCCEEDED, State.FAILED)
    failed = failure if state is State.FAILED else None
    told_of: dict[str, object] = {
        "id": id_of(job),
        "object": "video",
        "model": order.model,
        "status": told.status_word or _WORDS[state],
        "progress": 100 if state is State.SUCCEEDED else _progress(job, now),
        "created_at": int(job.created_at),
        "completed_at": int(job.ends_at) if ended else None,
        "expires_at": int(job.ends_at) + _KEPT_S if state is State.SUCCEEDED else None,
        "prompt": order.prompt,
        "seconds": f"{order.duration_s:g}",
        "size": order.extra["size"],
        "remixed_from_video_id": None,
        "error": None if failed is None else {"code": failed[0], "message": failed[1]},
    }
    if told.no_payload and state is State.SUCCEEDED:
        del told_of["id"]
    return told_of


def _progress(job: Job, now: float) -> int:
    """Per cent done, at most 99 before the end."""
    if now <= job.starts_at or job.ends_at <= job.starts_at:
        return 0
    share = (min(now, job.ends_at) - job.starts_at) / (job.ends_at - job.starts_at)
    return min(99, int(100 * share))


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs of a list, and whether more follow."""

    jobs: list[Job]
    more: bool


def page(jobs: list[Job], asked: Mapping[str, str]) -> Page:
    """Return one page of `jobs` (oldest first). Raises RefusedError for a limit, order or cursor it cannot use."""
    order, limit = asked.get("order", "desc"), asked.get("limit", str(_USUAL))
    if order not in ("asc", "desc") or not limit.isdecimal() or not 0 < int(limit) <= _MOST:
        raise RefusedError(400, "invalid_value", f"Invalid 'limit' or 'order'; limit is 1 to {_MOST}.", "limit")
    found = jobs if order == "asc" else jobs[::-1]
    after = asked.get("after")
    if after is not None:
        place = next((n for n, job in enumerate(found) if id_of(job) == after), None)
        if place is None:
            raise RefusedError(404, "not_found", f"No video '{after[:60]}' to go on from.", "after")
        found = found[place + 1 :]
    return Page(found[: int(limit)], len(found) > int(limit))
