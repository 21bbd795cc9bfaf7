"""PURE  Which picture sizes a model can make, and the nearest one to a wish.

A rule is either a grid with bounds (step, sides, area, ratio) or a list of exact sizes. All lengths
in pixels. A wish is a shape (ratio) and an area; it always ends in a legal size, as close as the
rule allows, the shape first.

Invariant: whatever `fit`, `nearest` and `partner` give passes `check`; a rule that no size
satisfies cannot be built.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from models.fields import FieldError, pointer

Size = tuple[int, int]

MEGAPIXEL = 1024 * 1024  # as image models count: 1.0 is 1024 x 1024
_WINDOW = 256  # widths tried on each side of the ideal one before all of them are
_RATIO_WEIGHT = 8.0  # one per cent off the shape is as bad as eight per cent off the area
_INEXACT = 0.05  # what an exact ratio is worth: five per cent of area


@dataclass(frozen=True, kw_only=True)
class SizeRule:
    """Legal sizes of one model, in pixels.

    A side is a multiple of `step` within [min_side, max_side]; width x height lies within
    [min_pixels, max_pixels] and width / height within [min_ratio, max_ratio]. None is no bound.
    With `sizes` these exact ones are legal and nothing else counts. Raises ValueError when no size
    is legal.
    """

    step: int = 1
    min_side: int = 64
    max_side: int = 16384
    min_pixels: int | None = None
    max_pixels: int | None = None
    min_ratio: float | None = None
    max_ratio: float | None = None
    sizes: tuple[Size, ...] = ()

    def __post_init__(self) -> None:
        if self.step < 1 or _fit(self, 1, 1, MEGAPIXEL) is None:
            message = f"no size satisfies {self}"
            raise ValueError(message)

    def check(self, width: int, height: int) -> tuple[FieldError, ...]:
        """What is wrong with this size, by field, with the nearest legal values; or ()."""
        if self.sizes:
            return () if (width, height) in self.sizes else self._not_listed(width, height)
        wrong = [name for name, side in (("width", width), ("height", height)) if not self.is_side(side)]
        if wrong:
            return tuple(self._wrong_side(name, width, height) for name in wrong)
        return self._wrong_pair(width, height)

    def is_legal(self, width: int, height: int) -> bool:
        """Whether the model can make this size."""
        if self.sizes:
            return (width, height) in self.sizes
        return self.is_side(width) and self.is_side(height) and self.is_pair(width, height)

    def fit(self, ratio_width: float, ratio_height: float, area: float) -> Size:
        """The legal size nearest to this shape (width to height) and area (pixels)."""
        found = _fit(self, ratio_width, ratio_height, area)
        assert found is not None, "a rule without any legal size cannot be built"
        return found

    def nearest(self, width: int, height: int) -> tuple[Size, ...]:
        """Up to four legal sizes near this one, nearest first; itself alone when it is legal."""
        if self.is_legal(width, height):
            return ((width, height),)
        if self.sizes:
            return tuple(sorted(self.sizes, key=lambda size: _cost(size, width, height, width * height))[:4])
        around = {
            (near_width, near_height)
            for near_width in self._multiples_around(width)
            for near_height in self._multiples_around(height)
            if self.is_pair(near_width, near_height)
        }
        around.add(self.fit(width, height, width * height))
        return tuple(sorted(around, key=lambda size: (_distance(size, (width, height)), size))[:4])

    def partner(self, name: str, side: int, wanted: int) -> int | None:
        """The other side nearest to `wanted` that is legal with `side` as `name`; or None.

        `name` is "width" or "height".
        """
        rule = self if name == "width" else self._turned()
        if rule.sizes:
            others = [height for width, height in rule.sizes if width == side]
            return min(others, key=lambda height: abs(height - wanted), default=None)
        return _best_height(rule, side, wanted) if rule.is_side(side) else None

    def limited(self, max_side: int) -> SizeRule | None:
        """The same rule with no side above `max_side`; None when that leaves nothing."""
        try:
            if self.sizes:
                kept = tuple(size for size in self.sizes if max(size) <= max_side)
                return dataclasses.replace(self, sizes=kept) if kept else None
            return dataclasses.replace(self, max_side=min(self.max_side, max_side))
        except ValueError:
            return None

    def bounds(self, name: str) -> tuple[int, int]:
        """Least and greatest "width" or "height", as far as one side alone tells."""
        if self.sizes:
            sides = [size[name == "height"] for size in self.sizes]
            return min(sides), max(sides)
        return self.side_up(self.min_side), self.side_down(self.max_side)

    def facts(self) -> dict[str, object]:
        """The rule as data, for `allowed` and for GET /v1/models."""
        if self.sizes:
            return {"sizes": [_as_fields(size) for size in self.sizes]}
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "sizes"}
        return {name: value for name, value in facts.items() if value is not None}

    def _turned(self) -> SizeRule:
        return dataclasses.replace(
            self,
            min_ratio=1 / self.max_ratio if self.max_ratio else None,
            max_ratio=1 / self.min_ratio if self.min_ratio else None,
            sizes=tuple((height, width) for width, height in self.sizes),
        )

    def side_up(self, side: float) -> int:
        """The least multiple of the step that is not below `side`."""
        return math.ceil(side / self.step) * self.step

    def side_down(self, side: float) -> int:
        """The greatest multiple of the step that is not above `side`."""
        return math.floor(side / self.step) * self.step

    def is_side(self, side: int) -> bool:
        """Whether one side by itself is legal on the grid."""
        return side % self.step == 0 and self.min_side <= side <= self.max_side

    def is_pair(self, width: int, height: int) -> bool:
        """Whether area and ratio are legal on the grid."""
        low, high = self.min_pixels or 0, self.max_pixels or math.inf
        narrow, wide = self.min_ratio or 0, self.max_ratio or math.inf
        return low <= width * height <= high and narrow * height <= width <= wide * height

    def _multiples_around(self, side: int) -> list[int]:
        low, high = self.bounds("width")
        return sorted({min(high, max(low, near)) for near in (self.side_down(side), self.side_up(side))})

    def _wrong_side(self, name: str, width: int, height: int) -> FieldError:
        side, other = (width, height) if name == "width" else (height, width)
        near = self._multiples_around(side)
        if self.is_side(other):
            # Name only what makes a legal size together with the other side, where anything near
            # does.
            near = [n for n in near if self.is_pair(*((n, other) if name == "width" else (other, n)))] or near
        low, high = self.bounds(name)
        grid = f"a multiple of {self.step} " if self.step > 1 else ""
        return FieldError(
            pointer=pointer(name),
            code="out_of_range",
            detail=f"must be {grid}between {low} and {high}, is {side}; nearest: " + " and ".join(map(str, near)),
            allowed={"min": low, "max": high, "step": self.step},
            nearest=list(near),
        )

    def _wrong_pair(self, width: int, height: int) -> tuple[FieldError, ...]:
        if self.is_pair(width, height):
            return ()
        near = self.nearest(width, height)
        area, rules = width * height, []
        if self.min_pixels and area < self.min_pixels:
            rules.append(f"width x height must be at least {self.min_pixels} pixels, is {area}")
        if self.max_pixels and area > self.max_pixels:
            rules.append(f"width x height must be at most {self.max_pixels} pixels, is {area}")
        if not rules:
            low, high = self.min_ratio or 0, self.max_ratio or math.inf
            rules.append(f"width / height must be between {low:.4g} and {high:.4g}, is {width / height:.4g}")
        return self._both(f"{'; '.join(rules)}; nearest: {_listed(near)}", near, "out_of_range")

    def _not_listed(self, width: int, height: int) -> tuple[FieldError, ...]:
        detail = f"{width}x{height} is not one of the sizes of this model: {_listed(self.sizes)}"
        return self._both(detail, self.nearest(width, height), "not_one_of")

    def _both(self, detail: str, near: tuple[Size, ...], code: str) -> tuple[FieldError, ...]:
        """One fault of the two sides together: both are named, since either may be mended."""
        nearest: list[object] = [_as_fields(size) for size in near]
        return tuple(
            FieldError(pointer=pointer(name), code=code, detail=detail, allowed=self.facts(), nearest=nearest)
            for name in ("width", "height")
        )


def _as_fields(size: Size) -> dict[str, int]:
    return {"width": size[0], "height": size[1]}


def _listed(sizes: tuple[Size, ...]) -> str:
    return ", ".join(f"{width}x{height}" for width, height in sizes)


def _distance(size: Size, asked: Size) -> float:
    return sum(abs(math.log(side / wanted)) for side, wanted in zip(size, asked, strict=True))


def _cost(size: Size, ratio_width: float, ratio_height: float, area: float) -> float:
    """How far a size is from a wish: 0 is the wish itself. An exact ratio is worth some area."""
    across, down = size[0] * ratio_height, size[1] * ratio_width
    off = abs(math.log(size[0] * size[1] / area))
    return off if across == down else off + _INEXACT + _RATIO_WEIGHT * abs(math.log(across / down))


@lru_cache(maxsize=1024)
def _fit(rule: SizeRule, ratio_width: float, ratio_height: float, area: float) -> Size | None:
    if rule.sizes:
        return min(rule.sizes, key=lambda size: _cost(size, ratio_width, ratio_height, area))
    if rule.max_side**2 < (rule.min_pixels or 0) or rule.min_side**2 > (rule.max_pixels or math.inf):
        return None
    low, high = rule.min_pixels or 0, rule.max_pixels or math.inf
    ideal = math.sqrt(min(high, max(low, area)) * ratio_width / ratio_height)
    for widths in _widths(rule, ideal):
        found = [
            (width, height)
            for width in widths
            if (height := _best_height(rule, width, width * ratio_height / ratio_width)) is not None
        ]
        if found:
            return min(found, key=lambda size: (_cost(size, ratio_width, ratio_height, area), size))
    return None


def _widths(rule: SizeRule, ideal: float) -> Iterator[range]:
    """Widths worth trying: first those near the ideal one, then all."""
    first, last = rule.bounds("width")
    middle = rule.side_down(min(last, max(first, ideal)))
    reach = _WINDOW * rule.step
    yield range(max(first, middle - reach), min(last, middle + reach) + 1, rule.step)
    yield range(first, last + 1, rule.step)


def _best_height(rule: SizeRule, width: int, wanted: float) -> int | None:
    """The legal height for this width that is nearest to `wanted`, or None."""
    low = max(rule.min_side, (rule.min_pixels or 0) / width, width / (rule.max_ratio or math.inf))
    high = min(rule.max_side, (rule.max_pixels or math.inf) / width, width / (rule.min_ratio or 1e-9))
    first, last = rule.side_up(low), rule.side_down(high)
    if first > last:
        return None
    near = (min(last, max(first, side)) for side in (rule.side_down(wanted), rule.side_up(wanted)))
    legal = [side for side in near if rule.is_pair(width, side)]
    return min(legal, key=lambda side: abs(side - wanted), default=None)
