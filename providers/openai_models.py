"""PURE  Models of the OpenAI shape: what each can make, and what is always said to it.

A picture's price hangs on its size, its number and its `quality`, and a quality left out is the vendor's to choose. So
each picture model has one: `gpt-image-2.6-flare` is asked for "medium", `gpt-image-2.6-flare:high` for "high". They are
models of their own in the configuration, each with its price.

Servers that speak the shape bring models of their own: `image:NAME` and `video:NAME` send NAME; the bare words send no
model at all, for a server that has one. To them only the words of the shape are said: prompt, n, size, seconds.

Marks as in the sheet of 2026-11-30: [SPEC] openai/openai-openapi of 2026-08-21, [SDK] Python package openai 3.57.0,
[3P] reports of others, [U] not confirmed, ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from models.contract import Coupling, Kind, ModelBounds, SizeRule
from providers.families import Families, Members, split

PROMPT_MAX = 32_000  # characters [SPEC]
_MANY_PX = 2560  # a side above it: experimental at the vendor [SDK], and 25 MB each in one answer
_GPT_SIZE = SizeRule(  # [SDK] docstring of `size`; the lower edge is [U]
    step=16, min_side=256, max_side=3840, max_pixels=3840 * 2160, min_ratio=1 / 3, max_ratio=3.0
)
_ANY_SIZE = SizeRule(step=8, min_side=256, max_side=4096)  # [U]: the server has the last word
# [SDK] VideoSize; which model makes which [3P]
_HD = {("720p", "16:9"): (1280, 720), ("720p", "9:16"): (720, 1280)}
_PRO = {**_HD, ("1024p", "7:4"): (1792, 1024), ("1024p", "4:7"): (1024, 1792)}
_ANY_FRAMES = {  # [U]: usual sizes of servers that copy the shape
    ("480p", "16:9"): (832, 480),
    ("480p", "9:16"): (480, 832),
    ("480p", "1:1"): (624, 624),
    **_HD,
    ("720p", "1:1"): (960, 960),
    ("1080p", "16:9"): (1920, 1080),
    ("1080p", "9:16"): (1080, 1920),
}
_IMAGES = frozenset({"image", "mask"})
_FRAME = frozenset({"first_frame"})


@dataclass(frozen=True)
class Model:
    """How one model is asked. `name` as the server knows it, "" to say none; `quality` None where it is no word."""

    name: str
    bounds: ModelBounds
    quality: str | None = None


def _few_of_the_largest(name: str) -> Coupling:
    return Coupling(
        when=name, at_least=_MANY_PX + 1, then="image_count", maximum=2, reason="one answer carries all the bytes"
    )


def _pictures(size: SizeRule, source: str) -> ModelBounds:
    return ModelBounds(
        kind=Kind.IMAGE,
        supports=_IMAGES,
        size=size,
        prompt_max=PROMPT_MAX,
        image_count_max=10,  # [SPEC] n
        defaults={"width": 1024, "height": 1024},
        couplings=(_few_of_the_largest("width"), _few_of_the_largest("height")),
        source=source,
    )


def _clips(frames: Mapping[tuple[str, str], tuple[int, int]], seconds: tuple[int, ...], source: str) -> ModelBounds:
    return ModelBounds(
        kind=Kind.VIDEO,
        supports=_FRAME,
        prompt_max=PROMPT_MAX,
        durations_s=seconds,
        frames=frames,
        source=source,
    )


_GPT = _pictures(_GPT_SIZE, "createImage of 2026-08-21 [SPEC]; size from 3.57.0 [SDK]")
_USUAL = "medium"
_QUALITIES = ("low", "medium", "high")  # [SPEC]
_FINER = (*_QUALITIES, "xhigh", "max")  # from 2.5 on [SDK]
_GPT_MODELS = {
    "gpt-image-2": _QUALITIES,
    "gpt-image-2-2026-04-21": _QUALITIES,
    "gpt-image-2.5-sunburst": _FINER,
    "gpt-image-2.5-sunburst-2026-09-08": _FINER,
    "gpt-image-2.5-flare": _FINER,
    "gpt-image-2.5-flare-2026-09-08": _FINER,
    "gpt-image-2.6-sunburst": _FINER,
    "gpt-image-2.6-flare": _FINER,
}
_SECONDS = (4, 8, 12)  # [SPEC]
_SORA = "createVideo of 2026-08-21 [SPEC]; shut down at api.openai.com on 2026-09-24, the shape lives on"

MODELS: Mapping[str, Model] = {
    **{name: Model(name, _GPT, _USUAL) for name in _GPT_MODELS},
    **{f"{name}:{quality}": Model(name, _GPT, quality) for name, many in _GPT_MODELS.items() for quality in many},
    "sora-2": Model("sora-2", _clips(_HD, _SECONDS, _SORA)),
    "sora-2-pro": Model("sora-2-pro", _clips(_PRO, _SECONDS, _SORA)),
}
_FAMILIES: Mapping[str, ModelBounds] = {
    "image": _pictures(_ANY_SIZE, "words of createImage [SPEC]; sizes are the server's to refuse [U]"),
    "video": _clips(_ANY_FRAMES, tuple(range(1, 31)), "words of createVideo [SPEC]; lengths are the server's [U]"),
}
BOUNDS = Families({name: model.bounds for name, model in MODELS.items()}, _FAMILIES)
SYNCHRONOUS = Members(name for name, bounds in BOUNDS.items() if bounds.kind is Kind.IMAGE)


def model_of(model: str) -> Model | None:
    """How `model` of the configuration is asked; None for one that nobody knows."""
    family, name = split(model, _FAMILIES)
    return Model(name, _FAMILIES[family]) if family else MODELS.get(model)
