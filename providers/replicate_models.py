"""PURE  Replicate's models: which inputs each family takes, under which names, and within which bounds.

Every model there has input names of its own. A family is what some of them share, as data: our parameter -> the
vendor's field. The few that are listed are known by their id alone; any other is named `family:ID` in the
configuration, and the operator answers for its being of that family. An ID is one of

    owner/name               an official model, always its newest version
    owner/name:version       that version (64 hexadecimal digits), of any public or own model
    deployments/owner/name   a deployment of one's own

What is always sent, because a default would change what was asked: the size, the number, the format (png; the vendor's
is webp), the length, the checker, and no `go_fast`, under which a seed means nothing.

Marks as in the sheet of 2026-11-30: [DOC] the model's page at replicate.com, read 2026-12-01, [3P] reports of others
of the same day, [U] not confirmed, ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from models.contract import Kind, ModelBounds, SizeRule
from providers.families import Families, split

Effective = Mapping[str, object]
Body = dict[str, object]

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_ID = re.compile(rf"(deployments/)?({_PART})/({_PART})(:[0-9a-f]{{64}})?")
_CREATE = "/predictions"


@dataclass(frozen=True)
class Family:
    """One shape of input. `fields`: our parameter -> its name there.

    `size`: what width and height go as. `always`: what goes out whatever was asked.
    """

    bounds: ModelBounds
    fields: Mapping[str, str]
    size: Callable[[Effective], Body] | None = None
    always: Mapping[str, object] = field(default_factory=dict)

    def input(self, effective: Effective) -> Body:
        """The input object for these values."""
        given = {name: effective[ours] for ours, name in self.fields.items() if effective.get(ours) not in (None, "")}
        return {**self.always, **given, **(self.size(effective) if self.size else {})}


# Pixels of each ratio at "1 megapixel", as the vendor's own code of the open FLUX models has them [3P].
_RATIO_OF = {
    (1024, 1024): "1:1",
    (1344, 768): "16:9",
    (1536, 640): "21:9",
    (1216, 832): "3:2",
    (832, 1216): "2:3",
    (896, 1088): "4:5",
    (1088, 896): "5:4",
    (896, 1152): "3:4",
    (1152, 896): "4:3",
    (768, 1344): "9:16",
    (640, 1536): "9:21",
}


def _ratio(asked: Effective) -> Body:
    return {"aspect_ratio": _RATIO_OF[asked["width"], asked["height"]], "megapixels": "1"}  # type: ignore[index]  # whole


def _pixels(asked: Effective) -> Body:
    return {"width": asked["width"], "height": asked["height"]}


def _custom(asked: Effective) -> Body:
    return {"aspect_ratio": "custom", **_pixels(asked)}


_PROMPT = {"prompt": "prompt", "seed": "seed"}
_DRAWN = {**_PROMPT, "image_count": "num_outputs", "steps": "num_inference_steps"}
_FRAMES = {"first_frame": "image", "last_frame": "last_frame_image"}
_CHECKED = {"disable_safety_checker": False, "output_format": "png", "go_fast": False}
_SEED_MAX = 2**31 - 1  # [U] the pages name no bound
_FLUX = SizeRule(sizes=tuple(_RATIO_OF))
_FLUX_PAGE = "replicate.com/black-forest-labs/{}, 2026-12-01 [3P]; pixels of the ratios [3P]"
_KLING_PAGE = "replicate.com/kwaivgi/kling-v2.0, version c17ab6fb, 2026-12-01 [DOC]"
_SEEDANCE_PAGE = "inputs of bytedance/seedance-1-pro and -lite, 2026-12-01 [3P]"
_KLING_RATIOS = ("16:9", "9:16", "1:1")
_SEEDANCE_RATIOS = ("16:9", "4:3", "1:1", "3:4", "9:16", "21:9", "9:21")
_TIERS = ("480p", "720p", "1080p")


def _pictures(source: str, size: SizeRule | None, **more: object) -> ModelBounds:
    """Pictures of one size, up to four of them."""
    given: dict[str, object] = {
        "kind": Kind.IMAGE,
        "supports": frozenset({"seed"}),
        "size": size,
        "prompt_max": 4000,  # [U] no page names a limit
        "seed_max": _SEED_MAX,
        "image_count_max": 4,
        "defaults": {"width": 1024, "height": 1024},
        "source": source,
    }
    return ModelBounds(**(given | more))  # type: ignore[arg-type]  # each is a field of it


def _clips(source: str, durations_s: tuple[int, ...], **more: object) -> ModelBounds:
    """Clips of so many whole seconds."""
    given: dict[str, object] = {
        "kind": Kind.VIDEO,
        "prompt_max": 2500,  # [3P] characters
        "seed_max": _SEED_MAX,
        "durations_s": durations_s,
        "defaults": {"duration_s": 5},
        "source": source,
    }
    return ModelBounds(**(given | more))  # type: ignore[arg-type]  # each is a field of it


_KLING = {"prompt": "prompt", "negative_prompt": "negative_prompt", "duration_s": "duration"}
_SEEDANCE = {**_PROMPT, "duration_s": "duration", "resolution": "resolution"}
_SEED = frozenset({"seed"})
_FIRST = frozenset({"first_frame"})

FAMILIES: Mapping[str, Family] = {
    # What most community models of pictures take: width and height as they are.
    "picture": Family(
        _pictures("common inputs of public models, 2026-12-01 [U]", SizeRule(step=8, min_side=256, max_side=2048)),
        {**_PROMPT, "image_count": "num_outputs"},
        _pixels,
    ),
    "flux": Family(
        _pictures(
            _FLUX_PAGE.format("flux-dev"),
            _FLUX,
            steps=(1, 50),
            cfg_scale=(0, 10),
            defaults={"width": 1024, "height": 1024, "steps": 28, "cfg_scale": 3},
        ),
        {**_DRAWN, "cfg_scale": "guidance"},
        _ratio,
        _CHECKED,
    ),
    # The result has the shape of the picture it starts from.
    "flux-edit": Family(
        _pictures(
            "replicate.com/black-forest-labs/flux-dev, 2026-12-01 [3P]",
            None,
            required=frozenset({"image"}),
            steps=(1, 50),
            cfg_scale=(0, 10),
            defaults={"steps": 28, "cfg_scale": 3},
        ),
        {**_DRAWN, "cfg_scale": "guidance", "image": "image"},
        always=_CHECKED,
    ),
    # Distilled: made for one to four steps.
    "flux-schnell": Family(
        _pictures(
            _FLUX_PAGE.format("flux-schnell"),
            _FLUX,
            steps=(1, 4),
            defaults={"width": 1024, "height": 1024, "steps": 4},
        ),
        _DRAWN,
        _ratio,
        _CHECKED,
    ),
    # One picture a call. Older versions round sides to multiples of 32, newer ones to 16.
    "flux-pro": Family(
        _pictures(
            "replicate.com/black-forest-labs/flux-1.1-pro, versions 96ccd0e7 and a91bed9b, 2026-12-01 [DOC]",
            SizeRule(step=32, min_side=256, max_side=1440),
            image_count_max=1,
        ),
        _PROMPT,
        _custom,
        {"output_format": "png", "prompt_upsampling": False, "safety_tolerance": 2},
    ),
    "sdxl": Family(
        _pictures(
            "inputs of stability-ai/sdxl, version 7762fd07, 2026-12-01 [3P]; sizes [U]",
            SizeRule(step=8, min_side=512, max_side=2048),
            negative_prompt_max=4000,
            steps=(1, 500),
            cfg_scale=(1, 50),
        ),
        {**_DRAWN, "negative_prompt": "negative_prompt", "cfg_scale": "guidance_scale"},
        _pixels,
        {"disable_safety_checker": False, "apply_watermark": False},
    ),
    "kling": Family(
        _clips(_KLING_PAGE, (5, 10), ratios=_KLING_RATIOS, negative_prompt_max=2500),
        {**_KLING, "ratio": "aspect_ratio"},
    ),
    # Starts from a frame, whose shape it has: the vendor ignores a ratio then, so that none may be asked for.
    "kling-frame": Family(
        _clips(_KLING_PAGE, (5, 10), required=_FIRST, negative_prompt_max=2500),
        {**_KLING, "first_frame": "start_image"},
    ),
    "seedance": Family(
        _clips(_SEEDANCE_PAGE, tuple(range(2, 13)), supports=_SEED, resolutions=_TIERS, ratios=_SEEDANCE_RATIOS),
        {**_SEEDANCE, "ratio": "aspect_ratio"},
    ),
    "seedance-frame": Family(
        _clips(
            _SEEDANCE_PAGE,
            tuple(range(2, 13)),
            supports=_SEED | {"last_frame"},
            resolutions=_TIERS,
            required=_FIRST,
        ),
        {**_SEEDANCE, **_FRAMES},
    ),
}
LISTED: Mapping[str, str] = {
    "black-forest-labs/flux-schnell": "flux-schnell",
    "black-forest-labs/flux-dev": "flux",
    "black-forest-labs/flux-1.1-pro": "flux-pro",
    "stability-ai/sdxl:7762fd07cf82c948538e41f63f77d685e02b063e37e496e96eefd46c929f9bdc": "sdxl",
    "kwaivgi/kling-v2.0": "kling",
    "bytedance/seedance-1-lite": "seedance",
    "bytedance/seedance-1-pro": "seedance",
}
BOUNDS = Families(
    {name: FAMILIES[family].bounds for name, family in LISTED.items()},
    {name: family.bounds for name, family in FAMILIES.items()},
    bare=False,
)


@dataclass(frozen=True)
class Target:
    """Where a model's predictions are created, and what names it: the address, or a version in the body."""

    path: str
    version: str | None = None


def model_of(model: str) -> tuple[Target, Family] | None:
    """Where and how `model` is asked; None for a model nobody knows, or a family without a usable ID."""
    family, name = split(model, FAMILIES)
    if not family:
        family, name = LISTED.get(model, ""), model
    match = _ID.fullmatch(name)
    if not family or match is None:
        return None
    deployed, version = match[1], match[4]
    if deployed and version:
        return None
    where = f"/{name}" if deployed else f"/models/{name}"
    target = Target(_CREATE, name) if version else Target(where + _CREATE)
    return target, FAMILIES[family]
