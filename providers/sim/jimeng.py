"""The Jimeng dialect: pictures and clips of Volcengine's visual service, below `http://HOST:PORT/jimeng`.

Source: the provider sheet of 2026-11-30; the official SDK 1.0.229 is held against it in tests/contract/
test_sim_jimeng.py. Habits kept: every call is signed (see jimeng_signing); errors of the gateway and of the service
have different shapes; a query that names another `req_key` than the submit, or a task's id as a number, is 50215; a
failed task is an error of the query, with its HTTP status; without `return_url` pictures come as base64; ids are text
of up to 20 digits; a task is known for 12 hours; `done` may come without anything (`no_payload`).
"""

from __future__ import annotations

import json
import re
import uuid
from collections import OrderedDict
from collections.abc import Mapping

from flask import Blueprint, Response, request

from providers.sim import clips, inline
from providers.sim.faults import Fault
from providers.sim.files import FileStore
from providers.sim.jimeng_orders import NAME, RefusedError, order_of, text_of
from providers.sim.jimeng_signing import Received, UnsignedError, signer
from providers.sim.ledger import Job, State, account_of, now_s
from providers.sim.rules import Subject
from providers.sim.world import Dialect, Link, World

_SUBMIT, _QUERY, _VERSION = "CVSync2AsyncSubmitTask", "CVSync2AsyncGetResult", "2022-08-31"
_KNOWN_S = 43_200.0
_IDS_KEPT = 200_000
_INVALID = 50215
_WORDS = {State.PENDING: "in_queue", State.RUNNING: "generating", State.SUCCEEDED: "done"}
_TEXTS: Mapping[int, str] = {
    50215: "Input invalid for this service",
    50400: "Access Denied",
    50411: "Pre Img Risk Not Pass",
    50412: "Text Risk Not Pass",
    50429: "Request Has Reached API Limit, Please Try Later",
    50430: "Request Has Reached API Concurrent Limit, Please Try Later",
    50500: "Internal Error",
    50501: "Internal RPC Error",
    50511: "Post Img Risk Not Pass",
    50516: "Post Video Risk",
    50521: "Antidirt Internal Error",
}
_GATEWAY: Mapping[int, tuple[str, int]] = {
    401: ("SignatureDoesNotMatch", 100010),
    403: ("AccessDenied", 100013),
    404: ("InvalidActionOrVersion", 100008),
}
_STATUSES = {50400: 403, 50429: 429, 50430: 429, 50500: 500, 50501: 500}
_FILTERED, _SERVER_ERRORS = "DataInspectionFailed", ("", "InternalError", "InternalError.Algo")


def _json(value: Mapping[str, object], status: int) -> Response:
    return Response(json.dumps(value, ensure_ascii=False), status=status, mimetype="application/json")


def _answer(data: Mapping[str, object] | None, code: int = 10000, text: str = "Success", status: int = 200) -> Response:
    told = {"code": code, "data": data, "message": text, "request_id": uuid.uuid4().hex}
    return _json({**told, "status": code, "time_elapsed": "12.3ms"}, status)


def _gateway(status: int, code: str, number: int, message: str) -> Response:
    inner = {"CodeN": number, "Code": code, "Message": message}
    told = {"RequestId": uuid.uuid4().hex, "Action": request.args.get("Action", ""), "Version": _VERSION}
    return _json({"ResponseMetadata": {**told, "Service": "cv", "Region": "cn-north-1", "Error": inner}}, status)


def _refused(code: int, text: str | None = None, status: int | None = None) -> Response:
    return _answer(None, code, text or _TEXTS.get(code, "Error"), status or _STATUSES.get(code, 400))


def error(status: int, code: str | None = None, message: str | None = None) -> Response:
    """Return an error as this vendor words it: the gateway's for a word as code or 401, 403, 404, else the service's.

    Status 200 is one of them: the outer code decides.
    """
    if code is None and status in _GATEWAY:
        return _gateway(status, *_GATEWAY[status], message or "The request was refused.")
    usual = 50429 if status == 429 else 50500 if status >= 500 else _INVALID
    number = _number(code, 50412, usual)
    if number is None:
        return _gateway(status, str(code), 100000, message or "The request was refused.")
    return _refused(number, message, status)


def _number(code: str | None, filtered: int, usual: int) -> int | None:
    """A code of the script as one of the service's; None for a word of the gateway's."""
    if code is None or code in (*_SERVER_ERRORS, "InvalidParameter"):
        return usual
    if code == _FILTERED:
        return filtered
    return int(code) if code.isdecimal() else None


