"""Looking: one task, lists, history; tags, cursors, keys, and that nobody sees what is another's."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from models import accounts
from tests.conftest import MakeSettings
from tests.service import FOX, TOML, Service, running, uuid_of

pytest_plugins = ("tests.service_fixtures",)

UNKNOWN = "task_01m8q9q2c8e20td15eb9hv2gz5"


def test_a_tag_spares_the_body_until_something_changes(service: Service) -> None:
    task_id = service.made()
    path = f"/v1/tasks/{task_id}"
    first = service.get(path)
    assert first.headers["ETag"] == 'W/"1"'
    for tag in ('W/"1"', '"1"', '"0", W/"1"', "*"):
        same = service.get(path, If_None_Match=tag)
        assert (same.status_code, same.data) == (304, b"")
        for name in ("ETag", "Cache-Control", "Vary", "Retry-After"):
            assert same.headers[name] == first.headers[name]
    service.become(task_id, "RUNNING")
    changed = service.get(path, If_None_Match='W/"1"')
    assert (changed.status_code, changed.headers["ETag"]) == (200, 'W/"2"')


def test_a_cancel_request_changes_the_tag_without_the_version(service: Service) -> None:
    task_id = service.made()
    service.become(task_id, "RUNNING", receipt="r")
    tag = service.get(f"/v1/tasks/{task_id}").headers["ETag"]
    assert service.call("DELETE", f"/v1/tasks/{task_id}").status_code == 202
    asked = service.get(f"/v1/tasks/{task_id}", If_None_Match=tag)
    assert (asked.status_code, asked.json["version"]) == (200, 2)
    assert asked.headers["ETag"] != tag


def test_times_are_utc_with_a_z_and_a_final_task_is_not_to_be_asked_again(service: Service) -> None:
    task_id = service.made()
    live = service.get(f"/v1/tasks/{task_id}")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", live.json["created_at"])
    assert "Retry-After" in live.headers
    service.become(task_id, "FAILED", error_message="no", upstream_code="E1")
    final = service.get(f"/v1/tasks/{task_id}")
    assert "Retry-After" not in final.headers
    assert final.json["error"] == {
        "code": "provider_error", "message": "no", "retryable": True, "upstream_name": "wan", "upstream_code": "E1",
    }  # fmt: skip


def test_the_place_in_the_line_is_that_of_fairness(service: Service) -> None:
    low = service.made({**FOX, "priority": "low"})
    first, second = service.made(), service.made()
    others = service.made(who=service.bob)
    high = service.made({**FOX, "priority": "high"})

    def place(task_id: str, who: str | None = None) -> int:
        return int(service.get(f"/v1/tasks/{task_id}", who=who).json["queue_position"])

    assert [place(high), place(others, service.bob), place(first), place(second), place(low)] == [1, 2, 3, 4, 5]
    service.become(high, "RUNNING")
    assert service.get(f"/v1/tasks/{high}").json["queue_position"] is None


def test_the_time_left_is_the_usual_time_less_what_has_passed(service: Service) -> None:
    running_id = service.made()
    service.become(running_id, "RUNNING", claimed_at=datetime.now(UTC))
    assert service.get(f"/v1/tasks/{running_id}").json["eta_s"] is None  # nothing is known of the model yet
    for seconds in (10, 30, 50):
        ended = service.made()
        service.become(ended, "SUCCESS")
        service.sql(
            "update tasks set started_at = finished_at - make_interval(secs => :s) where id = :id",
            s=seconds,
            id=uuid_of(ended),
        )
    service.parts.typical._known.clear()
    assert 28 <= service.get(f"/v1/tasks/{running_id}").json["eta_s"] <= 30
    service.sql("update tasks set claimed_at = now() - interval '1 hour' where status = 'RUNNING'")
    assert service.get(f"/v1/tasks/{running_id}").json["eta_s"] is None  # later than usual: nobody knows


# --- lists ---


def test_a_list_is_newest_first_in_pages_that_nothing_shifts(service: Service) -> None:
    made = [service.made() for _ in range(5)]
    first = service.get("/v1/tasks?limit=2")
    service.made()
    link = re.fullmatch(r'<(/v1/tasks\?[^>]*)>; rel="next"', first.headers["Link"])
    assert link is not None
    second = service.get(link[1])
    third = service.get(f"/v1/tasks?limit=2&cursor={second.json['next_cursor']}")
    pages = [[task["task_id"] for task in page.json["data"]] for page in (first, second, third)]
    assert pages == [made[4:2:-1], made[2:0:-1], made[:1]]
    assert [page.json["has_more"] for page in (first, second, third)] == [True, True, False]
    assert third.json["next_cursor"] is None
    assert "Link" not in third.headers


def test_filters_narrow_the_list(service: Service) -> None:
    plain = service.made()
    video = service.made({**FOX, "type": "video", "order_id": "o 1", "metadata": {"job": "42", "x": "y"}})
    pinned = service.made({**FOX, "provider": "spare"})
    service.become(plain, "FAILED")

    def found(query: str) -> list[str]:
        answer = service.get(f"/v1/tasks?{query}")
        assert answer.status_code == 200, answer.text
        return [task["task_id"] for task in answer.json["data"]]

    assert found("status=FAILED") == [plain]
    assert found("status=FAILED&status=PENDING") == [pinned, video, plain]
    assert found("type=video") == found("model=clip") == found("order_id=o%201") == [video]
    assert found("metadata.job=42") == found("metadata.job=42&metadata.x=y") == [video]
    assert found("metadata.job=43") == []
    assert found("provider=spare") == [pinned]
    created = service.get(f"/v1/tasks/{video}").json["created_at"]
    assert plain not in found(f"created_after={created}")
    assert found(f"created_before={created}") == [plain]
    assert found("created_after=2020-01-01T00:00:00+00:00&created_before=2999-01-01T00:00:00Z") == [
        pinned,
        video,
        plain,
    ]


def test_a_query_is_as_strict_as_a_body(service: Service, subtests: pytest.Subtests) -> None:
    for query, code in [
        ("limit=0", "out_of_range"),
        ("limit=101", "out_of_range"),
        ("limit=ten", "invalid_type"),
        ("limit=%EF%BC%93", "invalid_type"),
        ("limit=1&limit=2", "invalid_format"),
        ("status=DONE", "not_one_of"),
        ("type=audio", "not_one_of"),
        ("created_after=yesterday", "invalid_format"),
        ("created_after=2026-11-30T20:15:05", "invalid_format"),
        ("created_after=0001-01-01T00:00:00Z", "invalid_format"),
        ("model=%00", "invalid_format"),
        ("metadata.a=%00", "invalid_format"),
        ("metadata.=1", "unknown_field"),
        (f"order_id={'x' * 129}", "too_long"),
        ("page=2", "unknown_field"),
    ]:
        with subtests.test(query=query, code=code):
            answer = service.get(f"/v1/tasks?{query}")
            assert answer.status_code == 422, answer.text
            assert [(row["parameter"], row["code"]) for row in answer.json["errors"]] == [
                (query.split("=", maxsplit=1)[0], code)
            ]


def test_a_cursor_is_ours_for_this_user_and_these_filters(service: Service) -> None:
    for who in (None, service.bob):
        for _ in range(3):
            service.made(who=who)
    cursor = service.get("/v1/tasks?limit=1&status=PENDING&type=image").json["next_cursor"]
    assert service.get(f"/v1/tasks?limit=2&type=image&status=PENDING&cursor={cursor}").status_code == 200
    bad = [
        service.get(f"/v1/tasks?type=image&cursor={cursor}"),
        service.get(f"/v1/tasks?status=PENDING&type=image&cursor={cursor}", who=service.bob),
        service.get(f"/v1/tasks?status=PENDING&type=image&cursor={cursor[:-2]}xx"),
        service.get("/v1/tasks?cursor=WyJ4Il0.nonsense"),
        service.get("/v1/tasks?cursor="),
        service.get("/v1/tasks?cursor=%00"),
    ]
    assert [(answer.status_code, answer.json["code"]) for answer in bad[:5]] == [(400, "invalid_cursor")] * 5
    assert bad[5].status_code == 422


# --- history ---


def test_history_tells_transitions_calls_and_the_next_look(service: Service) -> None:
    task_id = service.made()
    service.sql(
        """insert into upstream_calls (task_ids, provider, operation, started_at, ms, http_status, verdict, request_id)
           values (array[cast(:id as uuid), gen_random_uuid()], 'wan', 'observe', now(), 12, 200, 'ok', 'v-1')""",
        id=str(uuid_of(task_id)),
    )
    told = service.get(f"/v1/tasks/{task_id}/history").json
    assert [(e["reason"], e["from"], e["to"], e["version"]) for e in told["events"]] == [
        ("accepted", None, "PENDING", 1)
    ]
    detail = told["events"][0]["detail"]
    assert (detail["provider"], detail["why"]) == ("wan", "first enabled")
    assert [(one["provider"], one["reason"]) for one in detail["candidates"]] == [
        ("off", "it is switched off"), ("wan", "chosen"), ("spare", "behind the chosen one"),
    ]  # fmt: skip
    call = told["upstream_calls"][0]
    assert (call["operation"], call["ms"], call["verdict"], call["http_status"]) == ("observe", 12, "ok", 200)
    assert call["asked_about"] == 2  # how many, never which: they are others'
    assert told["next_wake_at"] is not None


# --- keys and owners ---


def test_o86_anothers_task_is_answered_as_one_that_does_not_exist(service: Service) -> None:
    task_id = service.made(idem="k")
    for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/history"), ("GET", "/outputs/0"), ("GET", "?signed=1")):
        theirs = service.call(method, f"/v1/tasks/{task_id}{tail}", who=service.bob)
        unknown = service.call(method, f"/v1/tasks/{UNKNOWN}{tail}", who=service.bob)
        assert theirs.status_code == unknown.status_code == 404
        assert {**theirs.json, "request_id": "", "instance": ""} == {**unknown.json, "request_id": "", "instance": ""}
    tagged = service.get(f"/v1/tasks/{task_id}", who=service.bob, If_None_Match="*")
    assert tagged.status_code == 404
    assert service.get("/v1/tasks?status=PENDING", who=service.bob).json["data"] == []
    mine = service.post(idem="k", who=service.bob)
    assert (mine.status_code, mine.json["reused"]) == (202, False)
    assert mine.json["task_id"] != task_id
    assert service.get(f"/v1/tasks/{task_id}").json["version"] == 1


def test_what_is_no_task_id_is_a_404(service: Service, subtests: pytest.Subtests) -> None:
    for id_ in ["x", "task_", "task_" + "z" * 26, "task_" + "0" * 25, UNKNOWN.upper(), "%00", "..%2f"]:
        with subtests.test(id_=id_):
            answer = service.get(f"/v1/tasks/{id_}")
            assert (answer.status_code, answer.json["code"]) == (404, "not_found")


def test_no_unknown_revoked_and_expired_key_are_told_apart_by_nobody(service: Service) -> None:
    secret = service.parts.settings.env.secret
    with service.parts.db.unit_of_work() as uow:
        revoked_id, revoked = accounts.create_key(uow, secret, user="ann")
        _, expired = accounts.create_key(uow, secret, user="ann", expires_in_s=-1)
    assert service.get("/v1/tasks", who=revoked).status_code == 200
    with service.parts.db.unit_of_work() as uow:
        accounts.revoke_key(uow, revoked_id)
    client = service.app.test_client()
    answers = [client.get("/v1/tasks"), client.get("/v1/tasks", headers={"Authorization": "Basic YTpi"})]
    for key in (revoked, expired, accounts.new_key(), "wk_short", "", "ключ", service.ann[:-1] + "!"):
        answers.append(client.get("/v1/tasks", headers={"Authorization": f"Bearer {key}".encode().decode("latin-1")}))
        answers.append(client.get("/v1/tasks", headers={"X-Api-Key": key.encode().decode("latin-1")}))
    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["WWW-Authenticate"] for answer in answers} == {'Bearer realm="weir", error="invalid_token"'}
    assert len({answer.get_json()["detail"] for answer in answers}) == 1


def test_both_headers_carry_a_key_and_the_address_does_not(service: Service) -> None:
    client = service.app.test_client()
    assert client.get("/v1/tasks", headers={"X-Api-Key": service.ann}).status_code == 200
    assert client.get("/v1/tasks", headers={"Authorization": f"bearer  {service.ann} "}).status_code == 200
    assert client.get(f"/v1/tasks?api_key={service.ann}").status_code == 401


def test_a_key_without_the_scope_is_a_403_that_names_it(service: Service) -> None:
    secret = service.parts.settings.env.secret
    with service.parts.db.unit_of_work() as uow:
        reader = accounts.create_key(uow, secret, user="ann", scopes=["tasks:read"])[1]
        admin = accounts.create_key(uow, secret, user="ann", scopes=["admin"])[1]
    refused = service.post(who=reader)
    assert (refused.status_code, refused.json["code"]) == (403, "forbidden")
    assert refused.json["required_scope"] == "tasks:write"
    assert service.get("/v1/usage", who=reader).json["required_scope"] == "usage:read"
    assert service.get("/v1/models", who=reader).status_code == 200
    assert service.post(who=admin).status_code == 202


def test_links_are_absolute_where_the_installation_has_an_address(make_settings: MakeSettings) -> None:
    toml = TOML + '\n[server]\npublic_url = "https://weir.example.com/"\n'
    for service in running(make_settings(toml)):
        task = service.post().json
        assert task["links"]["self"] == f"https://weir.example.com/v1/tasks/{task['task_id']}"
