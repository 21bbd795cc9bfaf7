"""How a simulated ComfyUI tells of its jobs: queue items, history entries, and the jobs API of later versions.

May not know HTTP. Invariant: what the classic routes and the jobs API say of a job is the same story.

Source: recordings of a real 0.33.0, 2026-11-30.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from providers.sim.comfyui_machine import Entry, Machine

STATUSES = ("pending", "in_progress", "completed", "failed", "cancelled")


class BadFilterError(ValueError):
    """A filter of the job list cannot be understood; the message is the vendor's."""


def item(entry: Entry) -> list[object]:
    """A prompt as it stands in the queue, with the whole graph of whoever sent it."""
    return [entry.number, entry.prompt_id, entry.graph, entry.extra, entry.targets]


def record(entry: Entry) -> dict[str, object]:
    """A history entry."""
    meta = {
        node: {"node_id": node, "display_node": node, "parent_node": None, "real_node_id": node}
        for node in entry.outputs
    }
    return {"prompt": item(entry), "outputs": entry.outputs, "status": _status(entry), "meta": meta}


def _status(entry: Entry) -> dict[str, object]:
    messages = [list(message) for message in entry.messages]
    return {"status_str": entry.status, "completed": entry.status == "success", "messages": messages}


def word(entry: Entry, machine: Machine) -> str:
    """Where a job is, in the words of the jobs API."""
    if not entry.status:
        return "in_progress" if entry is machine.running else "pending"
    if entry.status != "error":
        return "completed"
    return "cancelled" if any(name == "execution_interrupted" for name, _ in entry.messages) else "failed"


def job(entry: Entry, machine: Machine, *, whole: bool) -> dict[str, object]:
    """A job of the jobs API; `whole` with outputs and graph, as one asked for by id."""
    files = list(_files(entry.outputs))
    told: dict[str, object] = {
        "id": entry.prompt_id,
        "status": word(entry, machine),
        "priority": entry.number,
        "create_time": entry.extra.get("create_time"),
    }
    if entry.status:
        told["execution_start_time"] = entry.messages[0][1]["timestamp"]
        told["execution_end_time"] = entry.messages[-1][1]["timestamp"]
    failures = [about for name, about in entry.messages if name == "execution_error"]
    if failures:
        told["execution_error"] = failures[0]
    told |= {"outputs_count": len(files), "previewable_outputs_count": len(files)}
    if files:
        told["preview_output"] = next((one for one in files if one["type"] == "output"), files[0])
    if workflow_id(entry) is not None:
        told["workflow_id"] = workflow_id(entry)
    if whole and entry.status:
        workflow = {"prompt": entry.graph, "extra_data": entry.extra}
        told |= {"outputs": entry.outputs, "execution_status": _status(entry), "workflow": workflow}
    return told


def workflow_id(entry: Entry) -> object:
    """The id of the editor's workflow, where the caller sent one along."""
    info = entry.extra.get("extra_pnginfo")
    workflow = info.get("workflow") if isinstance(info, Mapping) else None
    return workflow.get("id") if isinstance(workflow, Mapping) else None


def _files(outputs: Mapping[str, Mapping[str, object]]) -> Iterator[dict[str, object]]:
    for node_id, made in outputs.items():
        for key, listed in made.items():
            for one in listed if isinstance(listed, list) else ():
                if isinstance(one, Mapping) and "filename" in one:
                    yield {**one, "nodeId": node_id, "mediaType": key}


def page(machine: Machine, asked: Mapping[str, str]) -> dict[str, object]:
    """The job list. Raises BadFilterError."""
    wanted = [one for one in asked.get("status", "").split(",") if one]
    wrong = [one for one in wanted if one not in STATUSES]
    if wrong:
        message = f"Invalid status value(s): {', '.join(wrong)}. Valid values: {', '.join(STATUSES)}"
        raise BadFilterError(message)
    by = asked.get("sort_by", "created_at")
    if by not in ("created_at", "execution_duration"):
        message = "sort_by must be 'created_at' or 'execution_duration'"
        raise BadFilterError(message)
    limit, offset = _whole(asked, "limit", 1, "positive"), _whole(asked, "offset", 0, "non-negative") or 0
    live = [*([machine.running] if machine.running else []), *machine.pending]
    found = [
        one
        for one in [*live, *machine.history.values()]
        if (not wanted or word(one, machine) in wanted) and asked.get("workflow_id") in (None, workflow_id(one))
    ]
    found.sort(key=_duration if by != "created_at" else _created, reverse=asked.get("sort_order", "desc") == "desc")
    shown = found[offset:] if limit is None else found[offset : offset + limit]
    more = offset + len(shown) < len(found)
    pagination = {"offset": offset, "limit": limit, "total": len(found), "has_more": more}
    return {"jobs": [job(one, machine, whole=False) for one in shown], "pagination": pagination}


def _created(entry: Entry) -> float:
    return entry.job.created_at


def _duration(entry: Entry) -> float:
    return entry.job.ends_at - entry.job.starts_at if entry.status else 0.0


def _whole(asked: Mapping[str, str], name: str, low: int, kind: str) -> int | None:
    text = asked.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < low:
        message = f"{name} must be a {kind} integer"
        raise BadFilterError(message)
    return int(text)
