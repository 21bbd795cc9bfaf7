"""PURE  A request on its way from asked to effective: the steps of `contract.resolve`.

check -> take -> shape -> fill -> couple, in this order. Each adds to the values, the faults and the
lines; none stops at a fault, so that a caller learns all of them at once.

Invariant: no fault is derived from a value that has one already.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from models import frames
from models.bounds import ALWAYS, Coupling, ModelBounds
from models.checks import allowed, check_fields, check_value
from models.fields import FIELDS, OPTIONS, FieldError, FieldSpec, Kind, Role, pointer
from models.presets import Expanded, Presets, Wish, expand
from models.samplers import parse_sampler
from models.sizes import Size, SizeRule

_OFF_SHAPE = 0.05  # a ratio this much off (5 %) is another shape
_OFF_AREA = 0.25  # an area this much off is another size


class Adjusted(StrEnum):
    """Why an effective value is not the one that was asked for."""

    LEFT_OUT = "left_out"  # the model has no such parameter
    REPLACED = "replaced"  # the model has the parameter, not this value of it: its default is used
    FORCED = "forced"  # a style insists on its own value
    CLAMPED = "clamped"  # a preset's value, moved into the model's range
    COUPLED = "coupled"  # a preset's value, given up for a combination that the model takes
    SIZE_MOVED = "size_moved"  # a preset's size, moved to the nearest that the model can make
    LIMIT_LIFTED = "limit_lifted"  # a style's largest side, which the model cannot go down to
    NO_EFFECT = "no_effect"  # a preset that says nothing about this kind of task


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """One line of a task's `adjustments`.

    `field` is a parameter or an option; `effective` None: nothing was sent.
    """

    field: str
    code: str
    asked: object = None
    effective: object = None
    detail: str


class Draft:
    """A request on its way from asked to effective.

    `by` says who set a value: "" the caller, an option such as "style", or "model" for a default.
    Fields in `bad` have a fault already: no second fault is derived from them.
    """

    def __init__(self, kind: Kind, bounds: ModelBounds, presets: Presets, *, strict: bool) -> None:
        if bounds.kind != kind:
            message = f"these are the bounds of a model for {bounds.kind}, the task is {kind}"
            raise ValueError(message)
        self.kind, self.bounds, self.presets, self.strict = kind, bounds, presets, strict
        self.values: dict[str, object] = {}
        self.by: dict[str, str] = {}
        self.bad: set[str] = set()
        self.errors: list[FieldError] = []
        self.notes: list[Adjustment] = []
        self.words: dict[str, object] = {}  # options as the caller wrote them

    # What is asked, row by row

    def check(self, asked: Mapping[str, object]) -> Expanded:
        """Check every value by itself and expand the presets of those that are sound."""
        self.errors += check_fields(self.kind, asked, self._rows())
        wrong = {error.pointer for error in self.errors}
        self.bad |= {name for name in (*FIELDS, *asked) if pointer(name) in wrong}
        sound = {name: value for name, value in asked.items() if name not in self.bad}
        self.words = {option: sound.get(option) for option in OPTIONS}
        expanded = expand(self.kind, sound, self.presets)
        prompt = expanded.values.get("prompt")
        if isinstance(prompt, str) and len(prompt) > self.bounds.prompt_max:
            room = max(0, self.bounds.prompt_max - expanded.words)
            has = len(prompt) - expanded.words
            detail = (
                f"must have at most {room} characters beside the {expanded.words} that the chosen "
                f"presets add, has {has}"
            )
            self._refuse("prompt", "too_long", detail, {"type": "string", "max_length": room})
        return expanded

    def _rows(self) -> dict[str, FieldSpec]:
        """The contract's rows, narrower where the model takes them; options with their presets."""
        rows = {name: self.bounds.spec(name) if self.bounds.takes(name) else spec for name, spec in FIELDS.items()}
        # A sampler of ours that this model lacks is no mistake of the caller's: see `_sampler`.
        rows["sampler"] = FIELDS["sampler"]
        for name, spec in OPTIONS.items():
            rows[name] = dataclasses.replace(spec, choices=tuple(self.presets.family(name)))
        return rows

    def take(self, expanded: Expanded) -> None:
        """Take over what the model has; leave out or refuse the rest."""
        overruled = {line.field: line.asked for line in expanded.overruled}
        self._overrule(expanded)
        for name, value in expanded.values.items():
            by = expanded.by[name]
            if not self.bounds.takes(name):
                self._lacks(name, overruled.get(name, value), by)
                continue
            self.by[name] = by
            self.values[name] = self._sampler(value, by) if name == "sampler" else self._in_range(name, value, by)
        for option in expanded.idle:
            self._lose(
                Adjustment(
                    field=option,
                    code=Adjusted.NO_EFFECT,
                    asked=self.words.get(option),
                    detail=f"this {option} says nothing about a {self.kind}",
                )
            )

    def _overrule(self, expanded: Expanded) -> None:
        for line in expanded.overruled:
            if self.bounds.takes(line.field):
                told = Adjustment(
                    field=line.field,
                    code=Adjusted.FORCED,
                    asked=line.asked,
                    effective=line.forced,
                    detail=f"the chosen {line.by} sets {line.field} itself",
                )
                self._lose(told, code="inconsistent")

    def _lacks(self, name: str, value: object, by: str) -> None:
        spec = FIELDS[name]
        if spec.neutral is not None and value == spec.neutral:
            return
        detail = f"this model does not take {name}" + (f", which the chosen {by} sets" if by else "")
        if spec.role is Role.MAKING:
            # An option's own refusal is about the option: the caller never wrote the parameter.
            self._refuse(by or name, "not_supported_by_model", detail)
        else:
            self._lose(Adjustment(field=name, code=Adjusted.LEFT_OUT, asked=value, detail=detail), option=by)

    def _sampler(self, value: object, by: str) -> object:
        spec, found = self.bounds.spec("sampler"), parse_sampler(str(value)).value
        if spec.choices is None or found in spec.choices:
            return found
        detail = f"this model has no sampler {found}; {spec.default} is used"
        self._lose(
            Adjustment(field="sampler", code=Adjusted.REPLACED, asked=value, effective=spec.default, detail=detail),
            option=by,
        )
        return spec.default

    def _in_range(self, name: str, value: object, by: str) -> object:
        """A caller's value as it is (it was checked); a preset's moved into the model's range."""
        spec = self.bounds.spec(name)
        fault = check_value(spec, value) if by else None
        if fault is None:
            return value
        near = fault.nearest[0] if fault.nearest else None
        if near is None:
            self._refuse(
                by, "not_supported_by_model", f"the chosen {by} does not fit this model: {name} {fault.detail}"
            )
        else:
            detail = f"the chosen {by} sets {name} to {value}; this model takes it as {near}"
            self._lose(
                Adjustment(field=name, code=Adjusted.CLAMPED, asked=value, effective=near, detail=detail), option=by
            )
        return near

    def fill(self) -> None:
        """Give every parameter that nobody set its default."""
        for name in self.bounds.supports - self.values.keys() - self.bad:
            self.values[name], self.by[name] = self.bounds.default(name), "model"

    # The size

    def shape(self, expanded: Expanded) -> None:
        """Decide width and height, or resolution and ratio."""
        names = ("width", "height") if self.kind is Kind.IMAGE else ("resolution", "ratio")
        wish, by = expanded.wish, expanded.wish_by
        if wish is not None and not any(map(self.bounds.takes, names)):
            self._no_shape(by, f"this model does not let its size be chosen, which the chosen {by} does")
        if self.bad.intersection(names):
            return
        if self.bounds.size is not None:
            self._size(self.bounds.size, expanded, wish or Wish())
        elif self.kind is Kind.VIDEO and any(map(self.bounds.takes, names)):
            self._frame(wish or Wish(), by)

    def _no_shape(self, by: str, detail: str) -> None:
        if by == "size":
            self._refuse(by, "not_supported_by_model", detail)
        else:
            self._lose(Adjustment(field=by, code=Adjusted.LEFT_OUT, asked=self.words.get(by), detail=detail))

    def _size(self, rule: SizeRule, expanded: Expanded, wish: Wish) -> None:
        given = {name: side for name in ("width", "height") if isinstance(side := self.values.get(name), int)}
        tight = self._limited(rule, expanded, given)
        usual = [int(str(self.bounds.default(name))) for name in ("width", "height")]
        shape, area = wish.ratio or (usual[0], usual[1]), wish.area or usual[0] * usual[1]
        width, height = tight.fit(*shape, area)
        if len(given) == 1:
            ((name, side),) = given.items()
            other = tight.partner(name, side, height if name == "width" else width)
            width, height = (side, other or height) if name == "width" else (other or width, side)
        elif given:
            width, height = given["width"], given["height"]
        faults = rule.check(width, height)
        about = [fault for fault in faults if fault.pointer[1:] in given] or [
            dataclasses.replace(fault, pointer=pointer(name)) for fault in faults for name in given
        ]
        self.errors += about
        self.bad |= {"width", "height"} if about else set()
        by = "" if given else expanded.wish_by or "model"
        for name, side in (("width", width), ("height", height)):
            self.values[name], self.by[name] = side, "" if name in given else by
        if not given and expanded.wish is not None:
            self._tell_size((width, height), expanded.wish, expanded.wish_by)

    def _limited(self, rule: SizeRule, expanded: Expanded, given: Mapping[str, int]) -> SizeRule:
        """The rule under the style's largest side; the caller's own sides are held to it."""
        limit, by = expanded.max_side, expanded.max_side_by
        if limit is None:
            return rule
        tight = rule.limited(limit)
        if tight is None:
            detail = f"the chosen {by} wants sides of at most {limit} px, this model cannot make any"
            self._lose(Adjustment(field=by, code=Adjusted.LIMIT_LIFTED, asked=limit, detail=detail))
            return rule
        for name, side in given.items():
            if side > limit:
                detail = f"with the chosen {by}, must be at most {limit} px"
                self._refuse(name, "inconsistent", detail, {"max": limit}, [tight.bounds(name)[1]])
        return tight

    def _tell_size(self, made: Size, wish: Wish, by: str) -> None:
        """Say so when a preset's size became another: that is never refused."""
        off_shape = wish.ratio and abs(math.log(made[0] * wish.ratio[1] / (made[1] * wish.ratio[0]))) > _OFF_SHAPE
        off_area = wish.area and abs(math.log(made[0] * made[1] / wish.area)) > (0 if wish.exact else _OFF_AREA)
        if off_shape or off_area:
            text = f"{made[0]}x{made[1]}"
            self._moved(by, text, f"{text} is the nearest size that this model makes")

    def _moved(self, by: str, made: str, detail: str) -> None:
        asked = self.words.get(by)
        self.notes.append(Adjustment(field=by, code=Adjusted.SIZE_MOVED, asked=asked, effective=made, detail=detail))

    def _frame(self, wish: Wish, by: str) -> None:
        given = {name: str(value) for name, value in self.values.items() if name in ("resolution", "ratio")}
        best = frames.nearest(self.bounds, wish, given)
        if best is None:
            near = frames.ratios_at(self.bounds, given["resolution"])
            detail = f"is not made at {given['resolution']}; there are {', '.join(near)}"
            self._refuse("ratio", "inconsistent", detail, {"values": list(near)}, list(near))
            return
        for name, value in zip(("resolution", "ratio"), best, strict=True):
            if value and name not in given:
                wished = wish.ratio if name == "ratio" else wish.area or wish.resolution
                self.values[name], self.by[name] = value, by if wished else "model"
        if wish.ratio and "ratio" not in given:
            self._tell_ratio(best[1], wish.ratio, by)

    def _tell_ratio(self, made: str, wanted: tuple[int, int], by: str) -> None:
        if not made:
            self._no_shape(by, f"this model does not let the ratio be chosen, which the chosen {by} does")
        elif frames.ratio_cost(made, wanted) > _OFF_SHAPE:
            self._moved(by, made, f"{made} is the nearest ratio that this model makes")

    # What goes together

    def couple(self) -> None:
        """Refuse bad combinations of the caller's; give up a preset or default to mend one."""
        rules = (*ALWAYS, *self.bounds.couplings)
        for rule in rules:
            if self._broken(rule) and not rule.present and self.by.get(rule.then) != "":
                self._mend(rule)
        # Whatever mending could not help, or one mending spoilt for another, is refused.
        for rule in filter(self._broken, rules):
            self._refuse_coupling(rule)

    def _broken(self, rule: Coupling) -> bool:
        return not {rule.when, rule.then} & self.bad and rule.broken_by(self.values)

    def _mend(self, rule: Coupling) -> None:
        old, by = self.values.get(rule.then), self.by[rule.then]
        new = rule.mended(old)
        self.values[rule.then] = new
        if by != "model":
            line = Adjustment(field=rule.then, code=Adjusted.COUPLED, asked=old, effective=new, detail=rule.explain())
            self._lose(line, option=by)

    def _refuse_coupling(self, rule: Coupling) -> None:
        by = self.by.get(rule.when)
        source = (
            ""
            if not by
            else f"; {rule.when} is {self.values[rule.when]} by "
            + ("the model's default" if by == "model" else f"the chosen {by}")
        )
        code = "required" if rule.present else "inconsistent"
        mended = None if rule.present else rule.mended(self.values.get(rule.then))
        near = None if mended is None else [mended]
        self._refuse(rule.then, code, rule.explain() + source, rule.facts(), near)

    # What is said

    def _lose(self, line: Adjustment, *, option: str = "", code: str = "not_supported_by_model") -> None:
        """Something asked for is not done: a line, or under `strict` a refusal.

        `option` is what the caller wrote instead of the field, "" where it was the field itself.
        """
        if self.strict:
            self._refuse(option or line.field, code, line.detail)
        else:
            self.notes.append(line)

    def _refuse(
        self,
        name: str,
        code: str,
        detail: str,
        may_be: Mapping[str, object] | None = None,
        nearest: list[object] | None = None,
    ) -> None:
        if may_be is None and self.bounds.takes(name):
            may_be = allowed(self.bounds.spec(name))
        self.bad.add(name)
        self.errors.append(
            FieldError(pointer=pointer(name), code=code, detail=detail, allowed=may_be or None, nearest=nearest)
        )
