"""Rows -> the JSON of the API (conventions 19). What is not applicable is null, never absent.

Only names that are listed here leave the house: a new column is invisible until someone adds it. Output links are our
own stable addresses; the vendors' are never shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from flask import Response, request

from api.errors import dumps
from api.parts import parts
from api.schemas import PRIORITY_NAMES, Wanted
from models import ids, learning, pollplan, pricing
from models.db import Row, UnitOfWork
from models.failures import FAILURES, FailureKind
from models.fields import FIELDS, OPTIONS, Kind
from models.lifecycle import LIVE, Stage, Status
from tasks.pacing import bucket_of

_OUTPUT = ("media_type", "width", "height", "duration_s", "bytes", "sha256", "seed")


def answer(payload: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer; not stored by anybody unless `headers` say otherwise."""
    response = Response(dumps(payload), status=status, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    response.headers.update(headers or {})
    return response


def moment(value: datetime | None) -> str | None:
    """RFC 3339 in UTC with milliseconds: 2026-11-30T20:15:05.123Z."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def address(path: str) -> str:
    """A link: absolute where the installation's own address is configured."""
    return parts().settings.server.public_url.rstrip("/") + path


def place(row: Row) -> str:
    """The path of a task."""
    return f"/v1/tasks/{ids.encode('task', row['id'])}"


def task(
    row: Row, *, reused: bool = False, queue_position: int | None = None, eta_s: int | None = None
) -> dict[str, object]:
    """One task, from a row of reads.task, reads.tasks or intake.recall."""
    here = address(place(row))
    return {
        "task_id": ids.encode("task", row["id"]),
        "type": row["type"],
        "status": row["status"],
        "stage": row["stage"],
        "version": row["version"],
        "attempt": row["attempt"],
        "reused": reused,
        "model": row["model"],
        "provider": row["provider"],
        "order_id": row["order_id"],
        "priority": PRIORITY_NAMES[row["priority"]],
        "input": _in_order(row["input"]),
        "effective": _in_order(row["effective"]),
        "adjustments": row["adjustments"],
        "progress": row["progress"],
        "queue_position": queue_position,
        "eta_s": eta_s,
        "outputs": outputs(row),
        "partial": row["partial"],
        "missing": row["missing"],
        "error": _error(row),
        "cost": {"micros": row["cost_micros"], "currency": row["currency"]},
        "upstream_call_count": row["upstream_call_count"],
        "risk": row["risk"],
        "retry_count": row["retry_count"],
        "poll_count": row["poll_count"],
        "failed_polls": row["failed_polls"],
        "last_error": row["last_error"],
        "created_at": moment(row["created_at"]),
        "started_at": moment(row["started_at"]),
        "finished_at": moment(row["finished_at"]),
        "deadline_at": moment(row["deadline_at"]),
        "cancel_requested_at": moment(row["cancel_requested_at"]),
        "metadata": row["metadata"],
        "links": {"self": here, "history": f"{here}/history", "cancel": here},
    }


def preview(wish: Wanted, *, seed_open: bool) -> dict[str, object]:
    """What a submit would do. `seed_open`: the seed is drawn when the task is submitted, and here it is null."""
    effective = {**wish.effective, **({"seed": None} if seed_open else {})}
    micros = pricing.cost_micros(wish.type, wish.effective, wish.price_micros)
    return {
        "type": wish.type,
        "model": wish.model,
        "provider": wish.provider,
        "provider_model": wish.provider_model,
        "input": _in_order(wish.input),
        "effective": _in_order(effective),
        "drawn_at_submit": ["seed"] if seed_open else [],
        "adjustments": wish.adjustments,
        "price": {"micros": micros, "currency": wish.currency},
        "deadline_s": wish.deadline_s,
        "routing": {"why": wish.why, "candidates": wish.candidates},
    }


def _in_order(given: Mapping[str, object]) -> dict[str, object]:
    """In the contract's order, which the database does not keep."""
    return {name: given[name] for name in (*FIELDS, *OPTIONS) if name in given}


def outputs(row: Row) -> list[dict[str, object]]:
    """What was delivered, each with its stable address."""
    here = address(place(row))
    return [
        {"url": f"{here}/outputs/{n}", **{name: output.get(name) for name in _OUTPUT}}
        for n, output in enumerate(row["outputs"])
    ]


def _error(row: Row) -> dict[str, object] | None:
    code = row["error_code"]
    if code is None:
        return None
    known = FAILURES.get(FailureKind(code)) if code in set(FailureKind) else None
    return {
        "code": code,
        "message": row["error_message"],
        "retryable": known is not None and known.retryable,
        "upstream_name": row["provider"],
        "upstream_code": row["upstream_code"],
    }


def standing(uow: UnitOfWork, row: Row) -> tuple[int | None, int | None]:
    """(queue_position, eta_s): the place of what waits, the seconds until it is generated; None where nobody can know.

    The time left is the median of what others of the same provider, model and size had left at this age; where too few
    are known, the usual time of the model less what has passed. What waits has its own time before it, and the share of
    it that each before it takes of the provider's places.
    """
    if row["status"] == Status.PENDING:
        place, usual = parts().places.of(uow, row), _left_s(uow, row, 0.0)
        conf = parts().settings.providers.get(row["provider"])
        if place is None or usual is None or conf is None:
            return place, None
        return place, math.ceil(usual * (1 + place / conf.max_in_flight))
    if row["status"] != Status.RUNNING or row["claimed_at"] is None:
        return None, None
    if row["stage"] == Stage.FETCHING:
        return None, None  # a file's own time, which nothing is learned of
    left = _left_s(uow, row, (row["now"] - row["claimed_at"]).total_seconds())
    return None, math.ceil(left) if left is not None and left > 0 else None  # later than usual: no number is honest


def _left_s(uow: UnitOfWork, row: Row, elapsed_s: float) -> float | None:
    bucket = bucket_of(row)
    left = pollplan.eta_s(learning.load(uow, [bucket])[bucket], elapsed_s)
    if left is None:
        typical = parts().typical.seconds(uow, row["model"])
        left = None if typical is None else typical - elapsed_s
    return left


def retry_after_s(type_: str, eta_s: int | None = None) -> int:
    """Seconds until asking again is worth it: half of what is expected to be left, within the type's poll plan."""
    polling = parts().settings.polling
    plan = polling.image if type_ == Kind.IMAGE else polling.video
    soonest, latest = max(1, math.ceil(plan.min_s)), min(30, max(1, math.floor(plan.max_s)))
    return min(latest, max(soonest, math.ceil((eta_s or 0) / 2)))


def polling_headers(status: str, type_: str, eta_s: int | None = None) -> dict[str, str]:
    """`Retry-After` while the task lives."""
    return {"Retry-After": str(retry_after_s(type_, eta_s))} if status in LIVE else {}


def history(row: Row, events: Sequence[Row], calls: Sequence[Row], next_wake_at: datetime | None) -> dict[str, object]:
    """All that happened to a task, and what is planned next."""
    return {
        "task_id": ids.encode("task", row["id"]),
        "status": row["status"],
        "stage": row["stage"],
        "version": row["version"],
        "attempt": row["attempt"],
        "next_wake_at": moment(next_wake_at),
        "deadline_at": moment(row["deadline_at"]),
        "cost": {"micros": row["cost_micros"], "currency": row["currency"]},
        "events": [_event(event) for event in events],
        "upstream_calls": [_call(call) for call in calls],
    }


def _event(event: Row) -> dict[str, object]:
    return {
        "at": moment(event["at"]),
        "version": event["version"],
        "attempt": event["attempt"],
        "reason": event["reason"],
        "from": event["from_status"],
        "to": event["to_status"],
        "stage": event["stage"],
        "detail": event["detail"],
    }


def _call(call: Row) -> dict[str, object]:
    return {
        "at": moment(call["started_at"]),
        "ms": call["ms"],
        "provider": call["provider"],
        "operation": call["operation"],
        "verdict": call["verdict"],
        "http_status": call["http_status"],
        "request_id": call["request_id"],
        "error": call["error"],
        "asked_about": call["asked_about"],
    }


def excludes_json() -> bool:
    """Whether the request's `Accept` rules out JSON in both of its media types."""
    if "Accept" not in request.headers:
        return False
    accept = request.accept_mimetypes
    return not any(accept.quality(kind) > 0 for kind in ("application/json", "application/problem+json"))
