"""PURE  A model's parameters as JSON Schema: what GET /v1/models shows.

Made from the very rows that requests are checked by (models.bounds), so that the two cannot drift
apart. JSON Schema takes 1.0 for an integer where we do not, and cannot say what two sizes or steps
do to each other: those rules stand beside it under `x-weir-size` and `x-weir-couplings`.
"""

from __future__ import annotations

from typing import Any

from models.bounds import ALWAYS, ModelBounds
from models.checks import whole
from models.fields import FIELDS, OPTIONS, FieldSpec, Kind, Role
from models.presets import Presets


def json_schema(kind: Kind, bounds: ModelBounds, presets: Presets) -> dict[str, Any]:
    """JSON Schema 2020-12 of the parameters and options that this model takes.

    A tuning parameter that the model lacks is there too, marked `x-weir-left-out`: sending it is no
    error, it is left out. Parameters that would be refused are not there.
    """
    properties: dict[str, Any] = {}
    for name, spec in FIELDS.items():
        if bounds.takes(name):
            properties[name] = _property(bounds.spec(name))
        elif kind in spec.kinds and spec.role is Role.TUNING:
            properties[name] = _property(spec) | {"x-weir-left-out": True}
            properties[name].pop("default", None)
    for name, spec in OPTIONS.items():
        choices = list(presets.family(name))
        if choices and _usable(name, bounds):
            properties[name] = {"type": ["string", "null"], "enum": [*choices, None], "description": spec.doc}
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": [name for name in FIELDS if bounds.takes(name) and bounds.spec(name).required],
        "additionalProperties": False,
    }
    if bounds.size is not None:
        schema["x-weir-size"] = bounds.size.facts()
    if bounds.frames:
        schema["x-weir-frames"] = [
            {"resolution": resolution, "ratio": ratio, "width": width, "height": height}
            for (resolution, ratio), (width, height) in bounds.frames.items()
        ]
    rules = [rule.explain() for rule in (*ALWAYS, *bounds.couplings) if bounds.takes(rule.when)]
    if rules:
        schema["x-weir-couplings"] = rules
    return schema


def _usable(option: str, bounds: ModelBounds) -> bool:
    needs = {"size": ("width", "resolution", "ratio"), "upscale": ("upscale_factor",)}
    return option not in needs or any(map(bounds.takes, needs[option]))


def _property(spec: FieldSpec) -> dict[str, Any]:
    """One row as a schema; null is as good as absent where the field may be absent."""
    found: dict[str, Any] = {"type": spec.type if spec.required else [spec.type, "null"], "description": spec.doc}
    if spec.choices is not None:
        found["enum"] = [*spec.choices, *(() if spec.required else (None,))]
    elif spec.minimum is not None and spec.maximum is not None:
        found |= {"minimum": whole(spec.minimum), "maximum": whole(spec.maximum)}
    if spec.step is not None:
        found["multipleOf"] = spec.step
    if spec.max_length is not None and spec.choices is None:
        found["maxLength"] = spec.max_length
    if spec.role is Role.PROMPT:
        found["minLength"] = 1
    if spec.default is not None:
        found["default"] = spec.default
    if spec.unit:
        found["x-weir-unit"] = spec.unit
    return found
