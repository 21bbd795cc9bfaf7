"""DashScope submits: from the body that was sent to the order that is meant, or the refusal.

May not know HTTP or jobs. Invariant: everything an order holds was checked against the table in
`dashscope_models`; fields the vendor does not know are ignored, as the vendor does.
"""

from __future__ import annotations

import binascii
import re
import secrets
from base64 import b64decode
from collections.abc import Mapping

from providers.sim import clips
from providers.sim.dashscope_models import (
    MESSAGES,
    RATIOS,
    TEXT2IMAGE,
    VIDEO_SIZES,
    ImageModel,
    VideoModel,
    framed,
    image_model,
    video_model,
)
from providers.sim.ledger import Order

NAME = "dashscope"
_TOP_SEED = 2_147_483_647
_NEGATIVE_CHARS = 500
_MOST_SIM_PX = 1920


class RefusedError(Exception):
    """The vendor does not take the submit."""

    def __init__(self, status: int, code: str, message: str) -> None:
        """HTTP status, the vendor's code, its text."""
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def _invalid(message: str) -> RefusedError:
    return RefusedError(400, "InvalidParameter", message)


def prompt_of(body: object) -> str:
    """Return the prompt wherever this body has it, '' when it has none."""
    source = body.get("input") if isinstance(body, Mapping) else None
    if not isinstance(source, Mapping):
        return ""
    text = source.get("prompt")
    if text is None:
        text = next((part["text"] for part in _parts(source) if "text" in part), "")
    return text if isinstance(text, str) else ""


def model_of(body: object) -> str:
    """Return the model's name, '' when there is none."""
    name = body.get("model") if isinstance(body, Mapping) else None
    return name if isinstance(name, str) else ""


def _parts(source: Mapping[str, object]) -> list[Mapping[str, object]]:
    messages = source.get("messages")
    if not isinstance(messages, list) or not messages or not isinstance(messages[0], Mapping):
        return []
    content = messages[0].get("content")
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def order_of(body: object, service: str, account: str) -> Order:
    """Return what a submit to `service` asks for. Raises RefusedError in the vendor's words."""
    if not isinstance(body, Mapping):
        raise RefusedError(400, "BadRequest.IllegalInput", "The body is not a JSON object.")
    name = model_of(body)
    if not name:
        raise RefusedError(400, "BadRequest.EmptyModel", 'Required field "model" is missing.')
    source = body.get("input")
    if not isinstance(source, Mapping) or not source:
        raise RefusedError(400, "BadRequest.EmptyInput", 'Required field "input" is missing.')
    given = body.get("parameters")
    if given is not None and not isinstance(given, Mapping):
        raise _invalid("parameters must be an object")
    parameters: Mapping[str, object] = given or {}
    image, video = image_model(name), video_model(name)
    if image is not None and service in image.services:
        return _image(name, image, service, account, source, parameters)
    if video is not None and service == video.service:
        return _video(name, video, account, source, parameters)
    if image is not None or video is not None:
        raise _invalid(f"url error, please check url: {name} is not served by {service}")
    raise RefusedError(404, "ModelNotFound", f"Model {name} does not exist.")


def _image(
    name: str,
    model: ImageModel,
    service: str,
    account: str,
    source: Mapping[str, object],
    parameters: Mapping[str, object],
) -> Order:
    legacy = service == TEXT2IMAGE
    references = 0 if legacy else _check_message(source, model)
    prompt = _text(prompt_of({"input": source}), "prompt", model.prompt_chars, needed=True)
    place = source if legacy and not model.qwen else parameters
    negative = _text(place.get("negative_prompt"), "negative_prompt", _NEGATIVE_CHARS)
    count = _whole(parameters, "n", 1, model.most, model.default_n, "num_images_per_prompt")
    width, height = _image_size(model, parameters.get("size"))
    return Order(
        dialect=NAME,
        account=account,
        kind="image",
        model=name,
        prompt=prompt,
        seed=_seed(parameters),
        width=width,
        height=height,
        n=count,
        extra={
            "service": service,
            "qwen": model.qwen,
            "negative_prompt": negative,
            "size": f"{width}*{height}",
            "references": references,
            "prompt_extend": _flag(parameters, "prompt_extend", default=True),
            "watermark": _flag(parameters, "watermark", default=False),
        },
    )


