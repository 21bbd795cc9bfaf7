"""The HTTP/1.1 server: keep-alive, a thread per connection, the raw socket within reach.

Why not a ready one: werkzeug's closes every connection after one answer, gunicorn's cannot run in
a test's background thread, and neither lets an application break its answer at a chosen byte.
May not know what the application does. Invariants: an answer goes out in as few writes as it has
parts; a connection whose request body was not read to its end is never used again.
"""

from __future__ import annotations

import io
import logging
import re
import socket
import socketserver
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from werkzeug.serving import DechunkedInput

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)

IDLE_S = 300.0
"""Seconds a connection may be silent, long enough that no pooled client is cut by surprise."""
_LONGEST_LINE = 65_536
_MOST_HEADERS = 100
# A drained rest costs time, a closed connection costs the client a new one: small rests are read.
_DRAIN_BYTES = 1_048_576
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) (\S+) HTTP/(1\.[01])\r?\n")
_RST = struct.pack("ii", 1, 0)


class ConnectionDropError(Exception):
    """Raised by an application to end the connection without (the rest of) an answer."""

    def __init__(self, *, reset: bool) -> None:
        """Reset it (RST) or close it (FIN)."""
        super().__init__("reset" if reset else "closed")
        self.reset = reset


class _Body(io.RawIOBase):
    """A request body of known length; never reads past its end."""

    def __init__(self, source: io.BufferedReader, length: int) -> None:
        self._source = source
        self.left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        # typeshed wants any writeable buffer, io.BufferedReader passes these two.
        wanted = min(len(buffer), self.left)
        if wanted == 0:
            return 0
        got = self._source.readinto(memoryview(buffer)[:wanted])
        self.left = self.left - got if got else 0
        return got


class _Connection(socketserver.BaseRequestHandler):
    """Serves one connection, request after request, until either side ends it."""

    server: SimServer
    request: socket.socket

    def setup(self) -> None:
        # Without it a small answer waits 40 ms for the acknowledgement of the one before.
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request.settimeout(IDLE_S)
        self.source = self.request.makefile("rb")
        self.server.connections.add(self.request)

    def handle(self) -> None:
        try:
            while self._serve_one():
                pass
        except ConnectionDropError as drop:
            if drop.reset:
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
                self.source.close()
                # Closed here and now: the usual end would say FIN first.
                self.request.close()
        except OSError:
            # The client went away or fell silent; there is nobody to tell.
            pass

    def finish(self) -> None:
        self.server.connections.discard(self.request)
        self.source.close()

    def _serve_one(self) -> bool:
        """Answer one request; return whether the connection can carry another."""
        line = self.source.readline(_LONGEST_LINE)
        if line in (b"\r\n", b"\n"):
            line = self.source.readline(_LONGEST_LINE)
        if not line:
            return False
        environ = self._environ(line)
        if environ is None:
            bad = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            self.request.sendall(bad)
            return False
        if environ.get("HTTP_EXPECT", "").lower() == "100-continue":
            self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        wants_close = "close" in environ.get("HTTP_CONNECTION", "").lower()
        keep = environ["SERVER_PROTOCOL"] == "HTTP/1.1" and not wants_close
        answered = _Answer(self.request, environ, keep=keep)
        answered.run(self.server.application)
        return answered.keep and _drained(environ["wsgi.input"])

    def _environ(self, line: bytes) -> WSGIEnvironment | None:
        """Read the head and return the WSGI environment, None when it is not HTTP/1."""
        match = _REQUEST_LINE.fullmatch(line)
        if match is None:
            return None
        method, target, version = match.groups()
        path, _, query = target.partition(b"?")
        host, port = self.server.server_address[:2]
        environ: WSGIEnvironment = {
            "REQUEST_METHOD": method.decode("ascii"),
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query.decode("latin-1"),
            "SERVER_NAME": str(host),
            "SERVER_PORT": str(port),
            "SERVER_PROTOCOL": "HTTP/" + version.decode("ascii"),
            "REMOTE_ADDR": self.client_address[0],
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "sim.socket": self.request,
        }
        return environ if self._headers(environ) else None

    def _headers(self, environ: WSGIEnvironment) -> bool:
        """Read the header lines and find the body; return whether they make sense."""
        for _ in range(_MOST_HEADERS):
            line = self.source.readline(_LONGEST_LINE)
            if line in (b"\r\n", b"\n"):
                break
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                return False
            key = name.strip().upper().replace("-", "_")
            if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                key = "HTTP_" + key
            text = value.strip()
            environ[key] = f"{environ[key]},{text}" if key in environ else text
        else:
            return False
        if "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
            environ["wsgi.input"] = DechunkedInput(self.source)
            environ["wsgi.input_terminated"] = True
            return True
        length = environ.get("CONTENT_LENGTH") or "0"
        if not length.isdecimal():
            return False
        environ["wsgi.input"] = _Body(self.source, int(length))
        return True


