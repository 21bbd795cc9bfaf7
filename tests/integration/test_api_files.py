"""Results over HTTP: whole and in parts, by key and by link, while they are there and after."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime

import pytest

from models import store
from providers.storage import Storage, result_folder
from tests.scripted import png
from tests.service import Service, uuid_of

pytest_plugins = ("tests.service_fixtures",)

CONTENT = png(64, 32)
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def task_id(service: Service) -> str:
    """A task that ended with one picture in storage."""
    return delivered(service)


def delivered(service: Service, media_type: str = "image/png") -> str:
    task_id = service.made()
    key = f"{result_folder(task_id, 1, datetime.now(UTC))}/0.png"
    service.parts.storage.put_bytes(key, CONTENT, media_type)
    output = {"n": 0, "media_type": media_type, "width": 64, "height": 32, "duration_s": None, "bytes": len(CONTENT),
              "sha256": SHA, "seed": 7, "key": key}  # fmt: skip
    service.become(task_id, "SUCCESS", outputs=json.dumps([output]), cost_micros=100)
    asset = {**{k: v for k, v in output.items() if k != "seed"}, "sha256": bytes.fromhex(SHA), "attempt": 1,
             "task_id": uuid_of(task_id), "retention_days": 30}  # fmt: skip
    with service.parts.db.unit_of_work() as uow:
        store.record_assets(uow, [asset])
    return task_id


def test_the_task_names_a_stable_address_and_no_storage(service: Service, task_id: str) -> None:
    task = service.get(f"/v1/tasks/{task_id}").json
    assert task["outputs"] == [{
        "url": f"/v1/tasks/{task_id}/outputs/0", "media_type": "image/png", "width": 64, "height": 32,
        "duration_s": None, "bytes": len(CONTENT), "sha256": SHA, "seed": 7,
    }]  # fmt: skip
    assert task["cost"] == {"micros": 100, "currency": "USD"}


def test_the_bytes_are_served_so_that_no_browser_runs_them(service: Service, task_id: str) -> None:
    answer = service.get(f"/v1/tasks/{task_id}/outputs/0")
    assert (answer.status_code, answer.data) == (200, CONTENT)
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.headers["Content-Length"] == str(len(CONTENT))
    assert answer.headers["ETag"] == f'"{SHA}"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert answer.headers["Content-Disposition"] == f'inline; filename="{task_id}-0.png"'
    head = service.call("HEAD", f"/v1/tasks/{task_id}/outputs/0")
    assert (head.status_code, head.data, head.headers["Content-Length"]) == (200, b"", str(len(CONTENT)))


def test_what_a_browser_might_run_is_an_attachment(service: Service) -> None:
    answer = service.get(f"/v1/tasks/{delivered(service, 'image/svg+xml')}/outputs/0")
    assert answer.headers["Content-Disposition"].startswith("attachment;")


def test_an_unchanged_result_is_a_304(service: Service, task_id: str) -> None:
    answer = service.get(f"/v1/tasks/{task_id}/outputs/0", If_None_Match=f'"{SHA}"')
    assert (answer.status_code, answer.data, answer.headers["ETag"]) == (304, b"", f'"{SHA}"')


def test_a_range_is_answered_with_that_part(service: Service, task_id: str, subtests: pytest.Subtests) -> None:
    for asked, first, stop in [
        ("bytes=0-9", 0, 10),
        ("bytes=10-", 10, None),
        ("bytes=-5", -5, None),
        ("bytes=20-99999999", 20, None),
    ]:
        with subtests.test(asked=asked, first=first, stop=stop):
            answer = service.get(f"/v1/tasks/{task_id}/outputs/0", Range=asked)
            assert (answer.status_code, answer.data) == (206, CONTENT[first:stop])
            begin = first % len(CONTENT)
            assert answer.headers["Content-Range"] == f"bytes {begin}-{begin + len(answer.data) - 1}/{len(CONTENT)}"


def test_a_range_that_cannot_be_honoured_gives_the_whole(
    service: Service, task_id: str, subtests: pytest.Subtests
) -> None:
    for headers in [
        {"Range": "bytes=0-1,4-5"},
        {"Range": "lines=1-2"},
        {"Range": "bytes=x"},
        {"Range": "bytes=0-1", "If_Range": '"old"'},
    ]:
        with subtests.test(headers=headers):
            assert service.get(f"/v1/tasks/{task_id}/outputs/0", **headers).data == CONTENT


def test_a_range_beyond_the_end_is_a_416_with_the_size(service: Service, task_id: str) -> None:
    answer = service.get(f"/v1/tasks/{task_id}/outputs/0", Range="bytes=99999999-")
    assert (answer.status_code, answer.json["code"]) == (416, "range_not_satisfiable")
    assert answer.headers["Content-Range"] == f"bytes */{len(CONTENT)}"


def test_an_output_of_a_live_task_is_not_ready(service: Service) -> None:
    answer = service.get(f"/v1/tasks/{service.made()}/outputs/0")
    assert (answer.status_code, answer.json["code"]) == (409, "task_not_ready")
    assert answer.json["task_status"] == "PENDING"
    assert answer.headers["Retry-After"]


def test_an_output_that_never_was_is_a_404(service: Service, task_id: str, subtests: pytest.Subtests) -> None:
    for n in ["1", "99999999999999999999", "-1", "x"]:
        with subtests.test(n=n):
            assert service.get(f"/v1/tasks/{task_id}/outputs/{n}").status_code == 404


@pytest.mark.parametrize("scene", ["removed_at = now()", "expires_at = now() - interval '1 s'"])
def test_an_output_past_its_time_is_gone(service: Service, task_id: str, scene: str) -> None:
    signed = service.get(f"/v1/tasks/{task_id}?signed=1").json["outputs"][0]["signed_url"]
    service.sql(f"update assets set {scene}")  # noqa: S608  from this file
    for answer in (service.get(f"/v1/tasks/{task_id}/outputs/0"), service.bare(signed)):
        assert (answer.status_code, answer.json["code"]) == (410, "result_expired")
        assert answer.json["expired_at"].endswith("Z")
    assert service.get(f"/v1/tasks/{task_id}").json["outputs"][0]["sha256"] == SHA  # the record stays


def test_bytes_that_somebody_deleted_are_gone_too(service: Service, task_id: str) -> None:
    service.parts.storage.delete(list(service.parts.storage.list("results")))
    assert service.get(f"/v1/tasks/{task_id}/outputs/0").status_code == 410


def test_a_signed_link_needs_no_key_and_is_in_no_cache(service: Service, task_id: str) -> None:
    plain = service.get(f"/v1/tasks/{task_id}")
    assert "signed_url" not in plain.json["outputs"][0]
    task = service.get(f"/v1/tasks/{task_id}?signed=1", If_None_Match=plain.headers["ETag"])
    assert (task.status_code, task.headers["Cache-Control"]) == (200, "no-store")
    assert "ETag" not in task.headers
    output = task.json["outputs"][0]
    until = datetime.fromisoformat(output["signed_url_expires_at"])
    assert 590 < (until - datetime.now(UTC)).total_seconds() <= 600
    answer = service.bare(output["signed_url"], Range="bytes=0-3")
    assert (answer.status_code, answer.data) == (206, CONTENT[:4])
    assert service.bare(output["signed_url"][:-1]).status_code == 404
    assert service.bare("/files/nonsense").status_code == 404


def test_a_signed_link_ends(service: Service, task_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    link = service.get(f"/v1/tasks/{task_id}?signed=1").json["outputs"][0]["signed_url"]
    now = time.time()
    monkeypatch.setattr("itsdangerous.timed.time.time", lambda: now + 599)
    assert service.bare(link).status_code == 200
    monkeypatch.setattr("itsdangerous.timed.time.time", lambda: now + 602)
    answer = service.bare(link)
    assert (answer.status_code, answer.json["code"]) == (404, "not_found")


def test_a_link_to_an_earlier_attempt_gives_nothing(service: Service, task_id: str) -> None:
    token = service.parts.links().dumps([uuid_of(task_id).hex, 0, 2])
    assert service.bare(f"/files/{token}").status_code == 404


def test_another_storage_that_can_sign_is_redirected_to(
    service: Service, task_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    remote = Storage("s3://bucket/weir?region=us-east-1", service.parts.settings.env.data_dir)
    monkeypatch.setattr(service.parts.storage, "signed_url", remote.signed_url)
    answer = service.get(f"/v1/tasks/{task_id}/outputs/0")
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("https://")
    assert answer.headers["Cache-Control"] == "no-store"
