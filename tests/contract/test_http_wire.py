"""What happens at the socket decides what a call means: scripted servers, byte by byte."""

from __future__ import annotations

import json
import socket
import time

import pytest

from models.failures import FAILURES
from models.settings import ProviderSettings, Retries
from providers.calls import recorded, within
from providers.http import Ask, Http
from tests.contract.http_client import (
    DIALECT,
    DOUBT,
    ERROR,
    KEY,
    READ,
    SUBMIT,
    K,
    answered,
    both,
    fails,
    make,
)
from tests.contract.raw_server import Conn, RawServer, Script, free_port

# --- at the socket ---


def _reset_at_once(conn: Conn) -> None:
    conn.sock.recv(1)
    conn.reset()


def _reset_after(conn: Conn) -> None:
    conn.request()
    conn.reset()


def _close_after(conn: Conn) -> None:
    conn.request()


def _half_json(conn: Conn) -> None:
    conn.request()
    conn.answer(b'{"output": {"task_id"')


def _cut(conn: Conn) -> None:
    conn.request()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + ERROR)


def _cut_chunk(conn: Conn) -> None:
    conn.request()
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" + ERROR)


def _page(status: str) -> Script:
    def script(conn: Conn) -> None:
        conn.request()
        conn.answer(b"<html><body>Bad Gateway nginx</body></html>", status, "Content-Type: text/html\r\n")

    return script


def _hold(conn: Conn) -> None:
    conn.request()
    conn.hold()


def _drip_head(conn: Conn) -> None:
    conn.request()
    conn.drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"a" * 10_000, 0.05)


def _drip_body(conn: Conn) -> None:
    conn.request()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    conn.drip(b" " * 100_000, 0.05)


def _drip_chunk(conn: Conn) -> None:
    conn.request()
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n")
    conn.drip(b" " * 0x10000, 0.05)


def _too_large(conn: Conn) -> None:
    conn.request()
    conn.send(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 4_100_000)


def _no_http(conn: Conn) -> None:
    conn.request()
    conn.send(b"SSH-2.0-OpenSSH\r\n")


def _bad_gzip(conn: Conn) -> None:
    conn.request()
    conn.answer(ERROR, "200 OK", "Content-Encoding: gzip\r\n")


AFTER_SENDING: dict[str, tuple[Script, K]] = {
    "reset at once": (_reset_at_once, K.UNREADABLE),
    "reset after the request": (_reset_after, K.UNREADABLE),
    "closed after the request": (_close_after, K.UNREADABLE),
    "half of the json": (_half_json, K.UNREADABLE),
    "cut body": (_cut, K.UNREADABLE),
    "cut chunk": (_cut_chunk, K.UNREADABLE),
    "page with 200": (_page("200 OK"), K.UNREADABLE),
    "page with 502": (_page("502 Bad Gateway"), K.SERVER_ERROR),
    "page with 404": (_page("404 Not Found"), K.UNREADABLE),
    "json 500": (answered("500 Oops", b'{"code": "InternalError"}'), K.SERVER_ERROR),
    "json 524": (answered("524 Timeout", b"{}"), K.SERVER_ERROR),
    "error of an unknown code with 200": (answered("200 OK", b'{"code": "Hm"}'), K.UNREADABLE),
    "no answer": (_hold, K.READ_TIMEOUT),
    "dripping head": (_drip_head, K.READ_TIMEOUT),
    "dripping body": (_drip_body, K.READ_TIMEOUT),
    "dripping chunk": (_drip_chunk, K.READ_TIMEOUT),
    "endless answer": (_too_large, K.UNREADABLE),
    "other protocol": (_no_http, K.UNREADABLE),
    "broken compression": (_bad_gzip, K.UNREADABLE),
}


@both
@pytest.mark.parametrize("name", AFTER_SENDING)
def test_call_that_was_sent_without_a_verdict_is_doubt(name: str, call: str) -> None:
    script, kind = AFTER_SENDING[name]
    with RawServer(script) as server:
        clock = time.monotonic()
        exc = fails(make(server.url, async_submit=3), call)
    assert exc.kind is kind
    assert kind in DOUBT
    assert server.connections == 1  # never sent again by itself
    assert time.monotonic() - clock < 3  # the limit is 0.4 s
    assert "html" not in str(exc).partition(",")[0]


