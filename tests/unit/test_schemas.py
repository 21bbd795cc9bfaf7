"""A body read without a server: envelope, keys, fingerprints, and that the document says what the checks do."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # comes with the validator, untyped
from openapi_spec_validator import validate

from api import create_app, keys, openapi, schemas
from api.errors import Problem
from api.parts import Parts, live
from models.contract import FIELDS, OPTIONS
from models.settings import ModelSettings, Settings


@pytest.fixture(scope="module")
def app() -> Flask:
    """An app whose servers do not exist."""
    return create_app(Settings.load({
        "WEIR_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
        "WEIR_SECRET": "for-tests-only-" + "0" * 32,
    }))  # fmt: skip


@pytest.fixture(scope="module")
def parts(app: Flask) -> Parts:
    """Its parts."""
    found = live(app).current()
    assert isinstance(found, Parts)
    return found


@pytest.fixture(scope="module")
def document(app: Flask) -> dict[str, Any]:
    """Its OpenAPI document."""
    found: dict[str, Any] = app.test_client().get("/openapi.json").get_json()
    return found


def wanted(parts: Parts, **body: object) -> schemas.Wanted:
    return schemas.wanted({"prompt": "a fox", **body}, parts)


def faults(parts: Parts, **body: object) -> set[tuple[str, str]]:
    with pytest.raises(Problem) as caught:
        wanted(parts, **body)
    rows: Any = caught.value.members["errors"]
    return {(row["pointer"], row["code"]) for row in rows}


def test_defaults_are_those_of_the_settings(parts: Parts) -> None:
    image, video = wanted(parts), wanted(parts, type="video")
    assert (image.model, image.provider, image.deadline_s, image.priority) == ("sim-image", "wan", 900, 1)
    assert (video.model, video.provider_model, video.deadline_s) == ("sim-video", "wan2.5-t2v-preview", 1800)
    assert (image.order_id, image.metadata, image.currency, image.price_micros) == ("", {}, "USD", 20000)


def test_no_model_of_a_type_is_said_as_such_and_no_default_as_such(parts: Parts) -> None:
    def said(models: dict[str, ModelSettings], **body: object) -> str:
        settings = dataclasses.replace(parts.settings, models=models)
        with pytest.raises(Problem) as caught:
            wanted(dataclasses.replace(parts, settings=settings), type="video", **body)
        rows: Any = caught.value.members["errors"]
        return next(str(row["detail"]) for row in rows if row["pointer"] == "#/model")

    image, video = parts.settings.models["sim-image"], parts.settings.models["sim-video"]
    assert "no model for video tasks is configured" in said({"sim-image": image})
    assert "no model for video tasks is configured" in said({"sim-image": image}, model="clips")
    assert "no default model for video tasks" in said({"clips": dataclasses.replace(video, default=False)})


@pytest.mark.parametrize(("name", "number"), [("high", 0), ("normal", 1), ("low", 2)])
def test_priorities_are_numbers_in_the_row(parts: Parts, name: str, number: int) -> None:
    assert wanted(parts, priority=name).priority == number
    assert schemas.PRIORITY_NAMES[number] == name


@pytest.mark.parametrize("deadline_s", [5, 86_400])
def test_deadlines_within_bounds_are_kept(parts: Parts, deadline_s: int) -> None:
    assert wanted(parts, deadline_s=deadline_s).deadline_s == deadline_s


@pytest.mark.parametrize("deadline_s", [4, 86_401, 60.0, "60", True])
def test_other_deadlines_are_refused(parts: Parts, deadline_s: object) -> None:
    assert {pointer for pointer, _ in faults(parts, deadline_s=deadline_s)} == {"#/deadline_s"}


@pytest.mark.parametrize(("order_id", "code"), [
    ("x" * 129, "too_long"), ("a\tb", "invalid_format"), ("\x7f", "invalid_format"), (5, "invalid_type"),
])  # fmt: skip
def test_an_order_id_has_rules(parts: Parts, order_id: object, code: str) -> None:
    assert ("#/order_id", code) in faults(parts, order_id=order_id)
    assert wanted(parts, order_id="订单 #1" + "x" * 100).order_id.startswith("订单")


def test_metadata_is_bounded(parts: Parts) -> None:
    full = {f"k{n:02}" + "x" * 37: "v" * 500 for n in range(16)}
    assert wanted(parts, metadata=full).metadata == full
    assert ("#/metadata", "too_long") in faults(parts, metadata={**full, "one": "more"})
    assert faults(parts, metadata={"a~/b": None}) == {("#/metadata/a~0~1b", "invalid_type")}


def test_a_misspelt_field_is_answered_with_any_name_of_a_body(parts: Parts) -> None:
    for wrong, right in (("prioritty", "priority"), ("negativ_prompt", "negative_prompt"), ("sytle", "style")):
        with pytest.raises(Problem) as caught:
            wanted(parts, **{wrong: 1})
        assert right in str(caught.value.members["errors"])


# --- keys ---


@pytest.mark.parametrize(("header", "key"), [
    ("abc", "abc"), ('"abc"', "abc"), (' "abc" ', "abc"), (r'"a\"b\\c"', r'a"b\c'), ("a,b;c", "a,b;c"), ("'x'", "'x'"),
])  # fmt: skip
def test_both_spellings_of_a_key_are_one(header: str, key: str) -> None:
    found = keys.read_key(header, {})
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize("order_id", [5, [], "x" * 129, "a\0b", "\ud800"])
def test_an_order_id_that_is_none_leads_to_no_look_up(order_id: object) -> None:
    assert keys.read_key("k", {"order_id": order_id}) is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _json, max_size=5), st.integers())
def test_a_fingerprint_knows_values_and_not_their_order(body: dict[str, object], seed: int) -> None:
    names = list(body)
    random.Random(seed).shuffle(names)
    shuffled = {name: body[name] for name in names}
    assert keys.fingerprint(shuffled) == keys.fingerprint(body)
    assert keys.fingerprint({**body, "idempotency_key": "k"}) == keys.fingerprint(
        {name: value for name, value in body.items() if name != "idempotency_key"}
    )
    assert keys.fingerprint({**body, "one more": 1}) != keys.fingerprint({**body, "one more": 1.0})


# --- the document ---


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    found = [row for path in document["paths"].values() for row in path.values()]
    return [row for row in found if isinstance(row, dict)]  # a path's parameters are a list


def test_the_document_is_valid_and_its_operations_are_those_of_the_table(document: dict[str, Any]) -> None:
    validate(document)
    assert document["openapi"] == "3.1.0"
    assert sorted(row["operationId"] for row in operations(document)) == sorted(openapi.OPERATIONS)


def test_every_problem_is_documented_as_one(document: dict[str, Any]) -> None:
    for name, response in document["components"]["responses"].items():
        assert list(response["content"]) == ["application/problem+json"], name
    for operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) >= 400 and operation["operationId"] != "readyz":
                assert response == {"$ref": f"#/components/responses/Problem{status}"}


def test_the_request_schema_knows_every_field_and_no_other(document: dict[str, Any], parts: Parts) -> None:
    schema = document["components"]["schemas"]["TaskRequest"]
    assert set(schema["properties"]) == {*FIELDS, *OPTIONS, *schemas.envelope(parts.settings)}
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["prompt"]
    assert schema["properties"]["deadline_s"]["maximum"] == 86_400


def test_every_answer_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    seen = 0
    responses = [r for operation in operations(document) for r in operation["responses"].values() if "$ref" not in r]
    for response in [*responses, *document["components"]["responses"].values()]:
        for kind, content in response.get("content", {}).items():
            if kind.endswith("json"):
                schema = {**content["schema"], "components": document["components"]}
                Draft202012Validator(schema).validate(content["example"])
                seen += 1
    assert seen >= 30


def test_the_examples_of_the_document_are_accepted(document: dict[str, Any], parts: Parts) -> None:
    for example in document["components"]["schemas"]["TaskRequest"]["examples"]:
        assert schemas.wanted(json.loads(json.dumps(example)), parts).effective
