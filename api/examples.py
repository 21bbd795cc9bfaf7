"""One example answer per operation, for the OpenAPI document. A test holds each to its schema."""

from __future__ import annotations

from collections.abc import Mapping

TASK_ID = "task_06f2k3v0c8q7h9d1m4z5x6y7w8"
_HERE = f"/v1/tasks/{TASK_ID}"
_LINKS = {"self": _HERE, "history": f"{_HERE}/history", "cancel": _HERE}

REQUEST: Mapping[str, object] = {"prompt": "a red fox in snow", "size": "square", "metadata": {"job": "42"}}

WAITING: Mapping[str, object] = {
    "task_id": TASK_ID, "type": "image", "status": "PENDING", "stage": None, "version": 1, "attempt": 1,
    "reused": False, "model": "sim-image", "provider": "wan", "order_id": "", "priority": "normal",
    "input": {"prompt": "a red fox in snow", "size": "square"},
    "effective": {"prompt": "a red fox in snow", "width": 1024, "height": 1024, "seed": 2391, "image_count": 1},
    "adjustments": [], "progress": None, "queue_position": 3, "eta_s": None, "outputs": [], "partial": False,
    "missing": [], "error": None, "cost": {"micros": 0, "currency": "USD"}, "upstream_call_count": 0, "risk": False,
    "retry_count": 0, "poll_count": 0, "failed_polls": 0, "last_error": None, "created_at": "2026-11-30T20:15:05.123Z",
    "started_at": None, "finished_at": None, "deadline_at": "2026-11-30T20:30:05.123Z", "cancel_requested_at": None,
    "metadata": {"job": "42"}, "links": _LINKS,
}  # fmt: skip
DELIVERED: Mapping[str, object] = {
    **WAITING, "status": "SUCCESS", "version": 5, "queue_position": None, "upstream_call_count": 1, "poll_count": 4,
    "outputs": [{
        "url": f"{_HERE}/outputs/0", "media_type": "image/png", "width": 1024, "height": 1024, "duration_s": None,
        "bytes": 45455, "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "seed": 2391,
    }],
    "cost": {"micros": 20000, "currency": "USD"}, "started_at": "2026-11-30T20:15:06.001Z",
    "finished_at": "2026-11-30T20:15:31.480Z",
}  # fmt: skip
_CANCELED = {**WAITING, "status": "CANCELED", "version": 2, "queue_position": None,
             "finished_at": "2026-11-30T20:15:09.000Z"}  # fmt: skip
_MODEL = {
    "model": "sim-image", "type": "image", "title": "Simulated pictures", "default": True, "available": True,
    "providers": ["wan"], "price": {"micros": 20000, "currency": "USD", "per": "image"},
    "parameters": {"type": "object", "properties": {"seed": {"type": ["integer", "null"], "minimum": -1}}},
}  # fmt: skip
_HEALTHY = {"postgres": {"status": "pass", "ms": 1}, "migrations": {"status": "pass", "ms": 9}}

_CLOSED = {
    "state": "closed", "since": None, "failure_rate": 0.0, "calls": 31, "last_error": None, "next_probe_s": None,
    "admits_percent": 100,
}  # fmt: skip
_OPEN = {
    "state": "open", "since": "2026-11-30T20:15:04.000Z", "failure_rate": 0.833, "calls": 12, "next_probe_s": 7.4,
    "last_error": "provider_server_error", "admits_percent": 0,
}  # fmt: skip

