"""What is the same on every route, and what operators ask: health, models, status, usage, documents, failures."""

from __future__ import annotations

import logging
import re

import pytest

from models import marks
from tests.conftest import MakeSettings
from tests.service import TOML, Service, running

pytest_plugins = ("tests.service_fixtures",)


def test_models_show_bounds_and_price(service: Service) -> None:
    listed = {model["model"]: model for model in service.get("/v1/models").json["data"]}
    assert set(listed) == {"picture", "clip", "asleep"}
    assert listed["picture"]["price"] == {"micros": 100, "currency": "USD", "per": "image"}
    assert listed["clip"]["price"]["per"] == "second"
    assert listed["picture"]["providers"] == ["off", "wan", "spare"]
    assert (listed["picture"]["available"], listed["asleep"]["available"]) == (True, False)
    one = service.get("/v1/models/picture").json
    assert one == listed["picture"]
    assert one["parameters"]["properties"]["image_count"]["maximum"] == 4
    assert one["parameters"]["x-weir-size"]
    assert service.get("/v1/models/nothing").status_code == 404


def test_presets_are_shown_as_configured(service: Service) -> None:
    assert service.get("/v1/presets").json["styles"]["anime"]["force"]["negative_prompt"]


def test_providers_and_status_count_what_is_there(service: Service) -> None:
    for _ in range(3):
        service.made()
    service.become(service.made({"prompt": "x", "type": "video"}), "RUNNING", receipt="r")
    service.become(service.made(), "CANCELED")
    listed = {one["provider"]: one for one in service.get("/v1/providers").json["data"]}
    assert (listed["wan"]["in_flight"], listed["wan"]["waiting"], listed["wan"]["max_in_flight"]) == (1, 3, 100)
    assert listed["wan"]["models"] == ["picture", "clip"]
    assert (listed["off"]["enabled"], listed["off"]["in_flight"]) == (False, 0)
    status = service.get("/v1/status").json
    image, video = status["queues"]
    assert (image["type"], image["waiting"], image["running"], image["cap"]) == ("image", 3, 0, 15)
    assert image["oldest_waiting_s"] >= 0
    assert (video["running"], video["oldest_waiting_s"]) == (1, None)
    assert status["live"] == {"PENDING": 3, "RUNNING": 1}
    assert status["ended_last_day"] == {"CANCELED": 1, "FAILED": 0, "SUCCESS": 0, "TIMEOUT": 0}
    assert status["sweep_age_s"] is None
    with service.parts.db.unit_of_work() as uow:
        marks.mark(uow, "sweep")
    assert service.get("/v1/status").json["sweep_age_s"] >= 0


def test_usage_is_the_callers_own(service: Service) -> None:
    for cost in (100, 200):
        service.become(service.made(), "SUCCESS", cost_micros=cost)
    service.become(service.made(), "FAILED", risk=True)
    service.become(service.made(who=service.bob), "SUCCESS", cost_micros=999)
    (row,) = service.get("/v1/usage").json["data"]
    assert (row["tasks"], row["succeeded"], row["cost_micros"], row["at_risk"]) == (3, 2, 300, 1)
    assert row["lost_micros"] == 100, "what the task at risk would have cost"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["day"])
    assert service.get("/v1/usage?days=0").json["errors"][0]["parameter"] == "days"
    assert service.get("/v1/usage?from=x").status_code == 422


def test_usage_tells_the_share_of_repeated_keys(service: Service) -> None:
    first = service.post(idem="k").json["task_id"]
    for _ in range(3):
        assert service.post(idem="k").json["task_id"] == first
    service.become(first, "SUCCESS")
    usage = service.get("/v1/usage").json
    assert (usage["duplicate_rate"], usage["data"][0]["replays"]) == (0.75, 3)


def test_health_needs_no_key_and_names_no_address(service: Service) -> None:
    assert service.bare("/livez").json == {"status": "pass"}
    ready = service.bare("/readyz")
    assert (ready.status_code, ready.json["status"]) == (200, "pass")
    assert set(ready.json["checks"]) == {"postgres", "migrations", "redis"}
    assert "127.0.0.1" not in ready.text
    assert ready.headers["Cache-Control"] == "no-store"


def test_a_lost_redis_warns_and_a_lost_database_fails(make_settings: MakeSettings) -> None:
    for service in running(make_settings(TOML, WEIR_REDIS_URL="redis://127.0.0.1:9/0")):
        ready = service.bare("/readyz")
        assert (ready.status_code, ready.json["status"]) == (200, "warn")
        assert ready.json["checks"]["redis"]["status"] == "warn"


def test_an_old_schema_is_not_ready(service: Service) -> None:
    service.sql("update alembic_version set version_num = '0000'")
    ready = service.bare("/readyz")
    assert (ready.status_code, ready.json["checks"]["migrations"]["status"]) == (503, "fail")


def test_a_database_that_is_away_is_a_503_soon_and_livez_stays(make_settings: MakeSettings) -> None:
    from api import create_app  # noqa: PLC0415  after the environment was scrubbed

    app = create_app(make_settings(TOML, WEIR_DATABASE_URL="postgresql://nobody@127.0.0.1:9/none"))
    client = app.test_client()
    key = "wk_" + "0" * 30 + "2C8GjS"
    for answer in (
        client.get("/v1/tasks", headers={"X-Api-Key": key}),
        client.post("/v1/tasks", json={"prompt": "x"}, headers={"X-Api-Key": key}),
    ):
        assert answer.status_code == 503
        assert answer.get_json()["code"] == "service_unavailable"
        assert int(answer.headers["Retry-After"]) >= 1
    assert client.get("/readyz").status_code == 503
    assert client.get("/livez").status_code == 200
    assert client.get("/v1/tasks").status_code == 401  # a missing key needs no database


