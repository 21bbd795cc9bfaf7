"""One request at the socket.

Whether it was sent, how long its answer may take, which bytes name its target.

An exception cannot tell whether a request left this host: a TLS handshake that hangs and an answer
that never comes are both a read time-out. The connection can: it notes on the current Wire when it
dials and when it hands over the first byte. It also keeps the deadline at every read of the socket,
so that a peer which drips, in the head or in the body, cannot hold its reader.

Only urllib3's connection classes are known here; providers/http.py mounts them under requests.
"""

from __future__ import annotations

import contextlib
import contextvars
import http.client
import io
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection


@dataclass(kw_only=True)
class Wire:
    """What became of one request at the socket. Times in seconds of `time.monotonic`.

    `idle_s`: longest silence between two reads. `total_s`: from the first byte sent to the last one
    read. `target`: path and query to send byte for byte, where the library would re-quote a signed
    link.
    """

    idle_s: float
    total_s: float
    until: float
    target: str | None = None
    dialled: bool = False
    sent: bool = False

    def left_s(self) -> float:
        """Seconds the next read may take. Raises TimeoutError when none are left."""
        left = min(self.idle_s, self.until - time.monotonic())
        if left <= 0:
            message = "out of time"
            raise TimeoutError(message)
        return left

    def begin(self) -> None:
        """The first byte goes out: from here on no failure is surely without effect."""
        if not self.sent:
            self.sent = True
            self.until = min(self.until, time.monotonic() + self.total_s)


_wire: contextvars.ContextVar[Wire | None] = contextvars.ContextVar("wire", default=None)


class _TimedReads(io.RawIOBase):
    """A socket's reading side that keeps the wire's deadline.

    A peer that drips cannot hold its reader.
    """

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, wire: Wire) -> None:
        self._raw, self._sock, self._wire = raw, sock, wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]  # it is one
        self._sock.settimeout(self._wire.left_s())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: object, **kwargs: object) -> None:
        super().__init__(sock, *args, **kwargs)  # type: ignore[arg-type]  # passed through
        wire = _wire.get()
        if wire is not None:
            raw = self.fp.detach()
            self.fp = io.BufferedReader(_TimedReads(raw, sock, wire))


class _Noting(HTTPConnection):
    """A connection that notes on the current wire when it dials and when it sends."""

    response_class = _TimedResponse

    def connect(self) -> None:
        if (wire := _wire.get()) is not None:
            wire.dialled = True
        super().connect()

    def putrequest(
        self,
        method: str,
        url: str,
        skip_host: bool = False,  # noqa: FBT001, FBT002  http.client's own signature
        skip_accept_encoding: bool = False,  # noqa: FBT001, FBT002  same
    ) -> None:
        wire = _wire.get()
        exact = url if wire is None or wire.target is None else wire.target
        super().putrequest(method, exact, skip_host, skip_accept_encoding)

    def send(self, data: object) -> None:
        if self.sock is None:
            self.connect()  # http.client would do so inside send, after our note
        if (wire := _wire.get()) is not None:
            wire.begin()
            self.sock.settimeout(wire.left_s())
        super().send(data)  # type: ignore[arg-type]  # passed through


class _NotingTls(_Noting, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Noting


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _NotingTls


POOLS = {"http": _Pool, "https": _TlsPool}


@contextlib.contextmanager
def current(wire: Wire) -> Iterator[None]:
    """Let connections used in this context note on `wire`."""
    token = _wire.set(wire)
    try:
        yield
    finally:
        _wire.reset(token)
