"""Ark's submits: from the body that was sent to the order that is meant, or the refusal.

May not know HTTP or jobs. Invariants: null is the same as absent, since the official SDK sends every field it does not
use as null; a field that the vendor does not check (`framespersecond`, anything unknown) is ignored here too.
"""

from __future__ import annotations

import binascii
import re
import secrets
from base64 import b64decode
from collections.abc import Mapping
from typing import NoReturn

from providers.sim import clips
from providers.sim.ark_models import RATIOS, TIERS, ImageModel, VideoModel, frame, image_model, video_model
from providers.sim.ledger import Order

NAME = "ark"
_TOP_SEED = 2_147_483_647
_GROUP_MAX = 15
_GROUP_USUAL = 4  # of a group without a limit; the real model chooses
_SECONDS_USUAL = 5  # of a clip whose length is left to the model
Body = Mapping[str, object]


class RefusedError(Exception):
    """The vendor does not take the submit."""

    def __init__(self, status: int, code: str, message: str, param: str = "") -> None:
        """HTTP status, the vendor's code, its text, the field it is about."""
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param


def _bad(param: str, value: object, allowed: str, more: str = "") -> NoReturn:
    message = f"The parameter `{param}` specified in the request is not valid: {value!r}, expected {allowed}."
    raise RefusedError(400, f"InvalidParameter{more}", message, param)


def _missing(param: str) -> NoReturn:
    raise RefusedError(400, "MissingParameter", f"The request is missing `{param}`.", param)


def prompt_of(body: object) -> str:
    """Return the prompt of a picture or a clip, '' when it has none."""
    if not isinstance(body, Mapping):
        return ""
    text = body.get("prompt")
    if text is None:
        text = next((part.get("text") for part in _parts(body) if part.get("type") == "text"), "")
    return text if isinstance(text, str) else ""


def model_of(body: object) -> str:
    """Return the model's name, '' when there is none."""
    name = body.get("model") if isinstance(body, Mapping) else None
    return name if isinstance(name, str) else ""


def _parts(body: Body) -> list[Body]:
    content = body.get("content")
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def image_order(body: object, account: str) -> Order:
    """Return what a picture's submit asks for. Raises RefusedError in the vendor's words."""
    asked, name = _named(body)
    model = image_model(name)
    if model is None:
        _unknown(name)
    prompt = asked.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        _missing("prompt")
    width, height = _size(model, asked.get("size", "2048x2048"))
    references = _references(asked.get("image"))
    form = _one_of(asked, "response_format", ("url", "b64_json"), "url")
    return Order(
        dialect=NAME,
        account=account,
        kind="image",
        model=name,
        prompt=prompt,
        seed=_seed(asked),
        width=width,
        height=height,
        n=_count(model, asked, references),
        image_type=_one_of(asked, "output_format", ("jpeg", "png"), "jpeg") if model.png else "jpeg",
        extra={
            "size": f"{width}x{height}",
            "references": references,
            "response_format": form,
            "watermark": _flag(asked, "watermark", default=True),
            "stream": _flag(asked, "stream", default=False),
        },
    )


def _named(body: object) -> tuple[Body, str]:
    if not isinstance(body, Mapping):
        raise RefusedError(400, "InvalidParameter", "The request body is not a JSON object.")
    name = model_of(body)
    if not name:
        _missing("model")
    return {key: value for key, value in body.items() if value is not None}, name


def _unknown(name: str) -> NoReturn:
    message = f"The model or endpoint {name} does not exist or you do not have access to it."
    raise RefusedError(404, "InvalidEndpointOrModel.NotFound", message)


def _size(model: ImageModel, text: object) -> tuple[int, int]:
    if isinstance(text, str) and text in model.tiers:
        return TIERS[text], TIERS[text]
    match = re.fullmatch(r"(\d{2,5})x(\d{2,5})", text) if isinstance(text, str) else None
    if match is None:
        _bad("size", text, f"one of {', '.join(model.tiers)} or <width>x<height>")
    width, height = int(match[1]), int(match[2])
    if not model.least_px <= width * height <= model.most_px:
        _bad("size", text, f"an area from {model.least_px} to {model.most_px} pixels")
    if not width <= 16 * height <= 256 * width:
        _bad("size", text, "a ratio from 1/16 to 16")
    return width, height


def _references(image: object) -> int:
    links = [] if image is None else image if isinstance(image, list) else [image]
    for link in links:
        _check_link(link, "image")
    if len(links) > _GROUP_MAX - 1:
        _bad("image", len(links), f"at most {_GROUP_MAX - 1} images")
    return len(links)


def _count(model: ImageModel, asked: Body, references: int) -> int:
    """How many images are made: one, or in a group all that are allowed."""
    if not model.groups and "sequential_image_generation" in asked:
        _bad("sequential_image_generation", "", "not to be given for this model", ".UnsupportedParameter")
    if _one_of(asked, "sequential_image_generation", ("disabled", "auto"), "disabled") == "disabled":
        return 1
    options = asked.get("sequential_image_generation_options") or {}
    if not isinstance(options, Mapping):
        _bad("sequential_image_generation_options", options, "an object")
    name = "sequential_image_generation_options.max_images"
    count = _whole({name: options.get("max_images", _GROUP_USUAL)}, name, (1, _GROUP_MAX))
    return min(count or 1, _GROUP_MAX - references)


