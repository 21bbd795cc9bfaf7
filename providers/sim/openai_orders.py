"""OpenAI submits: from the JSON or form that was sent to the order that is meant, or the refusal.

May not know jobs. Invariant: everything an order holds was checked; a word that the vendor does not know is refused by
name, as it does, except by the simulator's own models (`sim-image`, `sim-video`), which stand for servers that copy
the shape and take more.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from flask import Request
from werkzeug.datastructures import FileStorage

from providers.sim import clips
from providers.sim.ledger import Order

NAME = "openai"
_PROMPT_CHARS = 32_000
_TOP_SEED = 2**31 - 1
_GPT = re.compile(r"gpt-image-2(\.[56]-(sunburst|flare))?(-2026-\d\d-\d\d)?")
_PAID_WORDS = {"prompt", "model", "n", "size", "quality", "moderation", "user", "safety_identifier"}
_FILE_WORDS = {"background", "output_format", "output_compression", "stream", "partial_images"}
_IMAGE_WORDS = frozenset(_PAID_WORDS | _FILE_WORDS)
_EDIT_WORDS = _IMAGE_WORDS | {"image", "image[]", "images", "mask", "input_fidelity"}
_VIDEO_WORDS = frozenset({"prompt", "model", "seconds", "size", "input_reference"})
_VIDEO_SIZES = {"sora-2": ("720x1280", "1280x720"), "sora-2-pro": ("720x1280", "1280x720", "1024x1792", "1792x1024")}
_QUALITIES = ("low", "medium", "high", "auto")
_FINER = (*_QUALITIES, "xhigh", "max")
_FORMATS = ("png", "jpeg", "webp")
MODELS = ("gpt-image-2", "gpt-image-2.6-sunburst", "gpt-image-2.6-flare", *_VIDEO_SIZES, "sim-image", "sim-video")


class RefusedError(Exception):
    """The vendor does not take the submit."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        """HTTP status, the vendor's code, its text, the field it is about."""
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param


