"""Bounds of some made-up models and a set of presets, for the tests of the parameter language."""

from __future__ import annotations

import pytest

from models.bounds import Coupling, ModelBounds
from models.contract import Checked, resolve
from models.fields import FieldError, Invalid, Kind
from models.presets import Presets
from models.samplers import COMFY_SAMPLERS
from models.sizes import SizeRule

SEED = 1234

WEBUI = ModelBounds(
    kind=Kind.IMAGE,
    supports=frozenset({"steps", "cfg_scale", "sampler", "seed", "negative_prompt", "image", "mask"}),
    size=SizeRule(step=16, min_side=64, max_side=2048),
    prompt_max=800,
    image_count_max=4,
    upscale_max=4,
    couplings=(Coupling(when="steps", at_least=41, then="image_count", maximum=1, reason="it runs out of memory"),),
)
"""Takes everything an image can have."""

SEEDREAM = ModelBounds(
    kind=Kind.IMAGE,
    size=SizeRule(min_pixels=3_686_400, max_pixels=16_777_216, min_ratio=1 / 16, max_ratio=16),
    prompt_max=2000,
    defaults={"width": 2048, "height": 2048},
)
"""No tuning at all, and a floor of area."""

QWEN = ModelBounds(
    kind=Kind.IMAGE,
    supports=frozenset({"seed"}),
    size=SizeRule(sizes=((1664, 928), (1472, 1104), (1328, 1328), (1104, 1472), (928, 1664))),
    prompt_max=800,
    negative_prompt_max=500,
    seed_max=2**31 - 1,
    defaults={"width": 1664, "height": 928},
)
"""Five sizes and no others."""

COMFY = ModelBounds(
    kind=Kind.IMAGE,
    supports=frozenset({"seed"}),
    size=SizeRule(step=64, min_side=512, max_side=2048, max_pixels=2048 * 1024),
    steps=(1, 28),
    cfg_scale=(1, 10),
    samplers=COMFY_SAMPLERS,
    prompt_max=5000,
    image_count_max=8,
    defaults={"steps": 20, "sampler": "dpmpp_2m_karras"},
)
"""Narrower than the contract in everything."""

WAN = ModelBounds(
    kind=Kind.VIDEO,
    supports=frozenset({"seed", "audio", "first_frame", "last_frame"}),
    prompt_max=1500,
    negative_prompt_max=500,
    seed_max=2**31 - 1,
    durations_s=(5, 10),
    frames={
        ("480p", "16:9"): (832, 480),
        ("480p", "9:16"): (480, 832),
        ("720p", "16:9"): (1280, 720),
        ("720p", "9:16"): (720, 1280),
        ("720p", "1:1"): (960, 960),
        ("1080p", "16:9"): (1920, 1080),
    },
    couplings=(Coupling(when="first_frame", then="ratio", absent=True, reason="it follows the first frame"),),
)
"""A table of exact frames, not every pair in it; the ratio follows a first frame."""

SEEDANCE = ModelBounds(
    kind=Kind.VIDEO,
    supports=frozenset({"seed"}),
    prompt_max=4000,
    durations_s=tuple(range(2, 13)),
    resolutions=("480p", "720p", "1080p"),
    ratios=("16:9", "4:3", "1:1", "3:4", "9:16", "adaptive"),
    required=frozenset({"first_frame"}),
)
"""Any tier in any ratio, and it needs a first frame."""

ALL = {"webui": WEBUI, "seedream": SEEDREAM, "qwen": QWEN, "comfy": COMFY, "wan": WAN, "seedance": SEEDANCE}

TABLES: dict[str, object] = {
    "styles": {
        "anime": {"max_side": 1024, "prompt": "{prompt}, anime", "force": {"negative_prompt": "photo"}},
        "photo": {"cfg_scale": 5.5, "steps": 25},
        "watercolor": {"prompt": "watercolor of {prompt}", "cfg_scale": 8.5},
    },
    "modes": {"fast": {"steps": 15}, "quality": {"steps": 40}, "finest": {"steps": 60}},
    "sizes": {
        "square": {"width": 1024, "height": 1024},
        "portrait": {"ratio": "9:16", "megapixels": 1.0},
        "landscape": {"ratio": "16:9", "megapixels": 1.0},
        "wide": {"ratio": "16:9"},
        "hd": {"width": 1920, "height": 1080, "resolution": "1080p"},
        "tier": {"resolution": "480p"},
    },
    "upscales": {"x2": {"factor": 2.0}, "x8": {"factor": 8}},
}
PRESETS = Presets.from_tables(TABLES)


def draw(low: int, high: int) -> int:
    """The one number chance gives in these tests, inside the asked range."""
    return min(high, max(low, SEED))


Asked = dict[str, object]


def made(bounds: ModelBounds, asked: Asked | None = None, *, strict: bool = False, **more: object) -> Checked:
    """What a request with this prompt and these fields becomes."""
    request = {"prompt": "a kite", **(asked or {}), **more}
    return resolve(bounds.kind, request, bounds, PRESETS, strict=strict, draw=draw)


def refused(
    bounds: ModelBounds, asked: Asked | None = None, *, strict: bool = False, **more: object
) -> dict[str, FieldError]:
    """The errors of such a request, by pointer."""
    with pytest.raises(Invalid) as caught:
        made(bounds, asked, strict=strict, **more)
    return {error.pointer: error for error in caught.value.errors}
