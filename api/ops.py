"""What an operator and a client library ask: health, models, presets, providers, status, usage.

Only what is true is shown: a field whose source does not exist yet is not there. Health needs no key and touches as
little as it can; everything else needs a valid one.
"""

from __future__ import annotations

from flask import Response, request

from api import auth, shapes, standing
from api.errors import Problem, error_wire, not_found
from api.openapi import MODEL_ID, section, serves
from api.parts import live, parts
from models import marks, reads
from models.contract import json_schema
from models.fields import FieldError, Kind
from models.lifecycle import FINAL
from models.settings import ModelSettings
from providers.presence import crews
from tasks import routing

blp = section("service", "Models, presets, providers, status, usage", "/v1")
health = section("health", "For load balancers and container probes")

_QUEUES = ("image", "video", "default")
_USAGE_DAYS, _USAGE_DAYS_MAX = 30, 90
_FIXED = {"Cache-Control": "private, max-age=60", "Vary": "Authorization, X-Api-Key"}


@serves(blp, "/models", "listModels")
def list_models() -> Response:
    """List models."""
    only = auth.caller(None).models
    shown = [_model(n, m) for n, m in parts().settings.models.items() if only is None or n in only]
    return shapes.answer({"data": shown}, 200, _FIXED)


@serves(blp, "/models/<model>", "getModel", MODEL_ID)
def get_model(model: str) -> Response:
    """Get a model with its bounds."""
    only = auth.caller(None).models
    found = parts().settings.models.get(model)
    if found is None or (only is not None and model not in only):
        raise not_found()
    return shapes.answer(_model(model, found), 200, _FIXED)


def _model(name: str, model: ModelSettings) -> dict[str, object]:
    kind = Kind(model.type)
    routes = [route for _, route in routing.in_order(model, lambda: 0.0)]
    able = [route for route in routes if parts().settings.providers[route.name].enabled]
    bounds = parts().bounds((able or routes)[0])
    assert bounds is not None  # Parts.build has seen to it
    return {
        "model": name,
        "type": model.type,
        "title": model.title,
        "default": model.default,
        "available": bool(able),
        "providers": [route.name for route in routes],
        "price": {
            "micros": model.price_of((able or routes)[0]),
            "currency": model.currency,
            "per": "image" if kind is Kind.IMAGE else "second",
        },
        "parameters": json_schema(kind, bounds, parts().presets),
    }


@serves(blp, "/presets", "listPresets")
def list_presets() -> Response:
    """List presets."""
    auth.caller(None)
    return shapes.answer(parts().presets.to_tables(), 200, _FIXED)


@serves(blp, "/providers", "listProviders")
def list_providers() -> Response:
    """List providers."""
    with auth.signed_in(None) as (uow, _):
        lines = reads.lines(uow)
    settings, found = parts().settings, standing.standings(parts())
    data = [
        {
            "provider": name,
            "adapter": one.adapter,
            "enabled": one.enabled,
            "models": [n for n, m in settings.models.items() if name in {route.name for route in m.providers}],
            "in_flight": sum(row["running"] for row in lines if row["provider"] == name),
            "waiting": sum(row["waiting"] for row in lines if row["provider"] == name),
            "max_in_flight": one.max_in_flight,
            **found[name],
        }
        for name, one in settings.providers.items()
    ]
    return shapes.answer({"data": data})


@serves(blp, "/status", "getStatus")
def get_status() -> Response:
    """How the installation is doing."""
    with auth.signed_in(None) as (uow, _):
        lines = reads.lines(uow)
        ended = reads.ended(uow, 24)
        sweep_age_s = marks.age_s(uow, "sweep")
    caps, read = parts().settings.caps, live().standing
    queues = []
    for kind, cap in ((Kind.IMAGE, caps.image), (Kind.VIDEO, caps.video)):
        mine = [row for row in lines if row["type"] == kind]
        waited = [row["oldest_s"] for row in mine if row["oldest_s"] is not None]
        queues.append({
            "type": kind,
            "waiting": sum(row["waiting"] for row in mine),
            "running": sum(row["running"] for row in mine),
            "cap": cap,
            "oldest_waiting_s": round(max(waited), 1) if waited else None,
        })  # fmt: skip
    return shapes.answer({
        "queues": queues,
        "workers": _workers(),
        "running_cap": caps.total,
        "live": {"PENDING": sum(row["waiting"] for row in lines), "RUNNING": sum(row["running"] for row in lines)},
        "ended_last_day": {str(status): ended.get(status, 0) for status in sorted(FINAL)},
        "sweep_age_s": None if sweep_age_s is None else round(sweep_age_s, 1),
        "settings": {"loaded_at": shapes.moment(read.loaded_at), "refused_at": shapes.moment(read.refused_at)},
    })  # fmt: skip


def _workers() -> list[dict[str, object]] | None:
    """By queue, or None: Redis is away, and nobody can tell."""
    there = parts().presence.workers()
    if there is None:
        return None
    found = crews(there, _QUEUES)
    return [{"queue": queue, "workers": crew.workers, "slots": crew.slots} for queue, crew in found.items()]


@serves(blp, "/usage", "getUsage")
def get_usage() -> Response:
    """The caller's own cost per day, model and provider."""
    with auth.signed_in("usage:read") as (uow, caller):
        days = _days()
        rows = reads.usage(uow, caller.user_id, days)
    sums = ("cost_micros", "lost_micros", "replays")
    data = [{**row, "day": row["day"].isoformat(), **{name: int(row[name]) for name in sums}} for row in rows]
    replays, tasks = sum(row["replays"] for row in data), sum(row["tasks"] for row in data)
    rate = round(replays / (tasks + replays), 4) if tasks else 0.0
    return shapes.answer({"days": days, "duplicate_rate": rate, "data": data})


def _days() -> int:
    faults = []
    for name, value in request.args.items(multi=True):
        if name != "days":
            faults.append(FieldError(pointer=name[:64], code="unknown_field", detail="there is no such parameter"))
        elif not (value.isascii() and value.isdigit() and len(value) < 4 and 1 <= int(value) <= _USAGE_DAYS_MAX):
            detail = f"must be a whole number between 1 and {_USAGE_DAYS_MAX}"
            faults.append(FieldError(pointer=name, code="out_of_range", detail=detail))
    if faults:
        errors = [error_wire("parameter", fault.pointer, fault) for fault in faults]
        raise Problem("validation-error", "The query is not valid.", errors=errors)
    return int(request.args.get("days", _USAGE_DAYS))


@serves(health, "/livez", "livez")
def livez() -> Response:
    """Whether the process answers."""
    return shapes.answer({"status": "pass"})


@serves(health, "/readyz", "readyz")
def readyz() -> Response:
    """Whether the process can serve."""
    checks = parts().readiness.checks()
    words = {str(check["status"]) for check in checks.values()}
    status = "fail" if "fail" in words else "warn" if "warn" in words else "pass"
    return shapes.answer({"status": status, "checks": checks}, 503 if status == "fail" else 200)
