"""PURE  Jimeng's models: what each picture and clip model can make, and how each is asked.

A model is named by its `req_key`, which also fixes the resolution of a clip. What is always sent, because the vendor's
own default costs money or changes what was asked: the size, `force_single` (without it one call may make, and bill,
fifteen pictures), the seed, the number of frames, and `use_pre_llm: false` (true rewrites the prompt).

Left out, as no list of their fields was found: picture 2.1 (`jimeng_high_aes_general_v21_L`), the camera templates
(`jimeng_i2v_recamera_v30`), motion transfer (`jimeng_dream_actor_m1_gen_video_cv`, `jimeng_dreamactor_m20_gen_video`)
and the older `jimeng_vgfm_t2v_l20`.

Sources: volcengine.com/docs/85621, pages 1616429 (picture 3.0), 1756900 (3.1), 1777001 (clip 3.0 Pro), 1792710 (720p),
1792711 (1080p), 1747301 (limits), and a copy of the page of picture 4.0 [docs]; other public adapters [3p]; all read
2026-11-30.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from models.contract import Coupling, Kind, ModelBounds, SizeRule

Effective = Mapping[str, object]
Body = dict[str, object]

_PROMPT_MAX = 800  # characters [docs]; for pictures 3.0 and 3.1 the same is taken [unconfirmed]
_SEED_MAX = 2_147_483_647  # an int, its end is written nowhere [unconfirmed]
_FPS = 24  # frames = 24 a second and one more [docs]


@dataclass(frozen=True)
class Model:
    """How one model is asked, and what it can make."""

    shape: Callable[[Effective], Body]  # what goes out besides `req_key` and reference pictures
    bounds: ModelBounds
    references: tuple[str, ...] = ()  # our parameters that hold pictures, in the vendor's order
    takes_bytes: bool = True  # documented for base64; the others are given a link where the caller gave one


# --- pictures ---


def _group(asked: Effective) -> Body:
    return {"prompt": asked["prompt"], "width": asked["width"], "height": asked["height"], "force_single": True}


def _single(asked: Effective) -> Body:
    return {"prompt": asked["prompt"], "width": asked["width"], "height": asked["height"], "seed": asked["seed"]}


def _drawn(asked: Effective) -> Body:
    return {**_single(asked), "use_pre_llm": False}


def _picture(takes: frozenset[str], size: SizeRule, side: int, source: str, **more: frozenset[str]) -> ModelBounds:
    """`side`: of the square that is made when nobody says a size, pixels."""
    return ModelBounds(
        kind=Kind.IMAGE,
        supports=takes,
        size=size,
        prompt_max=_PROMPT_MAX,
        seed_max=_SEED_MAX,
        defaults={"width": side, "height": side},
        source=source,
        **more,  # type: ignore[arg-type]  # `required` alone
    )


_AREA_4 = SizeRule(min_pixels=1024**2, max_pixels=4096**2, min_ratio=1 / 3, max_ratio=3)  # [docs]
_AREA_3 = SizeRule(min_pixels=512**2, max_pixels=2048**2, min_ratio=1 / 3, max_ratio=3)  # [docs]
_SIDES_EDIT = SizeRule(min_side=512, max_side=2016)  # [docs]
_IMAGE, _SEED = frozenset({"image"}), frozenset({"seed"})


# --- clips ---


def _clip(asked: Effective) -> Body:
    """With a first frame the very words of a shape make no sense: the picture decides [docs]."""
    body = _framed(asked)
    return body if asked.get("first_frame") else {**body, "aspect_ratio": asked["ratio"]}


def _framed(asked: Effective) -> Body:
    seconds = asked["duration_s"]
    frames = _FPS * seconds + 1 if isinstance(seconds, int) else None
    return {"prompt": asked["prompt"], "seed": asked["seed"], "frames": frames}


_RATIOS = ("16:9", "4:3", "1:1", "3:4", "9:16", "21:9")  # [docs]
_FIRST, _BOTH = ("first_frame",), ("first_frame", "last_frame")
_OF_THE_FRAME = Coupling(
    when="first_frame", then="ratio", choices=("adaptive",), reason="the clip has the shape of its first frame"
)
_OF_NOTHING = Coupling(
    when="ratio", equals=("adaptive",), then="first_frame", present=True, reason="there is a shape to adapt to"
)


def _made(tier: str, source: str, frames: tuple[str, ...] = (), *, text: bool = False) -> Model:
    """A clip model of one resolution. `frames`: the pictures it takes; needed, unless it makes clips of `text` too."""
    both = bool(frames) and text
    bounds = ModelBounds(
        kind=Kind.VIDEO,
        supports=_SEED | set(frames),
        required=frozenset() if text else frozenset(frames),
        prompt_max=_PROMPT_MAX,
        seed_max=_SEED_MAX,
        durations_s=(5, 10),  # 121 or 241 frames [docs]
        resolutions=(tier,),
        ratios=(*_RATIOS, "adaptive") if both else _RATIOS if text else ("adaptive",),
        couplings=(_OF_THE_FRAME, _OF_NOTHING) if both else (),
        source=source,
    )
    return Model(_clip if text else _framed, bounds, references=frames)


_PAGE = "volcengine.com/docs/85621"
_V40 = "copy of the page of picture 4.0 of 2025-09-22, read 2026-11-30 [docs]"
_720P, _1080P = f"{_PAGE}/1792710, 2026-11-30 [docs]", f"{_PAGE}/1792711, 2026-11-30 [docs]"

MODELS: Mapping[str, Model] = {
    "jimeng_t2i_v40": Model(_group, _picture(_IMAGE, _AREA_4, 2048, _V40), ("image",), takes_bytes=False),
    "jimeng_seedream46_cvtob": Model(
        _group, _picture(_IMAGE, _AREA_4, 2048, f"as 4.0: {_V40}; [3p]"), ("image",), takes_bytes=False
    ),
    "jimeng_t2i_v30": Model(_drawn, _picture(_SEED, _AREA_3, 1328, f"{_PAGE}/1616429, 2026-11-30 [docs]")),
    "jimeng_t2i_v31": Model(_drawn, _picture(_SEED, _AREA_3, 1328, f"{_PAGE}/1756900, 2026-11-30 [docs]")),
    "jimeng_i2i_v30": Model(
        _single,
        _picture(_SEED | _IMAGE, _SIDES_EDIT, 1328, "page of the picture edit 3.0, 2026-11-30 [docs]", required=_IMAGE),
        ("image",),
    ),
    # Mind the endings: "_1080p" for text, "_1080" for frames [docs].
    "jimeng_t2v_v30": _made("720p", _720P, text=True),
    "jimeng_t2v_v30_1080p": _made("1080p", _1080P, text=True),
    "jimeng_i2v_first_v30": _made("720p", _720P, _FIRST),
    "jimeng_i2v_first_v30_1080": _made("1080p", _1080P, _FIRST),
    "jimeng_i2v_first_tail_v30": _made("720p", _720P, _BOTH),
    "jimeng_i2v_first_tail_v30_1080": _made("1080p", _1080P, _BOTH),
    "jimeng_ti2v_v30_pro": _made("1080p", f"{_PAGE}/1777001, 2026-11-30 [docs]", _FIRST, text=True),
}