@dataclass(frozen=True, slots=True)
class Sent:
    """What came in: text fields as they are, and how many bytes each file has, by field."""

    fields: Mapping[str, object]
    files: Mapping[str, list[bytes]]
    textual: bool
    """Whether every value is text, because it came as a form."""

    def text(self, name: str) -> str:
        """A text, "" when it is not there or no text."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def whole(self, name: str, low: int, high: int, default: int) -> int:
        """A whole number in range; digits in a form. Raises RefusedError."""
        value = self.fields.get(name)
        if value is None:
            return default
        if self.textual and isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _invalid("invalid_type", f"Invalid type for '{name}': expected an integer.", name)
        if not low <= value <= high:
            raise _invalid("invalid_value", f"Invalid '{name}': expected {low} to {high}, got {value}.", name)
        return value


def _invalid(code: str, message: str, param: str | None = None) -> RefusedError:
    return RefusedError(400, code, message, param)


def sent_of(request: Request) -> Sent:
    """The body of the current request, JSON or form. What is neither gives no fields."""
    if request.mimetype == "multipart/form-data":
        files = {name: [_read(one) for one in request.files.getlist(name)] for name in request.files}
        return Sent(request.form.to_dict(), files, textual=True)
    try:
        body = json.loads(request.get_data())
    except ValueError:
        body = None
    return Sent(body if isinstance(body, Mapping) else {}, {}, textual=False)


def _read(file: FileStorage) -> bytes:
    """Return a file's bytes; it can be read again, since a fault's `match` reads the body too."""
    content: bytes = file.read()
    file.seek(0)
    return content


def image_order(sent: Sent, account: str, *, edit: bool) -> Order:
    """What a picture's submit asks for. Raises RefusedError in the vendor's words."""
    model = sent.text("model") or "sim-image"
    own = model == "sim-image"
    if not own and not _GPT.fullmatch(model):
        raise _no_model(model)
    _check_words(sent, _EDIT_WORDS if edit else _IMAGE_WORDS, own=own)
    references = _references(sent) if edit else 0
    if sent.fields.get("stream") in (True, "true"):
        raise _invalid("unsupported_value", "The simulator does not stream.", "stream")
    quality = sent.text("quality") or "auto"
    _check_one_of("quality", quality, _FINER if "." in model or own else _QUALITIES)
    kind = sent.text("output_format") or "png"
    _check_one_of("output_format", kind, _FORMATS)
    width, height = _image_size(sent.text("size") or "auto", own=own)
    return Order(
        dialect=NAME,
        account=account,
        kind="image",
        model=model,
        prompt=_prompt(sent),
        seed=secrets.randbelow(_TOP_SEED),
        width=width,
        height=height,
        n=sent.whole("n", 1, 10, 1),
        image_type=kind,
        extra={
            "quality": quality,
            "size": f"{width}x{height}",
            "references": references,
            "mask": bool(sent.files.get("mask") or sent.fields.get("mask")),
            "url": own and sent.text("response_format") == "url",
        },
    )


def _references(sent: Sent) -> int:
    """How many pictures an edit starts from, by file or by address. Raises RefusedError."""
    files = [*sent.files.get("image", []), *sent.files.get("image[]", [])]
    listed = sent.fields.get("images")
    named = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    count = len(files) + len(named)
    if not 1 <= count <= 16:
        raise _invalid("missing_required_parameter", "Missing required parameter: 'image'.", "image")
    if any(not _is_picture(file) for file in files):
        raise _invalid("invalid_image_file", "Invalid image file or mode for image.", "image")
    if any(not str(one.get("image_url", one.get("file_id", ""))) for one in named):
        raise _invalid("invalid_value", "Each of 'images' needs an image_url or a file_id.", "images")
    for mask in sent.files.get("mask", []):
        if not mask.startswith(b"\x89PNG"):
            raise _invalid("invalid_image_format", "The mask must be a PNG.", "mask")
    return count


def _is_picture(content: bytes) -> bool:
    return content.startswith((b"\x89PNG", b"\xff\xd8\xff")) or content[8:12] == b"WEBP"


def _image_size(text: str, *, own: bool) -> tuple[int, int]:
    if text == "auto":
        return 1024, 1024
    width, height = _pixels(text)
    step, most = (8, 4096) if own else (16, 3840)
    fine = max(width, height) <= most and min(width, height) >= 64 and not (width % step or height % step)
    if not fine or width > 3 * height or height > 3 * width or width * height > most * (most if own else 2160):
        rule = f"both sides divisible by {step}, at most {most}, ratio from 1:3 to 3:1"
        raise _invalid("invalid_value", f"Invalid value: '{text}'. Supported are {rule}.", "size")
    return width, height


def _pixels(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{2,5})x(\d{2,5})", text)
    if match is None:
        raise _invalid("invalid_value", f"Invalid value: '{text[:40]}'. Expected WIDTHxHEIGHT.", "size")
    return int(match[1]), int(match[2])


def video_order(sent: Sent, account: str) -> Order:
    """What a clip's submit asks for. Raises RefusedError in the vendor's words."""
    model = sent.text("model") or "sora-2"
    own = model == "sim-video"
    if not own and model not in _VIDEO_SIZES:
        raise _no_model(model)
    _check_words(sent, _VIDEO_WORDS, own=own)
    size = sent.text("size") or "720x1280"
    width, height = _pixels(size)
    if not own:
        _check_one_of("size", size, _VIDEO_SIZES[model])
    elif width % 2 or height % 2 or max(width, height) > 1920:
        raise _invalid("invalid_value", "Each side must be even and at most 1920.", "size")
    reference = sent.files.get("input_reference", [])
    if reference and not _is_picture(reference[0]):
        raise _invalid("invalid_image_file", "The input reference is no picture.", "input_reference")
    return Order(
        dialect=NAME,
        account=account,
        kind="video",
        model=model,
        prompt=_prompt(sent),
        seed=secrets.randbelow(_TOP_SEED),
        width=width,
        height=height,
        duration_s=_seconds(sent, own=own),
        extra={"size": size, "reference": bool(reference or sent.fields.get("input_reference")), "fps": clips.FPS},
    )


def _seconds(sent: Sent, *, own: bool) -> int:
    value = sent.fields.get("seconds", "4")
    if own and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise _invalid("invalid_type", "Invalid type for 'seconds': expected a string.", "seconds")
    if own and value.isdecimal() and 1 <= int(value) <= 30:
        return int(value)
    _check_one_of("seconds", value, ("4", "8", "12"))
    return int(value)


def _prompt(sent: Sent) -> str:
    prompt = sent.text("prompt")
    if not prompt:
        raise _invalid("missing_required_parameter", "Missing required parameter: 'prompt'.", "prompt")
    if len(prompt) > _PROMPT_CHARS:
        words = f"Invalid 'prompt': string too long. Expected at most {_PROMPT_CHARS} characters."
        raise _invalid("string_above_max_length", words, "prompt")
    return prompt


def _check_words(sent: Sent, known: frozenset[str], *, own: bool) -> None:
    strange = next((name for name in sent.fields if name not in known), None)
    if strange is not None and not own:
        raise _invalid("unknown_parameter", f"Unknown parameter: '{strange[:40]}'.", strange[:40])


def _check_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        listed = ", ".join(f"'{one}'" for one in allowed)
        raise _invalid("invalid_value", f"Invalid value: '{value[:40]}'. Supported values are: {listed}.", name)


def _no_model(model: str) -> RefusedError:
    return RefusedError(404, "model_not_found", f"The model '{model[:60]}' does not exist.", "model")
