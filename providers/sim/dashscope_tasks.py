"""How DashScope describes one task: its states, its results, its usage block.

May not know HTTP. Invariant: a picture that failed is an element without `url`, never an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone

from providers.sim.dashscope_models import MESSAGES, TEXT2IMAGE
from providers.sim.faults import Fault
from providers.sim.ledger import Job, State

Links = Callable[[Job, int], str]
"""(job, output's index) -> its link."""

# The vendor writes local times of China and says so nowhere in the text.
VENDOR_ZONE = timezone(timedelta(hours=8))
_FILTERED = {
    "code": "DataInspectionFailed",
    "message": "Output data may contain inappropriate content.",
}


def _time_text(at_s: float) -> str:
    local = datetime.fromtimestamp(at_s, UTC).astimezone(VENDOR_ZONE)
    return local.strftime("%Y-%m-%d %H:%M:%S.") + f"{local.microsecond // 1000:03d}"


def task_times(job: Job, now: float) -> dict[str, str]:
    """Return the times of a task that have come by now, as the vendor's texts."""
    times = {"submit_time": _time_text(job.created_at)}
    if job.starts_at <= min(now, job.canceled_at):
        times["scheduled_time"] = _time_text(job.starts_at)
    end = min(job.ends_at, job.canceled_at)
    if end <= now:
        times["end_time"] = _time_text(end)
    return times


def task_output(job: Job, now: float, links: Links, told: Fault) -> dict[str, object]:
    """Return `output` of a query; `told` may change the status word or leave the payload out."""
    state = job.state(now)
    output: dict[str, object] = {
        "task_id": job.id,
        "task_status": told.status_word or state,
        **task_times(job, now),
    }
    if state is State.FAILED and job.failure is not None:
        code, message = job.failure
        output |= {"code": code or "InternalError", "message": message}
    if job.order.kind == "image":
        output["task_metrics"] = _metrics(job, state)
    if state is State.SUCCEEDED and told.status_word is None and not told.no_payload:
        output |= finished(job, links, with_task=True)
    return output


def _metrics(job: Job, state: State) -> dict[str, int]:
    good = job.good if state is State.SUCCEEDED else 0
    bad = job.order.n if state is State.FAILED else 0
    if state is State.SUCCEEDED:
        bad = job.order.n - good
    return {"TOTAL": job.order.n, "SUCCEEDED": good, "FAILED": bad}


def finished(job: Job, links: Links, *, with_task: bool) -> Mapping[str, object]:
    """Return the result part of `output` in the shape of the path the job came by."""
    if job.order.kind == "video":
        words = {"orig_prompt": job.order.prompt, "video_url": links(job, 0)}
        # Later generations no longer tell the rewritten prompt.
        return words if job.order.extra["new_usage"] else words | _rewritten(job)
    if job.order.extra["service"] == TEXT2IMAGE:
        return {"results": [_result(job, index, links) for index in range(job.order.n)]}
    typed = {} if job.order.extra["qwen"] and not with_task else {"type": "image"}
    choices = [
        {
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": [{**typed, "image": links(job, index)}]},
        }
        for index in range(job.good)
    ]
    if typed:
        return {"finished": True, "choices": choices}
    metric = {"TOTAL": job.order.n, "SUCCEEDED": job.good, "FAILED": job.order.n - job.good}
    return {"choices": choices, "task_metric": metric}


def _rewritten(job: Job) -> dict[str, str]:
    if not job.order.extra["prompt_extend"]:
        return {}
    return {"actual_prompt": f"{job.order.prompt}, soft light, fine detail, wide view"}


def _result(job: Job, index: int, links: Links) -> dict[str, str]:
    if index >= job.good:
        return dict(_FILTERED)
    return {"orig_prompt": job.order.prompt, **_rewritten(job), "url": links(job, index)}


def usage(job: Job) -> dict[str, object]:
    """Return the block that says what is billed."""
    order, extra = job.order, job.order.extra
    if order.kind == "video":
        tier = int(str(extra["tier"]).removesuffix("P"))
        if not extra["new_usage"]:
            ratio = {"video_ratio": extra["size"], "SR": tier}
            return {"video_count": 1, "video_duration": order.duration_s, **ratio}
        return {
            "duration": order.duration_s,
            "input_video_duration": 0,
            "output_video_duration": order.duration_s,
            "video_count": 1,
            "SR": tier,
            **({"ratio": extra["ratio"]} if extra["ratio"] else {"size": extra["size"]}),
        }
    if extra["qwen"] and extra["service"] == MESSAGES:
        return {"width": order.width, "height": order.height, "image_count": job.good}
    if extra["service"] == TEXT2IMAGE:
        return {"image_count": job.good}
    tokens = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    return {"image_count": job.good, "size": extra["size"], **tokens}
