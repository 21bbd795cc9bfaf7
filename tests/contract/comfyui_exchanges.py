"""Exchanges with a ComfyUI server, and what of an answer may differ from one server, or one day, to the next."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

PAYLOADS = Path(__file__).parent / "payloads" / "comfyui"
RECORDED = Path(__file__).parents[3] / "shared" / "providers" / "recorded" / "comfyui"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_COUNTER = re.compile(r"_\d{5}_\.")
_MONTH = re.compile(r"/20\d\d-\d\d\b")
_TEMP = re.compile(r"ComfyUI_temp_[a-z]{5}")
_LIST = re.compile(r"not in \[.*\]")
# Traces, dumps and texts for people; and which node it was that a sampler's clock had come to.
_VARIES = {"traceback", "tooltip", "current_inputs", "current_outputs", "executed", "exception_message", "nodes"}
_GRAPHS = {"workflow", "meta"}
_NUMBERS = {"timestamp", "create_time", "execution_start_time", "execution_end_time", "number", "priority"}
_WAIT_S = 5.0
_UPLOADS_MAX = 1_000_000
RESTART = "RESTART"
"""The method of an exchange that is none: the server is stopped and started again."""
_CUT = "..."  # the key that stands for what was cut from the record
LONG = {
    "1": {"class_type": "PrimitiveString", "inputs": {"value": "a long job [[sim: slow 600]]"}},
    "42": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
}
"""Takes the place of the graphs that kept the real server busy."""


@dataclass(frozen=True)
class Exchange:
    """One request and what a server answered."""

    note: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    sent: Any
    """JSON, a text as it is, or None."""
    multipart: Any
    status: int
    body: Any
    """The JSON of the answer, else its text, None for bytes."""


def exchanges(path: Path) -> Iterator[Exchange]:
    """Every exchange in a file whose answer was kept whole."""
    for one in json.loads(path.read_text(encoding="utf-8"))["exchanges"]:
        request, response = one.get("request"), one.get("response")
        if "started again" in one["note"]:
            yield Exchange(one["note"], RESTART, "", {}, {}, None, None, 200, None)
        if not request or not response or response.get("trimmed") == "yes":
            continue
        yield Exchange(
            note=one["note"],
            method=request["method"],
            path=request["path"],
            query=request.get("query") or {},
            headers=request.get("headers") or {},
            sent=request.get("json", request.get("raw_body")),
            multipart=request.get("multipart"),
            status=response["status"],
            body=response.get("json", response.get("text")),
        )


class Replay:
    """Sends exchanges to a server, with its ids in place of the recorded ones."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ids: dict[str, str] = {}

    def differs(self, one: Exchange) -> str:
        """Send one; what is different about the answer, "" for nothing. A question is asked until the job has ended."""
        end = time.monotonic() + (_WAIT_S if one.method == "GET" and one.path != "/view" else 0)
        while True:
            status, body = self._send(one)
            if one.path == "/prompt" and isinstance(body, dict) and isinstance(one.body, dict):
                self._ids[str(one.body.get("prompt_id"))] = str(body.get("prompt_id"))
            words = _difference(one, status, body)
            if not words or time.monotonic() >= end:
                return words
            time.sleep(0.01)

    def _wait_until_idle(self) -> None:
        end = time.monotonic() + _WAIT_S
        while requests.get(f"{self._url}/prompt", timeout=10).json()["exec_info"]["queue_remaining"]:
            assert time.monotonic() < end, "the server did not come to rest"
            time.sleep(0.01)

    def _send(self, one: Exchange) -> tuple[int, Any]:
        if one.method == "POST" and one.path == "/history":
            self._wait_until_idle()  # what is being stopped would come into the history afterwards
        if one.method == RESTART:
            origin = self._url.removesuffix("/comfyui")
            return requests.post(f"{origin}/_sim/forget", timeout=10).status_code, None
        sent = one.sent
        if isinstance(sent, dict) and isinstance(sent.get("prompt"), dict) and _CUT in sent["prompt"]:
            sent = {**sent, "prompt": LONG}
        text = sent if isinstance(sent, str) or sent is None else json.dumps(sent)
        path = one.path
        for theirs, ours in self._ids.items():
            text = text and text.replace(theirs, ours)
            path = path.replace(theirs, ours)
        more: dict[str, Any] = {"data": text}
        if one.multipart:
            fields = one.multipart["fields"] or {}
            files = {key: _file(about, one.note) for key, about in one.multipart["files"].items()}
            more = {"data": fields, "files": files}
        answer = requests.request(
            one.method, self._url + path, params=one.query, headers=one.headers, timeout=10, **more
        )
        try:
            return answer.status_code, answer.json()
        except ValueError:
            return answer.status_code, answer.text


def _file(about: dict[str, Any], note: str) -> tuple[str, bytes, str]:
    """A file of the recorded name, type and size: a PNG, and another one where the note says so."""
    head = b"\x89PNG" if about["content_type"].startswith("image/") else b"text"
    mark = b"B" if "other bytes" in note else b"A"
    return about["filename"], head + mark * (about["bytes"] - 4), about["content_type"]


def is_small(one: Exchange) -> bool:
    """Whether it can be sent within a test."""
    files = (one.multipart or {}).get("files", {})
    return all(about["bytes"] < _UPLOADS_MAX for about in files.values())


def _difference(one: Exchange, status: int, body: object) -> str:
    if status != one.status:
        return f"HTTP {status}, not {one.status}: {str(body)[:300]}"
    ours, theirs = alike(body), alike(one.body)
    return "" if one.body is None or ours == theirs else f"{ours}\n  not\n{theirs}"


def alike(value: object) -> object:
    """An answer without what may differ: ids, times, places in the queue, file counters, order of sets."""
    if isinstance(value, dict):
        dropped = _VARIES | _NUMBERS | _GRAPHS
        if set(value) >= {"node_id", "node_type", "executed"} and "exception_type" not in value:
            dropped = dropped | {"node_id", "node_type"}  # where an interrupt struck
        if "queue_pending" in value:
            value = {**value, "queue_pending": sorted(value["queue_pending"], key=lambda item: item[0])}
        plain = {_worded(key): alike(inner) for key, inner in value.items() if key not in dropped}
        return plain | {key: type(value[key]).__name__ for key in _NUMBERS & set(value)}
    if isinstance(value, list):
        if value and all(isinstance(one, dict) and "extra_info" in one for one in value):
            # The server walks a set of inputs: their order is chance.
            return sorted((alike(one) for one in value), key=str)
        found = [alike(one) for one in value]
        is_item = len(value) == 5 and isinstance(value[2], dict)
        # Long graphs were cut from the record.
        return [found[1], "<graph>", found[3]] if is_item else found
    return _worded(value) if isinstance(value, str) else value


def _worded(text: str) -> str:
    text = _MONTH.sub("/<year>-<month>", _UUID.sub("<id>", text))  # a prefix may ask for the date of the day
    return _LIST.sub("not in [...]", _TEMP.sub("ComfyUI_temp_<word>", _COUNTER.sub("_<n>_.", text)))
