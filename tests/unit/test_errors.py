"""The catalogue of problems: one table, pages made from it, nothing shared with the failures of tasks."""

from __future__ import annotations

import html
import json
import re

import pytest
from flask import Flask
from werkzeug.exceptions import HTTPException, default_exceptions

from api import create_app, errors
from api.errors import CATALOGUE, Problem
from api.parts import live
from models.failures import FailureKind
from models.fields import FieldError
from models.settings import Settings, SettingsError

_STATUSES = {
    400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 416, 422, 429, 500, 503,
}  # fmt: skip


@pytest.fixture(scope="module")
def app() -> Flask:
    """An app whose servers do not exist: making it opens no connection."""
    return create_app(Settings.load({
        "WEIR_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
        "WEIR_REDIS_URL": "redis://127.0.0.1:9/0",
        "WEIR_SECRET": "for-tests-only-" + "0" * 32,
        "DASHSCOPE_API_KEY": "sk-for-tests",
    }))  # fmt: skip


def test_slugs_are_slugs_and_statuses_are_those_of_the_house() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", slug) for slug in CATALOGUE)
    assert {entry.status for entry in CATALOGUE.values()} == _STATUSES
    assert len({entry.title for entry in CATALOGUE.values()}) == len(CATALOGUE)


def test_a_failed_request_and_a_failed_task_share_no_code_but_our_own_mistake() -> None:
    codes = {slug.replace("-", "_") for slug in CATALOGUE}
    assert codes & {str(kind) for kind in FailureKind} == {"internal_error"}


def test_every_type_has_a_page_and_no_other_has(app: Flask) -> None:
    client = app.test_client()
    for slug, entry in CATALOGUE.items():
        page = client.get(f"/problems/{slug}")
        text = html.unescape(page.get_data(as_text=True))
        assert page.status_code == 200
        assert all(word in text for word in (entry.title, entry.when, entry.retry, str(entry.status)))
    assert client.get("/problems/nothing").status_code == 404


def test_every_problem_is_rendered_with_its_members_and_headers(app: Flask) -> None:
    for slug, entry in CATALOGUE.items():
        with app.test_request_context("/"):
            response = errors.rendered(Problem(slug, "because", headers={"Retry-After": "7"}, limit=3))
        body = json.loads(response.get_data())
        assert response.status_code == body["status"] == entry.status
        assert response.content_type == "application/problem+json"
        assert (body["type"], body["code"]) == (f"/problems/{slug}", slug.replace("-", "_"))
        assert (body["detail"], body["limit"], response.headers["Retry-After"]) == ("because", 3, "7")


@pytest.mark.parametrize("error", [kind for status, kind in sorted(default_exceptions.items()) if status >= 400])
def test_every_exception_of_werkzeug_becomes_a_problem(app: Flask, error: type[HTTPException]) -> None:
    with app.test_request_context("/"):
        response = errors.from_http(error())
    assert json.loads(response.get_data())["status"] == response.status_code
    assert response.status_code in _STATUSES


def test_a_line_of_errors_names_one_place() -> None:
    error = FieldError(pointer="/width", code="out_of_range", detail="must be", allowed={"min": 1}, nearest=[1])
    assert errors.error_wire("pointer", "#/width", error) == {
        "pointer": "#/width", "detail": "must be", "code": "out_of_range", "allowed": {"min": 1}, "nearest": [1],
    }  # fmt: skip


def test_half_a_surrogate_pair_is_answered_in_utf8() -> None:
    assert json.loads(errors.dumps({"狐": "\ud800"}).decode("utf-8")) == {"狐": "?"}


def test_a_number_that_is_not_json_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        errors.dumps(float("nan"))


def test_an_app_without_secret_or_database_is_not_made() -> None:
    with pytest.raises(SettingsError) as caught:
        create_app(Settings.load({}))
    assert "WEIR_DATABASE_URL" in str(caught.value)
    assert "WEIR_SECRET" in str(caught.value)


def test_an_app_whose_routes_lead_to_unknown_models_is_not_made(app: Flask) -> None:
    from dataclasses import replace  # noqa: PLC0415  only here

    settings = live(app).current().settings
    model = settings.models["sim-image"]
    wrong = replace(model, providers=(replace(model.providers[0], model="wan9"),))
    with pytest.raises(SettingsError, match="wan has no model 'wan9'"):
        create_app(replace(settings, models={**settings.models, "sim-image": wrong}))
