"""PURE  fal's models: which inputs each family takes, under which names, and within which bounds.

fal hosts some thousand models, each with input names of its own. A family is what many of them share, as data: our
parameter -> the vendor's field. The few models that are listed are known by their id alone; any other is named
`family:owner/app/path` in the configuration, and the operator answers for its being of that family.

What is always sent, because a default would change what was asked: the size, the number, the format (png; the vendor's
is jpeg), the length, the sound. The safety checker is always on: what it flags comes as a black picture.

Marks as in the sheet of 2026-11-30: [DOC] the model's page at fal.ai, read 2026-12-01, [3P] reports of others, [U] not
confirmed, ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from models.contract import Kind, ModelBounds, SizeRule
from providers.families import Families, split

Effective = Mapping[str, object]
Body = dict[str, object]
Fields = Mapping[str, tuple[str, Callable[[object], object]]]

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_ID = re.compile(rf"{_PART}(?:/{_PART})+")
_NAMESPACES = ("workflows", "comfy")  # ids below them have one more leading part [SDK]


def _same(value: object) -> object:
    return value


@dataclass(frozen=True)
class Family:
    """One shape of input. `fields`: our parameter -> its name there, and how its value is written.

    `sized`: width and height go as `image_size`. `always`: what goes out whatever was asked.
    """

    bounds: ModelBounds
    fields: Fields
    sized: bool = False
    always: Mapping[str, object] = field(default_factory=dict)

    def body(self, effective: Effective) -> Body:
        """The input object for these values."""
        given = {
            name: write(effective[ours])
            for ours, (name, write) in self.fields.items()
            if effective.get(ours) not in (None, "")
        }
        size = {"width": effective["width"], "height": effective["height"]} if self.sized else None
        return {**self.always, **given, **({"image_size": size} if size else {})}


_PROMPT: Fields = {"prompt": ("prompt", _same)}
_DRAWN: Fields = {**_PROMPT, "seed": ("seed", _same), "image_count": ("num_images", _same)}  # [DOC] model-arguments
_TUNED: Fields = {**_DRAWN, "steps": ("num_inference_steps", _same), "cfg_scale": ("guidance_scale", _same)}
_IMAGE: Fields = {"image": ("image_url", _same)}
_CLIP: Fields = {**_PROMPT, "duration_s": ("duration", str), "ratio": ("aspect_ratio", _same)}
_KLING: Fields = {**_CLIP, "negative_prompt": ("negative_prompt", _same)}
_FRAME: Fields = {"first_frame": ("image_url", _same)}
_CHECKED = {"enable_safety_checker": True, "output_format": "png"}
_SIZE = SizeRule(step=16, min_side=256, max_side=2048, min_ratio=1 / 4, max_ratio=4)  # px; [U] the ratio and the step
_SEED_MAX = 2**31 - 1  # [U] the pages name no bound
_FLUX_PAGE = "fal.ai/models/fal-ai/flux/dev, 2026-12-01 [DOC][3P]; sizes [U]"
_KLING_PAGE = "fal.ai/models/fal-ai/kling-video/v2.5-turbo/pro/image-to-video, 2026-12-01 [DOC]"
_RATIOS = ("16:9", "9:16", "1:1")


def _pictures(source: str, **more: object) -> ModelBounds:
    """Pictures of one size, one to four of them."""
    given: dict[str, object] = {
        "kind": Kind.IMAGE,
        "supports": frozenset({"seed"}),
        "size": _SIZE,
        "prompt_max": 4000,  # [U] no page names a limit
        "seed_max": _SEED_MAX,
        "image_count_max": 4,  # [DOC] "typically 1-4"
        "defaults": {"width": 1024, "height": 1024},
        "source": source,
    }
    return ModelBounds(**(given | more))  # type: ignore[arg-type]  # each is a field of it


def _clips(source: str, durations_s: tuple[int, ...], **more: object) -> ModelBounds:
    """Clips of so many whole seconds."""
    given: dict[str, object] = {
        "kind": Kind.VIDEO,
        "prompt_max": 2500,  # [3P] characters
        "durations_s": durations_s,
        "defaults": {"duration_s": 5},
        "source": source,
    }
    return ModelBounds(**(given | more))  # type: ignore[arg-type]  # each is a field of it


FAMILIES: Mapping[str, Family] = {
    # What fal's own toolkit gives every picture model.
    "picture": Family(_pictures("fal.ai docs model-arguments, 2026-12-01 [DOC]; sizes [U]"), _DRAWN, sized=True),
    "flux": Family(
        _pictures(
            _FLUX_PAGE,
            steps=(1, 50),
            cfg_scale=(1, 20),
            defaults={"width": 1024, "height": 1024, "steps": 28, "cfg_scale": 3.5},
        ),
        _TUNED,
        sized=True,
        always=_CHECKED,
    ),
    # Distilled: made for one to four steps.
    "flux-schnell": Family(
        _pictures(
            "reports on fal-ai/flux/schnell, 2026-12-01 [3P]; most steps and sizes [U]",
            steps=(1, 12),
            defaults={"width": 1024, "height": 1024, "steps": 4},
        ),
        {name: how for name, how in _TUNED.items() if name != "cfg_scale"},
        sized=True,
        always=_CHECKED,
    ),
    # The result has the size of the picture it starts from.
    "flux-edit": Family(
        _pictures(
            "fal.ai/models/fal-ai/flux/dev/image-to-image, 2026-12-01 [DOC]",
            size=None,
            required=frozenset({"image"}),
            steps=(10, 50),
            cfg_scale=(1, 20),
            defaults={"steps": 40, "cfg_scale": 3.5},
        ),
        {**_TUNED, **_IMAGE},
        always=_CHECKED,
    ),
    "kling": Family(
        _clips(f"{_KLING_PAGE}; ratios of the text models [3P]", (5, 10), ratios=_RATIOS, negative_prompt_max=2500),
        _KLING,
    ),
    # Starts from a frame, whose shape it has.
    "kling-frame": Family(
        _clips(_KLING_PAGE, (5, 10), required=frozenset({"first_frame"}), negative_prompt_max=2500),
        {**{name: how for name, how in _KLING.items() if name != "ratio"}, **_FRAME},
    ),
    "kling-3": Family(
        _clips(
            "fal.ai docs kling-video-o3-pro-text-to-video, 2026-12-01 [DOC]",
            tuple(range(3, 16)),
            ratios=_RATIOS,
            supports=frozenset({"audio"}),
        ),
        {**_CLIP, "audio": ("generate_audio", bool)},
        always={"generate_audio": False},
    ),
}
LISTED: Mapping[str, str] = {
    "fal-ai/flux/dev": "flux",
    "fal-ai/flux/schnell": "flux-schnell",
    "fal-ai/flux/dev/image-to-image": "flux-edit",
    "fal-ai/kling-video/v2.5-turbo/pro/text-to-video": "kling",
    "fal-ai/kling-video/v2.5-turbo/pro/image-to-video": "kling-frame",
    "fal-ai/kling-video/o3/pro/text-to-video": "kling-3",
}
BOUNDS = Families(
    {name: FAMILIES[family].bounds for name, family in LISTED.items()},
    {name: family.bounds for name, family in FAMILIES.items()},
    bare=False,
)


def model_of(model: str) -> tuple[str, Family] | None:
    """The vendor's id of `model` and its family; None for a model nobody knows, or a family without an id."""
    family, name = split(model, FAMILIES)
    if not family:
        family, name = LISTED.get(model, ""), model
    return (name, FAMILIES[family]) if family and _ID.fullmatch(name) else None


def app_of(name: str) -> str:
    """The part of an id that status, result and cancel go by: `owner/app`, below a namespace where there is one."""
    parts = name.split("/")
    return "/".join(parts[: 3 if parts[0] in _NAMESPACES else 2])