DEFINITE: dict[str, tuple[Script, K]] = {
    "400": (answered("400 Bad", ERROR), K.INVALID_PARAMETER),
    "401": (answered("401 No", b'{"code": "InvalidApiKey", "message": "key"}'), K.PROVIDER_AUTH),
    "200 with an error": (answered("200 OK", ERROR), K.INVALID_PARAMETER),
    "429": (
        answered("429 Slow", b'{"code": "Throttling.RateQuota"}', "Retry-After: 60\r\n"),
        K.RATE_LIMITED,
    ),
    "503 with a known code": (
        answered("503 Busy", b'{"code": "Busy"}', "Retry-After: 60\r\n"),
        K.OVERLOADED,
    ),
}


@both
@pytest.mark.parametrize("name", DEFINITE)
def test_vendors_own_no_is_definite_and_never_repeated_inside_a_call(name: str, call: str) -> None:
    script, kind = DEFINITE[name]
    with RawServer(script) as server:
        exc = fails(make(server.url, reads=3, async_submit=3), call)
    assert exc.kind is kind
    assert FAILURES[kind].certain
    assert len(server.requests) == 1
    assert exc.http_status == int(name[:3])


@both
def test_refused_connection_is_not_sent(call: str) -> None:
    assert fails(make(f"http://127.0.0.1:{free_port()}"), call).kind is K.NOT_SENT


@both
@pytest.mark.parametrize("base_url", ["http://no-such-host.invalid", "http://", "nonsense", "http://[::1", "ftp://h"])
def test_address_that_leads_nowhere_is_not_sent(base_url: str, call: str) -> None:
    assert fails(make(base_url), call).kind is K.NOT_SENT


@both
def test_key_that_is_no_header_is_not_sent(call: str) -> None:
    with RawServer(_close_after) as server:
        http = Http(
            ProviderSettings(base_url=server.url),
            DIALECT,
            headers={"Authorization": "Bearer a\nX: b"},
            retries=Retries(reads=0),
        )
        assert fails(http, call).kind is K.NOT_SENT
    assert server.requests == []


@both
def test_connection_that_never_opens_is_not_sent(call: str) -> None:
    # A full backlog swallows the first packet, as a host that is down does.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.settimeout(0)
            filler.connect_ex(address)
        exc = fails(make(f"http://127.0.0.1:{address[1]}", connect_s=0.2), call)
        for filler in fillers:
            filler.close()
    assert exc.kind is K.NOT_SENT


@both
@pytest.mark.parametrize("script", [lambda conn: conn.send(b"no tls\r\n"), Conn.hold, _reset_at_once])
def test_tls_that_fails_before_the_request_is_not_sent(script: Script, call: str) -> None:
    with RawServer(script) as server:
        url = server.url.replace("http:", "https:")
        assert fails(make(url, connect_s=0.3), call).kind is K.NOT_SENT


def test_submit_that_was_surely_not_sent_is_repeated_once() -> None:
    lookups: list[str] = []

    def counting(host: str, *_: object, **__: object) -> None:
        lookups.append(host)
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", counting)
        assert fails(make("http://vendor.example", async_submit=1), "submit").kind is K.NOT_SENT
    assert lookups == ["vendor.example"] * 2


def test_submit_goes_through_when_the_first_connection_is_refused() -> None:
    port = free_port()

    def script(conn: Conn) -> None:
        conn.request()
        conn.answer(b'{"output": {"task_id": "t"}}')

    http = make(f"http://127.0.0.1:{port}", async_submit=1)
    with recorded() as calls, pytest.MonkeyPatch.context() as patch, RawServer(script) as server:
        # The second try finds a server where the first found none.
        connect, tried = socket.socket.connect, []

        def redirected(self: socket.socket, address: tuple[str, int]) -> None:
            tried.append(address)
            connect(self, ("127.0.0.1", server.port) if len(tried) > 1 else address)

        patch.setattr(socket.socket, "connect", redirected)
        assert http.submit(SUBMIT).fields == {"output": {"task_id": "t"}}
    assert [call.verdict for call in calls] == ["provider_unreachable", "ok"]
    assert len(server.requests) == 1


def test_submit_never_uses_a_connection_that_the_server_may_be_closing() -> None:
    """A connection that is closed at the wrong moment costs a read a repeat, a submit nothing."""

    def script(conn: Conn) -> None:
        conn.request()
        conn.answer(b'{"ok": 1}', close=False)
        if conn.request():  # a second request on this connection is cut unread
            conn.reset()

    with RawServer(script) as server:
        http = make(server.url, reads=1)
        for _ in range(5):
            http.submit(SUBMIT)
            http.read(READ)
    submits = [request for request in server.requests if request.startswith(b"POST")]
    assert len(submits) == 5
    assert all(b"\r\nConnection: close\r\n" in request for request in submits)