def test_a_bug_is_a_500_with_nothing_but_its_id_and_one_log_line(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = service.made()
    service.sql("alter table tasks drop column last_error cascade")
    caplog.clear()
    answer = service.get(f"/v1/tasks/{task_id}", X_Request_Id="trace.me-1")
    assert (answer.status_code, answer.json["code"], answer.json["request_id"]) == (500, "internal_error", "trace.me-1")
    assert set(answer.json) == {"type", "title", "status", "detail", "instance", "code", "request_id"}
    assert "last_error" not in answer.text
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "trace.me-1" in errors[0].getMessage()
    assert "api/tasks.py" in errors[0].getMessage()


# --- the same on every route ---


def test_every_answer_has_an_id_and_safe_headers(service: Service, subtests: pytest.Subtests) -> None:
    for path in ["/livez", "/v1/tasks", "/nothing", "/docs", "/problems/forbidden"]:
        with subtests.test(path=path):
            ours = service.bare(path)
            assert re.fullmatch(r"req_[0-9a-z]{26}", ours.headers["X-Request-Id"])
            assert ours.headers["X-Content-Type-Options"] == "nosniff"
            assert ours.headers["Referrer-Policy"] == "no-referrer"
            assert ours.headers["Content-Security-Policy"]
            assert service.bare(path, X_Request_Id="mine-1").headers["X-Request-Id"] == "mine-1"
            for bad in ("a b", "x" * 65, "<script>", ""):
                assert service.bare(path, X_Request_Id=bad).headers["X-Request-Id"].startswith("req_")


def test_a_problem_names_its_type_and_repeats_its_id(service: Service) -> None:
    answer = service.bare("/v1/tasks")
    body = answer.json
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert (body["type"], body["status"], body["code"]) == ("/problems/unauthenticated", 401, "unauthenticated")
    assert body["request_id"] == answer.headers["X-Request-Id"]
    assert body["request_id"] in body["instance"]
    assert service.bare(body["type"]).status_code == 200


def test_methods_that_are_not_there_are_named(service: Service) -> None:
    answer = service.call("PUT", "/v1/tasks")
    assert (answer.status_code, answer.json["code"]) == (405, "method_not_allowed")
    assert set(answer.headers["Allow"].replace(" ", "").split(",")) == {"GET", "HEAD", "OPTIONS", "POST"}
    options = service.bare("/v1/tasks", "OPTIONS")
    assert options.status_code == 200
    assert "POST" in options.headers["Allow"]


def test_head_answers_as_get_without_a_body(service: Service) -> None:
    path = f"/v1/tasks/{service.made()}"
    head, got = service.call("HEAD", path), service.get(path)
    assert (head.status_code, head.data) == (200, b"")
    assert head.headers["ETag"] == got.headers["ETag"]
    assert head.headers["Content-Length"] == got.headers["Content-Length"]


def test_a_slash_too_many_is_a_404_and_no_redirect(service: Service, subtests: pytest.Subtests) -> None:
    for path in ["/v1/tasks/", "//v1/tasks", "/v1//tasks", "/v1/models/"]:
        with subtests.test(path=path):
            assert service.get(path).status_code == 404
            assert service.call("POST", path).status_code in (404, 405)


def test_only_json_is_offered(service: Service, subtests: pytest.Subtests) -> None:
    for accept, status in [
        ("application/json", 200),
        ("*/*", 200),
        ("application/problem+json", 200),
        ("text/html", 406),
        ("text/html, */*;q=0.1", 200),
    ]:
        with subtests.test(accept=accept, status=status):
            assert service.get("/v1/tasks", Accept=accept).status_code == status


def test_downloads_do_not_mind_what_is_accepted(service: Service) -> None:
    task_id = service.made()
    answer = service.get(f"/v1/tasks/{task_id}/outputs/0", Accept="application/binary")
    assert answer.status_code == 409


# --- documents ---


def test_the_docs_page_needs_no_foreign_host_and_no_inline_script(service: Service) -> None:
    page = service.bare("/docs")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "'unsafe-inline'" not in page.headers["Content-Security-Policy"]
    assert page.headers["Content-Security-Policy"].startswith("default-src 'self'")
    assert not re.search(r"https?://", page.text)
    assert not re.search(r"<script(?![^>]*\bsrc=)", page.text)
    for path in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert service.bare(path).status_code == 200, path
    assert "/openapi.json" in service.bare("/docs/docs.js").text
    assert "export async function watch" in service.bare("/static/weir.js").text
    assert service.bare("/docs/index.css").status_code == 404
    assert service.bare("/docs/..%2f__init__.py").status_code == 404


def test_the_bare_address_leads_to_the_docs(service: Service) -> None:
    home = service.bare("/")
    assert (home.status_code, home.headers["Location"]) == (302, "/docs")


def test_the_document_can_be_cached(service: Service) -> None:
    first = service.bare("/openapi.json")
    assert service.bare("/openapi.json", If_None_Match=first.headers["ETag"]).status_code == 304
