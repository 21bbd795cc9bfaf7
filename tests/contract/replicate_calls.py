"""Calls to the simulator's Replicate dialect as a plain client makes them, and a webhook's address."""

# ruff: noqa: ANN401  answers are JSON without a type

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import requests

from providers.sim import Config, Simulator
from tests.contract.raw_server import Conn, RawServer

TOKEN = "r8_sim_secret"
AUTH = {"Authorization": f"Bearer {TOKEN}"}
SCHNELL, PRO = "black-forest-labs/flux-schnell", "black-forest-labs/flux-1.1-pro"
SMALL = {"prompt": "a red cup", "width": 256, "height": 256, "seed": 7}


def slowly(sim: Simulator) -> None:
    """Predictions from now on wait for longer than any test runs."""
    sim.world.config = Config(image_s=(600, 600), video_s=(600, 600))


def call(sim: Simulator, method: str, path: str, **more: Any) -> requests.Response:
    headers = AUTH | more.pop("headers", {})
    return requests.request(method, f"{sim.url}/replicate/v1{path}", headers=headers, timeout=10, **more)


def created(sim: Simulator, model: str = SCHNELL, headers: dict[str, str] | None = None, **asked: object) -> Any:
    body = {"input": {**SMALL, **asked}}
    answer = call(sim, "POST", f"/models/{model}/predictions", json=body, headers=headers or {})
    assert answer.status_code == HTTPStatus.CREATED, answer.text
    return answer.json()


def seen(sim: Simulator, name: str) -> Any:
    return call(sim, "GET", f"/predictions/{name}").json()


def until(fact: Callable[[], Any]) -> Any:
    end = time.monotonic() + 10
    while not (found := fact()):
        assert time.monotonic() < end, "it did not come about in 10 s"
        time.sleep(0.01)
    return found


def ended(sim: Simulator, name: str) -> Any:
    return until(lambda: found if (found := seen(sim, name))["status"] not in ("starting", "processing") else None)


class Receiver(RawServer):
    """A webhook's address. `answers` are the first statuses it answers with; 204 afterwards."""

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)
        super().__init__(self._take)

    def _take(self, conn: Conn) -> None:
        if conn.request():
            conn.answer(b"", f"{self._answers.pop(0) if self._answers else 204} x")

    @property
    def calls(self) -> list[tuple[dict[str, str], bytes]]:
        """Headers with lower-case names, and the body, of each call so far."""
        parts = [request.partition(b"\r\n\r\n") for request in self.requests]
        heads = [dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:]) for head, _, _ in parts]
        return [({k.lower(): v for k, v in head.items()}, part[2]) for head, part in zip(heads, parts, strict=True)]