def _check_message(source: Mapping[str, object], model: ImageModel) -> int:
    """Check the one user message and return how many images it refers to."""
    messages = source.get("messages")
    if not isinstance(messages, list) or len(messages) != 1:
        raise _invalid("input.messages must hold exactly one message")
    if not isinstance(messages[0], Mapping) or messages[0].get("role") != "user":
        raise _invalid('the role of the message must be "user"')
    parts = _parts(source)
    if sum(1 for part in parts if "text" in part) != 1:
        raise _invalid("content must hold exactly one text")
    images = [part["image"] for part in parts if "image" in part]
    if len(images) > model.references:
        raise _invalid(f"content holds {len(images)} images, at most {model.references} allowed")
    for image in images:
        _check_link(image, "image")
    return len(images)


def _image_size(model: ImageModel, wanted: object) -> tuple[int, int]:
    text = model.default_size if wanted is None else wanted
    if model.named_sizes and isinstance(text, str) and text in model.named_sizes:
        return model.named_sizes[text]
    width, height = _size(text)
    broken = model.size(width, height)
    if broken is not None:
        raise _invalid(f"size {text} is not supported: {broken}")
    return width, height


def _size(text: object) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})\*(\d{1,5})", text) if isinstance(text, str) else None
    if match is None:
        raise _invalid(f"size {text!r} must be in the form W*H, such as 1024*1024")
    return int(match[1]), int(match[2])


def _video(
    name: str,
    model: VideoModel,
    account: str,
    source: Mapping[str, object],
    parameters: Mapping[str, object],
) -> Order:
    frames = _check_frames(source, model)
    prompt = _text(source.get("prompt"), "prompt", model.prompt_chars, needed=not frames)
    width, height, tier = _video_size(model, parameters, with_image=bool(frames))
    low, high = min(model.durations), max(model.durations)
    duration = _whole(parameters, "duration", low, high, 5, "duration")
    if duration not in model.durations:
        raise _invalid(f"duration {duration} must be one of {list(model.durations)}")
    return Order(
        dialect=NAME,
        account=account,
        kind="video",
        model=name,
        prompt=prompt,
        seed=_seed(parameters),
        width=width,
        height=height,
        # -1 leaves the length to the model, and this one likes five seconds.
        duration_s=5 if duration == -1 else duration,
        extra={
            "tier": tier,
            "fps": clips.FPS,
            "new_usage": model.new_usage,
            "ratio": parameters.get("ratio"),
            "negative_prompt": _text(source.get("negative_prompt"), "negative_prompt", _NEGATIVE_CHARS),
            "size": f"{width}*{height}",
            "frames": frames,
            "prompt_extend": _flag(parameters, "prompt_extend", default=True),
            "watermark": _flag(parameters, "watermark", default=False),
        },
    )


def _check_frames(source: Mapping[str, object], model: VideoModel) -> list[str]:
    """Check the inputs that are no words and return their names."""
    singles = [
        name for name in ("img_url", "first_frame_url", "last_frame_url", "audio_url") if source.get(name) is not None
    ]
    for name in singles:
        _check_link(source[name], name)
    media = source.get("media") or []
    if not isinstance(media, list) or not all(isinstance(one, Mapping) for one in media):
        raise _invalid("media must be a list of objects with type and url")
    for one in media:
        _check_link(one.get("url"), "media.url")
    needed = {
        "img_url": "img_url" in singles,
        "media": bool(media),
        "frames": "first_frame_url" in singles,
        "reference_urls": bool(source.get("reference_urls")),
    }
    if model.needs is not None and not needed[model.needs]:
        missing = "first_frame_url" if model.needs == "frames" else model.needs
        raise _invalid(f'Required field "{missing}" is missing.')
    return [*singles, *(str(one.get("type")) for one in media)]