class _Api:
    """The handlers, bound to one world."""

    def __init__(self, world: World, link: Link) -> None:
        self._world, self._link, self._store = world, link, FileStore(world)
        self._ids: OrderedDict[str, str] = OrderedDict()  # the vendor's name of a task -> the job's

    def call(self) -> Response:
        """The one address; the action is in the query."""
        try:
            account = account_of(signer(_received(), now_s()))
        except UnsignedError as refusal:
            return self._counted(_gateway(refusal.status, refusal.code, refusal.number, refusal.message))
        action = request.args.get("Action")
        if request.args.get("Version") != _VERSION or action not in (_SUBMIT, _QUERY):
            return self._counted(error(404, None, f"Could not find operation {action}."))
        return self._submit(account) if action == _SUBMIT else self._query(account)

    def _counted(self, refused: Response) -> Response:
        """A refusal of the gateway; a fault of the script may strike all the same."""
        operation = "query" if request.args.get("Action") == _QUERY else "submit"
        return self._world.answer(operation, DIALECT, _subject, lambda _fault: refused)

    def _submit(self, account: str) -> Response:
        def handle(fault: Fault) -> Response:
            busy = self._busy("submit", account)
            if busy is not None:
                return busy
            try:
                order = order_of(_body(), account)
            except RefusedError as refusal:
                return _refused(_INVALID, f"{_TEXTS[_INVALID]}: {refusal}")
            missing = clips.missing() if order.kind == "video" else None
            fate = fault if missing is None else Fault(fail="50501", fail_message=missing).over(fault)
            job = self._world.accept(order, fate, order.prompt)
            return _answer({"task_id": self._named(job)})

        return self._world.answer("submit", DIALECT, _subject, handle)

    def _query(self, account: str) -> Response:
        body = _body()
        job = self._find(body, account)
        known = Subject() if job is None else Subject(job.order.prompt, job.order.model)

        def handle(fault: Fault) -> Response:
            busy = self._busy("query", account)
            if busy is not None:
                return busy
            if not re.fullmatch(r"\d{19,20}", text_of(body, "task_id")):
                return _refused(_INVALID)  # a number, a rounded one, another vendor's
            found = None if fault.unknown_job else self._find(body, account)
            if found is None:
                return _answer(_data("not_found"))
            if found.order.model != text_of(body, "req_key"):
                return _refused(_INVALID)
            return self._told(found, fault.over(found.fault), _options(body))

        return self._world.answer("query", DIALECT, lambda: known, handle, job)

    def _told(self, job: Job, fault: Fault, options: Mapping[str, object]) -> Response:
        """The state of a task, or the reason why it failed."""
        state, clip = job.state(now_s()), job.order.kind == "video"
        if fault.status_word is not None:
            return _answer(_data(fault.status_word))
        if state is State.FAILED and job.failure is not None:
            code, message = job.failure
            number = _number(code, 50516 if clip else 50511, 50521) or 50521
            return _refused(number, message if code not in _SERVER_ERRORS else None)
        if state is not State.SUCCEEDED or fault.no_payload:
            return _answer(_data(_WORDS.get(state, "expired")))
        base, data = request.host_url, _data("done")
        if clip:
            data["video_url"] = self._link(base, job, 0)
        elif options.get("return_url") is True:
            data["image_urls"] = [self._link(base, job, index) for index in range(job.good)]
        else:
            data["binary_data_base64"] = [inline.as_base64(self._store, job, index) for index in range(job.good)]
        return _answer(data)

    def _busy(self, operation: str, account: str) -> Response | None:
        """Return the answer to a call above a limit, None to go on."""
        if not self._world.too_fast(operation, NAME, account):
            return None
        limits = self._world.config.limits
        full = limits.in_flight is not None and self._world.ledger.live(NAME, account) >= limits.in_flight
        answer = _refused(50430 if operation == "submit" and full else 50429)
        if limits.retry_after_s is not None:
            answer.headers["Retry-After"] = f"{limits.retry_after_s:g}"
        return answer

    def _named(self, job: Job) -> str:
        """Give a task its id: 19 or 20 digits, more than fit a signed 64-bit number."""
        name = str(int(uuid.UUID(job.id).hex[:16], 16) | 1 << 63)
        self._ids[name] = job.id
        if len(self._ids) > _IDS_KEPT:
            self._ids.popitem(last=False)
        return name

    def _find(self, body: object, account: str) -> Job | None:
        kept_s = min(_KNOWN_S, self._world.config.job_ttl_s)
        return self._world.ledger.find(self._ids.get(text_of(body, "task_id"), ""), NAME, account, kept_s)


def _data(word: str) -> dict[str, object]:
    return {"status": word, "image_urls": None, "binary_data_base64": None, "resp_data": "", "video_url": ""}


def _options(body: object) -> Mapping[str, object]:
    """The JSON in the text `req_json`; garbage is no option at all."""
    try:
        found = json.loads(text_of(body, "req_json") or "{}")
    except ValueError:
        found = {}
    return found if isinstance(found, Mapping) else {}


def _body() -> object:
    body: object = request.get_json(force=True, silent=True)
    return body


def _subject() -> Subject:
    body = _body()
    return Subject(text_of(body, "prompt"), text_of(body, "req_key"))


def _received() -> Received:
    return Received(
        path=request.path,
        query=tuple(request.args.items(multi=True)),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=request.get_data(),
    )


def _blueprint(world: World, link: Link) -> Blueprint:
    routes = Blueprint(NAME, __name__)
    routes.add_url_rule("/", view_func=_Api(world, link).call, methods=["POST"])
    return routes


DIALECT = Dialect(NAME, _blueprint, error)
