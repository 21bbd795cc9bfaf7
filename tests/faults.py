"""A TCP proxy that misbehaves as told, between us and PostgreSQL, Redis or a vendor.

with Proxy.before(redis_url) as proxy:
    settings = make_settings(WEIR_REDIS_URL=proxy.url)
    proxy.black_hole()      # accepts and answers nothing
    proxy.heal()
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 65_536


@dataclass(frozen=True, kw_only=True)
class _Mode:
    """What is done to each chunk on its way."""

    delay_s: float = 0.0  # before each chunk, both ways
    drip_bytes: int = 0  # answers in pieces of so many bytes, `delay_s` apart; 0: whole
    cut_after: int | None = None  # bytes of answers to let through, then the connection is reset
    swallow: bool = False  # read everything, deliver nothing


class Proxy:
    """Listens on a port of loopback and passes on to one address. Thread-safe."""

    def __init__(self, host: str, port: int, *, url: str = "", listen: str = "127.0.0.1") -> None:
        """Nothing listens before `with`. `url` is the address whose stand-in `self.url` is."""
        self.accepted = 0
        self.port = 0
        self._target = (host, port)
        self._url, self._here = url, listen
        self._mode = _Mode()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._links: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @classmethod
    def before(cls, url: str, *, listen: str = "127.0.0.1") -> Proxy:
        """A proxy for the server that a URL names, at an address of this machine's."""
        where = urlsplit(url)
        if where.hostname is None or where.port is None:
            raise ValueError(f"no host and port in {url!r}")
        return cls(where.hostname, where.port, url=url, listen=listen)

    @property
    def url(self) -> str:
        """The URL with the proxy in the server's place."""
        where = urlsplit(self._url)
        credentials = where.netloc.rpartition("@")[0]
        return where._replace(netloc=f"{credentials}{'@' if credentials else ''}{self._here}:{self.port}").geturl()

    def heal(self) -> None:
        """Pass everything on again, and listen again."""
        self._mode = _Mode()
        if self._listener is None:
            self._listen()

    def delay(self, seconds: float) -> None:
        """Hold every chunk back that long."""
        self._mode = replace(self._mode, delay_s=seconds)

    def drip(self, size_bytes: int, every_s: float) -> None:
        """Pass answers on in small pieces."""
        self._mode = replace(self._mode, drip_bytes=size_bytes, delay_s=every_s)

    def cut_after(self, size_bytes: int) -> None:
        """Let that many bytes of answers through on each connection, then reset it. 0: the question gets through."""
        self._mode = replace(self._mode, cut_after=size_bytes)

    def black_hole(self) -> None:
        """Accept connections and bytes, deliver nothing."""
        self._mode = replace(self._mode, swallow=True)

    def cut(self) -> None:
        """Reset every open connection; new ones pass."""
        with self._lock:
            links = list(self._links)
        for link in links:
            _reset(link)

    def refuse(self) -> None:
        """Reset every open connection and refuse new ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            listener.close()
        self.cut()

    def __enter__(self) -> Self:
        """Listen."""
        self._listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything and wait for the threads."""
        self.refuse()
        for thread in self._threads:
            thread.join(5)

    def _listen(self) -> None:
        self._listener = socket.create_server((self._here, self.port))
        self.port = int(self._listener.getsockname()[1])
        self._spawn(self._accept, self._listener)

    def _spawn(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
                _reset(near)
                continue
            far.settimeout(None)
            with self._lock:
                self._links |= {near, far}
            both = threading.Barrier(2)
            self._spawn(self._pump, near, far, both, False)  # noqa: FBT003  two directions
            self._spawn(self._pump, far, near, both, True)  # noqa: FBT003

    def _pump(self, source: socket.socket, sink: socket.socket, both: threading.Barrier, answers: bool) -> None:  # noqa: FBT001
        """Carry one direction to its end, then close both sides once the other direction has ended too."""
        try:
            self._carry(source, sink, answers=answers)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            _reset(source)
            _reset(sink)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait()
        with self._lock:
            self._links -= {source, sink}
        source.close()

    def _carry(self, source: socket.socket, sink: socket.socket, *, answers: bool) -> None:
        passed = 0
        while chunk := source.recv(_CHUNK):
            mode = self._mode
            if mode.swallow:
                continue
            if answers and mode.cut_after is not None and passed + len(chunk) >= mode.cut_after:
                sink.sendall(chunk[: max(0, mode.cut_after - passed)])
                raise ConnectionResetError("cut as told")
            _deliver(chunk, sink, mode, answers=answers)
            passed += len(chunk)


def _deliver(chunk: bytes, sink: socket.socket, mode: _Mode, *, answers: bool) -> None:
    size = mode.drip_bytes if answers and mode.drip_bytes else len(chunk)
    for start in range(0, len(chunk), size):
        if mode.delay_s:
            threading.Event().wait(mode.delay_s)
        sink.sendall(chunk[start : start + size])


def _reset(link: socket.socket) -> None:
    """Close with a reset, as a crash does, and wake whoever reads from it."""
    with contextlib.suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RD)  # wakes the reader; the other half would say a polite goodbye first
    link.close()
