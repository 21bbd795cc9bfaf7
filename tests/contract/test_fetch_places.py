"""Where a result may come from, and who gets to see our key."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.failures import FailureKind
from tests.contract.puller import HIDDEN, PNG, Puller, served
from tests.contract.raw_server import Conn, RawServer, free_port


@pytest.fixture
def puller(tmp_path: Path) -> Iterator[Puller]:
    yield Puller(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []  # nothing is ever left behind


# --- redirects and credentials ---


def test_key_goes_to_the_providers_own_host_and_not_along_with_a_redirect(puller: Puller) -> None:
    key = {"Authorization": "Bearer sk-secret-secret"}
    with RawServer(served()) as store:

        def script(conn: Conn) -> None:
            conn.request()
            conn.answer(b"", "302 Found", f"Location: {store.url}/signed?a=1\r\nSet-Cookie: s=1\r\n")

        with RawServer(script) as vendor:
            puller.pull(f"{vendor.url}/v1/content", home=vendor.url, allowed=("127.0.0.0/8",), headers=key)
            puller.pull(f"{vendor.url}/v1/content", home=vendor.url, allowed=("127.0.0.0/8",))
            puller.pull(f"{store.url}/x", home=vendor.url, allowed=("127.0.0.0/8",), headers=key)
    assert [b"sk-secret" in request for request in vendor.requests] == [True, False]
    assert not any(b"Authorization" in request or b"Cookie" in request for request in store.requests)


def test_key_is_not_sent_to_another_port_or_scheme_of_the_same_host(puller: Puller) -> None:
    with RawServer(served()) as other:
        home = f"http://127.0.0.1:{free_port()}"
        puller.pull(other.url, home=home, hosts=(f"127.0.0.1:{other.port}",), headers={"Authorization": "k"})
        tls_home = other.url.replace("http:", "https:")
        puller.pull(other.url, home=tls_home, headers={"Authorization": "k"})
    assert not any(b"Authorization" in request for request in other.requests)


def test_relative_redirects_are_followed_three_times_and_no_more(puller: Puller) -> None:
    def script(conn: Conn) -> None:
        line = conn.request().split(b" ")[1]
        hops = int(line.rpartition(b"/")[2])
        if hops:
            conn.answer(b"", "307 Moved", f"Location: ./{hops - 1}\r\n")
        else:
            conn.answer(PNG)

    with RawServer(script) as server:
        puller.pull(f"{server.url}/a/3", home=server.url)
        exc = puller.fails(f"{server.url}/a/4", home=server.url)
    assert exc.kind is FailureKind.RESULT_UNAVAILABLE
    assert "redirects" in str(exc)


# --- addresses ---

ATTACKS = [
    "http://127.0.0.1:{port}/",
    "https://127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "https://localhost:{port}/",
    "https://localhost.:{port}/",
    "https://2130706433:{port}/",
    "https://0x7f000001:{port}/",
    "https://0x7f.1:{port}/",
    "https://0177.0.0.1:{port}/",
    "https://127.1:{port}/",
    "https://0:{port}/",
    "https://0.0.0.0:{port}/",
    "https://[::1]:{port}/",
    "https://[::]:{port}/",
    "https://[::ffff:127.0.0.1]:{port}/",
    "https://[::ffff:7f00:1]:{port}/",
    "https://[64:ff9b::7f00:1]:{port}/",
    "https://[2002:7f00:1::]:{port}/",
    "https://[fd00:ec2::254]/latest/meta-data/",
    "https://[fe80::1]:{port}/",
    "https://169.254.169.254/latest/meta-data/",
    "http://169.254.169.254/latest/meta-data/",
    "https://100.64.0.1:{port}/",
    "https://10.0.0.1:{port}/",
    "https://172.16.0.1:{port}/",
    "https://192.168.0.1:{port}/",
    "https://198.18.0.1:{port}/",
    "https://192.0.2.1:{port}/",
    "https://224.0.0.1:{port}/",
    "https://255.255.255.255:{port}/",
    "https://168.63.129.16:{port}/",
    "https://good.example@127.0.0.1:{port}/",
    "https://127.0.0.1:{port}\\@good.example/",
    "https://good.example:{port}#@127.0.0.1/",
    "https://rebind.example:{port}/",
    "https://mixed.example:{port}/",
    "https://nowhere.example:{port}/",
    "http://public.example/",
    "https://public.example:6379/",
    "https://public.example:25/",
    "https://public.example:22/",
    "file:///etc/passwd",
    "ftp://public.example/",
    "gopher://127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "data:image/png;base64,AAAA",
    "https://",
    "https:///x",
    "https://public.example:99999/",
    "https://exa mple/",
    "https://127。0。0。1:{port}/",
    "https://①②⑦.0.0.1:{port}/",
    "",
    "x" * 9000,
]
# 6379 is above 1023: a public host may serve on it, so only the address is judged there.
_ALLOWED_PORT = "https://public.example:6379/"


@pytest.fixture
def no_wire(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Addresses that were dialled; names resolve as an attacker's DNS would have it."""
    dialled: list[object] = []
    answers = {
        "rebind.example": [["93.184.216.34"], ["127.0.0.1"]],
        "mixed.example": [["93.184.216.34", "127.0.0.1"]],
        "public.example": [["93.184.216.34"]],
        "good.example": [["93.184.216.34"]],
        "localhost": [["127.0.0.1", "::1"]],
        "localhost.": [["127.0.0.1"]],
    }
    looked_up: dict[str, int] = {}
    real = socket.getaddrinfo

    def lookup(host: object, port: object, *args: object, **kwargs: object) -> object:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if name in answers:
            turn = min(looked_up.get(name, 0), len(answers[name]) - 1)
            looked_up[name] = turn + 1
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port or 0)) for ip in answers[name][turn]]
        if name.endswith(".example"):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return real(name, port, *args, **kwargs)  # type: ignore[arg-type]  # whatever the caller gave

    def connect(_: socket.socket, address: object) -> None:
        dialled.append(address)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(socket.socket, "connect", connect)
    return dialled


