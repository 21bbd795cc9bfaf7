"""DashScope's task list: filters, pages, newest first.

May not know HTTP. Invariant: a page costs no more than the jobs of its own account in its own time
window, and without a status or model filter no more than itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from providers.sim.dashscope_orders import NAME
from providers.sim.dashscope_tasks import VENDOR_ZONE, task_times
from providers.sim.ledger import Job, State, now_s
from providers.sim.world import World

_DAY_S = 86_400
_MOST_ON_PAGE = 100


class BadFilterError(ValueError):
    """A filter or page number makes no sense."""


def page(world: World, account: str, asked: Mapping[str, str]) -> dict[str, object]:
    """Return one page of an account's tasks. Raises BadFilterError.

    The page stands under `data`, as documented, and once more under `tasks`, which SDK 2.x reads.
    """
    number = _whole(asked, "page_no", 1, 1_000_000_000, 1)
    size = _whole(asked, "page_size", 1, _MOST_ON_PAGE, 10)
    now = now_s()
    jobs, total = _found(world, account, asked, now, number, size)
    return {
        "page_no": number,
        "page_size": size,
        "total": total,
        "total_page": -(-total // size),
        "data": [_line(job, now) for job in jobs],
        "tasks": [_task(job, now) for job in jobs],
    }


def _found(
    world: World, account: str, asked: Mapping[str, str], now: float, number: int, size: int
) -> tuple[Sequence[Job], int]:
    """Return the jobs on the page, newest first, and how many there are on all pages."""
    skip = (number - 1) * size
    if asked.get("task_id"):
        ttl_s = world.config.job_ttl_s
        one = world.ledger.find(asked["task_id"], NAME, account, ttl_s)
        found = [] if one is None else [one]
        return found[skip : skip + size], len(found)
    start, end = _window(asked, now)
    start = max(start, now - world.config.job_ttl_s)
    jobs, low, high = world.ledger.window(NAME, account, start, end)
    model, status = asked.get("model_name"), _status(asked)
    if not model and status is None:
        first = max(low, high - skip - size)
        return jobs[first : max(low, high - skip)][::-1], high - low
    matching = [
        job
        for job in (jobs[place] for place in range(high - 1, low - 1, -1))
        if (not model or job.order.model == model) and (status is None or job.state(now) is status)
    ]
    return matching[skip : skip + size], len(matching)


def _status(asked: Mapping[str, str]) -> State | None:
    word = asked.get("status")
    if not word:
        return None
    try:
        return State(word)
    except ValueError as error:
        message = f"status {word!r} must be one of {', '.join(State)}"
        raise BadFilterError(message) from error


def _whole(asked: Mapping[str, str], name: str, low: int, high: int, default: int) -> int:
    text = asked.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,10}", text) or not low <= int(text) <= high:
        message = f"{name} {text!r} must be an integer from {low} to {high}"
        raise BadFilterError(message)
    return int(text)


def _window(asked: Mapping[str, str], now: float) -> tuple[float, float]:
    """Return the time window as [start, end) in seconds since the epoch; the last day if unsaid."""
    start, end = _moment(asked, "start_time"), _moment(asked, "end_time")
    # `end_time` names a second and includes it.
    until = end + 1 if end is not None else (now + 1 if start is None else start + _DAY_S)
    since = start if start is not None else until - _DAY_S
    if until <= since or until - since > _DAY_S + 1:
        message = "end_time must be after start_time, by at most 24 hours"
        raise BadFilterError(message)
    return since, until


def _moment(asked: Mapping[str, str], name: str) -> float | None:
    text = asked.get(name)
    if not text:
        return None
    try:
        if not re.fullmatch(r"\d{14}", text):
            raise ValueError(text)  # noqa: TRY301 - the same sentence for form and value
        return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=VENDOR_ZONE).timestamp()
    except ValueError as error:
        message = f"{name} {text!r} must be in the form YYYYMMDDhhmmss"
        raise BadFilterError(message) from error


def _millis(at_s: float) -> int:
    return int(at_s * 1000)


def _line(job: Job, now: float) -> dict[str, object]:
    """Return a task as documented for the list: times as integers, no result links."""
    line: dict[str, object] = {
        "task_id": job.id,
        "status": job.state(now),
        "model_name": job.order.model,
        "region": "cn-beijing",
        "request_id": job.id,
        "gmt_create": _millis(job.created_at),
        "api_key_id": job.order.account,
        "caller_uid": "1",
        "caller_parent_id": "1",
        "user_api_unique_key": f"apikey:v1:aigc:{job.order.model}",
    }
    if job.starts_at <= min(now, job.canceled_at):
        line["start_time"] = _millis(job.starts_at)
    end = min(job.ends_at, job.canceled_at)
    if end <= now:
        line["end_time"] = _millis(end)
    return line


def _task(job: Job, now: float) -> dict[str, object]:
    return {
        "task_id": job.id,
        "task_status": job.state(now),
        "model_name": job.order.model,
        **task_times(job, now),
    }
