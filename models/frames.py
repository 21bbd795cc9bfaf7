"""PURE  Which resolution and ratio of a video come nearest to a wish.

A model makes certain tiers ("720p") in certain ratios ("16:9"), not always every pair. The ratio
counts first: a video in another shape is another video, one in another tier is the same video,
larger.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from models.bounds import ModelBounds
from models.presets import Wish

_TIERS = {"2k": 1440, "4k": 2160, "8k": 4320}
_FAR = 99.0


def nearest(bounds: ModelBounds, wish: Wish, given: Mapping[str, str]) -> tuple[str, str] | None:
    """The (resolution, ratio) nearest to the wish, and to the defaults where it is silent.

    `given` are the caller's own "resolution" and "ratio", which stay. A part that the model does
    not take is "". None when the model does not make the pair that was given.
    """
    legal = [
        pair
        for pair in _pairs(bounds)
        if given.get("resolution", pair[0]) == pair[0] and given.get("ratio", pair[1]) == pair[1]
    ]
    return min(legal, key=lambda pair: _cost(bounds, wish, pair), default=None)


def ratios_at(bounds: ModelBounds, resolution: str) -> list[str]:
    """The ratios that this model makes at one resolution."""
    return [ratio for tier, ratio in _pairs(bounds) if tier == resolution]


def ratio_cost(label: str, wanted: tuple[int, int]) -> float:
    """How far a ratio such as "16:9" is from (16, 9): 0.05 is 5 %. A word is far from all."""
    parts = label.split(":")
    if len(parts) != 2 or not all(part.isdigit() and int(part) for part in parts):
        return 0.0 if not label else _FAR
    return abs(math.log(int(parts[0]) * wanted[1] / (int(parts[1]) * wanted[0])))


def _pairs(bounds: ModelBounds) -> list[tuple[str, str]]:
    """Every pair there is: those with exact pixels, and any of a word that has none, such as "adaptive"."""
    tiers, ratios = bounds.resolutions or ("",), bounds.ratios or ("",)
    known_tiers, known_ratios = ({pair[place] for pair in bounds.frames} for place in (0, 1))
    return [
        (tier, ratio)
        for tier in tiers
        for ratio in ratios
        if (tier, ratio) in bounds.frames or tier not in known_tiers or ratio not in known_ratios
    ]


def _cost(bounds: ModelBounds, wish: Wish, pair: tuple[str, str]) -> tuple[float, float]:
    tier, ratio = pair
    usual_ratio, usual_tier = (
        str(bounds.default(name)) if bounds.takes(name) else "" for name in ("ratio", "resolution")
    )
    shape = ratio_cost(ratio, wish.ratio) if wish.ratio else float(ratio != usual_ratio)
    if wish.area and not wish.resolution:
        width, height = bounds.frames.get(pair) or _about_px(tier, ratio)
        return shape, abs(math.log(width * height / wish.area))
    return shape, abs(math.log(_lines(tier) / _lines(wish.resolution or usual_tier)))


def _lines(tier: str) -> int:
    """Short side in pixels of a tier: "720p" is 720. A vendor's own word counts as the least."""
    digits = tier.lower().removesuffix("p")
    return _TIERS.get(tier.lower()) or (int(digits) if digits.isdigit() and int(digits) else 1)


def _about_px(tier: str, ratio: str) -> tuple[float, float]:
    """About how many pixels a tier and ratio have where the model has no table of them."""
    short, wide = _lines(tier), ratio_cost(ratio, (1, 1))
    return short * math.exp(min(wide, 1.0)), short
