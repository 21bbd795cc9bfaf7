"""Every field of the contract for every model of every adapter: taken, left out or refused, as /v1/models says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from models.bounds import ALWAYS
from models.contract import FIELDS, Checked, FieldSpec, Invalid, ModelBounds, Presets, Role, json_schema, resolve
from providers import PROVIDERS
from providers.port import Provider
from tests.contract.vendors import made

LINK = "https://example.com/a.png"
NONE = Presets()
Asked = dict[str, object]


def models() -> Iterator[tuple[str, str]]:
    for name in sorted(PROVIDERS):
        for model in sorted(provider(name).capabilities.models):
            yield name, model


def provider(name: str) -> Provider:
    return made(name, "http://127.0.0.1:9").provider


EVERY = list(models())


def legal(spec: FieldSpec) -> object:
    """A value of this row: the default where it says anything."""
    if spec.format == "reference":
        return LINK
    if spec.default not in (None, "", -1):
        return spec.default
    if spec.choices is not None:
        return spec.choices[0]
    return {"string": "words", "boolean": True}.get(spec.type, spec.minimum if spec.minimum != -1 else 7)


def wrong(spec: FieldSpec) -> list[object]:
    """Values outside of the row."""
    found: list[object] = [{"string": 5, "boolean": "true"}.get(spec.type, "5")]
    if spec.type in ("integer", "number"):
        found += [True]
        found += [spec.maximum + 1] if spec.maximum is not None else []
        found += [spec.minimum - 1] if spec.minimum is not None else []
    elif spec.max_length is not None and spec.choices is None and not spec.format:
        found.append("x" * (spec.max_length + 1))
    if spec.choices is not None and spec.format != "sampler":
        found.append("nothing" if spec.type == "string" else max(int(c) for c in spec.choices) + 1)
    return found


def around(bounds: ModelBounds, name: str) -> Asked:
    """The smallest request that this field may stand in."""
    asked: Asked = {need: legal(bounds.spec(need)) for need in bounds.required | {"prompt"}}
    todo = [name]
    while todo:
        when = todo.pop()
        for rule in (*ALWAYS, *bounds.couplings):
            always = rule.present and not rule.equals and rule.at_least is None
            if always and rule.when == when and rule.then not in asked and bounds.takes(rule.then):
                asked[rule.then] = legal(bounds.spec(rule.then))
                todo.append(rule.then)
    if name in ("width", "height") and bounds.takes(name):
        asked |= {side: bounds.default(side) for side in ("width", "height")}
    return asked


def asked_for(bounds: ModelBounds, asked: Asked, *, strict: bool = False) -> Checked | dict[str, str]:
    """What comes of it: the values, or the codes of its faults by pointer."""
    try:
        return resolve(bounds.kind, asked, bounds, NONE, strict=strict, draw=lambda low, _: low + 7)
    except Invalid as exc:
        return {error.pointer[1:]: error.code for error in exc.errors}


@pytest.mark.parametrize(("vendor", "model"), EVERY, ids=[":".join(one) for one in EVERY])
def test_every_field_is_what_the_schema_says(vendor: str, model: str) -> None:
    bounds = provider(vendor).capabilities.models[model]
    schema = json_schema(bounds.kind, bounds, NONE)
    valid = jsonschema_rs.validator_for(schema).is_valid
    for name, spec in FIELDS.items():
        shown: dict[str, Any] | None = schema["properties"].get(name)
        if shown is None:
            refused(bounds, name, spec)
        elif shown.get("x-weir-left-out"):
            left_out(bounds, name, spec)
        else:
            taken(bounds, name)
            for value in wrong(bounds.spec(name)):
                asked = {**around(bounds, name), name: value}
                assert name in as_faults(asked_for(bounds, asked)), (name, value)
                assert not valid(asked), (name, value)


def as_faults(found: Checked | dict[str, str]) -> dict[str, str]:
    assert isinstance(found, dict), found
    return found


def refused(bounds: ModelBounds, name: str, spec: FieldSpec) -> None:
    faults = as_faults(asked_for(bounds, {**around(bounds, name), name: other_than_neutral(spec)}))
    foreign = bounds.kind not in spec.kinds
    assert faults[name] == ("inconsistent" if foreign else "not_supported_by_model")
    assert foreign or spec.role is Role.MAKING


def other_than_neutral(spec: FieldSpec) -> object:
    value = legal(spec)
    if value != spec.neutral:
        return value
    return not value if isinstance(value, bool) else int(str(spec.maximum))


def left_out(bounds: ModelBounds, name: str, spec: FieldSpec) -> None:
    asked = {**around(bounds, name), name: legal(spec)}
    found = asked_for(bounds, asked)
    assert isinstance(found, Checked), (name, found)
    assert name not in found.effective
    assert [(note.field, note.code) for note in found.adjustments] == [(name, "left_out")]
    assert as_faults(asked_for(bounds, asked, strict=True)) == {name: "not_supported_by_model"}


def taken(bounds: ModelBounds, name: str) -> None:
    value = legal(bounds.spec(name))
    asked = {**around(bounds, name), name: value}
    found = asked_for(bounds, asked, strict=True)
    assert isinstance(found, Checked), (name, found)
    assert found.effective[name] == value
    assert jsonschema_rs.validator_for(json_schema(bounds.kind, bounds, NONE)).is_valid(found.effective)


@pytest.mark.parametrize(("vendor", "model"), EVERY, ids=[":".join(one) for one in EVERY])
def test_images_of_one_call_end_where_the_model_ends(vendor: str, model: str) -> None:
    bounds = provider(vendor).capabilities.models[model]
    if not bounds.takes("image_count"):
        return
    most = bounds.image_count_max
    found = asked_for(bounds, {**around(bounds, "image_count"), "image_count": most})
    assert isinstance(found, Checked), found
    assert found.effective["image_count"] == most
    with pytest.raises(Invalid) as caught:
        resolve(
            bounds.kind,
            {**around(bounds, "image_count"), "image_count": most + 1},
            bounds,
            NONE,
            strict=False,
            draw=lambda low, _: low,
        )
    (error,) = caught.value.errors
    assert (error.pointer, error.allowed, error.nearest) == (
        "/image_count", {"type": "integer", "min": 1, "max": most}, [most],
    )  # fmt: skip
