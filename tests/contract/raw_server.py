"""A server on loopback that does to a connection exactly what a test says, byte by byte."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Self

Script = Callable[["Conn"], None]


class Conn:
    """One accepted connection."""

    def __init__(self, server: RawServer, sock: socket.socket, number: int) -> None:
        self.server, self.sock, self.number = server, sock, number

    def request(self) -> bytes:
        """Read one request whole, head and body.

        B"" when the client has gone. Counted by the server.
        """
        seen = b""
        while b"\r\n\r\n" not in seen:
            part = self.sock.recv(65_536)
            if not part:
                return b""
            seen += part
        head, _, body = seen.partition(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")),
            0,
        )
        while len(body) < length:
            body += self.sock.recv(65_536)
        whole = head + b"\r\n\r\n" + body
        self.server.requests.append(whole)
        return whole

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, body: bytes, status: str = "200 OK", headers: str = "", *, close: bool = True) -> None:
        """A whole answer with its Content-Length."""
        kept = "Connection: close\r\n" if close else ""
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{kept}{headers}\r\n"
        self.send(head.encode("latin-1") + body)

    def reset(self) -> None:
        """RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def hold(self, seconds: float = 20.0) -> None:
        """Say nothing until the client goes away, the server is stopped, or the time is up."""
        end = time.monotonic() + seconds
        self.sock.settimeout(0.02)
        while time.monotonic() < end and not self.server.stopping.is_set():
            try:
                if not self.sock.recv(65_536):
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    def drip(self, data: bytes, every_s: float) -> None:
        """One byte at a time."""
        for byte in data:
            if self.server.stopping.wait(every_s):
                return
            self.send(bytes([byte]))


class RawServer:
    """`with RawServer(script) as server:`.

    The script runs in a thread of its own for each connection.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.requests: list[bytes] = []
        self.connections = 0
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(sock)
            thread = threading.Thread(target=self._serve, args=(Conn(self, sock, self.connections),), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, conn: Conn) -> None:
        try:
            self._script(conn)
        except OSError:
            pass  # the client cut the line, which is often the point
        finally:
            conn.sock.close()

    def __enter__(self) -> Self:
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
