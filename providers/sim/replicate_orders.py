"""Replicate's creates: from the model and the body that was sent to the order that is meant.

May not know HTTP or jobs. Invariant: a body with a key that the vendor's specification does not have is refused, as the
real one does.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

from providers.sim import clips
from providers.sim.ledger import Order

NAME = "replicate"
EVENTS = ("start", "output", "logs", "completed")
KEYS = frozenset({"version", "input", "webhook", "webhook_completed", "webhook_events_filter", "stream"})
_TOP_SEED = 2**31 - 1
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_MODEL = re.compile(rf"({_PART}/{_PART})(?::([0-9a-f]{{64}}))?|([0-9a-f]{{64}})")
_CLIPS = re.compile(r"video|kling|seedance|wan|veo|hailuo")
_SINGLE = re.compile(r"pro\b|ultra|kontext")  # models of one picture, whose output is a text
_SIDES = {
    "1:1": (1024, 1024), "16:9": (1344, 768), "21:9": (1536, 640), "3:2": (1216, 832), "2:3": (832, 1216),
    "4:5": (896, 1088), "5:4": (1088, 896), "3:4": (896, 1152), "4:3": (1152, 896), "9:16": (768, 1344),
    "9:21": (640, 1536),
}  # fmt: skip
_TIERS = {"480p": 480, "720p": 720, "1080p": 1080}
Body = Mapping[str, object]


class WrongInputError(Exception):
    """The vendor does not take a value."""

    def __init__(self, field: str, message: str) -> None:
        """The field and what is wrong with it."""
        super().__init__(message)
        self.field, self.message = field, message


def prompt_of(body: object) -> str:
    """Return the prompt, '' when there is none."""
    given = body.get("input") if isinstance(body, Mapping) else None
    text = given.get("prompt") if isinstance(given, Mapping) else None
    return text if isinstance(text, str) else ""


def named(reference: object) -> tuple[str, str] | None:
    """Return (owner/name, version) of a model's reference, None where nobody serves it.

    A bare version is of a model that its caller need not name.
    """
    match = _MODEL.fullmatch(reference) if isinstance(reference, str) else None
    if match is None or "/no-such" in match[0]:
        return None
    return (match[1] or "acme/paint", match[2] or match[3] or "hidden")


def order_of(model: str, version: str, body: object, account: str) -> Order:
    """Return what a create asks for. Raises WrongInputError."""
    if not isinstance(body, Mapping):
        raise WrongInputError("body", "Invalid type. Expected: object")
    for key in body:
        if key not in KEYS:
            raise WrongInputError(str(key), f"Additional property {key} is not allowed")
    given = body.get("input")
    if not isinstance(given, Mapping):
        raise WrongInputError("input", "input is required")
    if not prompt_of(body):
        raise WrongInputError("input.prompt", "prompt is required")
    clip, single = _CLIPS.search(model) is not None, _SINGLE.search(model) is not None
    width, height = _frame(given) if clip else _size(given)
    _whole(given, "num_inference_steps", 1, 500, 28)
    _checked_links(given)
    seed = given.get("seed")
    return Order(
        dialect=NAME,
        account=account,
        kind="video" if clip else "image",
        model=model,
        prompt=prompt_of(body),
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else secrets.randbelow(_TOP_SEED),
        width=width,
        height=height,
        n=1 if clip or single else _whole(given, "num_outputs", 1, 4, 1),
        duration_s=_whole(given, "duration", 1, 15, 5) if clip else 0.0,
        image_type={"png": "png", "jpg": "jpeg"}.get(str(given.get("output_format", "png")), "webp"),
        extra={
            "version": version,
            "one": clip or single,
            "input": {name: _shown(value) for name, value in given.items()},
            "fps": clips.FPS,
        },
    )


def hook_of(body: Body) -> tuple[str | None, tuple[str, ...]]:
    """Return the address to call and the events it wants. Raises WrongInputError."""
    url, wanted = body.get("webhook", body.get("webhook_completed")), body.get("webhook_events_filter")
    if url is not None and not (isinstance(url, str) and url.startswith(("http://", "https://"))):
        raise WrongInputError("webhook", "webhook must be a valid HTTPS URL")
    usual = ("completed",) if "webhook_completed" in body else ("output", "completed")
    if wanted is not None and (not isinstance(wanted, list) or any(word not in EVENTS for word in wanted)):
        raise WrongInputError("webhook_events_filter", f"must be one of the following: {', '.join(EVENTS)}")
    return url, tuple(wanted) if wanted else usual


def _shown(value: object) -> object:
    """The input as a prediction tells it back: without what may be megabytes."""
    return value if not isinstance(value, str) or not value.startswith("data:") else value[:40]


def _size(given: Body) -> tuple[int, int]:
    ratio = given.get("aspect_ratio", "custom" if "width" in given or "height" in given else "1:1")
    if ratio == "custom":
        return _whole(given, "width", 64, 2048, 1024), _whole(given, "height", 64, 2048, 1024)
    if ratio not in _SIDES:
        raise WrongInputError("input.aspect_ratio", f"must be one of the following: {', '.join(_SIDES)}")
    return _SIDES[str(ratio)]


def _frame(given: Body) -> tuple[int, int]:
    ratio, tier = given.get("aspect_ratio", "16:9"), given.get("resolution", "480p")
    if ratio not in _SIDES:
        raise WrongInputError("input.aspect_ratio", f"must be one of the following: {', '.join(_SIDES)}")
    if tier not in _TIERS:
        raise WrongInputError("input.resolution", f"must be one of the following: {', '.join(_TIERS)}")
    across, down = map(int, str(ratio).split(":"))
    short = _TIERS[str(tier)]
    long = round(short * max(across, down) / min(across, down) / 2) * 2
    return (long, short) if across >= down else (short, long)


def _whole(given: Body, name: str, low: int, high: int, default: int) -> int:
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongInputError(f"input.{name}", "Invalid type. Expected: integer")
    if not low <= value <= high:
        word = f"less than or equal to {high}" if value > high else f"greater than or equal to {low}"
        raise WrongInputError(f"input.{name}", f"Must be {word}")
    return value


def _checked_links(given: Body) -> None:
    """Check the form of each picture's address. Nothing is fetched: a simulator must not be a proxy."""
    for name, value in given.items():
        if "image" in name and not str(value).startswith(("http://", "https://", "data:")):
            raise WrongInputError(f"input.{name}", "Does not match format 'uri'")
