"""PURE  From what a caller asked to what is sent: the parameter language in one call.

`resolve` takes the parameters of a request, one model's bounds and the presets, and gives the
complete set of values that is sent upstream, reported as `effective` and priced; or it refuses,
naming every fault at once.

Weakest first: defaults (the model's before the contract's) < style < mode < size < upscale < what
the caller wrote < what a style forces. What a model lacks is left out and named (tuning) or refused
(whatever changes what is made).

Invariants: the effective values pass again unchanged and without any adjustment; nothing that was
asked for is dropped without a line; the caller's own value is never moved into range, it is
refused.

The rows are in models.fields, what a model can do in models.bounds, sizes in models.sizes; their
public names are repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from models.bounds import Coupling, ModelBounds
from models.checks import check_types
from models.describe import json_schema
from models.draft import Adjusted, Adjustment, Draft
from models.fields import FIELDS, OPTIONS, SEED_MAX, FieldError, FieldSpec, Invalid, Kind, Priority, Role
from models.presets import Presets
from models.samplers import Sampler
from models.sizes import SizeRule

__all__ = [
    "FIELDS",
    "OPTIONS",
    "SEED_MAX",
    "Adjusted",
    "Adjustment",
    "Checked",
    "Coupling",
    "FieldError",
    "FieldSpec",
    "Invalid",
    "Kind",
    "ModelBounds",
    "Presets",
    "Priority",
    "Role",
    "Sampler",
    "SizeRule",
    "check_types",
    "image_seeds",
    "json_schema",
    "resolve",
]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A request that can be sent: each parameter the model takes, final, and what was changed.

    A parameter whose final value is nothing (no reference image) is left out.
    """

    effective: dict[str, object]
    adjustments: tuple[Adjustment, ...]


def resolve(
    kind: Kind,
    asked: Mapping[str, object],
    bounds: ModelBounds,
    presets: Presets,
    *,
    strict: bool,
    draw: Callable[[int, int], int],
) -> Checked:
    """The values to send for `asked`: parameters and options of a flat request, null as absent.

    `draw(low, high)` gives a whole number in [low, high]; it is called at most once, for a seed
    that is absent or -1 on a model that takes seeds. `strict` refuses whatever would be left out,
    replaced, clamped or overruled; a size preset still becomes the nearest size of the model.

    Raises Invalid with every fault at once, those of `check_types` included, sorted by pointer, at
    most 50.
    """
    draft = Draft(kind, bounds, presets, strict=strict)
    expanded = draft.check(asked)
    draft.take(expanded)
    draft.shape(expanded)
    draft.fill()
    draft.couple()
    if draft.errors:
        raise Invalid(draft.errors)
    if bounds.takes("seed") and draft.values.get("seed", -1) == -1:
        draft.values["seed"] = draw(0, bounds.seed_max)
    effective = {name: draft.values[name] for name in FIELDS if draft.values.get(name) is not None}
    return Checked(effective=effective, adjustments=tuple(draft.notes))


def image_seeds(first: int, count: int, seed_max: int = SEED_MAX) -> tuple[int, ...]:
    """One seed per image: up from `first`, and on from 0 after the model's `seed_max`."""
    return tuple((first + place) % (seed_max + 1) for place in range(count))
