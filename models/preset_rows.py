"""PURE  One preset as a row of the configuration: what it may say, and reading it.

Invariant: a row that could make a request invalid by itself is refused when the process starts.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from models.checks import check_value
from models.fields import FIELDS, FieldSpec, Role
from models.samplers import parse_sampler
from models.sizes import MEGAPIXEL

_SHAPE = ("width", "height", "ratio", "megapixels", "resolution")
_SETTABLE = tuple(
    name
    for name, spec in FIELDS.items()
    if spec.role is not Role.PROMPT and spec.format != "reference" and name not in (*_SHAPE, "upscale_factor")
)
_ALLOWED = {
    "style": (*_SETTABLE, *_SHAPE, "max_side", "prompt", "force", "doc"),
    "mode": (*_SETTABLE, *_SHAPE, "max_side", "prompt", "force", "doc"),
    "size": (*_SHAPE, "doc"),
    "upscale": ("factor", "doc"),
}
_RATIO = re.compile(r"([1-9][0-9]{0,3}):([1-9][0-9]{0,3})")
HOLE = "{prompt}"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A shape that a preset asks for; a model gives the nearest it can.

    `ratio` is (width, height), any scale; `area` in pixels; `resolution` a video's tier. None: no
    opinion. `exact` says that the preset named width and height rather than a shape.
    """

    ratio: tuple[int, int] | None = None
    area: float | None = None
    resolution: str | None = None
    exact: bool = False


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One word of one family.

    `values` are parameters it sets, `forced` those that win even over the caller's. `max_side` is
    the longest side of a picture in pixels. `prompt` is a template with one {prompt}; "" changes
    nothing.
    """

    name: str
    values: Mapping[str, object] = field(default_factory=dict)
    forced: Mapping[str, object] = field(default_factory=dict)
    wish: Wish | None = None
    max_side: int | None = None
    prompt: str = ""
    doc: str = ""
    table: Mapping[str, object] = field(default_factory=dict, repr=False)  # as the configuration has it


class Reader:
    """Reads one preset; faults go into a list that all readers share, each with the full key."""

    def __init__(self, where: str, option: str, faults: list[str]) -> None:
        self.where, self.option, self.faults = where, option, faults

    def preset(self, name: str, row: object) -> Preset:
        """The preset of this row; where there are faults it is only good for finding more of them."""
        if not isinstance(row, Mapping):
            self.faults.append(f"{self.where}: must be a table")
            return Preset(name=name)
        for key in row:
            if key not in _ALLOWED[self.option]:
                self._fault(key, f"no such key{suggest(key, _ALLOWED[self.option])}")
        force = row.get("force", {})
        if not isinstance(force, Mapping):
            self._fault("force", "must be a table of parameters")
            force = {}
        for key in force:
            if key not in _SETTABLE:
                self._fault(f"force.{key}", f"no such parameter{suggest(key, _SETTABLE)}")
        return Preset(
            name=name,
            values=self._values(row),
            forced=self._values(force, "force."),
            wish=self._wish(row),
            max_side=self._number(row, "max_side", FIELDS["width"]),
            prompt=self._template(row),
            doc=self._doc(row),
            table=MappingProxyType(dict(row)),
        )

    def _fault(self, key: str, text: str) -> None:
        self.faults.append(f"{self.where}.{key}: {text}")

    def _checked(self, key: str, spec: FieldSpec, value: object) -> object | None:
        fault = check_value(spec, value)
        if fault is None:
            return parse_sampler(str(value)).value if spec.format == "sampler" else value
        self._fault(key, f"{fault.detail}, is {value!r}")
        return None

    def _values(self, row: Mapping[str, object], prefix: str = "") -> Mapping[str, object]:
        pairs = [(name, row[name]) for name in _SETTABLE if name in row]
        found = {name: self._checked(prefix + name, FIELDS[name], value) for name, value in pairs}
        if self.option == "upscale" and not prefix:
            if "factor" in row:
                spec = FIELDS["upscale_factor"]
                found[spec.name] = self._checked("factor", spec, row["factor"])
            else:
                self._fault("factor", "is required, between 1 and 8")
        return MappingProxyType(found)

    def _number(self, row: Mapping[str, object], key: str, spec: FieldSpec) -> int | None:
        value = self._checked(key, spec, row[key]) if key in row else None
        return value if isinstance(value, int) else None

    def _doc(self, row: Mapping[str, object]) -> str:
        doc = row.get("doc", "")
        if isinstance(doc, str):
            return doc
        self._fault("doc", f"must be a string, is {doc!r}")
        return ""

    def _template(self, row: Mapping[str, object]) -> str:
        text = row.get("prompt", "")
        if isinstance(text, str) and (not text or text.count(HOLE) == 1) and "\0" not in text:
            return text
        self._fault("prompt", f"must be a string with {HOLE} in it once, is {text!r}")
        return ""

    def _wish(self, row: Mapping[str, object]) -> Wish | None:
        if not any(key in row for key in _SHAPE):
            if self.option == "size":
                self._fault("width", "width and height, or ratio, or resolution is required")
            return None
        resolution = (
            self._checked("resolution", FIELDS["resolution"], row["resolution"]) if "resolution" in row else None
        )
        tier = resolution if isinstance(resolution, str) else None
        if "width" in row or "height" in row:
            return self._exact(row, tier)
        ratio = self._ratio(row)
        megapixels = row.get("megapixels")
        if megapixels is None:
            return Wish(ratio=ratio, resolution=tier)
        spec = FieldSpec(
            name="megapixels", kinds=FIELDS["prompt"].kinds, type="number", role=Role.MAKING, minimum=0.01, maximum=256
        )
        number = self._checked("megapixels", spec, megapixels)
        return Wish(ratio=ratio, area=number * MEGAPIXEL if isinstance(number, int | float) else None, resolution=tier)

    def _exact(self, row: Mapping[str, object], tier: str | None) -> Wish | None:
        for key in ("ratio", "megapixels"):
            if key in row:
                self._fault(key, "give either width and height or ratio and megapixels, not both")
        width, height = (self._number(row, name, FIELDS[name]) for name in ("width", "height"))
        if width is None or height is None:
            if "width" not in row or "height" not in row:
                self._fault("height" if "width" in row else "width", "width and height come together")
            return None
        shared = math.gcd(width, height)
        return Wish(ratio=(width // shared, height // shared), area=width * height, resolution=tier, exact=True)

    def _ratio(self, row: Mapping[str, object]) -> tuple[int, int] | None:
        value = row.get("ratio")
        if value is None:
            return None
        found = _RATIO.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            self._fault("ratio", f"must be two whole numbers such as 16:9, is {value!r}")
            return None
        return int(found[1]), int(found[2])


def suggest(word: str, known: Iterable[str]) -> str:
    """The likeliest of `known` for a mistyped word, else all of them, as the end of a message."""
    known = tuple(known)
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
