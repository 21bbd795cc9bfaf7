"""The command line's way to the API: a few requests over the standard library, failures as exit codes.

May not know Flask or any of the server's code: it sees what every caller sees.
"""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import click

DONE, FAILED, USAGE, TIMED_OUT, NO_ACCESS, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
_TIMEOUT_S = 30.0


class GatewayError(click.ClickException):
    """The API said no; `http_status` and `problem` are what it said."""

    http_status: int | None = None

    def __init__(self, message: str, problem: Mapping[str, Any] | None = None, http_status: int | None = None) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.problem = dict(problem or {})


class NoAccessError(GatewayError):
    """The key is missing, wrong or not allowed to do this."""

    exit_code = NO_ACCESS


class UnreachableError(GatewayError):
    """Nothing answered at the address."""

    exit_code = UNREACHABLE


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A 2xx answer: its status, headers and JSON body (an empty object where there is none)."""

    status: int
    headers: HTTPMessage
    body: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """One API at `url` with `key`. Raises GatewayError for whatever is not 2xx."""

    url: str
    key: str = field(default="", repr=False)

    def get(self, path: str, **query: str | int | None) -> Answer:
        """GET; parameters that are None are left out."""
        asked = urlencode({name: value for name, value in query.items() if value is not None})
        return self._ask("GET", f"{path}?{asked}" if asked else path)

    def post(self, path: str, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Answer:
        """POST JSON."""
        return self._ask(
            "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})}
        )

    def delete(self, path: str) -> Answer:
        """DELETE."""
        return self._ask("DELETE", path)

    def download(self, path: str, target: Path) -> int:
        """Write what `path` or an absolute link gives into `target`; its length in bytes."""
        with self._open("GET", path) as answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file)
        return target.stat().st_size

    def _ask(
        self, method: str, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        with self._open(method, path, data, headers) as answer:
            text = answer.read()
            return Answer(status=answer.status, headers=answer.headers, body=json.loads(text) if text else {})

    def _address(self, path: str) -> str:
        address = urljoin(self.url.rstrip("/") + "/", path)
        if urlsplit(address).scheme not in ("http", "https"):
            raise UnreachableError(f"{address!r} is no address of an API")
        return address

    def _open(self, method: str, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401  http.client.HTTPResponse, which urllib does not say
        address = self._address(path)
        said = {"Accept": "application/json, */*", "User-Agent": "weir-cli", **(headers or {})}
        request = urllib.request.Request(address, data=data, method=method, headers=said)  # noqa: S310  http(s), see _address
        if self.key and urlsplit(address).netloc == urlsplit(self.url).netloc:
            # Not carried along by a redirect: a signed link elsewhere is no business of our key.
            request.add_unredirected_header("Authorization", f"Bearer {self.key}")
        # A proxy for the outside world has no business between us and our own machine.
        host = urlsplit(address).hostname or ""
        local = host == "localhost" or host.startswith("127.") or host == "::1"
        opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if local else []))
        try:
            return opener.open(request, timeout=_TIMEOUT_S)
        except urllib.error.HTTPError as exc:
            raise _refused(exc) from None
        except (OSError, HTTPException) as exc:
            reason = getattr(exc, "reason", exc)
            raise UnreachableError(f"{self.url} cannot be reached: {reason}") from None


def _refused(error: urllib.error.HTTPError) -> GatewayError:
    with error:
        try:
            problem = json.loads(error.read())
        except (ValueError, OSError):
            problem = {}
    if not isinstance(problem, dict):
        problem = {}
    said = problem.get("detail") or problem.get("title") or error.reason
    faults = [f"  {fault.get('pointer', '')} {fault.get('detail', '')}" for fault in problem.get("errors") or []]
    kind = NoAccessError if error.code in (401, 403) else GatewayError
    return kind("\n".join([f"{error.code} {said}", *faults]), problem, error.code)
