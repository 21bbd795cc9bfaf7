"""PURE  Ark's models: what each Seedream and Seedance can make, and how each is asked.

What is always sent, because the vendor's own default costs money or changes what was asked: the size or tier, the
length, `watermark: false` (true on pictures), `generate_audio` (true from 1.5 on, at another price), the group switch
(`sequential_image_generation`) and an end to waiting (`execution_expires_after`, else two days).

Sources: the official Python SDK volcengine-python-sdk 5.0.54 [SDK]; volcengine.com/docs/82379, pages 1541523 (images),
1824121 (Seedream), 1520757 (create a video) [docs]; other public adapters and price maps [3p]; reports of what the live
service did [3p-live]; all read 2026-11-30.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from models.contract import Coupling, Kind, ModelBounds, SizeRule

Effective = Mapping[str, object]
Body = dict[str, object]

IMAGES = "/images/generations"
TASKS = "/contents/generations/tasks"

_SEED_MAX = 2_147_483_647  # [docs]
_EXPIRES_S = 86_400  # the longest deadline a caller may ask for; the vendor allows 3600 to 259200 s [docs]
_GROUP_MAX = 15  # images of one call, references counted in [docs]


@dataclass(frozen=True)
class Model:
    """How one model is asked, and what it can make."""

    path: str
    shape: Callable[[Effective], Body]  # what goes out besides the name of the model
    bounds: ModelBounds


# --- Seedream: pictures, answered at once ---


def _picture(asked: Effective) -> Body:
    """A link is asked for, not base64: 24 h are enough to fetch it, and a cut answer loses a few hundred bytes."""
    given = {"image": asked["image"]} if asked.get("image") else {}
    return {
        "prompt": asked["prompt"],
        **given,
        "size": f"{asked['width']}x{asked['height']}",
        "response_format": "url",
        "watermark": False,
    }


def _group(asked: Effective) -> Body:
    """One picture, or a group: there the model decides how many it makes, up to the number that is sent [docs]."""
    count = asked["image_count"]
    if count == 1:
        return {**_picture(asked), "sequential_image_generation": "disabled"}
    options = {"max_images": count}
    return {
        **_picture(asked),
        "sequential_image_generation": "auto",
        "sequential_image_generation_options": options,
    }


def _seedream(least_px: int, most_px: int, source: str, *, groups: bool = True) -> Model:
    """`least_px` and `most_px` bound width x height. No seed: undocumented from 4.0 on, its effect unconfirmed."""
    together = Coupling(
        when="image", then="image_count", maximum=_GROUP_MAX - 1, reason="references and results are 15 at most"
    )
    bounds = ModelBounds(
        kind=Kind.IMAGE,
        supports=frozenset({"image"}),
        size=SizeRule(min_pixels=least_px, max_pixels=most_px, min_ratio=1 / 16, max_ratio=16),
        prompt_max=4000,  # 300 Chinese characters or 600 English words are advised, no limit is documented [docs]
        image_count_max=_GROUP_MAX if groups else 1,
        defaults={"width": 2048, "height": 2048},
        couplings=(together,) if groups else (),
        source=source,
    )
    return Model(IMAGES, _group if groups else _picture, bounds)


# --- Seedance: clips, asked about by id ---


def _content(asked: Effective) -> list[Body]:
    parts: list[Body] = [{"type": "text", "text": asked["prompt"]}]
    for role in ("first_frame", "last_frame"):
        link = asked.get(role)
        if link:  # an object: a bare string is refused [3p-live]
            parts.append({"type": "image_url", "image_url": {"url": link}, "role": role})
    return parts


def _clip(asked: Effective) -> Body:
    return {
        "content": _content(asked),
        "resolution": asked["resolution"],
        "ratio": asked["ratio"],
        "duration": asked["duration_s"],
        "watermark": False,
        "execution_expires_after": _EXPIRES_S,
    }


def _clip_1_0(asked: Effective) -> Body:
    return {**_clip(asked), "seed": asked["seed"], "service_tier": "default"}


def _clip_1_5(asked: Effective) -> Body:
    return {**_sounding(asked), "service_tier": "default"}


def _sounding(asked: Effective) -> Body:
    return {**_clip(asked), "generate_audio": bool(asked.get("audio"))}


def _clip_2_5(asked: Effective) -> Body:
    """With a first frame the very word `ratio` is refused [3p-live]."""
    body = _sounding(asked)
    if asked.get("first_frame"):
        del body["ratio"]
    return body


_RATIOS = ("16:9", "4:3", "1:1", "3:4", "9:16", "21:9")  # [docs]
_OF_THE_FRAME = Coupling(
    when="first_frame", then="ratio", choices=("adaptive",), reason="the clip has the shape of its first frame"
)
_OF_NOTHING = Coupling(
    when="ratio", equals=("adaptive",), then="first_frame", present=True, reason="there is a shape to adapt to"
)
_ANY = ("480p", "720p", "1080p")  # [docs]
_SMALL = ("480p", "720p")  # [docs]
_TEXT = frozenset[str]()
_FIRST = frozenset({"first_frame"})
_BOTH = frozenset({"first_frame", "last_frame"})


def _bounds(seconds: tuple[int, int], tiers: tuple[str, ...], takes: frozenset[str], source: str) -> ModelBounds:
    """`seconds` is the shortest and the longest clip, every whole second between them is made.

    What takes frames may be given the ratio "adaptive", and is given it with a first frame, which would be cropped.
    """
    return ModelBounds(
        kind=Kind.VIDEO,
        supports=takes,
        prompt_max=2000,  # [3p]; the documentation names no limit
        seed_max=_SEED_MAX,
        durations_s=tuple(range(seconds[0], seconds[1] + 1)),
        resolutions=tiers,
        ratios=(*_RATIOS, "adaptive") if takes & _FIRST else _RATIOS,
        couplings=(_OF_THE_FRAME,) if takes & _FIRST else (),
        source=source,
    )


def _first_generation(takes: frozenset[str], source: str) -> ModelBounds:
    bounds = _bounds((2, 12), _ANY, takes | {"seed"}, source)
    return replace(bounds, couplings=(*bounds.couplings, _OF_NOTHING)) if takes else bounds


_AUDIO = _BOTH | {"audio"}
_IMAGE_PAGE = "82379/1541523, 2026-11-30 [docs]"
_VIDEO_PAGE = "82379/1520757, 2026-11-30 [docs]"
_ROLES = f"{_VIDEO_PAGE}; which frames [3p]"
_LITE_I2V = replace(
    _first_generation(_BOTH, _ROLES), ratios=("adaptive",), required=_FIRST, couplings=()
)  # it starts from a frame always

_DOUBAO: Mapping[str, Model] = {
    # Areas and groups of 5.0 pro: [3p], its least area [3p-live]; the sides' ratio is that of the others.
    "seedream-5-0-pro-260628": _seedream(921_600, 2048**2, "price map and adapters, 2026-11-30 [3p]", groups=False),
    "seedream-5-0-260128": _seedream(3_686_400, 10_404_496, "price map and adapters, 2026-11-30 [3p]"),
    "seedream-4-5-251128": _seedream(3_686_400, 4096**2, _IMAGE_PAGE),
    "seedream-4-0-250828": _seedream(921_600, 4096**2, _IMAGE_PAGE),
    "seedance-1-0-pro-250528": Model(TASKS, _clip_1_0, _first_generation(_FIRST, _ROLES)),
    "seedance-1-0-pro-fast-251015": Model(TASKS, _clip_1_0, _first_generation(_FIRST, _ROLES)),
    "seedance-1-0-lite-t2v-250428": Model(TASKS, _clip_1_0, _first_generation(_TEXT, _VIDEO_PAGE)),
    "seedance-1-0-lite-i2v-250428": Model(TASKS, _clip_1_0, _LITE_I2V),
    "seedance-1-5-pro-251215": Model(TASKS, _clip_1_5, _bounds((4, 12), _ANY, _AUDIO, f"{_VIDEO_PAGE}; tiers [3p]")),
    "seedance-2-0-260128": Model(TASKS, _sounding, _bounds((4, 15), (*_ANY, "4k"), _AUDIO, _VIDEO_PAGE)),
    "seedance-2-0-fast-260128": Model(TASKS, _sounding, _bounds((4, 15), _SMALL, _AUDIO, _VIDEO_PAGE)),
    "seedance-2-0-mini-260615": Model(TASKS, _sounding, _bounds((4, 15), _SMALL, _AUDIO, _VIDEO_PAGE)),
    # An early probe of 1080p with a first frame was refused, a later one and the price map have it [3p-live].
    "seedance-2-5-260628": Model(TASKS, _clip_2_5, _bounds((4, 30), _ANY, _AUDIO, "live notes, 2026-08-11 [3p-live]")),
}
MODELS: Mapping[str, Model] = {
    **{f"doubao-{name}": model for name, model in _DOUBAO.items()},  # Volcengine
    **_DOUBAO,  # BytePlus: the same names without the brand [docs] ...
    "dreamina-seedance-2-5-260628": _DOUBAO["seedance-2-5-260628"],  # ... or, from 2.5 on, with another [3p-live]
}
SYNCHRONOUS = frozenset(name for name, model in MODELS.items() if model.bounds.kind is Kind.IMAGE)