def _video_size(model: VideoModel, parameters: Mapping[str, object], *, with_image: bool) -> tuple[int, int, str]:
    """Return width, height and the tier that is billed."""
    if model.any_size and (with_image or "resolution" in parameters) and "size" not in parameters:
        return _tiered(model, parameters, "720P")
    if model.frame != "size":
        return _tiered(model, parameters, model.default)
    text = parameters.get("size", model.default)
    width, height = _size(text)
    if model.any_size:
        if width % 2 or height % 2 or not sides_fit(width, height):
            raise _invalid(f"size {text}: each side must be even and from 64 to {_MOST_SIM_PX}")
        return width, height, _nearest_tier(min(width, height))
    if text not in VIDEO_SIZES:
        raise _invalid(f"size {text} must be one of {', '.join(VIDEO_SIZES)}")
    return width, height, VIDEO_SIZES[str(text)]


def sides_fit(width: int, height: int) -> bool:
    """Whether the simulator's own clip model makes this size."""
    low, high = 64, _MOST_SIM_PX
    return low <= width <= high and low <= height <= high


def _nearest_tier(shorter_px: int) -> str:
    return min(("480P", "720P", "1080P"), key=lambda tier: abs(int(tier[:-1]) - shorter_px))


def _tiered(model: VideoModel, parameters: Mapping[str, object], default: str) -> tuple[int, int, str]:
    tier, ratio = parameters.get("resolution", default), parameters.get("ratio", "16:9")
    if not isinstance(tier, str) or tier not in model.tiers:
        raise _invalid(f"resolution {tier!r} must be one of {', '.join(model.tiers)}")
    if not isinstance(ratio, str) or ratio not in RATIOS:
        raise _invalid(f"ratio {ratio!r} must be one of {', '.join(RATIOS)}")
    return (*framed(tier, ratio), tier)


def _text(value: object, name: str, most: int, *, needed: bool = False) -> str:
    """Return a text, cut in silence where the vendor cuts it."""
    if value is None or value == "":
        if needed:
            raise _invalid(f'Required field "{name}" is missing or empty.')
        return ""
    if not isinstance(value, str):
        raise _invalid(f"{name} must be a string")
    return value[:most]


def _whole(source: Mapping[str, object], name: str, low: int, high: int, default: int, word: str) -> int:
    value = source.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _invalid(f"{word} is {value!r}, it must be an integer from {low} to {high}")
    return value


def _seed(parameters: Mapping[str, object]) -> int:
    seed = _whole(parameters, "seed", 0, _TOP_SEED, -1, "seed")
    return secrets.randbelow(_TOP_SEED) if seed == -1 else seed


def _flag(source: Mapping[str, object], name: str, *, default: bool) -> bool:
    value = source.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _invalid(f"{name} must be a boolean")
    return value


def _check_link(value: object, name: str) -> None:
    """Check the form of an input's address. Nothing is fetched: a simulator must not be a proxy."""
    if not isinstance(value, str):
        raise _invalid(f"{name} must be a string")
    if value.startswith(("http://", "https://", "oss://")):
        return
    head, comma, content = value.partition(",")
    if not comma or not re.fullmatch(r"data:(image|audio|video)/[\w.+-]+;base64", head):
        raise RefusedError(400, "InvalidURL", f"{name} is neither a URL nor base64 data.")
    try:
        b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError(400, "InvalidURL", f"{name}: the base64 data is broken.") from error


def is_synchronous(service: str) -> bool:
    """Whether a path answers with the result itself."""
    return service == MESSAGES
