"""A proxy before PostgreSQL that can cut a connection at the one moment that matters: inside COMMIT."""

from __future__ import annotations

import socket
import threading
import time

from tests.faults import Proxy

_COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"  # the simple query that psycopg2 sends
_DONE_S = 0.05  # time for the server to finish a commit whose client is gone


class CommitCutter(Proxy):
    """As Proxy; armed, it cuts the next COMMITs, before or after the server hears of them."""

    cuts = 0  # COMMITs cut so far
    _armed = 0
    _heard = False
    _guard = threading.Lock()

    def arm(self, count: int, *, heard: bool) -> None:
        """Cut so many COMMITs. `heard`: the server commits, and the client never learns it; else it rolls back."""
        with self._guard:
            self._armed, self._heard = count, heard

    def _strikes(self, chunk: bytes) -> bool:
        if _COMMIT not in chunk:
            return False
        with self._guard:
            if self._armed <= 0:
                return False
            self._armed -= 1
            self.cuts += 1
            return True

    def _carry(self, source: socket.socket, sink: socket.socket, *, answers: bool) -> None:
        if answers:
            super()._carry(source, sink, answers=True)
            return
        watched = _Watched(self, source, sink)
        super()._carry(source, watched, answers=False)  # type: ignore[arg-type]  # of a sink only sendall is used


class _Watched:
    """The way to the server, looked at chunk by chunk."""

    def __init__(self, cutter: CommitCutter, client: socket.socket, server: socket.socket) -> None:
        self._cutter, self._client, self._server = cutter, client, server

    def sendall(self, chunk: bytes) -> None:
        """Pass on, or cut here. Raises ConnectionResetError when it was cut."""
        if not self._cutter._strikes(chunk):
            self._server.sendall(chunk)
            return
        if self._cutter._heard:
            self._client.shutdown(socket.SHUT_RDWR)  # first of all: the answer must not come through
            self._server.sendall(chunk)
            time.sleep(_DONE_S)
        raise ConnectionResetError("cut inside COMMIT")
