"""Bringing a result home: whole, checked and within limits."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from models.contract import Kind
from models.failures import FailureKind
from models.lifecycle import Output
from models.settings import ProviderSettings, Results
from providers.calls import recorded, within
from providers.fetch import Downloads
from providers.port import ProviderError
from providers.sim import Simulator
from tests.contract.puller import NOWHERE, PNG, Puller, served
from tests.contract.raw_server import Conn, RawServer, Script
from tests.contract.test_storage import clip


@pytest.fixture
def puller(tmp_path: Path) -> Iterator[Puller]:
    yield Puller(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []  # nothing is ever left behind


@pytest.mark.parametrize("headers", ["", "Content-Type: text/html\r\n"])
def test_result_is_what_was_served_whatever_its_header_says(puller: Puller, headers: str) -> None:
    seen: list[bytes] = []
    with RawServer(served(headers=headers)) as server, recorded() as calls:
        got = puller.pull(f"{server.url}/a.jpg", home=server.url, look=lambda got: seen.append(got.file.read()))
    assert seen == [PNG]
    assert (got.bytes, got.sha256) == (len(PNG), hashlib.sha256(PNG).hexdigest())
    assert (got.media.media_type, got.media.width, got.media.height) == ("image/png", 48, 32)
    assert [(call.operation, call.verdict, call.http_status) for call in calls] == [("fetch", "ok", 200)]


def test_bytes_that_came_with_the_answer_go_the_same_way(tmp_path: Path) -> None:
    downloads = Downloads(Results(image_max_bytes=100_000), tmp_path)
    with downloads.fetched(ProviderSettings(), Output(content=PNG), Kind.IMAGE) as got:
        assert got.file.read() == PNG
    for content in (b"<html>", b"x" * 100_001):
        with (
            pytest.raises(ProviderError) as caught,
            downloads.fetched(ProviderSettings(), Output(content=content), Kind.IMAGE),
        ):
            pass
        assert caught.value.kind is FailureKind.RESULT_INVALID


def test_file_is_gone_after_use_and_has_no_name_before(tmp_path: Path) -> None:
    named: list[list[Path]] = []
    with RawServer(served()) as server:
        got = Puller(tmp_path).pull(
            server.url,
            home=server.url,
            look=lambda _: named.append([path for path in tmp_path.rglob("*") if path.is_file()]),
        )
    assert named == [[]]
    assert got.file.closed


SIGNED = (
    "/a%2fb/%7Efile%20name.png?Expires=1796000000&OSSAccessKeyId=LTAI%2B"
    "&Signature=aB%2fc%3d%3D+x~'()*!"
    "&security-token=" + "CAIS%2B%2f" * 140 + "&response-content-type=image%2fpng&empty=&flag&a[]=1|2&x=%zz"
)


@pytest.mark.parametrize("guarded", [False, True])
def test_signed_link_goes_out_byte_for_byte(puller: Puller, guarded: bool) -> None:  # noqa: FBT001
    with RawServer(served()) as server:
        home, allowed = (NOWHERE, ("127.0.0.0/8",)) if guarded else (server.url, ())
        puller.pull(server.url + SIGNED + "#fragment", home=home, allowed=allowed)
    line = server.requests[0].split(b"\r\n")[0]
    assert line == f"GET {SIGNED} HTTP/1.1".encode()
    assert f"\r\nHost: 127.0.0.1:{server.port}\r\n".encode() in server.requests[0]
    assert b"\r\nAccept-Encoding: identity\r\n" in server.requests[0]


def test_link_outside_ascii_is_quoted(puller: Puller) -> None:
    with RawServer(served()) as server:
        puller.pull(f"{server.url}/图.png?名=1", home=server.url)
    assert server.requests[0].startswith(b"GET /%E5%9B%BE.png?%E5%90%8D=1 HTTP/1.1\r\n")


# --- limits ---


@pytest.mark.parametrize("promise", [True, False])
def test_result_above_the_limit_is_cut_off_while_reading(puller: Puller, promise: bool) -> None:  # noqa: FBT001
    sent = 0

    def script(conn: Conn) -> None:
        nonlocal sent
        conn.request()
        length = "Content-Length: 100000000\r\n" if promise else ""
        conn.send(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode() + PNG[:20])
        for _ in range(1000):
            conn.send(b"x" * 100_000)
            sent += 100_000

    with RawServer(script) as server:
        exc = puller.fails(server.url, home=server.url, image_max_bytes=200_000)
    assert exc.kind is FailureKind.RESULT_INVALID
    assert sent < 20_000_000  # what the kernel buffered


def test_packed_bomb_is_counted_unpacked(puller: Puller) -> None:
    packed = gzip.compress(PNG + b"\0" * 20_000_000)
    with RawServer(served(packed, headers="Content-Encoding: gzip\r\n")) as server:
        exc = puller.fails(server.url, home=server.url, image_max_bytes=1_000_000)
    assert exc.kind is FailureKind.RESULT_INVALID


def test_dripping_result_is_cut_in_time(puller: Puller) -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n")
        conn.drip(PNG * 100, 0.02)

    with RawServer(script) as server:
        clock = time.monotonic()
        exc = puller.fails(server.url, home=server.url, fetch_s=0.4)
        with within(0.3):
            puller.fails(server.url, home=server.url, fetch_s=60.0)
        assert time.monotonic() - clock < 1.5
    assert exc.kind is FailureKind.RESULT_UNAVAILABLE
    assert "too long" in str(exc)


def test_redirects_share_one_limit_of_time(puller: Puller) -> None:
    def script(conn: Conn) -> None:
        conn.request()
        if conn.server.stopping.wait(0.3):
            return
        conn.answer(b"", "302 Found", "Location: /again\r\n")

    with RawServer(script) as server:
        clock = time.monotonic()
        puller.fails(server.url, home=server.url, fetch_s=0.5)
        assert time.monotonic() - clock < 0.9


CLIP = clip()


@pytest.mark.parametrize(
    "script",
    [
        lambda conn: (
            conn.request(),
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + CLIP),
        ),
        lambda conn: (
            conn.request(),
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n" + CLIP),
        ),
        lambda conn: (conn.request(), conn.reset()),
        lambda conn: (conn.request(),),
        served(b"<html>", "404 Not Found"),
        served(b"", "403 Forbidden"),
        served(b"", "500 Oops"),
        served(b"", "304 Not Modified"),
        served(CLIP, "206 Partial Content"),
    ],
    ids=range(9),
)
def test_result_that_does_not_arrive_whole_is_unavailable(puller: Puller, script: Script) -> None:
    with RawServer(script) as server, recorded() as calls:
        exc = puller.fails(server.url, Kind.VIDEO, home=server.url)
    assert exc.kind is FailureKind.RESULT_UNAVAILABLE
    assert [call.verdict for call in calls] == ["result_unavailable"]


@pytest.mark.parametrize("body", [b"<html>Link expired</html>", b"", PNG[:-20], CLIP[:-20]], ids=range(4))
def test_stump_or_page_without_a_length_is_invalid(puller: Puller, body: bytes) -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n" + body)

    with RawServer(script) as server:
        exc = puller.fails(server.url, home=server.url)
    assert exc.kind is FailureKind.RESULT_INVALID
    assert "expired" not in str(exc)


def test_o75_memory_stays_flat_however_large_the_films(puller: Puller) -> None:
    size = 60_000_000
    head, _, rest = CLIP.partition(b"mdat")
    movie = head[:-4]

    def script(conn: Conn) -> None:
        conn.request()
        extra = size.to_bytes(4, "big") + b"free"
        conn.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(CLIP) + size}\r\n\r\n".encode() + CLIP + extra)
        for _ in range((size - 8) // 8192):
            conn.send(b"\0" * 8192)
        conn.send(b"\0" * ((size - 8) % 8192))

    assert movie
    assert rest
    with RawServer(script) as server:
        tracemalloc.start()
        with ThreadPoolExecutor(3) as pool:
            got = list(pool.map(lambda _: puller.pull(server.url, Kind.VIDEO, home=server.url), range(3)))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert [one.bytes for one in got] == [len(CLIP) + size] * 3
    assert len({one.sha256 for one in got}) == 1
    assert peak < 3 * 8_000_000


def test_downloads_side_by_side_do_not_wait_for_a_slow_one(tmp_path: Path) -> None:
    downloads = Downloads(Results(fetch_s=5.0), tmp_path)

    def script(conn: Conn) -> None:
        if b"slow" in conn.request():
            conn.hold()
        else:
            conn.answer(PNG)

    with RawServer(script) as server:
        provider = ProviderSettings(base_url=server.url)

        def pull(name: str) -> None:
            with downloads.fetched(provider, Output(url=f"{server.url}/{name}"), Kind.IMAGE):
                pass

        def pull_in_vain() -> None:
            with pytest.raises(ProviderError):
                pull("slow")

        slow = threading.Thread(target=pull_in_vain)
        slow.start()
        clock = time.monotonic()
        for _ in range(5):
            pull("fast")
        assert time.monotonic() - clock < 1
        server.stopping.set()
        slow.join()


# --- with the simulator ---


def test_simulators_files_come_home(puller: Puller) -> None:
    with Simulator(image_s=(0, 0), video_s=(0, 0)) as sim:
        link = _link(sim, "a red cup")
        got = puller.pull(link, home=sim.url)
        assert (got.media.width, got.media.height) == (512, 512)
        assert puller.fails(_link(sim, "b [[sim: expired]]"), home=sim.url).http_status == 403
        invalid = puller.fails(_link(sim, "c [[sim: file-bytes html]]"), home=sim.url)
        assert invalid.kind is FailureKind.RESULT_INVALID
        cut = _link(sim, "d [[sim: file-cut 900]]")
        assert puller.fails(cut, home=sim.url).kind is FailureKind.RESULT_UNAVAILABLE
        puller.pull(cut, home=sim.url)


def _link(sim: Simulator, prompt: str) -> str:
    body = {
        "model": "wan2.2-t2i-flash",
        "input": {"prompt": prompt},
        "parameters": {"size": "512*512", "n": 1, "seed": 1},
    }
    headers = {"Authorization": "Bearer sk-test", "X-DashScope-Async": "enable"}
    url = f"{sim.dashscope}/services/aigc/text2image/image-synthesis"
    made = requests.post(url, json=body, headers=headers).json()["output"]["task_id"]
    end = time.monotonic() + 10
    while time.monotonic() < end:
        output = requests.get(f"{sim.dashscope}/tasks/{made}", headers=headers).json()["output"]
        if output["task_status"] == "SUCCEEDED":
            return str(output["results"][0]["url"])
        os.sched_yield()
    raise AssertionError(output)
