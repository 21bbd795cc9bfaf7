"""The simulator's ledger, its settings, and the server under it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http import HTTPStatus
from urllib.parse import urlsplit

import pytest
import requests

from providers.sim import Config, Simulator
from providers.sim.app import DIALECTS
from tests.contract.simulated import (
    AUTH,
    TEXT2IMAGE,
    connected,
    ledger,
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


def test_ledger_counts_calls_by_operation(sim: Simulator) -> None:
    address = link(sim)
    requests.get(address, timeout=5)
    requests.get(f"{sim.dashscope}/tasks", headers=AUTH, timeout=5)
    submit(sim, model="no-such-model")
    totals = ledger(sim)["totals"]["dashscope"]
    expected = {"submit": 2, "accepted": 1, "refused": 1, "query": 1, "list": 1, "cancel": 0, "fetch": 1, "dropped": 0}
    assert totals == expected


def test_ledger_shows_what_was_accepted(sim: Simulator) -> None:
    task_id = submitted(sim, n=2)
    query(sim, task_id)
    (job,) = ledger(sim)["accepted"]
    seen = {name: job[name] for name in ("id", "model", "prompt", "seed", "n", "state", "billed")}
    assert seen == {
        "id": task_id,
        "model": "sim-image",
        "prompt": "a red cup",
        "seed": 7,
        "n": 2,
        "state": "SUCCEEDED",
        "billed": 2,
    }


def test_ledger_bills_nothing_for_a_failed_job(sim: Simulator) -> None:
    submitted(sim, "a cup [[sim: fail]]")
    assert ledger(sim)["accepted"][0]["billed"] == 0


def test_ledger_shows_jobs_since_a_moment(sim: Simulator) -> None:
    submitted(sim)
    since = ledger(sim)["now"]
    later = submitted(sim)
    assert [job["id"] for job in ledger(sim, f"?since={since}")["accepted"]] == [later]


def test_ledger_leaves_the_jobs_out_when_asked(sim: Simulator) -> None:
    submitted(sim)
    assert "accepted" not in ledger(sim, "?jobs=0")


def test_ledger_knows_the_most_jobs_in_flight(sim: Simulator) -> None:
    for _ in range(3):
        submitted(sim, "a cup [[sim: stuck PENDING]]")
    task_id = submitted(sim, "a cup [[sim: stuck PENDING]]")
    requests.post(f"{sim.dashscope}/tasks/{task_id}/cancel", headers=AUTH, timeout=5)
    (account,) = ledger(sim)["in_flight"]
    assert (account["in_flight"], account["most_in_flight"]) == (3, 4)


def test_ledger_shows_no_key(sim: Simulator) -> None:
    submitted(sim)
    assert "sk-test" not in json.dumps(ledger(sim))


def test_reset_drops_jobs_rules_and_counters(sim: Simulator) -> None:
    submitted(sim)
    script(sim, "query", status=503)
    requests.post(f"{sim.url}/_sim/reset", timeout=5)
    assert (ledger(sim)["accepted"], ledger(sim)["totals"], sim.world.faults.as_json()) == ([], {}, [])


def test_health_names_the_dialects(sim: Simulator) -> None:
    named = requests.get(f"{sim.url}/_sim/health", timeout=5).json()["dialects"]
    assert named == [dialect.name for dialect in DIALECTS]


def test_config_is_changed_over_the_wire(sim: Simulator) -> None:
    wanted = {"image_s": [5, 6], "limits": {"queries_per_s": 20}}
    answer = requests.post(f"{sim.url}/_sim/config", json=wanted, timeout=5).json()
    assert (answer["image_s"], answer["limits"]["queries_per_s"]) == ([5, 6], 20)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"image": [1, 2]}, "unknown setting 'image'; allowed: image_s"),
        ({"image_s": [2, 1]}, "image_s is [2, 1]; allowed: [lowest, highest]"),
        ({"image_s": 3}, "image_s is 3"),
        ({"pending_share": 2}, "pending_share is 2; allowed: a number from 0 to 1"),
        ({"share_media": 1}, "share_media is 1; allowed: true, false"),
        ({"limits": {"qps": 1}}, "unknown limit 'qps'; allowed: in_flight"),
        ({"limits": {"in_flight": 1.5}}, "in_flight is 1.5; allowed: a whole number"),
        ([], "the body is no object"),
    ],
)
def test_bad_config_is_refused_with_what_is_wrong(sim: Simulator, sent: object, said: str) -> None:
    answer = requests.post(f"{sim.url}/_sim/config", json=sent, timeout=5)
    assert (answer.status_code, said in answer.json()["message"]) == (400, True), answer.text


def test_unknown_path_answers_404_with_the_dialects(sim: Simulator) -> None:
    answer = requests.get(f"{sim.url}/nothing", timeout=5)
    assert (answer.status_code, "dashscope" in answer.json()["message"]) == (404, True)


def test_connection_carries_many_requests(sim: Simulator) -> None:
    with connected(sim.url) as sock:
        for _ in range(3):
            sock.sendall(b"GET /_sim/health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_connection_survives_a_body_nobody_read(sim: Simulator) -> None:
    call = b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    with connected(sim.url) as sock:
        for _ in range(2):
            sock.sendall(call)
            assert sock.recv(65_536).startswith(b"HTTP/1.1 404 ")


def test_chunked_body_is_understood(sim: Simulator) -> None:
    text = json.dumps({"model": "sim-image", "input": {"prompt": "a red cup"}}).encode()
    headers = AUTH | {"X-DashScope-Async": "enable"}
    answer = requests.post(sim.dashscope + TEXT2IMAGE, data=iter([text[:9], text[9:]]), headers=headers, timeout=5)
    assert answer.status_code == HTTPStatus.OK


def test_what_is_no_http_is_answered_with_400(sim: Simulator) -> None:
    with connected(sim.url) as sock:
        sock.sendall(b"HELLO\r\n\r\n")
        assert sock.recv(65_536).startswith(b"HTTP/1.1 400 ")


def test_hundreds_of_connections_are_served_side_by_side(sim: Simulator) -> None:
    with ExitStack() as stack:
        socks = [stack.enter_context(connected(sim.url)) for _ in range(300)]
        for sock in socks:
            sock.sendall(b"GET /_sim/health HTTP/1.1\r\nHost: x\r\n\r\n")
        seen = [sock.recv(65_536)[:12] for sock in socks]
    assert seen == [b"HTTP/1.1 200"] * 300


def test_stopped_simulator_cuts_calls_that_it_holds() -> None:
    simulator = Simulator().start()
    simulator.world.faults.add([{"on": "query", "do": {"hold_s": 600}}])
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(query, simulator, "x")
        while simulator.world.ledger.totals().get("dashscope", {}).get("query") != 1:
            time.sleep(0.005)
        began = time.monotonic()
        simulator.stop()
        assert held.exception(timeout=5) is None or isinstance(held.exception(), requests.ConnectionError)
    assert time.monotonic() - began < 3


def test_restarted_simulator_keeps_its_address_and_its_jobs() -> None:
    simulator = Simulator(image_s=(0, 0)).start()
    address, task_id = simulator.url, submitted(simulator)
    simulator.stop()
    with simulator:
        assert (simulator.url, output(simulator, task_id)["task_status"]) == (address, "SUCCEEDED")


def test_stopped_simulator_leaves_its_port() -> None:
    with Simulator() as simulator:
        address = urlsplit(simulator.url)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((str(address.hostname), address.port or 80), timeout=5)


def test_job_takes_as_long_as_its_prompt_and_seed_say(sim: Simulator) -> None:
    sim.world.config = Config(image_s=(100, 200))
    for prompt in ("a red cup", "a red cup", "a blue cup"):
        submitted(sim, prompt)
    blue, red, again = (round(job.ends_at - job.created_at, 3) for job in sim.world.ledger.accepted(0))
    assert (red == again, red != blue, 100 <= red <= 200) == (True, True, True)


def test_oldest_job_goes_when_there_are_too_many(sim: Simulator) -> None:
    sim.world.config = Config(image_s=(0, 0), keep_jobs=2)
    ids = [submitted(sim) for _ in range(3)]
    assert [output(sim, one)["task_status"] for one in ids] == ["UNKNOWN", "SUCCEEDED", "SUCCEEDED"]


@pytest.mark.parametrize(("shared", "files"), [(True, 1), (False, 2)])
def test_jobs_share_one_picture_when_told_so(sim: Simulator, shared: bool, files: int) -> None:  # noqa: FBT001
    sim.world.config = Config(image_s=(0, 0), share_media=shared)
    pictures = {requests.get(link(sim, prompt), timeout=5).content for prompt in ("a red cup", "a blue cup")}
    assert len(pictures) == files


def test_serving_process_ends_on_sigterm() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    code = f"from providers.sim import serve; serve(port={port})"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        end = time.monotonic() + 10
        while not _answers(port):
            assert time.monotonic() < end
            time.sleep(0.02)
        process.terminate()
        assert process.wait(timeout=5) == 0


def _answers(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/_sim/health", timeout=1).status_code == HTTPStatus.OK
    except requests.ConnectionError:
        return False
