"""PURE  What one upstream model can do, as data.

Adapters write these; the contract, the schema of GET /v1/models and the tests read them. A model
narrows the rows of models.fields: a smaller range, a shorter list, a default of its own.
Combinations that a model refuses are data too (`Coupling`), so that the refusal can explain itself.

Invariant: a ModelBounds that contradicts itself cannot be built: its own defaults are values it
takes.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from models.checks import check_value, whole
from models.fields import FIELDS, SEED_MAX, FieldSpec, Kind
from models.samplers import Sampler
from models.sizes import Size, SizeRule


@dataclass(frozen=True, kw_only=True)
class Coupling:
    """When `when` has certain values, `then` may have only some.

    It applies while `when` is at least `at_least`, or is one of `equals`, or (neither given) is
    there at all. Then `then` must lie within [minimum, maximum], be one of `choices`, be `absent`,
    or be `present`: what is given counts. `reason` is one clause in plain words for whoever is
    refused.
    """

    when: str
    then: str
    at_least: float | None = None
    equals: tuple[object, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[object, ...] = ()
    absent: bool = False
    present: bool = False
    reason: str = ""

    def broken_by(self, values: Mapping[str, object]) -> bool:
        """Whether these final values (absent or None: not there) are refused together."""
        return self._applies(values.get(self.when)) and not self._satisfied(values.get(self.then))

    def _applies(self, value: object) -> bool:
        if value is None:
            return False
        if self.at_least is not None:
            return isinstance(value, int | float) and value >= self.at_least
        return not self.equals or value in self.equals

    def _satisfied(self, value: object) -> bool:
        if self.absent or value is None:
            return (value is None) if self.absent else not self.present
        if self.choices and value not in self.choices:
            return False
        if not isinstance(value, int | float):
            return True
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)

    def mended(self, value: object) -> object:
        """The value of `then` nearest to `value` that satisfies this; None for leaving it out."""
        if self.choices:
            return self.choices[0]
        if self.absent or not isinstance(value, int | float):
            return None
        low, high = self.minimum, self.maximum
        return low if low is not None and value < low else high if high is not None else value

    def explain(self) -> str:
        """The rule in words: "with steps of 40 or more, image_count must be at most 1"."""
        if self.at_least is not None:
            condition = f"with {self.when} of {whole(self.at_least)} or more"
        elif self.equals:
            condition = f"with {self.when} {' or '.join(map(str, self.equals))}"
        else:
            condition = f"with {self.when}"
        rules = [
            "must be left out" if self.absent else "",
            "must be given" if self.present else "",
            f"must be one of {', '.join(map(str, self.choices))}" if self.choices else "",
            f"must be at least {whole(self.minimum)}" if self.minimum is not None else "",
            f"must be at most {whole(self.maximum)}" if self.maximum is not None else "",
        ]
        reason = f" ({self.reason})" if self.reason else ""
        return f"{condition}, {self.then} {' and '.join(rule for rule in rules if rule)}{reason}"

    def facts(self) -> dict[str, object]:
        """What `then` may be while this applies: the `allowed` of a FieldError."""
        found: dict[str, object] = {"values": list(self.choices)} if self.choices else {}
        if self.minimum is not None:
            found["min"] = whole(self.minimum)
        if self.maximum is not None:
            found["max"] = whole(self.maximum)
        return found


ALWAYS: tuple[Coupling, ...] = (
    Coupling(when="mask", then="image", present=True, reason="a mask says what of the image to change"),
    Coupling(when="last_frame", then="first_frame", present=True, reason="a video needs a start to end elsewhere"),
)
"""Couplings of every model, whatever its own are."""


@dataclass(frozen=True, kw_only=True)
class ModelBounds:
    """What one upstream model takes and makes.

    `supports` names the FIELDS it takes. Giving a range or list for a field says that it is taken,
    and so do `size` for width and height, `image_count_max` for image_count and `durations_s` for
    duration_s (every video model has at least one: it is what is priced). `prompt_max` and
    `negative_prompt_max` count characters. `seed_max` is inclusive. `frames` gives the exact pixels
    of a resolution and ratio; a pair that is not in it cannot be made; empty: the model takes the
    two words as they are. `upscale_max` is the largest `upscale_factor`. `required` fields must be
    there, such as the first frame of an image-to-video model. `defaults` are the model's own and
    win over those of FIELDS. `source` says where all this is written (vendor document and date).

    Raises ValueError, naming the field and the value, when the parts contradict each other.
    """

    kind: Kind
    supports: frozenset[str] = frozenset()
    size: SizeRule | None = None
    prompt_max: int
    negative_prompt_max: int | None = None
    seed_max: int = SEED_MAX
    image_count_max: int = 1
    steps: tuple[int, int] | None = None
    cfg_scale: tuple[float, float] | None = None
    samplers: tuple[Sampler, ...] | None = None
    upscale_max: float | None = None
    durations_s: tuple[int, ...] = ()
    resolutions: tuple[str, ...] = ()
    ratios: tuple[str, ...] = ()
    frames: Mapping[tuple[str, str], Size] = field(default_factory=dict)
    fps: tuple[int, int] | None = None
    required: frozenset[str] = frozenset()
    defaults: Mapping[str, object] = field(default_factory=dict)
    couplings: tuple[Coupling, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        # Frozen for everyone else: from here on `supports` is complete and the tables cannot be
        # written to.
        resolutions = self.resolutions or tuple(dict.fromkeys(resolution for resolution, _ in self.frames))
        ratios = self.ratios or tuple(dict.fromkeys(ratio for _, ratio in self.frames))
        object.__setattr__(self, "resolutions", resolutions)
        object.__setattr__(self, "ratios", ratios)
        object.__setattr__(self, "frames", MappingProxyType(dict(self.frames)))
        object.__setattr__(self, "defaults", MappingProxyType(dict(self.defaults)))
        object.__setattr__(self, "supports", self.supports | self.required | self._implied())
        faults = [*self._unknown(), *self._incomplete()] or self._bad_defaults()
        if faults:
            raise ValueError("; ".join(faults))

    def takes(self, name: str) -> bool:
        """Whether the model has this parameter."""
        return name in self.supports

    def spec(self, name: str) -> FieldSpec:
        """The row of FIELDS as far as this model takes it: its range, list, length and default."""
        return self._specs[name]

    def default(self, name: str) -> object:
        """The value when nobody says any: the model's own, else the contract's moved into range."""
        return self._specs[name].default

    def frame_px(self, effective: Mapping[str, object]) -> Size | None:
        """(width, height) of the video in pixels; None where the model or a first frame decides."""
        return self.frames.get((str(effective.get("resolution")), str(effective.get("ratio"))))

    @cached_property
    def _specs(self) -> Mapping[str, FieldSpec]:
        return MappingProxyType({name: self._finished(self._narrow(name)) for name in FIELDS if name in self.supports})

    def _implied(self) -> frozenset[str]:
        image, given = (
            self.kind is Kind.IMAGE,
            {
                "negative_prompt": self.negative_prompt_max,
                "steps": self.steps,
                "cfg_scale": self.cfg_scale,
                "samplers": self.samplers,
                "upscale_factor": self.upscale_max,
                "resolution": self.resolutions or None,
                "ratio": self.ratios or None,
                "fps": self.fps,
                "width": self.size,
                "height": self.size,
            },
        )
        names = {("sampler" if name == "samplers" else name) for name, value in given.items() if value is not None}
        return frozenset(names | {"prompt", "image_count" if image else "duration_s"})

    def _narrow(self, name: str) -> FieldSpec:
        spec = FIELDS[name]
        lengths = {"prompt": self.prompt_max, "negative_prompt": self.negative_prompt_max}
        ranges = {
            "steps": self.steps,
            "cfg_scale": self.cfg_scale,
            "fps": self.fps,
            "seed": (-1, self.seed_max),
            "image_count": (1, self.image_count_max),
            "upscale_factor": self._upscale(),
        }
        choices: dict[str, tuple[str | int, ...]] = {"resolution": self.resolutions, "ratio": self.ratios}
        if name in ("width", "height") and self.size is not None:
            low, high = self.size.bounds(name)
            step = None if self.size.sizes or self.size.step == 1 else self.size.step
            return dataclasses.replace(spec, minimum=low, maximum=high, step=step)
        if name == "duration_s":
            return self._durations(spec)
        if name == "sampler" and self.samplers is not None:
            return dataclasses.replace(spec, choices=tuple(sampler.value for sampler in self.samplers))
        if name in choices:
            return dataclasses.replace(spec, choices=choices[name])
        span = ranges.get(name)
        if span is not None:
            spec = dataclasses.replace(spec, minimum=span[0], maximum=span[1])
        return dataclasses.replace(spec, max_length=lengths.get(name) or spec.max_length)

    def _upscale(self) -> tuple[float, float] | None:
        return None if self.upscale_max is None else (1, self.upscale_max)

    def _durations(self, spec: FieldSpec) -> FieldSpec:
        """A range where every second is there, else the list."""
        low, high = min(self.durations_s), max(self.durations_s)
        if set(self.durations_s) == set(range(low, high + 1)):
            return dataclasses.replace(spec, minimum=low, maximum=high)
        return dataclasses.replace(spec, minimum=low, maximum=high, choices=tuple(sorted(self.durations_s)))

    def _finished(self, spec: FieldSpec) -> FieldSpec:
        """With the model's default, or the contract's moved into the model's range."""
        spec = dataclasses.replace(spec, required=spec.required or spec.name in self.required)
        if spec.name in self.defaults:
            return dataclasses.replace(spec, default=self.defaults[spec.name])
        fault = check_value(spec, spec.default) if spec.default is not None else None
        if fault is None:
            return spec
        near = fault.nearest[0] if fault.nearest else spec.choices[0] if spec.choices else None
        return dataclasses.replace(spec, default=near)

    def _unknown(self) -> list[str]:
        named = {"supports": self.supports, "defaults": set(self.defaults)}
        named["couplings"] = {name for rule in self.couplings for name in (rule.when, rule.then)}
        mine = [name for name, spec in FIELDS.items() if self.kind in spec.kinds]
        return [
            f"{where}: {self.kind} has no parameter {name!r}"
            + "".join(f"; did you mean {close}?" for close in difflib.get_close_matches(name, mine, n=1))
            for where, names in named.items()
            for name in sorted(names - set(mine))
        ]

    def _incomplete(self) -> list[str]:
        needs = {
            "size": self.size is None and self.supports & {"width", "height"},
            "durations_s": self.kind is Kind.VIDEO and not self.durations_s,
            "resolutions": self.takes("resolution") and not self.resolutions,
            "ratios": self.takes("ratio") and not self.ratios,
            "prompt_max, seed_max and image_count_max": min(self.prompt_max, self.seed_max, self.image_count_max) < 1,
            "frames (they use words that resolutions and ratios do not have)": any(
                resolution not in self.resolutions or ratio not in self.ratios for resolution, ratio in self.frames
            ),
        }
        return [f"{name}: missing or not usable" for name, missing in needs.items() if missing]

    def _bad_defaults(self) -> list[str]:
        faults = [
            f"defaults: {name} = {value!r}: {fault.detail}"
            for name, value in self.defaults.items()
            if self.takes(name) and (fault := check_value(self.spec(name), value)) is not None
        ]
        faults += [f"defaults: {name}: the model does not take it" for name in self.defaults if not self.takes(name)]
        width, height = self.defaults.get("width"), self.defaults.get("height")
        if (width is None) != (height is None):
            faults.append("defaults: width and height come together")
        if self.size and isinstance(width, int) and isinstance(height, int) and not self.size.is_legal(width, height):
            faults.append(f"defaults: {width}x{height} is not a legal size of the model")
        return faults
