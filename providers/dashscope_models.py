"""PURE  DashScope's models: what each can make, and where each wants its parameters.

The same word stands in different places: `negative_prompt` in `input` for Wan and in `parameters`
for qwen-image and the message models; a clip's pixels as `size` up to 2.6 and as `resolution` and
`ratio` from 2.7 on. Every bound names its page; [docs], [SDK], [3p] as in providers/dashscope.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from models.contract import Kind, ModelBounds, SizeRule

_SEED_MAX = 2_147_483_647  # [docs]
_NEGATIVE_MAX = 500  # [docs]
_SEED = frozenset({"seed"})

Effective = Mapping[str, object]
Body = dict[str, object]


def _size(effective: Effective) -> str:
    return f"{effective['width']}*{effective['height']}"  # an asterisk: `x` is refused [SDK-run]


def _always(effective: Effective) -> Body:
    return {"seed": effective["seed"], "prompt_extend": False, "watermark": False}


def _negative(effective: Effective) -> Body:
    words = effective.get("negative_prompt")
    return {"negative_prompt": words} if words else {}


def _pictures(effective: Effective) -> Body:
    return {"size": _size(effective), "n": effective["image_count"], **_always(effective)}


def _wan_image(effective: Effective) -> tuple[Body, Body]:
    return {"prompt": effective["prompt"], **_negative(effective)}, _pictures(effective)


def _qwen_image(effective: Effective) -> tuple[Body, Body]:
    """Put the negative prompt into `parameters`, where Wan has it in `input` [docs]."""
    return {"prompt": effective["prompt"]}, {**_pictures(effective), **_negative(effective)}


def _message_image(effective: Effective) -> tuple[Body, Body]:
    message = {"role": "user", "content": [{"text": effective["prompt"]}]}
    return {"messages": [message]}, {**_pictures(effective), **_negative(effective)}


def _sized_clip(effective: Effective) -> tuple[Body, Body]:
    width, height = _FRAMES[str(effective["resolution"]), str(effective["ratio"])]
    parameters = {"size": f"{width}*{height}", "duration": effective["duration_s"]}
    return {"prompt": effective["prompt"], **_negative(effective)}, parameters | _always(effective)


def _tiered_clip(effective: Effective) -> tuple[Body, Body]:
    """From 2.7 on: a tier and a ratio instead of a size [docs]."""
    parameters = {
        "resolution": str(effective["resolution"]).upper(),
        "ratio": effective["ratio"],
        "duration": effective["duration_s"],
    }
    return {"prompt": effective["prompt"], **_negative(effective)}, parameters | _always(effective)


@dataclass(frozen=True)
class Model:
    """How one model is asked, and what it can make."""

    path: str
    shape: Callable[[Effective], tuple[Body, Body]]  # effective -> (input, parameters)
    bounds: ModelBounds


_TEXT2IMAGE = "/services/aigc/text2image/image-synthesis"
_MESSAGES = "/services/aigc/image-generation/generation"
_VIDEO = "/services/aigc/video-generation/video-synthesis"

# [docs] text-to-video-api-reference, table of sizes
_FRAMES = {
    ("480p", "16:9"): (832, 480),
    ("480p", "9:16"): (480, 832),
    ("480p", "1:1"): (624, 624),
    ("720p", "16:9"): (1280, 720),
    ("720p", "9:16"): (720, 1280),
    ("720p", "1:1"): (960, 960),
    ("720p", "4:3"): (1088, 832),
    ("720p", "3:4"): (832, 1088),
    ("1080p", "16:9"): (1920, 1080),
    ("1080p", "9:16"): (1080, 1920),
    ("1080p", "1:1"): (1440, 1440),
    ("1080p", "4:3"): (1632, 1248),
    ("1080p", "3:4"): (1248, 1632),
}
_QWEN_SIZES = ((1664, 928), (1472, 1104), (1328, 1328), (1104, 1472), (928, 1664))  # [docs]
_WAN22_SIZE = SizeRule(min_side=512, max_side=1440)  # [docs]
_WAN25_SIZE = SizeRule(  # [docs]; an older English page says 768² to 1440²
    min_side=640,
    max_side=2880,
    min_pixels=1280**2,
    max_pixels=1440**2,
    min_ratio=0.25,
    max_ratio=4.0,
)


def _image(size: SizeRule, prompt_max: int, default: tuple[int, int], count: int, source: str) -> ModelBounds:
    return ModelBounds(
        kind=Kind.IMAGE,
        supports=_SEED,
        size=size,
        prompt_max=prompt_max,
        negative_prompt_max=_NEGATIVE_MAX,
        seed_max=_SEED_MAX,
        image_count_max=count,
        defaults={"width": default[0], "height": default[1]},
        source=source,
    )


def _clip(prompt_max: int, seconds: Sequence[int], tiers: tuple[str, ...], source: str) -> ModelBounds:
    return ModelBounds(
        kind=Kind.VIDEO,
        supports=_SEED,
        prompt_max=prompt_max,
        negative_prompt_max=_NEGATIVE_MAX,
        seed_max=_SEED_MAX,
        durations_s=tuple(seconds),
        frames={pair: pixels for pair, pixels in _FRAMES.items() if pair[0] in tiers},
        source=source,
    )


_T2I = "text-to-image-v2-api-reference, 2026-11-30 [docs]"
_QWEN = "qwen-image-api, 2026-11-30 [docs]"
_T2V = "text-to-video-api-reference, 2026-11-30 [docs]"
_WAN22 = _image(_WAN22_SIZE, 800, (1024, 1024), 4, _T2I)
_QWEN_IMAGE = _image(SizeRule(sizes=_QWEN_SIZES), 800, (1664, 928), 1, _QWEN)
_WAN27_CLIP = ModelBounds(
    kind=Kind.VIDEO,
    supports=_SEED,
    prompt_max=5000,
    negative_prompt_max=_NEGATIVE_MAX,
    seed_max=_SEED_MAX,
    durations_s=tuple(range(2, 16)),
    resolutions=("720p", "1080p"),
    ratios=("16:9", "9:16", "1:1", "4:3", "3:4"),
    source="wan27-text-to-video/create-task, 2026-11-30 [docs]; names no pixels",
)
MODELS: Mapping[str, Model] = {
    "wan2.2-t2i-flash": Model(_TEXT2IMAGE, _wan_image, _WAN22),
    "wan2.2-t2i-plus": Model(_TEXT2IMAGE, _wan_image, _WAN22),
    "wan2.5-t2i-preview": Model(_TEXT2IMAGE, _wan_image, _image(_WAN25_SIZE, 2000, (1280, 1280), 4, _T2I)),
    "wan2.6-t2i": Model(_MESSAGES, _message_image, _image(_WAN25_SIZE, 2100, (1280, 1280), 4, _T2I)),
    "qwen-image": Model(_TEXT2IMAGE, _qwen_image, _QWEN_IMAGE),
    "qwen-image-plus": Model(_TEXT2IMAGE, _qwen_image, _QWEN_IMAGE),
    "wan2.2-t2v-plus": Model(_VIDEO, _sized_clip, _clip(800, (5,), ("480p", "1080p"), f"{_T2V}; tiers [3p]")),
    "wan2.5-t2v-preview": Model(_VIDEO, _sized_clip, _clip(1500, (5, 10), ("480p", "720p", "1080p"), _T2V)),
    # Later pages allow every second from 2 to 15; the three that all pages allow.
    "wan2.6-t2v": Model(_VIDEO, _sized_clip, _clip(1500, (5, 10, 15), ("720p", "1080p"), f"{_T2V}; tiers [3p]")),
    "wan2.7-t2v": Model(_VIDEO, _tiered_clip, _WAN27_CLIP),
}