@pytest.mark.parametrize("url", ATTACKS, ids=range(len(ATTACKS)))
def test_link_into_private_places_is_refused_before_a_byte_is_sent(
    puller: Puller, no_wire: list[object], url: str
) -> None:
    exc = puller.fails(url.replace("{port}", "8443"))
    assert exc.kind is FailureKind.RESULT_UNAVAILABLE
    assert str(exc) == HIDDEN
    inside = [address for address in no_wire if not str(address).startswith("('93.184.216.34'")]
    assert inside == []


def test_attack_table_would_reach_its_goal_without_the_guard(puller: Puller, no_wire: list[object]) -> None:
    """The same links as the provider's own host are dialled.

    The table tests the guard and not a typing error.
    """
    for url in (
        "https://2130706433:8443/",
        "https://[::ffff:127.0.0.1]:8443/",
        "https://localhost.:8443/",
    ):
        puller.fails(url, home=url)
        assert no_wire.pop()


def test_public_address_is_dialled_as_it_was_checked(puller: Puller, no_wire: list[object]) -> None:
    puller.fails("https://rebind.example/a.png")
    puller.fails(_ALLOWED_PORT)
    assert no_wire == [("93.184.216.34", 443), ("93.184.216.34", 6379)]


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/", "http://127.0.0.1:{port}/", "file:///etc/passwd"])
def test_redirect_into_private_places_is_refused(puller: Puller, target: str) -> None:
    with RawServer(served()) as inside:
        there = target.replace("{port}", str(inside.port))
        with RawServer(served(b"", "302 Found", f"Location: {there}\r\n")) as vendor:
            exc = puller.fails(vendor.url, home=vendor.url)
    assert (exc.kind, str(exc)) == (FailureKind.RESULT_UNAVAILABLE, HIDDEN)
    assert inside.connections == 0


def test_private_network_is_open_when_it_is_listed(puller: Puller) -> None:
    with RawServer(served()) as server:
        puller.pull(server.url, allowed=("127.0.0.0/8",))
        assert puller.fails(server.url, allowed=("10.0.0.0/8",)).kind is FailureKind.RESULT_UNAVAILABLE
        puller.pull(server.url, hosts=(f"127.0.0.1:{server.port}",))
        puller.fails(server.url, hosts=("127.0.0.1", "127.0.0.1:1"))
    assert server.connections == 2


def test_proxy_of_the_host_is_not_used(puller: Puller, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    with RawServer(served()) as server:
        puller.pull(server.url, allowed=("127.0.0.0/8",))
        puller.pull(server.url, home=server.url)
