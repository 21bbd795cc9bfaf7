"""fal's submits: from the model and the input that was sent to the order that is meant.

May not know HTTP or jobs. Invariant: the queue takes any input; what is wrong with one is part of the order, since the
real vendor says so with the result only.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

from providers.sim import clips
from providers.sim.ledger import Order

NAME = "fal"
_TOP_SEED = 2**31 - 1
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_MODEL = re.compile(rf"((?:workflows|comfy)/)?({_PART}/{_PART})(/{_PART})*")
_CLIPS = re.compile(r"video|kling|veo|seedance|hunyuan")
_NAMED = {
    "square_hd": (1024, 1024),
    "square": (512, 512),
    "portrait_4_3": (768, 1024),
    "portrait_16_9": (576, 1024),
    "landscape_4_3": (1024, 768),
    "landscape_16_9": (1024, 576),
}
_FRAMES = {"16:9": (1280, 720), "9:16": (720, 1280), "1:1": (720, 720)}
Body = Mapping[str, object]


class WrongInputError(Exception):
    """The model does not take a value of its input."""

    def __init__(self, field: str, kind: str, message: str) -> None:
        """The field, the vendor's `type`, its text."""
        super().__init__(message)
        self.field, self.kind, self.message = field, kind, message


def app_of(model: str) -> str | None:
    """Return `owner/app` of a model's id (with its namespace), None where nobody serves it."""
    match = _MODEL.fullmatch(model)
    if match is None or "/requests" in model or match[2].partition("/")[2].startswith("no-such"):
        return None
    return (match[1] or "") + match[2]


def prompt_of(body: object) -> str:
    """Return the prompt, '' when there is none."""
    text = body.get("prompt") if isinstance(body, Mapping) else None
    return text if isinstance(text, str) else ""


def order_of(model: str, body: object, account: str) -> Order:
    """Return what a submit asks for; `extra["wrong"]` is (field, type, text) of an input that will be refused."""
    asked: Body = body if isinstance(body, Mapping) else {}
    clip = _CLIPS.search(model) is not None
    wrong: tuple[str, str, str] | None = None
    width, height, count, seconds = 1024, 768, 1, 5
    try:
        if not prompt_of(asked):
            raise WrongInputError("prompt", "missing", "Field required")  # noqa: TRY301 - one way for all
        width, height = _frame(asked) if clip else _size(asked)
        count = 1 if clip else _whole(asked, "num_images", 1, 4, 1)
        seconds = _seconds(asked) if clip else 0
        _whole(asked, "num_inference_steps", 1, 50, 28)
        _checked_links(asked)
    except WrongInputError as error:
        wrong = (error.field, error.kind, error.message)
    seed = asked.get("seed")
    return Order(
        dialect=NAME,
        account=account,
        kind="video" if clip else "image",
        model=model,
        prompt=prompt_of(asked),
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else secrets.randbelow(_TOP_SEED),
        width=width,
        height=height,
        n=count,
        duration_s=seconds if clip else 0.0,
        image_type="png" if asked.get("output_format") == "png" else "jpeg",
        extra={"app": app_of(model), "wrong": wrong, "fps": clips.FPS, "input": _shown(asked)},
    )


def _shown(asked: Body) -> Body:
    """The input as the report shows it: without what may be megabytes."""
    return {name: value for name, value in asked.items() if not str(value).startswith("data:")}


def _size(asked: Body) -> tuple[int, int]:
    size = asked.get("image_size", "landscape_4_3")
    if isinstance(size, Mapping):
        return _whole(size, "width", 64, 4096, 512), _whole(size, "height", 64, 4096, 512)
    if size not in _NAMED:
        raise WrongInputError("image_size", "literal_error", f"Input should be one of {', '.join(_NAMED)}")
    return _NAMED[str(size)]


def _frame(asked: Body) -> tuple[int, int]:
    ratio = asked.get("aspect_ratio", "16:9")
    if ratio not in _FRAMES:
        raise WrongInputError("aspect_ratio", "literal_error", "Input should be '16:9', '9:16' or '1:1'")
    return _FRAMES[str(ratio)]


def _seconds(asked: Body) -> int:
    """Text, as the models of this kind have it; a number is what their callers get wrong most."""
    told = asked.get("duration", "5")
    if not isinstance(told, str) or not re.fullmatch(r"[1-9]|1[0-5]", told):
        raise WrongInputError("duration", "literal_error", "Input should be '3' to '15'")
    return int(told)


def _whole(asked: Body, name: str, low: int, high: int, default: int) -> int:
    value = asked.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongInputError(name, "int_type", "Input should be a valid integer")
    if not low <= value <= high:
        kind, bound = ("less_than_equal", high) if value > high else ("greater_than_equal", low)
        raise WrongInputError(name, kind, f"Input should be {kind.replace('_', ' ')} to {bound}")
    return value


def _checked_links(asked: Body) -> None:
    """Check the form of each picture's address. Nothing is fetched: a simulator must not be a proxy."""
    for name, value in asked.items():
        if name.endswith("image_url") and not str(value).startswith(("http://", "https://", "data:image/")):
            raise WrongInputError(name, "image_load_error", "Failed to load the image.")
