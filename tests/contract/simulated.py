"""Calls to the simulator as a client makes them; what the files test_sim_*.py share."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from providers.sim import Config, Simulator

KEY = "sk-test"
AUTH = {"Authorization": f"Bearer {KEY}"}
OLD_WAN = "wan2.2-t2i-flash"
TEXT2IMAGE = "/services/aigc/text2image/image-synthesis"
MESSAGES = "/services/aigc/multimodal-generation/generation"
MESSAGES_ASYNC = "/services/aigc/image-generation/generation"
VIDEO = "/services/aigc/video-generation/video-synthesis"
MESSAGE = [{"role": "user", "content": [{"text": "a red cup"}]}]
Body = dict[str, Any]


def renewed(vendor: Simulator, takes_s: float) -> Simulator:
    """The simulator of a test file, as good as new; each job takes `takes_s` seconds."""
    vendor.world.reset()
    vendor.world.config = Config(image_s=(takes_s, takes_s), video_s=(takes_s, takes_s))
    return vendor


def script(sim: Simulator, on: str, times: int | None = None, **do: object) -> None:
    """Send one rule over the wire."""
    rule = {"on": on, "times": times, "do": do}
    answer = requests.post(f"{sim.url}/_sim/faults", json=[rule], timeout=5)
    assert answer.status_code == HTTPStatus.OK, answer.text


def post(sim: Simulator, path: str, body: object, key: str = KEY, *, asynchronous: bool = True) -> requests.Response:
    """POST to the DashScope dialect."""
    headers = {"Authorization": f"Bearer {key}"} | ({"X-DashScope-Async": "enable"} if asynchronous else {})
    return requests.post(sim.dashscope + path, json=body, headers=headers, timeout=10)


def get(sim: Simulator, path: str, key: str = KEY) -> Body:
    """GET from the DashScope dialect; the body of a 200."""
    answer = requests.get(sim.dashscope + path, headers={"Authorization": f"Bearer {key}"}, timeout=10)
    assert answer.status_code == HTTPStatus.OK, answer.text
    body: Body = answer.json()
    return body


def ordered(sim: Simulator, path: str = TEXT2IMAGE, model: str = OLD_WAN, **parameters: object) -> str:
    """Submit to any path; the task's id."""
    source: Body = {"messages": MESSAGE} if path == MESSAGES_ASYNC else {"prompt": "a red cup"}
    answer = post(sim, path, {"model": model, "input": source, "parameters": parameters})
    assert answer.status_code == HTTPStatus.OK, answer.text
    return str(answer.json()["output"]["task_id"])


def submit(sim: Simulator, prompt: str = "a red cup", model: str = "sim-image", n: int = 1) -> requests.Response:
    """Submit a small picture."""
    parameters = {"n": n, "seed": 7, "size": "64*64"}
    return post(sim, TEXT2IMAGE, {"model": model, "input": {"prompt": prompt}, "parameters": parameters})


def submitted(sim: Simulator, prompt: str = "a red cup", n: int = 1) -> str:
    """Submit a small picture; the task's id."""
    return str(submit(sim, prompt, n=n).json()["output"]["task_id"])


def query(sim: Simulator, task_id: str) -> requests.Response:
    """Ask for a task."""
    return requests.get(f"{sim.dashscope}/tasks/{task_id}", headers=AUTH, timeout=5)


def output(sim: Simulator, task_id: str) -> Body:
    """Ask for a task; its `output`."""
    found: Body = query(sim, task_id).json()["output"]
    return found


def link(sim: Simulator, prompt: str = "a red cup") -> str:
    """Have a picture made (jobs take no time); its link."""
    return str(output(sim, submitted(sim, prompt))["results"][0]["url"])


def finished(sim: Simulator, task_id: str) -> Body:
    """The query's body once the task has left PENDING and RUNNING."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        body = get(sim, f"/tasks/{task_id}")
        if body["output"]["task_status"] not in ("PENDING", "RUNNING"):
            return body
        time.sleep(0.02)
    pytest.fail("the task did not end in 10 s")


def ledger(sim: Simulator, query_string: str = "") -> Body:
    """The ledger as it is reported."""
    found: Body = requests.get(f"{sim.url}/_sim/ledger{query_string}", timeout=5).json()
    return found


def only_job(sim: Simulator) -> Body:
    """The one job in the ledger."""
    (job,) = ledger(sim)["accepted"]
    found: Body = job
    return found


def accepted(sim: Simulator) -> int:
    """How many submits were accepted."""
    return sim.world.ledger.totals().get("dashscope", {}).get("accepted", 0)


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    """A plain connection to the host of `url`."""
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port or 80), timeout=5) as sock:
        yield sock