def video_order(body: object, account: str) -> Order:
    """Return what a clip's submit asks for. Raises RefusedError in the vendor's words."""
    asked, name = _named(body)
    model = video_model(name)
    if model is None:
        _unknown(name)
    roles = _content(model, asked)
    tier = _one_of(asked, "resolution", model.tiers, "720p")
    ratio = _ratio(model, asked, roles)
    width, height = frame(tier, ratio)
    return Order(
        dialect=NAME,
        account=account,
        kind="video",
        model=name,
        prompt=prompt_of(asked),
        seed=_seed(asked),
        width=width,
        height=height,
        duration_s=_duration(model, asked),
        extra={
            "resolution": tier,
            "ratio": ratio,
            "fps": clips.FPS,
            "roles": roles,
            "watermark": _flag(asked, "watermark", default=False),
            "generate_audio": _sound(model, asked),
            **_told_back(model, asked),
        },
    )


def _content(model: VideoModel, asked: Body) -> list[str]:
    """Check the content and return the roles of its images."""
    if not isinstance(asked.get("content"), list) or not asked["content"]:
        _missing("content")
    images = [part for part in _parts(asked) if part.get("type") == "image_url"]
    roles = []
    for part in images:
        link = part.get("image_url")
        if not isinstance(link, Mapping):
            _bad("content.image_url", type(link).__name__, "an object with url")
        _check_link(link.get("url"), "content.image_url.url")
        role = part.get("role")
        if len(images) > 1 and role is None:
            _missing("content.role")
        if role not in (None, "first_frame", "last_frame", "reference_image"):
            _bad("content.role", role, "first_frame, last_frame, reference_image")
        roles.append("first_frame" if role is None else str(role))
    if "reference_image" in roles and len(set(roles)) > 1:
        _bad("content", roles, "frames or reference images, not both", ".TaskTypeConstraint")
    if max(roles.count("first_frame"), roles.count("last_frame")) > 1:
        _bad("content", roles, "at most one first_frame and one last_frame")
    if (roles and not model.frames) or not (roles or model.text):
        _bad("content", roles, "images" if not model.text else "no images", ".TaskTypeMismatch")
    if not roles and not prompt_of(asked):
        _missing("content.text")
    return roles


def _ratio(model: VideoModel, asked: Body, roles: list[str]) -> str:
    if model.generation >= 2.5 and "first_frame" in roles and "ratio" in asked:
        _bad("ratio", asked["ratio"], "not to be given with a first frame")
    ratio = _one_of(asked, "ratio", (*RATIOS, "adaptive"), "adaptive" if roles else "16:9")
    if ratio == "adaptive" and not roles and model.generation < 1.5:
        _bad("ratio", ratio, f"one of {', '.join(RATIOS)} without an image")
    return ratio


def _duration(model: VideoModel, asked: Body) -> float:
    frames = _whole(asked, "frames", (29, 289)) if model.generation < 1.5 else None
    if frames is not None:
        if frames % 4 != 1:
            _bad("frames", frames, "25 + 4n")
        return frames / clips.FPS
    low, high = model.seconds
    if asked.get("duration") == -1 and model.generation >= 1.5:
        return _SECONDS_USUAL
    return _whole(asked, "duration", (low, high)) or _SECONDS_USUAL


def _sound(model: VideoModel, asked: Body) -> bool:
    if "generate_audio" in asked and not model.sounds:
        _bad("generate_audio", asked["generate_audio"], "not to be given for this model", ".UnsupportedParameter")
    return _flag(asked, "generate_audio", default=model.sounds)


def _told_back(model: VideoModel, asked: Body) -> Body:
    """What a query repeats, and the address to call."""
    name = asked.get("safety_identifier")
    if name is not None and not (isinstance(name, str) and len(name) <= 64):
        _bad("safety_identifier", name, "at most 64 characters")
    callback = asked.get("callback_url")
    if callback is not None and not isinstance(callback, str):
        _bad("callback_url", callback, "an address")
    tiers = ("default", "flex") if model.generation < 2 else ("default",)
    return {
        "service_tier": _one_of(asked, "service_tier", tiers, "default"),
        "expires_s": _whole(asked, "execution_expires_after", (3600, 259_200)) or 172_800,
        "last_frame": _flag(asked, "return_last_frame", default=False),
        "safety_identifier": name,
        "callback_url": callback,
    }


def _one_of(asked: Body, name: str, words: tuple[str, ...], default: str) -> str:
    value = asked.get(name, default)
    if not isinstance(value, str) or value not in words:
        _bad(name, value, f"one of {', '.join(words)}")
    return value


def _whole(asked: Body, name: str, bounds: tuple[int, int]) -> int | None:
    value = asked.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not bounds[0] <= value <= bounds[1]:
        _bad(name, value, f"an integer from {bounds[0]} to {bounds[1]}")
    return value


def _seed(asked: Body) -> int:
    seed = _whole(asked, "seed", (-1, _TOP_SEED))
    return secrets.randbelow(_TOP_SEED) if seed in (None, -1) else seed


def _flag(asked: Body, name: str, *, default: bool) -> bool:
    value = asked.get(name, default)
    if not isinstance(value, bool):
        _bad(name, value, "a boolean")
    return value


def _check_link(value: object, name: str) -> None:
    """Check the form of an input's address. Nothing is fetched: a simulator must not be a proxy."""
    if isinstance(value, str) and value.startswith(("http://", "https://", "asset://")):
        return
    head, comma, content = value.partition(",") if isinstance(value, str) else ("", "", "")
    try:
        if not comma or not re.fullmatch(r"data:image/[\w.+-]+;base64", head):
            raise ValueError(head)  # noqa: TRY301 - one refusal for all that is wrong with it
        b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        message = f"The image of `{name}` cannot be read: it is neither an address nor base64 data."
        raise RefusedError(400, "InvalidImageURL.InvalidFormat", message, name) from error
