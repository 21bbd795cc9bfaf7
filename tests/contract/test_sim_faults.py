"""Every fault of the simulator, seen on the wire."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from urllib.parse import urlsplit

import pytest
import requests

from providers.sim import Simulator
from tests.contract.simulated import (
    AUTH,
    TEXT2IMAGE,
    accepted,
    connected,
    link,
    output,
    query,
    renewed,
    script,
    submit,
    submitted,
)


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0)


def raw(url: str, headers: str = "Authorization: Bearer sk-test\r\n") -> tuple[bytes, list[float], bool]:
    """GET by a plain socket: all bytes until the end, when each piece came, whether it was a reset."""
    parts = urlsplit(url)
    pieces, times, reset = b"", [], False
    with connected(url) as sock:
        sock.sendall(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n{headers}\r\n".encode())
        try:
            while piece := sock.recv(65_536):
                pieces += piece
                times.append(time.monotonic())
        except ConnectionResetError:
            reset = True
    return pieces, times, reset


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def promised(answer: bytes) -> int:
    found = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
    assert found is not None
    return int(found[1])


def test_status_comes_with_the_vendors_error_body(sim: Simulator) -> None:
    script(sim, "query", status=429)
    answer = query(sim, "x")
    assert (answer.status_code, answer.json()["code"]) == (429, "Throttling.RateQuota")


def test_status_carries_no_retry_after_by_itself(sim: Simulator) -> None:
    script(sim, "query", status=429)
    assert "Retry-After" not in query(sim, "x").headers


def test_retry_after_is_sent_as_scripted(sim: Simulator) -> None:
    script(sim, "query", status=429, retry_after="2")
    assert query(sim, "x").headers["Retry-After"] == "2"


def test_status_500_is_json(sim: Simulator) -> None:
    script(sim, "query", status=500)
    assert query(sim, "x").json()["code"] == "InternalError"


def test_html_is_a_page_with_status_502(sim: Simulator) -> None:
    script(sim, "query", html=True)
    answer = query(sim, "x")
    assert (answer.status_code, answer.headers["Content-Type"]) == (502, "text/html; charset=utf-8")


def test_status_200_with_a_code_is_an_error_in_a_success(sim: Simulator) -> None:
    script(sim, "submit", status=200, code="Arrearage")
    answer = submit(sim)
    assert (answer.status_code, answer.json()["code"], accepted(sim)) == (200, "Arrearage", 0)


def test_body_is_sent_as_scripted(sim: Simulator) -> None:
    script(sim, "submit", status=200, body={"output": {}})
    assert submit(sim).json() == {"output": {}}


def test_headers_are_added_to_the_usual_answer(sim: Simulator) -> None:
    script(sim, "submit", headers={"x-should-retry": "false"})
    answer = submit(sim)
    assert (answer.headers["x-should-retry"], accepted(sim)) == ("false", 1)


def test_accepted_status_leaves_a_job_behind(sim: Simulator) -> None:
    script(sim, "submit", status=524, html=True, accepted=True)
    assert (submit(sim).status_code, accepted(sim)) == (524, 1)


def test_reset_makes_no_job(sim: Simulator) -> None:
    script(sim, "submit", reset=True)
    with pytest.raises(requests.ConnectionError):
        submit(sim)
    assert accepted(sim) == 0


def test_reset_is_a_reset_on_the_wire(sim: Simulator) -> None:
    script(sim, "query", reset=True)
    assert raw(f"{sim.dashscope}/tasks/x")[::2] == (b"", True)


def test_reset_without_match_does_not_read_the_body(sim: Simulator) -> None:
    script(sim, "submit", reset=True)
    with connected(sim.url) as sock:
        # The body is promised and never sent: only a server that does not wait for it can react.
        path = urlsplit(sim.dashscope).path + TEXT2IMAGE
        sock.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".encode())
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


def test_lost_answer_is_a_reset_after_the_job_was_made(sim: Simulator) -> None:
    script(sim, "submit", lost_answer="reset")
    with pytest.raises(requests.ConnectionError):
        submit(sim)
    assert accepted(sim) == 1


def test_closed_answer_is_an_end_without_bytes(sim: Simulator) -> None:
    script(sim, "query", lost_answer="close")
    assert raw(f"{sim.dashscope}/tasks/x")[::2] == (b"", False)


def test_held_answer_comes_after_the_job_was_made(sim: Simulator) -> None:
    script(sim, "submit", hold_s=0.3)
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        pending = pool.submit(submit, sim)
        while accepted(sim) == 0:
            assert not pending.done()
            time.sleep(0.005)
        made = time.monotonic()
        pending.result()
    assert made - began < 0.3 <= time.monotonic() - began


def test_latency_passes_before_the_job_is_made(sim: Simulator) -> None:
    script(sim, "submit", latency_s=0.2)
    began = time.time()
    submit(sim)
    (job,) = sim.world.ledger.accepted(0)
    assert job.created_at - began >= 0.2


def test_drip_sends_one_byte_at_a_time(sim: Simulator) -> None:
    script(sim, "query", drip_s=0.003, status=200, body="0123456789")
    answer, times, _ = raw(f"{sim.dashscope}/tasks/x")
    assert (body_of(answer), times[-1] - times[0] >= 0.025) == (b"0123456789", True)


def test_cut_body_ends_short_of_what_was_promised(sim: Simulator) -> None:
    address = link(sim)
    script(sim, "fetch", cut_after=100)
    answer, _, _ = raw(address, headers="")
    assert (len(body_of(answer)), promised(answer) > 1000) == (100, True)


def test_half_json_has_the_length_of_its_half(sim: Simulator) -> None:
    script(sim, "query", half_json=True)
    answer = query(sim, "x")
    assert len(answer.content) == int(answer.headers["Content-Length"])
    with pytest.raises(requests.exceptions.JSONDecodeError):
        answer.json()


def test_unknown_word_stands_in_every_query(sim: Simulator) -> None:
    script(sim, "submit", status_word="POSTPROCESSING")
    task_id = submitted(sim)
    assert [output(sim, task_id)["task_status"] for _ in range(2)] == ["POSTPROCESSING"] * 2


def test_unknown_word_of_one_query_passes(sim: Simulator) -> None:
    script(sim, "query", times=1, status_word="POSTPROCESSING")
    task_id = submitted(sim)
    assert [output(sim, task_id)["task_status"] for _ in range(2)] == ["POSTPROCESSING", "SUCCEEDED"]


@pytest.mark.parametrize("word", ["PENDING", "RUNNING"])
def test_stuck_job_never_ends(sim: Simulator, word: str) -> None:
    script(sim, "submit", stuck=word)
    assert output(sim, submitted(sim))["task_status"] == word


def test_slow_job_takes_as_long_as_it_is_told(sim: Simulator) -> None:
    script(sim, "submit", slow_s=600)
    submitted(sim)
    (job,) = sim.world.ledger.accepted(0)
    assert job.ends_at - job.created_at == pytest.approx(600)


def test_failed_job_names_code_and_text_with_http_200(sim: Simulator) -> None:
    script(sim, "submit", fail="InternalError.Algo", fail_message="no luck")
    answer = query(sim, submitted(sim))
    seen = answer.json()["output"]
    assert (answer.status_code, seen["task_status"], seen["code"], seen["message"]) == (
        200,
        "FAILED",
        "InternalError.Algo",
        "no luck",
    )


def test_partial_job_has_entries_without_url(sim: Simulator) -> None:
    script(sim, "submit", partial=1)
    results = output(sim, submitted(sim, n=3))["results"]
    assert ["url" in one for one in results] == [True, False, False]


def test_partial_job_is_billed_for_what_it_made(sim: Simulator) -> None:
    script(sim, "submit", partial=1)
    assert query(sim, submitted(sim, n=3)).json()["usage"] == {"image_count": 1}


def test_job_without_payload_succeeds_without_results(sim: Simulator) -> None:
    script(sim, "submit", no_payload=True)
    seen = output(sim, submitted(sim))
    assert (seen["task_status"], "results" in seen) == ("SUCCEEDED", False)


def test_forgetting_vendor_does_not_know_the_job(sim: Simulator) -> None:
    task_id = submitted(sim)
    script(sim, "query", times=1, forget=True)
    assert output(sim, task_id)["task_status"] == "UNKNOWN"


def test_forgetting_vendor_lists_nothing(sim: Simulator) -> None:
    submitted(sim)
    requests.post(f"{sim.url}/_sim/forget", timeout=5)
    assert requests.get(f"{sim.dashscope}/tasks", headers=AUTH, timeout=5).json()["total"] == 0


def test_forgetting_vendor_still_serves_the_files(sim: Simulator) -> None:
    address = link(sim)
    sim.world.ledger.forget()
    assert requests.get(address, timeout=5).status_code == HTTPStatus.OK


def test_unknown_job_is_one_answer_and_no_more(sim: Simulator) -> None:
    task_id = submitted(sim)
    script(sim, "query", times=1, unknown_job=True)
    assert [output(sim, task_id)["task_status"] for _ in range(2)] == ["UNKNOWN", "SUCCEEDED"]


def test_link_yields_the_picture(sim: Simulator) -> None:
    answer = requests.get(link(sim), timeout=5)
    assert (answer.headers["Content-Type"], answer.content[:4]) == ("image/png", b"\x89PNG")


def test_link_yields_a_range(sim: Simulator) -> None:
    address = link(sim)
    part = requests.get(address, headers={"Range": "bytes=4-7"}, timeout=5)
    assert (part.status_code, part.content) == (206, requests.get(address, timeout=5).content[4:8])


@pytest.mark.parametrize("change", [("Signature=", "Signature=A"), ("%", "%25"), ("Expires=1", "Expires=2")])
def test_link_is_refused_when_one_sign_is_changed(sim: Simulator, change: tuple[str, str]) -> None:
    address = link(sim, "a cup with a % in its signature")
    while change[0] not in address:
        address = link(sim)
    assert requests.get(address.replace(*change, 1), timeout=5).status_code == HTTPStatus.FORBIDDEN


def test_link_is_refused_with_a_key_beside_it(sim: Simulator) -> None:
    assert requests.get(link(sim), headers=AUTH, timeout=5).status_code == HTTPStatus.BAD_REQUEST


def test_link_is_as_long_as_configured(sim: Simulator) -> None:
    sim.world.config = sim.world.config.changed({"link_token_chars": 1400})
    address = link(sim)
    assert (len(address) > 1400, requests.get(address, timeout=5).status_code) == (True, 200)


def test_expired_link_is_refused(sim: Simulator) -> None:
    script(sim, "submit", expired_link=True)
    answer = requests.get(link(sim), timeout=5)
    assert (answer.status_code, "expired" in answer.text) == (403, True)


def test_link_expires_by_the_clock(sim: Simulator) -> None:
    sim.world.config = sim.world.config.changed({"link_ttl_s": 0})
    assert requests.get(link(sim), timeout=5).status_code == HTTPStatus.FORBIDDEN


def test_redirect_goes_where_it_is_told(sim: Simulator) -> None:
    script(sim, "fetch", redirect="http://10.0.0.1/secret")
    answer = requests.get(link(sim), allow_redirects=False, timeout=5)
    assert (answer.status_code, answer.headers["Location"]) == (302, "http://10.0.0.1/secret")


def test_redirect_to_the_moved_file_yields_it(sim: Simulator) -> None:
    script(sim, "submit", redirect="/files/moved/{file}")
    answer = requests.get(link(sim), timeout=5)
    assert (len(answer.history), answer.content[:4]) == (1, b"\x89PNG")


def test_content_type_is_as_scripted(sim: Simulator) -> None:
    script(sim, "fetch", content_type="image/jpeg")
    answer = requests.get(link(sim), timeout=5)
    assert (answer.headers["Content-Type"], answer.content[:4]) == ("image/jpeg", b"\x89PNG")


@pytest.mark.parametrize(
    ("kind", "declared", "begin"),
    [
        ("html", "text/html; charset=utf-8", b"<!DOCTYPE html>"),
        ("text", "text/plain; charset=utf-8", b"This is no"),
        ("jpeg", "image/png", b"\xff\xd8\xff"),
        ("webp", "image/png", b"RIFF"),
        ("mp4", "image/png", b"\0\0\0\x20ftyp"),
        ("empty", "image/png", b""),
    ],
)
def test_wrong_bytes_come_with_status_200(sim: Simulator, kind: str, declared: str, begin: bytes) -> None:
    script(sim, "fetch", wrong_bytes=kind)
    answer = requests.get(link(sim), timeout=5)
    assert (answer.headers["Content-Type"], answer.content[: len(begin)]) == (declared, begin)


def test_huge_file_streams_as_many_bytes_as_told(sim: Simulator) -> None:
    script(sim, "fetch", huge_bytes=3_000_001)
    answer = requests.get(link(sim), timeout=5)
    assert (len(answer.content), answer.content[:4]) == (3_000_001, b"\x89PNG")
