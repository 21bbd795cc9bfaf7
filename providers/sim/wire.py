"""Answers that break: what a fault does to the bytes of an answer.

May not know jobs or dialects. Invariant: a spoiled answer never leaves the connection usable when
its bytes did not add up to a whole HTTP message.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from flask import Response

from providers.sim.faults import Fault
from providers.sim.server import ConnectionDropError, reason

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

HTML_PAGE = """<!DOCTYPE html>
<html><head><title>{status} {reason}</title></head>
<body><center><h1>{status} {reason}</h1></center><hr><center>edge-gateway</center></body></html>
"""


def html_page(status: int) -> Response:
    """Return the page that a proxy in front of a vendor puts in its place."""
    page = HTML_PAGE.format(status=status, reason=reason(status))
    return Response(page, status=status, mimetype="text/html")


class DroppedResponse(Response):
    """No answer at all: the connection is reset or closed instead."""

    def __init__(self, *, reset: bool) -> None:
        """Reset (RST) or close (FIN)."""
        super().__init__()
        self._reset = reset

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:  # noqa: ARG002 - WSGI
        """Drop the connection. Raises ConnectionDropError, always."""
        raise ConnectionDropError(reset=self._reset)


class CutResponse(Response):
    """Promises the whole length, sends the first `after` bytes of the body, closes."""

    def __init__(self, whole: Response, after: int) -> None:
        """Take the answer to be cut."""
        super().__init__(status=whole.status, headers=whole.headers)
        self._whole, self._after = whole, after

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:  # noqa: ARG002 - WSGI
        """Send the head and a part of the body. Raises ConnectionDropError, always."""
        sock: socket.socket = environ["sim.socket"]
        sock.sendall(_head(self._whole))
        left = self._after
        for part in self._whole.iter_encoded():
            sock.sendall(part[:left])
            left -= len(part)
            if left <= 0:
                break
        raise ConnectionDropError(reset=False)


class DripResponse(Response):
    """Sends its body in small pieces with a pause before each."""

    def __init__(self, whole: Response, fault: Fault, stopping: threading.Event) -> None:
        """Take the answer to be dripped; `stopping` ends the pauses when the simulator stops."""
        super().__init__(status=whole.status, headers=whole.headers)
        self._whole, self._fault, self._stopping = whole, fault, stopping

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:  # noqa: ARG002 - WSGI
        """Send head and body. Raises ConnectionDropError at the end: nobody reuses this one."""
        sock: socket.socket = environ["sim.socket"]
        sock.sendall(_head(self._whole))
        size = self._fault.drip_bytes
        for part in self._whole.iter_encoded():
            for start in range(0, len(part), size):
                if self._stopping.wait(self._fault.drip_s):
                    raise ConnectionDropError(reset=True)
                sock.sendall(part[start : start + size])
        raise ConnectionDropError(reset=False)


def _head(answer: Response) -> bytes:
    lines = [f"HTTP/1.1 {answer.status_code} {reason(answer.status_code)}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("latin-1")


def scripted(fault: Fault, error: Response) -> Response:
    """Return the answer a fault's `status`, `html` or `body` asks for; `error` is the vendor's."""
    status = fault.status or 502
    if fault.html:
        answer = html_page(status)
    elif fault.body is not None:
        text = fault.body if isinstance(fault.body, str) else json.dumps(fault.body)
        answer = Response(text, status=status, mimetype="application/json")
    else:
        answer = error
    if fault.retry_after is not None:
        answer.headers["Retry-After"] = fault.retry_after
    return answer


def spoiled(answer: Response, fault: Fault, stopping: threading.Event) -> Response:
    """Return `answer` as the fault lets it through: whole, halved, cut, dripping or not at all."""
    if fault.lost_answer is not None:
        return DroppedResponse(reset=fault.lost_answer == "reset")
    if fault.half_json:
        text = answer.get_data()
        answer.set_data(text[: len(text) // 2])
    if fault.cut_after is not None:
        return CutResponse(answer, fault.cut_after)
    if fault.drip_s is not None:
        return DripResponse(answer, fault, stopping)
    return answer