def test_read_is_asked_again_and_reuses_its_connection() -> None:
    def script(conn: Conn) -> None:
        while conn.request():
            fresh = len(conn.server.requests) < 3
            page, ready = b"<html>502</html>", b'{"ok": 1}'
            conn.answer(page if fresh else ready, "502 Bad" if fresh else "200 OK", close=False)

    with RawServer(script) as server, recorded() as calls:
        assert make(server.url, reads=3).read(READ).fields == {"ok": 1}
    assert [call.verdict for call in calls] == ["provider_server_error"] * 2 + ["ok"]
    assert [call.http_status for call in calls] == [502, 502, 200]
    assert all(call.receipts == ("1",) and call.operation == "observe" for call in calls)
    assert server.connections == 1


def test_short_retry_after_is_waited_for_and_a_long_one_is_handed_on() -> None:
    def script(conn: Conn) -> None:
        first = len(conn.server.requests) == 0
        conn.request()
        conn.answer(
            b'{"code": "Throttling"}' if first else b"{}",
            "429 Slow" if first else "200 OK",
            f"Retry-After: {wait}\r\n",
        )

    wait = "0"
    with RawServer(script) as server:
        clock = time.monotonic()
        make(server.url, reads=1).read(READ)
        assert time.monotonic() - clock < 0.6  # our own delay would be 0.7 s or more
    wait = "120"
    with RawServer(script) as server:
        exc = fails(make(server.url, reads=3), "read")
        assert (exc.kind, exc.retry_after_s) == (K.RATE_LIMITED, 120.0)
        assert len(server.requests) == 1


def test_read_ends_with_the_round_it_belongs_to() -> None:
    with RawServer(_hold) as server, within(0.3):
        clock = time.monotonic()
        assert fails(make(server.url, reads=3, query_read_s=30.0), "read").kind is K.READ_TIMEOUT
    assert time.monotonic() - clock < 1.0


@both
@pytest.mark.parametrize("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
def test_redirect_is_not_followed_and_carries_no_key_away(status: str, call: str) -> None:
    with RawServer(_close_after) as thief:

        def script(conn: Conn) -> None:
            conn.request()
            conn.answer(b"", status, f"Location: {thief.url}/steal\r\n")

        with RawServer(script) as server:
            exc = fails(make(server.url), call)
    assert exc.kind is K.UNREADABLE
    assert KEY.encode() in server.requests[0]
    assert thief.connections == 0


def test_host_environment_has_no_part_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, dead)
    script = answered("200 OK", b"{}", "Set-Cookie: session=abc; Path=/\r\n")
    with RawServer(script) as server:
        http = make(server.url)
        http.read(READ)
        http.read(READ)
    assert not any(b"Cookie" in request or b"Proxy" in request for request in server.requests)


def test_answer_says_what_was_answered() -> None:
    with (
        RawServer(answered("200 OK", b'{"request_id": "r-1", "n": [1]}')) as server,
        recorded() as calls,
    ):
        answer = make(server.url).submit(SUBMIT)
    assert (answer.status, answer.fields["n"], answer.request_id) == (200, [1], "r-1")
    (call,) = calls
    assert (call.operation, call.verdict, call.http_status, call.request_id) == (
        "submit",
        "ok",
        200,
        "r-1",
    )
    assert call.ms >= 0
    assert abs(call.started_at_s - time.time()) < 60


def test_list_answer_is_readable() -> None:
    with RawServer(answered("200 OK", b'[{"a": 1}]')) as server:
        answer = make(server.url).read(READ)
    assert answer.items == ({"a": 1},)
    assert answer.fields == {}


def test_bytes_go_out_as_they_are() -> None:
    with RawServer(answered("200 OK", b"{}")) as server:
        body = b'{"a":  1}'
        make(server.url).submit(
            Ask(operation="submit", method="POST", path="/x?y=1", body=body, headers={"X-Sign": "s"})
        )
    assert server.requests[0].endswith(b"\r\n\r\n" + body)
    assert server.requests[0].startswith(b"POST /x?y=1 HTTP/1.1\r\n")


def test_error_shows_no_key_and_no_page() -> None:
    echo = json.dumps({"code": "InvalidParameter", "message": f"bad key {KEY} at https://h/x?Signature=s"})
    with RawServer(answered("400 Bad", echo.encode())) as server, recorded() as calls:
        exc = fails(make(server.url), "submit")
    for shown in (str(exc), repr(exc), calls[0].error or ""):
        assert KEY not in shown
        assert "Signature" not in shown
    with RawServer(_page("502 Bad Gateway")) as server:
        assert str(fails(make(server.url), "read")) == "The provider answered HTTP 502, text/html."
