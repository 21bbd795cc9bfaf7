"""RabbitMQ before the first worker: what is rung, and when it is to come, finds its queue all the same."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection

from api.ports import free_port
from api.processes import ROOT
from tests.conftest import OUTSIDE, SECRET
from tests.live import until
from tests.rabbit import Rabbit

# As the web process does: in a process of its own, since Celery reads its configuration once.
_RING = """
from uuid import UUID
from tasks import bell
bell.impatient()
bell.ring("{kind}", "{step}", UUID(int=7), 3, {countdown})
"""


@pytest.fixture
def unused(needs: Callable[[str], str], tmp_path: Path) -> Iterator[Rabbit]:
    """A broker that nobody has ever used."""
    needs("rabbitmq-server")
    with Rabbit(tmp_path) as running:
        yield running


def _ring(url: str, kind: str, step: str, countdown: int = 0) -> str:
    """Ring once; what was logged."""
    done = subprocess.run(
        [sys.executable, "-c", _RING.format(kind=kind, step=step, countdown=countdown)],
        env={"PATH": OUTSIDE["PATH"], "WEIR_BROKER_URL": url, "WEIR_SECRET": SECRET},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr


def _taken(rabbit: Rabbit, queue: str) -> Any:  # noqa: ANN401  amqp's message
    with Connection(rabbit.url) as connection:
        channel: Any = connection.default_channel
        return channel.basic_get(queue, no_ack=True)


def test_message_of_a_queue_without_any_worker_comes_when_it_is_due(unused: Rabbit) -> None:
    began = time.time()
    assert _ring(unused.url, "video", "fetch", countdown=2) == ""
    assert _ring(unused.url, "image", "submit") == ""
    at_once = until(lambda: _taken(unused, "image"), within_s=5)
    assert at_once.headers["id"].endswith(".3")
    assert at_once.headers["task"] == "image.submit"
    delayed = until(lambda: _taken(unused, "video"), within_s=10)
    assert delayed.headers["task"] == "video.fetch"
    assert time.time() - began >= 2


def test_broker_that_forgot_everything_is_told_again(rabbit: Rabbit) -> None:
    _ring(rabbit.url, "video", "fetch")
    with Connection(rabbit.url) as connection:
        channel: Any = connection.default_channel
        for name in ("image", "video", "default"):
            channel.queue_delete(name)
        channel.exchange_delete("weir")
    assert _ring(rabbit.url, "video", "fetch", countdown=1) == ""
    assert until(lambda: _taken(rabbit, "video"), within_s=10).headers["task"] == "video.fetch"


def test_broker_that_is_away_costs_seconds_and_a_line() -> None:
    began = time.monotonic()
    assert "wake-up not sent" in _ring(f"amqp://guest:guest@127.0.0.1:{free_port()}//", "image", "submit")
    assert time.monotonic() - began < 10
