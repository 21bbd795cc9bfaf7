"""DELETE: what waits ends at once, what runs is asked for, what cannot be stopped is said so."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from models import line, store
from models.lifecycle import Status
from tests.service import Service, uuid_of

pytest_plugins = ("tests.service_fixtures",)


def test_what_waits_ends_at_once_and_again_and_begins_anew_with_its_key(service: Service) -> None:
    task_id = service.made(idem="k")
    for _ in range(2):
        answer = service.call("DELETE", f"/v1/tasks/{task_id}")
        assert (answer.status_code, answer.json["status"]) == (200, "CANCELED")
        assert "Retry-After" not in answer.headers
    row = service.sql("select * from tasks")[0]
    assert (row["upstream_call_count"], row["cost_micros"], row["certain"]) == (0, 0, True)
    events = service.sql("select reason from task_events order by id")
    assert [event["reason"] for event in events] == ["accepted", "cancelled"]
    assert service.post(idem="k").json["attempt"] == 2


def test_what_runs_is_asked_for_once_and_keeps_its_version(service: Service) -> None:
    task_id = service.made()
    service.become(task_id, "RUNNING", receipt="r")
    first = service.call("DELETE", f"/v1/tasks/{task_id}")
    assert (first.status_code, first.json["status"], first.json["version"]) == (202, "RUNNING", 2)
    assert first.json["cancel_requested_at"] is not None
    assert "Retry-After" in first.headers
    again = service.call("DELETE", f"/v1/tasks/{task_id}")
    assert again.json["cancel_requested_at"] == first.json["cancel_requested_at"]
    assert [rung for rung in service.rung() if rung.endswith(".cancel")] == [f"{task_id}.2.cancel"]
    service.sql("update tasks set cancel_requested_at = now() - interval '1 minute'")
    service.call("DELETE", f"/v1/tasks/{task_id}")
    assert len([rung for rung in service.rung() if rung.endswith(".cancel")]) == 2  # the first may have been lost


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED", "TIMEOUT"])
def test_what_has_ended_otherwise_is_a_409(service: Service, status: str) -> None:
    task_id = service.made()
    service.become(task_id, status)
    answer = service.call("DELETE", f"/v1/tasks/{task_id}")
    assert (answer.status_code, answer.json["code"]) == (409, "task_not_cancellable")
    assert answer.json["task_status"] == status


def test_a_provider_that_cannot_stop_is_a_409_at_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id, waiting = service.made(), service.made()
    service.become(task_id, "RUNNING", receipt="r")
    provider = service.parts.providers["wan"]
    able = dataclasses.replace(provider.capabilities, cancel=False)
    monkeypatch.setattr(provider, "capabilities", able)
    answer = service.call("DELETE", f"/v1/tasks/{task_id}")
    assert (answer.status_code, answer.json["code"]) == (409, "cancel_unsupported")
    assert answer.json["provider"] == "wan"
    assert service.sql("select cancel_requested_at from tasks where status = 'RUNNING'")[0] == {
        "cancel_requested_at": None
    }
    assert service.call("DELETE", f"/v1/tasks/{waiting}").status_code == 200


def test_a_provider_that_was_removed_cannot_stop_either(service: Service) -> None:
    task_id = service.made()
    service.become(task_id, "RUNNING", receipt="r", provider="gone")
    assert service.call("DELETE", f"/v1/tasks/{task_id}").json["code"] == "cancel_unsupported"


def test_o53_cancel_and_claim_at_once_have_one_winner(service: Service) -> None:
    for _ in range(40):
        task_id = service.made()
        gate = threading.Barrier(2)
        claimed: list[object] = []

        def claim(id_: str = task_id, gate: threading.Barrier = gate, claimed: list[object] = claimed) -> None:
            gate.wait()
            with service.parts.db.unit_of_work() as uow:
                claimed.append(line.claim(uow, uuid_of(id_), 1, service.parts.settings, 60))

        worker = threading.Thread(target=claim)
        worker.start()
        gate.wait()
        answer = service.call("DELETE", f"/v1/tasks/{task_id}")
        worker.join()
        if claimed == [None]:
            assert (answer.status_code, answer.json["status"]) == (200, "CANCELED")
        else:
            assert (answer.status_code, answer.json["status"]) == (202, "RUNNING")
        service.become(task_id, "SUCCESS")  # its slot is free for the next round
    ended = service.sql("select distinct upstream_call_count as calls from task_events join tasks t on t.id = task_id"
                        " where reason = 'cancelled'")  # fmt: skip
    assert [row["calls"] for row in ended] in ([], [0])


def test_many_cancels_at_once_make_one_event(service: Service) -> None:
    task_id = service.made()
    gate = threading.Barrier(6)

    def cancel() -> None:
        gate.wait()
        assert service.call("DELETE", f"/v1/tasks/{task_id}").status_code == 200

    threads = [threading.Thread(target=cancel) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = service.sql("select reason from task_events order by id")
    assert [event["reason"] for event in events] == ["accepted", "cancelled"]
    with service.parts.db.unit_of_work() as uow:
        row = store.get(uow, uuid_of(task_id))
    assert row is not None
    assert (row["status"], row["version"]) == (Status.CANCELED, 2)