def _drained(body: object) -> bool:
    """Read what is left of a request's body; return whether the next request can follow."""
    if not isinstance(body, _Body):
        # A chunked body shows its end only to who reads it; a new connection is cheaper.
        return False
    if body.left > _DRAIN_BYTES:
        return False
    while body.left:
        if not body.read(65_536):
            return False
    return True


class _Answer:
    """Runs the application for one request and writes what it says."""

    def __init__(self, sock: socket.socket, environ: WSGIEnvironment, *, keep: bool) -> None:
        self._sock = sock
        self._environ = environ
        self.keep = keep
        self._chunked = False
        self._head: bytes | None = None

    def run(self, application: WSGIApplication) -> None:
        """Write the whole answer. Raises ConnectionDropError and OSError."""
        parts: Iterable[bytes] = application(self._environ, self._start)
        bodiless = self._environ["REQUEST_METHOD"] == "HEAD"
        try:
            for part in parts:
                if part and not bodiless:
                    self._write(part)
            end = b"0\r\n\r\n" if self._chunked and not bodiless else b""
            self._sock.sendall((self._head or b"") + end)
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()

    def _start(
        self, status: str, headers: list[tuple[str, str]], _exc_info: object = None, /
    ) -> Callable[[bytes], object]:
        names = {name.lower() for name, _ in headers}
        lines = [f"HTTP/1.1 {status}", "Server: weir-sim"]
        if "date" not in names:
            lines.append(f"Date: {formatdate(usegmt=True)}")
        lines += [f"{name}: {value}" for name, value in headers]
        if "content-length" not in names and not status.startswith(("1", "204", "304")):
            if self._environ["SERVER_PROTOCOL"] == "HTTP/1.1":
                lines.append("Transfer-Encoding: chunked")
                self._chunked = True
            else:
                self.keep = False
        if not self.keep:
            lines.append("Connection: close")
        self._head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        return self._write

    def _write(self, part: bytes) -> None:
        if self._chunked:
            part = b"%x\r\n%b\r\n" % (len(part), part)
        # Head and first part in one write: one packet, and one wake-up of the client.
        self._sock.sendall((self._head or b"") + part)
        self._head = b""


class SimServer(socketserver.ThreadingTCPServer):
    """Listens and gives each connection a thread."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, host: str, port: int, application: WSGIApplication) -> None:
        """Bind at once; `port` 0 takes a free one. Raises OSError when the port is taken."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.application = application
        self.connections: set[socket.socket] = set()
        super().__init__((host, port), _Connection)

    @property
    def url(self) -> str:
        """The base address, without a slash at its end."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """Log what the application raised; the connection ends."""
        log.error("a request made the simulator fail", exc_info=True)  # noqa: LOG014 - called inside the except of socketserver

    def stop(self) -> None:
        """Stop listening and cut every open connection, as a vendor that goes down does."""
        self.shutdown()
        self.server_close()
        for sock in list(self.connections):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It ended by itself in this moment.
                log.debug("a connection was gone before it could be cut")


def in_background(server: SimServer) -> threading.Thread:
    """Start serving in a daemon thread and return it."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="weir-sim", daemon=True)
    thread.start()
    return thread


def reason(status: int) -> str:
    """Return the reason phrase of an HTTP status, 'Unknown' when it has none (524)."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
