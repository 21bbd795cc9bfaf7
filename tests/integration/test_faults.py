"""The proxy that misbehaves does what it says, since tests of failures stand on it."""

from __future__ import annotations

import http.server
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.faults import Proxy

_BODY = bytes(range(256)) * 4000


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """A megabyte, then the connection is closed."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(_BODY)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy before a small HTTP server."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with Proxy.before(f"http://127.0.0.1:{server.server_address[1]}/") as running:
        yield running
    server.shutdown()
    thread.join()
    server.server_close()


def _get(proxy: Proxy) -> bytes:
    with urllib.request.urlopen(proxy.url, timeout=5) as answer:  # noqa: S310  loopback
        body: bytes = answer.read()
        return body


def test_healthy_proxy_loses_nothing_when_the_server_closes(proxy: Proxy) -> None:
    assert [_get(proxy) == _BODY for _ in range(5)] == [True] * 5
    assert proxy.accepted == 5


def test_cut_answer_ends_early(proxy: Proxy) -> None:
    proxy.cut_after(50_000)
    with pytest.raises(OSError, match="reset"):
        _get(proxy)
    proxy.heal()
    assert _get(proxy) == _BODY


def test_refusing_proxy_is_as_a_stopped_server_and_comes_back_on_the_same_port(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(OSError, match="refused"):
        _get(proxy)
    proxy.heal()
    assert _get(proxy) == _BODY


def test_dripping_answer_takes_its_time(proxy: Proxy) -> None:
    proxy.drip(len(_BODY) // 5, 0.05)
    before = time.monotonic()
    assert _get(proxy) == _BODY
    assert time.monotonic() - before >= 0.25


def test_black_hole_answers_nothing_and_open_connections_can_be_cut(redis_url: str) -> None:
    with Proxy.before(redis_url) as proxy, Redis.from_url(proxy.url, socket_timeout=0.3, retry=None) as client:
        client.set("a", 1)
        proxy.black_hole()
        with pytest.raises(RedisTimeoutError):
            client.get("a")
        proxy.heal()
        assert client.get("a") == b"1"
        before = proxy.accepted
        proxy.cut()
        assert client.get("a") == b"1"  # over a new connection
        assert proxy.accepted == before + 1
