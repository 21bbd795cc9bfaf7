"""Whatever is asked of whichever model: the promises of `resolve` that hold for all of it; and the schema."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.contract import (
    FIELDS,
    OPTIONS,
    Adjustment,
    Checked,
    FieldError,
    Invalid,
    Kind,
    ModelBounds,
    Presets,
    check_types,
    json_schema,
    resolve,
)
from tests.unit.sample_models import ALL, COMFY, PRESETS, QWEN, SEEDANCE, WAN, Asked, draw

CODES = {
    "required",
    "null_not_allowed",
    "unknown_field",
    "invalid_type",
    "invalid_format",
    "out_of_range",
    "too_long",
    "not_one_of",
    "not_supported_by_model",
    "inconsistent",
}


def outcome(bounds: ModelBounds, asked: Asked, *, strict: bool) -> Checked | tuple[FieldError, ...]:
    try:
        return resolve(bounds.kind, asked, bounds, PRESETS, strict=strict, draw=draw)
    except Invalid as refusal:
        return refusal.errors


def sane(name: str) -> st.SearchStrategy[object]:
    """Values of a field that are mostly legal somewhere."""
    spec = {**FIELDS, **OPTIONS}[name]
    if name in OPTIONS:
        return st.sampled_from([*PRESETS.family(name), None])
    words = {"resolution": ["480p", "720p"], "ratio": ["16:9", "1:1"], "negative_prompt": ["", "b c"]}
    if spec.choices is not None or spec.type == "string":
        return st.sampled_from(spec.choices or words.get(name, ["file_a", "https://example.com/a.png"]))
    if spec.type == "boolean":
        return st.booleans()
    low, high = int(spec.minimum or 0), int(spec.maximum or 0)
    if name in ("width", "height"):
        return st.integers(8, 32).map(lambda n: n * 64)
    return st.integers(low, min(high, low + 60))


def requests(kind: Kind) -> st.SearchStrategy[Asked]:
    """A prompt and up to four more fields, so that many are accepted and many are refused for one reason."""
    names = [name for name, spec in {**FIELDS, **OPTIONS}.items() if kind in spec.kinds and name != "prompt"]
    chosen = st.lists(st.sampled_from(names), unique=True, max_size=4)
    return chosen.flatmap(lambda some: st.fixed_dictionaries({"prompt": st.just("p"), **{n: sane(n) for n in some}}))


CASES = st.sampled_from(list(ALL.values())).flatmap(lambda bounds: st.tuples(st.just(bounds), requests(bounds.kind)))


@settings(max_examples=300)
@given(CASES, st.booleans())
def test_effective_passes_again_unchanged(case: tuple[ModelBounds, Asked], loose: bool) -> None:  # noqa: FBT001
    bounds, asked = case
    first = outcome(bounds, asked, strict=not loose)
    if not isinstance(first, Checked):
        return
    again = resolve(bounds.kind, first.effective, bounds, Presets(), strict=True, draw=lambda _low, _high: 1 // 0)
    assert again == Checked(effective=first.effective, adjustments=())
    assert json.loads(json.dumps(first.effective)) == first.effective
    assert None not in first.effective.values()
    jsonschema_rs.validate(json_schema(bounds.kind, bounds, PRESETS), first.effective)


@settings(max_examples=300)
@given(CASES)
def test_explicit_value_is_sent_or_named(case: tuple[ModelBounds, Asked]) -> None:
    bounds, asked = case
    checked = outcome(bounds, asked, strict=False)
    if not isinstance(checked, Checked):
        return
    named = {line.field for line in checked.adjustments}
    silent = {name: value for name, value in asked.items() if name in FIELDS and name not in named}
    if silent.get("seed") == -1:
        del silent["seed"]
    assert str(silent.pop("prompt")) in str(checked.effective["prompt"])
    assert {name: checked.effective.get(name, FIELDS[name].neutral) for name in silent} == silent


@given(
    st.sampled_from(list(ALL.values())),
    st.dictionaries(
        st.sampled_from([*FIELDS, *OPTIONS, "nope"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers()),
    ),
)
def test_any_json_is_resolved_or_refused_in_the_shape_of_the_api(bounds: ModelBounds, asked: Asked) -> None:
    found = outcome(bounds, asked, strict=False)
    if isinstance(found, Checked):
        assert check_types(bounds.kind, asked) == ()
        return
    assert found
    assert list(found) == sorted(found, key=lambda error: (error.pointer, error.code))
    assert {error.code for error in found} <= CODES
    json.dumps([[error.allowed, error.nearest, error.detail] for error in found], allow_nan=False)


@given(CASES)
def test_nearest_value_of_an_error_mends_it(case: tuple[ModelBounds, Asked]) -> None:
    bounds, asked = case
    found = outcome(bounds, asked, strict=False)
    if isinstance(found, Checked) or len({error.pointer for error in found}) > 1 or not found[0].nearest:
        return
    name = found[0].pointer[1:]
    for near in found[0].nearest:
        mended = {**asked, **near} if isinstance(near, dict) else {**asked, name: near}
        after = outcome(bounds, mended, strict=False)
        # Another rule may be next in line, such as a coupling; this one is content.
        assert isinstance(after, Checked) or found[0].code not in {error.code for error in after}


@given(CASES)
def test_strict_leaves_no_line_but_a_moved_size(case: tuple[ModelBounds, Asked]) -> None:
    checked = outcome(case[0], case[1], strict=True)
    assert not isinstance(checked, Checked) or {line.code for line in checked.adjustments} <= {"size_moved"}


# The schema


@pytest.mark.parametrize("name", ALL)
def test_schema_is_valid_and_as_narrow_as_the_model(name: str) -> None:
    bounds = ALL[name]
    schema = json_schema(bounds.kind, bounds, PRESETS)
    jsonschema_rs.meta.validate(schema)
    json.dumps(schema, allow_nan=False)
    for field, shown in schema["properties"].items():
        assert field in OPTIONS or ("x-weir-left-out" in shown) != bounds.takes(field)


def test_schema_shows_ranges_lists_and_what_is_left_out() -> None:
    shown = json_schema(Kind.IMAGE, COMFY, PRESETS)
    assert shown["properties"]["steps"] == {
        "type": ["integer", "null"],
        "description": FIELDS["steps"].doc,
        "minimum": 1,
        "maximum": 28,
        "default": 20,
    }
    assert shown["properties"]["width"]["multipleOf"] == 64
    assert shown["required"] == ["prompt"]
    assert json_schema(Kind.IMAGE, QWEN, PRESETS)["properties"]["steps"]["x-weir-left-out"] is True
    assert "upscale" not in json_schema(Kind.IMAGE, QWEN, PRESETS)["properties"]
    assert json_schema(Kind.VIDEO, WAN, PRESETS)["properties"]["duration_s"]["enum"] == [5, 10, None]
    assert json_schema(Kind.VIDEO, SEEDANCE, PRESETS)["required"] == ["prompt", "first_frame"]


def test_adjustment_and_invalid_can_be_shown() -> None:
    assert Adjustment(field="steps", code="left_out", detail="x").effective is None
    assert "/width out_of_range" in str(Invalid([FieldError(pointer="/width", code="out_of_range", detail="x")]))
