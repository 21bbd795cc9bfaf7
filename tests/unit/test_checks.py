"""One value against one row of the contract: nothing is converted, and every no says what would be a yes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import pytest

from models.checks import check_types
from models.fields import FIELDS, OPTIONS, FieldError, FieldSpec, Kind
from tests.unit.sample_models import WAN, WEBUI, made, refused

WRONG: Mapping[str, list[object]] = {
    "string": [1, 1.5, True, ["x"], {"x": 1}],
    "integer": ["1", 1.0, 1.5, True, False, [1], {}],
    "number": ["1.5", True, [1.0], {}],
    "boolean": ["true", 0, 1, 1.0, []],
}
ROWS = list({**FIELDS, **OPTIONS}.values())
RANGED = [spec for spec in ROWS if spec.minimum is not None and spec.maximum is not None]


def asked_with(spec: FieldSpec, value: object) -> tuple[FieldError, ...]:
    kind = min(spec.kinds)
    return check_types(kind, {"prompt": "p", spec.name: value})


@pytest.mark.parametrize("spec", ROWS, ids=lambda spec: spec.name)
def test_wrong_json_type_is_refused(spec: FieldSpec) -> None:
    for value in WRONG[spec.type]:
        (error,) = asked_with(spec, value)
        assert (error.pointer, error.code) == (f"/{spec.name}", "invalid_type")
        assert error.allowed is not None
        assert error.allowed["type"] == spec.type


@pytest.mark.parametrize("spec", RANGED, ids=lambda spec: spec.name)
def test_range_is_inclusive_and_names_its_nearest_end(spec: FieldSpec) -> None:
    low, high = spec.minimum, spec.maximum
    assert low is not None
    assert high is not None
    assert asked_with(spec, int(low)) == asked_with(spec, int(high)) == ()
    for value, near in ((int(low) - 1, low), (int(high) + 1, high), (10**400, high), (-(10**400), low)):
        (error,) = asked_with(spec, value)
        assert (error.code, error.nearest) == ("out_of_range", [near])
        assert error.allowed == {"type": spec.type, "min": low, "max": high}


@pytest.mark.parametrize("spec", [row for row in ROWS if row.max_length], ids=lambda spec: spec.name)
def test_length_counts_characters(spec: FieldSpec) -> None:
    limit = spec.max_length
    assert limit is not None
    codes = {error.code for error in asked_with(spec, "字" * limit)}
    assert "too_long" not in codes
    (error,) = asked_with(spec, "字" * (limit + 1))
    assert error.code == "too_long"
    assert str(limit) in error.detail
    assert str(limit + 1) in error.detail


@pytest.mark.parametrize("spec", ROWS, ids=lambda spec: spec.name)
def test_null_is_absent_except_for_the_prompt(spec: FieldSpec) -> None:
    codes = [error.code for error in asked_with(spec, None)]
    assert codes == (["null_not_allowed"] if spec.required else [])


@pytest.mark.parametrize("value", [math.nan, 1e999, -math.inf])
def test_number_that_is_not_finite_is_out_of_range(value: float) -> None:
    (error,) = asked_with(FIELDS["cfg_scale"], value)
    assert error.code == "out_of_range"
    json.dumps(error.allowed, allow_nan=False)


def test_number_may_be_written_as_an_integer() -> None:
    assert asked_with(FIELDS["cfg_scale"], 7) == ()
    assert made(WEBUI, cfg_scale=7).effective["cfg_scale"] == 7


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "a\udfffb"])
def test_text_that_cannot_be_stored_is_refused(text: str) -> None:
    for name in ("prompt", "negative_prompt", "style", "image"):
        errors = check_types(Kind.IMAGE, {"prompt": "p"} | {name: text})
        assert [(error.pointer, error.code) for error in errors] == [(f"/{name}", "invalid_format")]


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
def test_blank_prompt_is_refused(text: str) -> None:
    (error,) = check_types(Kind.IMAGE, {"prompt": text})
    assert error.code == "invalid_format"


def test_missing_prompt_is_required() -> None:
    (error,) = check_types(Kind.VIDEO, {})
    assert (error.pointer, error.code) == ("/prompt", "required")


@pytest.mark.parametrize(
    ("link", "fine"),
    [
        ("https://example.com/a.png", True),
        ("HTTP://example.com", True),
        ("file_06f2k3", True),
        ("data:image/png;base64,iVBORw0KGgo=", True),
        ("ftp://example.com/a", False),
        ("file:///etc/passwd", False),
        ("/etc/passwd", False),
        ("https://", False),
        ("https://a b", False),
        ("data:text/html;base64,AAAA", False),
        ("", False),
    ],
)
def test_reference_is_a_link_an_upload_or_inline(link: str, *, fine: bool) -> None:
    codes = [error.code for error in asked_with(FIELDS["image"], link)]
    assert codes == ([] if fine else ["invalid_format"])


def test_field_of_the_other_kind_is_inconsistent_unless_null() -> None:
    (error,) = check_types(Kind.VIDEO, {"prompt": "p", "width": 1024, "height": None})
    assert (error.pointer, error.code) == ("/width", "inconsistent")


def test_unknown_field_is_refused_with_a_suggestion() -> None:
    (error,) = check_types(Kind.IMAGE, {"prompt": "p", "stepz": 3})
    assert (error.pointer, error.code) == ("/stepz", "unknown_field")
    assert "steps" in error.detail


def test_pointer_is_escaped() -> None:
    (error,) = check_types(Kind.IMAGE, {"prompt": "p", "a/b~c": 3})
    assert error.pointer == "/a~1b~0c"


def test_no_more_than_fifty_errors_are_named() -> None:
    errors = check_types(Kind.IMAGE, {f"x{n:03}": n for n in range(200)})
    assert len(errors) == 50


def test_no_text_of_the_caller_is_in_an_error() -> None:
    secret = "sekrit"
    errors = refused(WEBUI, prompt=secret * 500, negative_prompt=secret + "\0", image=secret, style=secret, size=secret)
    assert len(errors) == 5
    assert not any(secret in error.detail for error in errors.values())


def test_number_that_a_list_does_not_have_names_the_two_around_it() -> None:
    error = refused(WAN, duration_s=7)["/duration_s"]
    assert (error.code, error.nearest) == ("not_one_of", [5, 10])
    assert error.allowed == {"type": "integer", "values": [5, 10]}
