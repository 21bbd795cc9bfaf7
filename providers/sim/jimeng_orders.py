"""Jimeng's submits: from the body that was sent to the order that is meant, or the refusal.

Source: the provider sheet of 2026-11-30. May not know HTTP or jobs. Invariants: every refusal is 50215, which names
nothing; without `force_single` a group model makes two pictures, and both are billed.
"""

from __future__ import annotations

import binascii
import secrets
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass

from providers.sim import clips
from providers.sim.ledger import Order

NAME = "jimeng"
_TOP_SEED = 2_147_483_647
_PROMPT_MAX = 800
_FRAME_MAX_BYTES = 4_700_000
_UNFORCED = 2
_RATIOS = ("16:9", "4:3", "1:1", "3:4", "9:16", "21:9")
_SHORT_SIDES = {"720p": 720, "1080p": 1080}
Body = Mapping[str, object]


class RefusedError(Exception):
    """The service does not take the submit; the text is for whoever reads the simulator's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What one `req_key` takes. Areas in pixels; `tier` makes it a model of clips."""

    area: tuple[int, int] = (0, 0)
    sides: tuple[int, int] = (1, 100_000)
    side: int = 0
    """Of the square that is made when no size is asked for."""
    group: bool = False
    png: bool = False
    tier: str = ""
    pictures: tuple[int, ...] = (0,)
    """How many reference pictures may come along."""
    shaped: bool = True
    """Takes `aspect_ratio`."""


_GROUP = Model(
    area=(1024**2, 4096**2), side=2048, group=True, png=True, pictures=tuple(range(11))
)  # links, up to ten of them
_DRAWN = Model(area=(512**2, 2048**2), side=1328)
_ONE, _TWO = (1,), (2,)
MODELS: Mapping[str, Model] = {
    "jimeng_t2i_v40": _GROUP,
    "jimeng_seedream46_cvtob": _GROUP,
    "jimeng_t2i_v30": _DRAWN,
    "jimeng_t2i_v31": _DRAWN,
    "jimeng_i2i_v30": Model(area=(512**2, 2016**2), sides=(512, 2016), side=1328, pictures=_ONE),
    "jimeng_t2v_v30": Model(tier="720p"),
    "jimeng_t2v_v30_1080p": Model(tier="1080p"),
    "jimeng_i2v_first_v30": Model(tier="720p", pictures=_ONE, shaped=False),
    "jimeng_i2v_first_v30_1080": Model(tier="1080p", pictures=_ONE, shaped=False),
    "jimeng_i2v_first_tail_v30": Model(tier="720p", pictures=_TWO, shaped=False),
    "jimeng_i2v_first_tail_v30_1080": Model(tier="1080p", pictures=_TWO, shaped=False),
    "jimeng_ti2v_v30_pro": Model(tier="1080p", pictures=(0, 1)),
}


def text_of(body: object, name: str) -> str:
    """Return a text of the body, '' when it has none of that name."""
    value = body.get(name) if isinstance(body, Mapping) else None
    return value if isinstance(value, str) else ""


def order_of(body: object, account: str) -> Order:
    """Return what a submit asks for. Raises RefusedError."""
    model = MODELS.get(text_of(body, "req_key"))
    if model is None or not isinstance(body, Mapping):
        raise RefusedError("req_key is not known")
    asked = {name: value for name, value in body.items() if value is not None}
    prompt, pictures = text_of(asked, "prompt"), _pictures(model, asked)
    if len(prompt) > _PROMPT_MAX or not (prompt or (model.tier and pictures)):
        raise RefusedError(f"prompt must have 1 to {_PROMPT_MAX} characters")
    seed = asked.get("seed", -1)
    if isinstance(seed, bool) or not isinstance(seed, int) or not -1 <= seed <= _TOP_SEED:
        raise RefusedError("seed must be a whole number")
    made = _clip(model, asked, pictures) if model.tier else _picture(model, asked)
    return Order(
        dialect=NAME,
        account=account,
        model=text_of(asked, "req_key"),
        prompt=prompt,
        seed=secrets.randbelow(_TOP_SEED) if seed == -1 else seed,
        extra={"references": pictures, "how": "base64" if "binary_data_base64" in asked else "links"},
        **made,  # type: ignore[arg-type]  # each is what the field wants
    )


def _picture(model: Model, asked: Body) -> Body:
    width, height = asked.get("width"), asked.get("height")
    if (width is None) != (height is None):
        raise RefusedError("width and height come together")
    if width is None:
        area = asked.get("size", model.side**2) if model.group else model.side**2
        side = int(area**0.5) if isinstance(area, int) else 0
        width = height = side
    if not isinstance(width, int) or not isinstance(height, int):
        raise RefusedError("width and height must be whole numbers")
    low, high = model.area
    inside = all(model.sides[0] <= side <= model.sides[1] for side in (width, height))
    if not inside or not low <= width * height <= high or not width <= 3 * height <= 9 * width:
        raise RefusedError("width and height are out of range")
    single = asked.get("force_single", False) is True or not model.group
    kind = "png" if model.png else "jpeg"
    return {"kind": "image", "width": width, "height": height, "n": 1 if single else _UNFORCED, "image_type": kind}


def _clip(model: Model, asked: Body, pictures: int) -> Body:
    frames = asked.get("frames", 121)
    if not isinstance(frames, int) or frames not in (121, 241):
        raise RefusedError("frames must be 121 or 241")
    ratio = asked.get("aspect_ratio", "16:9")
    if not isinstance(ratio, str) or ratio not in _RATIOS or ("aspect_ratio" in asked and not model.shaped):
        raise RefusedError("aspect_ratio is not one of the model's")
    across, down = (int(part) for part in ("16:9" if pictures else ratio).split(":"))
    short = _SHORT_SIDES[model.tier]
    width, height = (short * across // down, short) if across >= down else (short, short * down // across)
    seconds = (frames - 1) / clips.FPS
    return {"kind": "video", "width": width // 2 * 2, "height": height // 2 * 2, "duration_s": seconds}


def _pictures(model: Model, asked: Body) -> int:
    """Check the reference pictures and return how many there are. Nothing is fetched."""
    links, texts = asked.get("image_urls", []), asked.get("binary_data_base64", [])
    if not isinstance(links, list) or not isinstance(texts, list) or (links and texts):
        raise RefusedError("image_urls or binary_data_base64, a list")
    if len(links) + len(texts) not in model.pictures:
        raise RefusedError("another number of pictures is needed")
    if not all(isinstance(link, str) and link.startswith(("http://", "https://")) for link in links):
        raise RefusedError("image_urls must be links")
    for text in texts:
        try:
            content = b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:  # a `data:` head is no base64
            raise RefusedError("binary_data_base64 is no base64") from error
        if not content or (model.tier and len(content) > _FRAME_MAX_BYTES):
            raise RefusedError("the picture is too large")
    return len(links) + len(texts)
