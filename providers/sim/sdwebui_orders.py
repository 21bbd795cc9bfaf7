"""WebUI requests: from the JSON that was sent to the order that is meant, or the refusal.

May not know HTTP or jobs. Invariant: unknown fields are ignored in silence and types are checked, as the server does.
"""

from __future__ import annotations

import binascii
import secrets
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass

from providers.sim.ledger import Order
from providers.sim.sdwebui_lists import Generation

NAME = "sdwebui"
_TOP_SEED = 2**32 - 1
_MOST_PX = 4096


class RefusedError(Exception):
    """The server does not take the request. `where` is set for a fault of the schema (422)."""

    def __init__(self, status: int, message: str, where: str = "") -> None:
        """HTTP status, text, field."""
        super().__init__(message)
        self.status, self.message, self.where = status, message, where


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was taken. `order` without its account."""

    order: Order
    task_id: str
    steps: int
    sampler: str
    scheduler: str
    save: bool


def asked_of(body: Mapping[str, object], generation: Generation, account: str, *, image: bool) -> Asked:
    """Return what a request asks for. Raises RefusedError."""
    name = _text(body, "sampler_name") or _text(body, "sampler_index") or "Euler"
    used = generation.taken(name, _text(body, "scheduler") or "Automatic")
    if used is None:
        raise RefusedError(404, "Sampler not found")
    references = _references(body) if image else 0
    scale = _number(body, "hr_scale", 2.0) if body.get("enable_hr") is True and not image else 1.0
    width, height = (round(_whole(body, side, 512, 8, _MOST_PX) * scale) for side in ("width", "height"))
    count = _whole(body, "batch_size", 1, 1, 100) * _whole(body, "n_iter", 1, 1, 100)
    seed = _whole(body, "seed", -1, -1, _TOP_SEED)
    steps = _whole(body, "steps", 50, 1, 150)
    settings = body.get("override_settings")
    checkpoint = settings.get("sd_model_checkpoint") if isinstance(settings, Mapping) else None
    order = Order(
        dialect=NAME,
        account=account,
        kind="image",
        model=str(checkpoint or "loaded.safetensors"),
        prompt=_text(body, "prompt"),
        seed=secrets.randbelow(_TOP_SEED) if seed == -1 else seed,
        width=width,
        height=height,
        n=count,
        extra={
            "negative_prompt": _text(body, "negative_prompt"),
            "steps": steps,
            "cfg_scale": _number(body, "cfg_scale", 7.0),
            "sampler": " ".join(word for word in used if word),
            "references": references,
            "mask": bool(body.get("mask")),
            "hires": scale,
            "generation": generation.name,
        },
    )
    task_id = _text(body, "force_task_id") or f"task(sim-{secrets.token_hex(6)})"
    return Asked(order, task_id, steps, *used, save=body.get("save_images") is True)


def _references(body: Mapping[str, object]) -> int:
    listed = body.get("init_images")
    if not isinstance(listed, list) or not listed:
        raise RefusedError(404, "Init image not found")
    for one in [*listed, *([body["mask"]] if body.get("mask") else [])]:
        _check_image(one)
    return len(listed)


def _check_image(one: object) -> None:
    if isinstance(one, str) and one.startswith(("http://", "https://")):
        raise RefusedError(500, "Requests not allowed")
    try:
        content = b64decode(str(one).rpartition(",")[2], validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError(500, "Invalid encoded image") from error
    if not content.startswith((b"\x89PNG", b"\xff\xd8\xff", b"RIFF", b"GIF8")):
        raise RefusedError(500, "Invalid encoded image")


def _text(body: Mapping[str, object], name: str) -> str:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise RefusedError(422, "Input should be a valid string", name)
    return value or ""


def _whole(body: Mapping[str, object], name: str, default: int, low: int, high: int) -> int:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise RefusedError(422, "Input should be a valid integer", name)
    if not low <= value <= high:
        raise RefusedError(422, f"Input should be from {low} to {high}", name)
    return value


def _number(body: Mapping[str, object], name: str, default: float) -> float:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(422, "Input should be a valid number", name)
    return float(value)