# By operation and status.
ANSWERS: Mapping[tuple[str, int], Mapping[str, object]] = {
    ("createTask", 202): {**WAITING, "queue_position": None},
    ("createTask", 200): {**DELIVERED, "reused": True},
    ("previewTask", 200): {
        "type": "image", "model": "sim-image", "provider": "wan", "provider_model": "wan2.2-t2i-flash",
        "input": {"prompt": "a red fox in snow", "size": "square"},
        "effective": {"prompt": "a red fox in snow", "width": 1024, "height": 1024, "seed": None, "image_count": 1},
        "drawn_at_submit": ["seed"], "adjustments": [], "price": {"micros": 20000, "currency": "USD"},
        "deadline_s": 900,
        "routing": {"why": "first enabled", "candidates": [
            {"provider": "wan", "model": "wan2.2-t2i-flash", "place": 1, "weight": 1, "price_micros": 20000,
             "chosen": True, "reason": "chosen"}]},
    },
    ("listTasks", 200): {"data": [DELIVERED], "has_more": False, "next_cursor": None},
    ("getTask", 200): DELIVERED,
    ("cancelTask", 200): _CANCELED,
    ("cancelTask", 202): {
        **WAITING, "status": "RUNNING", "stage": "generating", "version": 3, "queue_position": None,
        "upstream_call_count": 1, "cancel_requested_at": "2026-11-30T20:15:09.000Z",
    },
    ("getTaskHistory", 200): {
        "task_id": TASK_ID, "status": "RUNNING", "stage": "generating", "version": 2, "attempt": 1,
        "next_wake_at": "2026-11-30T20:15:08.000Z", "deadline_at": "2026-11-30T20:30:05.123Z",
        "cost": {"micros": 0, "currency": "USD"},
        "events": [{"at": "2026-11-30T20:15:05.123Z", "version": 1, "attempt": 1, "reason": "accepted", "from": None,
                    "to": "PENDING", "stage": None, "detail": {"provider": "wan", "why": "first enabled"}}],
        "upstream_calls": [{"at": "2026-11-30T20:15:06.010Z", "ms": 210, "provider": "wan", "operation": "submit",
                            "verdict": "ok", "http_status": 200, "request_id": "r-1", "error": None, "asked_about": 1}],
    },
    ("listModels", 200): {"data": [_MODEL]},
    ("getModel", 200): _MODEL,
    ("listPresets", 200): {
        "styles": {"anime": {"max_side": 1024}}, "modes": {"fast": {"steps": 15}},
        "sizes": {"square": {"ratio": "1:1"}}, "upscales": {"x2": {"factor": 2.0}},
    },
    ("listProviders", 200): {
        "data": [{"provider": "wan", "adapter": "dashscope", "enabled": True, "models": ["sim-image"], "in_flight": 2,
                  "waiting": 3, "max_in_flight": 5, "pause": {"paused_for_s": 0.0, "why": None},
                  "breaker": {"submit_image": _OPEN, "submit_video": _CLOSED, "observe": _CLOSED, "fetch": _CLOSED},
                  "credential": {"alias": "DASHSCOPE_API_KEY", "state": "in_use", "why": None},
                  "credentials": [{"alias": "DASHSCOPE_API_KEY", "state": "in_use", "why": None}],
                  "health": {"healthy": True, "misses": 0, "why": None}}],
    },
    ("getStatus", 200): {
        "queues": [{"type": "image", "waiting": 4, "running": 2, "cap": 15, "oldest_waiting_s": 3.5}],
        "workers": [{"queue": "image", "workers": 2, "slots": 13}, {"queue": "video", "workers": 2, "slots": 4},
                    {"queue": "default", "workers": 1, "slots": 1}],
        "running_cap": 20, "live": {"PENDING": 4, "RUNNING": 2}, "sweep_age_s": 7.2,
        "settings": {"loaded_at": "2026-11-30T18:00:02.511Z", "refused_at": None},
        "ended_last_day": {"CANCELED": 1, "FAILED": 0, "SUCCESS": 120, "TIMEOUT": 0},
    },
    ("getUsage", 200): {
        "days": 30, "duplicate_rate": 0.0769,
        "data": [{"day": "2026-11-30", "model": "sim-image", "provider": "wan", "currency": "USD", "tasks": 12,
                  "succeeded": 11, "outputs": 11, "cost_micros": 220000, "at_risk": 0, "lost_micros": 0, "replays": 1}],
    },
    ("livez", 200): {"status": "pass"},
    ("readyz", 200): {"status": "pass", "checks": {**_HEALTHY, "redis": {"status": "pass", "ms": 0}}},
    ("readyz", 503): {"status": "fail", "checks": {**_HEALTHY, "postgres": {"status": "fail", "ms": 1000}}},
}  # fmt: skip
