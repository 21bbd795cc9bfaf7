"""PURE  Words that expand: style, mode, size, upscale.

A preset is a row of the configuration. It sets parameters of the contract, may force some (a style
whose look depends on them), may put words around the prompt, may limit the size, and may wish for a
shape. It never passes anything to a vendor that the contract does not have.

Order, weakest first: style, mode, size, upscale, what the caller wrote, what a style forces.

Invariant: `expand` takes the words away that it expands, so that expanding twice changes nothing.

    [presets.styles.anime]                       [presets.sizes.square] max_side = 1024
    width = 1024 prompt = "{prompt}, anime"                   height = 1024 force = {
    negative_prompt = "photo" }        [presets.sizes.landscape] [presets.modes.fast]
    ratio = "16:9" steps = 15                                   megapixels = 1.0
    [presets.upscales.x2]                        resolution = "1080p"     # for videos; ratio alone
    keeps the default factor = 2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from models.fields import FIELDS, Kind
from models.preset_rows import HOLE, Preset, Reader, Wish, suggest

__all__ = ["Expanded", "Overruled", "Preset", "Presets", "Wish", "expand"]

_FAMILIES = {"style": "styles", "mode": "modes", "size": "sizes", "upscale": "upscales"}  # weakest first


@dataclass(frozen=True, kw_only=True)
class Presets:
    """Every preset of an installation, by family and name."""

    styles: Mapping[str, Preset] = field(default_factory=dict)
    modes: Mapping[str, Preset] = field(default_factory=dict)
    sizes: Mapping[str, Preset] = field(default_factory=dict)
    upscales: Mapping[str, Preset] = field(default_factory=dict)

    @classmethod
    def from_tables(cls, tables: Mapping[str, object]) -> Presets:
        """Presets from the `presets` table of the configuration, as tomllib gives it.

        Raises ValueError listing every fault, one per line: key, value, allowed range, the likely
        key for an unknown.
        """
        faults: list[str] = []
        families = {family: option for option, family in _FAMILIES.items()}
        found: dict[str, dict[str, Preset]] = {family: {} for family in families}
        for family, rows in tables.items():
            if family not in families:
                faults.append(f"presets.{family}: no such family{suggest(family, families)}")
            elif not isinstance(rows, Mapping):
                faults.append(f"presets.{family}: must be a table of presets")
            else:
                for name, row in rows.items():
                    read = Reader(f"presets.{family}.{name}", families[family], faults)
                    found[family][name] = read.preset(name, row)
        if faults:
            raise ValueError("\n".join(faults))
        return cls(**{family: MappingProxyType(rows) for family, rows in found.items()})

    def to_tables(self) -> dict[str, dict[str, dict[str, object]]]:
        """The tables these presets were read from, as GET /v1/presets shows them."""
        return {
            family: {name: dict(preset.table) for name, preset in self.family(option).items()}
            for option, family in _FAMILIES.items()
        }

    def family(self, option: str) -> Mapping[str, Preset]:
        """The presets of "style", "mode", "size" or "upscale"."""
        found: Mapping[str, Preset] = getattr(self, _FAMILIES[option])
        return found


@dataclass(frozen=True, kw_only=True)
class Overruled:
    """A value of the caller's that a preset forced away."""

    field: str
    asked: object
    forced: object
    by: str  # the option: "style"


@dataclass(frozen=True, kw_only=True)
class Expanded:
    """A request without preset words.

    `values` holds parameters only. `by` says for each of them who set it last: an option's name, or
    "" for the caller. `wish` and `wish_by` are the shape that the presets ask for and the option
    that asked. `max_side` (pixels) and `max_side_by` limit a picture. `words` is how many
    characters a template put around the prompt. `idle` are the options whose preset says nothing
    about this kind of task.
    """

    values: Mapping[str, object]
    by: Mapping[str, str]
    overruled: tuple[Overruled, ...] = ()
    wish: Wish | None = None
    wish_by: str = ""
    max_side: int | None = None
    max_side_by: str = ""
    words: int = 0
    idle: tuple[str, ...] = ()


def expand(kind: Kind, asked: Mapping[str, object], presets: Presets) -> Expanded:
    """`asked` with its style, mode, size and upscale replaced by what they stand for.

    Explicit values win over a preset's, forced ones over both. A word that is no preset changes
    nothing: refusing it is the contract's business. null counts as absent.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    chosen = list(_chosen(given, presets))
    values: dict[str, object] = {}
    by: dict[str, str] = {}
    for option, preset in chosen:
        for name, value in _of_kind(kind, preset.values):
            values[name], by[name] = value, option
    for name, value in given.items():
        if name not in _FAMILIES:
            values[name], by[name] = value, ""
    overruled = []
    for option, preset in chosen:
        for name, value in _of_kind(kind, preset.forced):
            if by.get(name) == "" and values[name] != value:
                overruled.append(Overruled(field=name, asked=values[name], forced=value, by=option))
            values[name], by[name] = value, option
    words = _wrap(values, chosen)
    wish, wish_by = _wish(kind, chosen)
    limits = [(preset.max_side, option) for option, preset in chosen if preset.max_side and kind is Kind.IMAGE]
    max_side, max_side_by = min(limits, default=(None, ""))
    idle = tuple(option for option, preset in chosen if not _says_anything(kind, preset))
    return Expanded(
        values=values,
        by=by,
        overruled=tuple(overruled),
        wish=wish,
        wish_by=wish_by,
        max_side=max_side,
        max_side_by=max_side_by,
        words=words,
        idle=idle,
    )


def _chosen(given: Mapping[str, object], presets: Presets) -> Iterator[tuple[str, Preset]]:
    for option in _FAMILIES:
        name = given.get(option)
        preset = presets.family(option).get(name) if isinstance(name, str) else None
        if preset is not None:
            yield option, preset


def _of_kind(kind: Kind, values: Mapping[str, object]) -> list[tuple[str, object]]:
    return [(name, value) for name, value in values.items() if kind in FIELDS[name].kinds]


def _says_anything(kind: Kind, preset: Preset) -> bool:
    return bool(
        _shapes(kind, preset.wish)
        or (preset.max_side and kind is Kind.IMAGE)
        or preset.prompt
        or _of_kind(kind, preset.values)
        or _of_kind(kind, preset.forced)
    )


def _shapes(kind: Kind, wish: Wish | None) -> bool:
    """A tier alone says nothing about a picture."""
    return wish is not None and (kind is Kind.VIDEO or wish.ratio is not None or wish.area is not None)


def _wrap(values: dict[str, object], chosen: list[tuple[str, Preset]]) -> int:
    """Put the templates around the prompt, in place; how many characters they add."""
    words = 0
    for _, preset in chosen:
        prompt = values.get("prompt")
        if preset.prompt and isinstance(prompt, str):
            before, after = preset.prompt.split(HOLE)
            values["prompt"] = before + prompt + after
            words += len(before) + len(after)
    return words


def _wish(kind: Kind, chosen: list[tuple[str, Preset]]) -> tuple[Wish | None, str]:
    """The shape that all presets together ask for: each part from the strongest that names it."""
    wish, by = Wish(), ""
    for option, preset in chosen:
        new = preset.wish
        if new is None or not _shapes(kind, new):
            continue
        # A stronger preset that names an area has overtaken a weaker one's tier: both say how
        # large.
        tier = new.resolution or (None if new.area else wish.resolution)
        wish = Wish(ratio=new.ratio or wish.ratio, area=new.area or wish.area, resolution=tier, exact=new.exact)
        by = option
    return (wish, by) if by else (None, "")
