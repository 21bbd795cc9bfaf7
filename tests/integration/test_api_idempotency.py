"""One intention, one task: keys, fingerprints, races, restarts after a certain failure, doubt, expiry."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from models.lifecycle import Status
from models.settings import Settings
from tests.conftest import MakeSettings
from tests.service import FOX, TOML, Got, Service, running

pytest_plugins = ("tests.service_fixtures",)


def at_once(n: int, act: Callable[[int], Got]) -> list[Got]:
    """`act(0)` to `act(n - 1)`, all let go at the same moment."""
    gate = threading.Barrier(n)

    def run(i: int) -> Got:
        gate.wait()
        return act(i)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))


def test_o43_an_equal_body_replays_and_another_is_refused(service: Service) -> None:
    body = {"prompt": "a red fox", "seed": 7, "metadata": {"a": "1", "b": "2"}}
    first = service.post(body, idem="k")
    again = service.raw(
        b'{ "metadata": {"b": "2", "a": "1"},\n "seed": 7, "prompt": "a red fox" }', Idempotency_Key="k"
    )
    assert (again.status_code, again.json["task_id"]) == (202, first.json["task_id"])
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    assert (again.json["reused"], again.json["effective"]) == (True, first.json["effective"])
    other = service.post({**body, "seed": 8}, idem="k")
    assert (other.status_code, other.json["code"]) == (422, "idempotency_key_reused")
    assert other.json["original_task_id"] == first.json["task_id"]
    assert service.count() == 1
    assert len(service.rung()) == 1


def test_another_body_is_told_so_even_if_it_is_not_valid(service: Service) -> None:
    service.post(idem="k")
    assert service.post({"prompt": 1}, idem="k").json["code"] == "idempotency_key_reused"


def test_o44_fifty_at_once_make_one_task(service: Service) -> None:
    answers = at_once(50, lambda _: service.post(idem="same"))
    ok = [answer for answer in answers if answer.status_code == 202]
    assert {answer.status_code for answer in answers} <= {202, 409, 503}
    assert len(ok) >= 40  # what waits longer than two seconds for one of eight connections may be told to come again
    assert len({answer.json["task_id"] for answer in ok}) == 1
    assert sum(not answer.json["reused"] for answer in ok) == 1
    assert service.count() == 1
    assert len(service.rung()) == 1


def test_o45_keys_up_to_255_characters_are_taken(service: Service, subtests: pytest.Subtests) -> None:
    for length in [1, 64, 255]:
        with subtests.test(length=length):
            key = "k" * length
            first = service.post(idem=key)
            assert first.status_code == 202
            assert service.post(idem=f'"{key}"').json["task_id"] == first.json["task_id"]  # both spellings are one key
            assert service.post({**FOX, "idempotency_key": key}).json["task_id"] == first.json["task_id"]


BAD_KEYS = [
    "k" * 256,
    "",
    " ",
    "a b",
    "a\tb",
    "绘图-001".encode().decode("latin-1"),
    '"unclosed',
    '"a" "b"',
    '""',
    '"a b"',
]


def test_o45_o46_a_key_that_is_none_is_a_400(service: Service, subtests: pytest.Subtests) -> None:
    for key in BAD_KEYS:
        with subtests.test(key=key):
            answer = service.post(idem=key)
            assert (answer.status_code, answer.json["code"]) == (400, "idempotency_key_invalid")
            assert answer.json["errors"][0]["header"] == "Idempotency-Key"
            assert service.count() == 0


def test_o46_the_same_in_the_body(service: Service, subtests: pytest.Subtests) -> None:
    for key in ["k" * 256, "", "a b", "k\0", "绘图-001"]:
        with subtests.test(key=key):
            answer = service.post({**FOX, "idempotency_key": key})
            assert (answer.status_code, answer.json["code"]) == (400, "idempotency_key_invalid")
            assert answer.json["errors"][0]["pointer"] == "#/idempotency_key"


def test_o46_harmless_characters_are_characters(service: Service) -> None:
    id_ = str(uuid4())
    keys = ["../../k", "k'OR1=1", "%00", id_.upper(), id_.lower(), '"with\\"quote"', "a,b"]
    assert [service.post(idem=key).status_code for key in keys] == [202] * len(keys)
    assert service.count() == len(keys)


def test_two_different_keys_in_one_request_are_refused(service: Service) -> None:
    answer = service.post({**FOX, "idempotency_key": "a"}, idem="b")
    assert answer.status_code == 422
    assert answer.json["errors"][0] == {
        "pointer": "#/idempotency_key", "detail": "differs from the header's", "code": "inconsistent",
    }  # fmt: skip
    assert service.post({**FOX, "idempotency_key": "a"}, idem="a").status_code == 202
    assert service.post({**FOX, "idempotency_key": 5}).json["errors"][0]["code"] == "invalid_type"


def test_the_key_space_is_user_and_order_and_key(service: Service) -> None:
    made = {
        service.made(idem="k"),
        service.made({**FOX, "order_id": "1"}, idem="k"),
        service.made({**FOX, "order_id": "2"}, idem="k"),
        service.made(idem="k", who=service.bob),
    }
    assert len(made) == 4
    assert service.post({**FOX, "order_id": "1"}, idem="k").json["task_id"] in made
    assert service.count() == 4


def test_o47_a_key_survives_a_flush_and_a_new_process_and_ends_with_its_time(
    service: Service, api_settings: Settings
) -> None:
    first = service.made(idem="k")
    service.parts.kv._client.flushall()  # type: ignore[union-attr]  # what Redis held may be lost
    service.become(first, "SUCCESS")
    for other in running(api_settings):
        again = other.post(idem="k", who=service.ann)
        assert (again.status_code, again.json["task_id"]) == (200, first)
    service.sql("update tasks set finished_at = now() - interval '29 days 23 hours'")
    assert service.post(idem="k").json["task_id"] == first
    service.sql("update tasks set finished_at = now() - interval '30 days 1 second'")
    fresh = service.post(idem="k")
    assert (fresh.status_code, fresh.json["reused"]) == (202, False)
    assert fresh.json["task_id"] != first
    assert service.post(idem="k").json["task_id"] == fresh.json["task_id"]
    assert service.get(f"/v1/tasks/{first}").status_code == 200  # the old task is still there


@pytest.mark.parametrize(
    ("status", "age", "kept"),
    [
        ("SUCCESS", "29 days", True),
        ("FAILED", "23 hours", True),
        ("FAILED", "25 hours", False),
        ("TIMEOUT", "25 hours", False),
        ("PENDING", "47 hours", True),
        ("PENDING", "49 hours", False),
    ],
)
def test_a_key_is_kept_as_long_as_the_settings_say(service: Service, status: str, age: str, *, kept: bool) -> None:
    first = service.made(idem="k")
    if status != "PENDING":
        service.become(first, status)
    service.sql(
        f"""update tasks set created_at = created_at - interval '{age}', finished_at = finished_at - interval '{age}',
                   deadline_at = deadline_at - interval '{age}'"""  # noqa: S608  from this file
    )
    assert (service.post(idem="k").json["task_id"] == first) is kept


def test_an_expired_key_taken_by_many_at_once_makes_one_new_task(service: Service) -> None:
    first = service.made(idem="k")
    service.become(first, "SUCCESS")
    service.sql("update tasks set finished_at = now() - interval '31 days'")
    answers = at_once(8, lambda _: service.post(idem="k"))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json["task_id"] for answer in answers}) == 1
    assert service.count() == 2


# --- what a repeated key does to a task that has ended ---


@pytest.mark.parametrize("status", ["FAILED", "CANCELED", "TIMEOUT"])
def test_a_certain_failure_begins_anew_on_the_same_row(service: Service, status: str) -> None:
    task_id = service.made({**FOX, "deadline_s": 60}, idem="k")
    service.become(
        task_id, status, certain=True, receipt="r-1", poll_count=5, submit_tries=2, error_message="no", progress=0.5,
        upstream_code="x", last_error="y", upstream_call_count=1, deadline_at="2020-01-01T00:00:00Z",
    )  # fmt: skip
    again = service.post({**FOX, "deadline_s": 60}, idem="k")
    task = again.json
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (202, "true")
    assert (task["task_id"], task["reused"], task["attempt"], task["status"]) == (task_id, True, 2, "PENDING")
    assert (task["error"], task["progress"], task["poll_count"], task["last_error"]) == (None, None, 0, None)
    row = service.sql("select *, deadline_at > now() + interval '55 s' as anew from tasks")[0]
    assert (row["receipt"], row["submit_tries"], row["certain"], row["anew"]) == (None, 0, False, True)
    assert row["wake_at"] is not None
    assert f"{task_id}.{row['version']}" in service.rung()
    reasons = [event["reason"] for event in service.get(f"/v1/tasks/{task_id}/history").json["events"]]
    assert reasons == ["accepted", "restarted"]
    assert service.post({**FOX, "deadline_s": 60}, idem="k").json["attempt"] == 2


def test_a_certain_failure_repeated_by_many_begins_anew_once(service: Service) -> None:
    task_id = service.made(idem="k")
    service.become(task_id, "FAILED", certain=True)
    answers = at_once(8, lambda _: service.post(idem="k"))
    assert {(answer.status_code, answer.json["attempt"]) for answer in answers} == {(202, 2)}
    assert len([rung for rung in service.rung() if rung.endswith(".3")]) == 1


def test_a_failure_in_doubt_is_replayed_as_it_is(service: Service) -> None:
    task_id = service.made(idem="k")
    service.become(task_id, "FAILED", error_code="submit_unconfirmed", certain=False)
    again = service.post(idem="k")
    assert (again.status_code, again.json["status"], again.json["attempt"]) == (200, "FAILED", 1)
    assert again.json["error"]["code"] == "submit_unconfirmed"
    assert "Retry-After" not in again.headers
    assert len(service.rung()) == 1  # only the first submit's


def test_a_timeout_in_doubt_has_the_vendor_asked_now_and_once(service: Service) -> None:
    task_id = service.made(idem="k")
    service.become(task_id, "TIMEOUT", error_code="deadline_exceeded", certain=False, wake_at="2099-01-01T00:00:00Z")
    again = service.post(idem="k")
    assert (again.status_code, again.json["status"]) == (200, "TIMEOUT")
    soon = "select wake_at <= now() + interval '10 s' as soon from tasks"  # should the ring be lost
    assert service.sql(soon)[0]["soon"]
    service.post(idem="k")
    assert sorted(service.rung()) == [f"{task_id}.1", f"{task_id}.2"]


def test_a_success_is_replayed_for_ever(service: Service) -> None:
    task_id = service.made(idem="k")
    service.become(task_id, "SUCCESS", cost_micros=100)
    again = service.post(idem="k")
    assert (again.status_code, again.json["status"], again.json["cost"]["micros"]) == (200, "SUCCESS", 100)


def test_beginning_anew_respects_the_cap_of_live_tasks(make_settings: MakeSettings) -> None:
    for service in running(make_settings(TOML.replace("submits_per_minute = 1000", "active = 1"))):
        failed = service.made(idem="k")
        service.become(failed, "FAILED", certain=True)
        service.made()
        refused = service.post(idem="k")
        assert (refused.status_code, refused.json["code"]) == (429, "too_many_active_tasks")
        assert service.get(f"/v1/tasks/{failed}").json["status"] == Status.FAILED


def test_a_refused_request_is_not_remembered_under_its_key(service: Service) -> None:
    assert service.post({"prompt": "x", "seed": "1"}, idem="k").status_code == 422
    assert service.post({"prompt": "x", "seed": 1}, idem="k").status_code == 202


# --- locks ---


def test_a_twin_that_does_not_end_is_a_409_within_the_lock_time(service: Service) -> None:
    service.post()
    with service.parts.db.unit_of_work() as uow:  # a first request that is stuck inside its transaction
        uow.execute(
            """insert into tasks (id, user_id, type, status, version, idempotency_key, fingerprint, model, provider,
                                  provider_model, input, effective, deadline_s, deadline_at)
               select cast(:id as uuid), user_id, type, status, 1, 'k', '', model, provider, provider_model, input,
                      effective, deadline_s, deadline_at from tasks limit 1""",
            id=str(uuid4()),
        )
        answer = service.post(idem="k")
    assert (answer.status_code, answer.json["code"]) == (409, "idempotency_in_progress")
    assert answer.headers["Retry-After"] == "1"


def test_a_twin_waits_for_the_first_and_replays_it(service: Service) -> None:
    answers = at_once(4, lambda _: service.post(idem="k"))
    assert [answer.status_code for answer in answers] == [202] * 4
    assert sorted(answer.json["reused"] for answer in answers) == [False, True, True, True]


def test_many_at_once_never_pass_the_cap(make_settings: MakeSettings) -> None:
    for service in running(make_settings(TOML.replace("submits_per_minute = 1000", "active = 5"))):
        answers = at_once(16, lambda _, service=service: service.post())  # type: ignore[misc]  # bound now
        assert sorted(answer.status_code for answer in answers) == [202] * 5 + [429] * 11
        assert service.count() == 5


def test_the_answer_to_a_replay_is_the_task_as_it_is_now(service: Service) -> None:
    task_id = service.made(idem="k")
    service.become(task_id, "RUNNING", receipt="r", progress=0.25, started_at="2026-01-01T00:00:00Z")
    again = service.post(idem="k").json
    assert (again["status"], again["stage"], again["progress"]) == ("RUNNING", "generating", 0.25)
    got = service.get(f"/v1/tasks/{task_id}").json
    assert json.dumps({**again, "reused": False}) == json.dumps(got)
