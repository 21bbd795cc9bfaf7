"""fal's queue: submit, status, result, cancel, and signed callbacks with their key set.

Source: the provider sheet of 2026-11-30; the official SDK 1.0.3 is held against it in
tests/contract/test_sim_fal.py. Any `Authorization: Key` of at least eight signs is a key, one key is one account.
Habits kept: any input is taken, what is wrong with it comes with the result of a request that is COMPLETED; status
answers 202 until then; addresses are of the app, those of the whole model are unknown; what waits is removed by a
cancel, what runs is only told and goes on; the end is called to `fal_webhook` (see callbacks, which has the directives
for that). Above `limits.in_flight` a submit is refused, where the real queue lets it wait.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Mapping

from flask import Blueprint, Response, request

from providers.sim import clips
from providers.sim.callbacks import BadScriptError, Callbacks, Script, script_of
from providers.sim.fal_answers import TYPES, Links, callback, detail, failure, result, status
from providers.sim.fal_orders import NAME, app_of, order_of, prompt_of
from providers.sim.fal_signing import Signer
from providers.sim.faults import Fault
from providers.sim.ledger import Job, State, account_of, now_s
from providers.sim.rules import Subject
from providers.sim.world import Dialect, Link, World

_USUAL = {
    400: ("bad_request", "Bad request"),
    401: ("unauthorized", "Authentication is required to access this application"),
    403: ("forbidden", "Access denied"),
    429: ("rate_limited", "Too many requests"),
    502: ("runner_incomplete_response", "The runner answered incompletely"),
    503: ("runner_scheduling_failure", "No runner could be scheduled"),
    504: ("request_timeout", "Request timed out"),
}

_Handler = Callable[[Job, Fault], Response]


def _json(value: Mapping[str, object], code: int = 200) -> Response:
    answer = Response(json.dumps(value, ensure_ascii=False), status=code, mimetype="application/json")
    answer.headers["x-fal-request-id"] = str(uuid.uuid4())
    if code >= 400 and "error_type" in value:
        answer.headers["X-Fal-Error-Type"] = str(value["error_type"])
    elif code >= 400:
        answer.headers["X-Fal-Retryable"] = "false"
    return answer


def error(code: int, kind: str | None = None, message: str | None = None) -> Response:
    """Return an error body as this vendor sends it; an unknown app or request has no type."""
    if code == 404 and kind is None:
        return _json({"detail": message or "Request not found"}, code)
    usual, text = _USUAL.get(code, ("internal_error", "Internal server error"))
    return _json(detail(TYPES.get(kind, kind) if kind is not None else usual, message or text), code)


class _Api:
    """The handlers, bound to one world. Each method is one route."""

    def __init__(self, world: World, link: Link) -> None:
        self._world = world
        self._link = link
        self._signer = Signer()
        self._callbacks = Callbacks(world, NAME)

    def jwks(self) -> Response:
        """Give the keys that callbacks are signed with, to anybody."""
        return _json(self._signer.jwks())

    def submit(self, model: str) -> Response:
        """Take a request into the queue."""

        def handle(fault: Fault) -> Response:
            refused = self._refusal("submit")
            if refused is not None:
                return refused
            if app_of(model) is None:
                return error(404, None, f"Application '{model[:60]}' not found")
            body = _body()
            if not isinstance(body, Mapping):
                return error(422, "value_error", "Input should be a valid object")
            order = order_of(model, body, self._account())
            try:
                script = script_of(order.prompt, NAME)
            except BadScriptError as wrong:
                return error(422, "value_error", str(wrong))
            job = self._world.accept(order, _fate(fault, order.kind), order.prompt)
            self._plan(job, script)
            shown = status(job, now_s(), _base(), job.fault, logs=False)
            kept = ("request_id", "response_url", "status_url", "cancel_url")
            waiting = {"status": "IN_QUEUE", "queue_position": 0}
            return _json({**waiting, **{name: shown[name] for name in kept}, "gateway_request_id": job.id})

        return self._world.answer("submit", DIALECT, lambda: _subject(model), handle)

    def _plan(self, job: Job, script: Script) -> None:
        """Plan the one call of a request that ends and wants it."""
        url, links = request.args.get("fal_webhook"), self._links()

        def told(_as_of: float) -> Mapping[str, object] | None:
            gone = self._world.ledger.for_file(job.id) is None or job.canceled_at <= now_s()
            return None if gone else callback(job, links)

        def sign(content: bytes) -> Mapping[str, str]:
            return self._signer.headers(job.id, content, now_s())

        if url is not None and math.isfinite(job.ends_at):
            self._callbacks.plan(url, (job.ends_at,), told, script, sign)

    def state(self, app: str, name: str) -> Response:
        """Tell the state: 202 until the request has ended."""

        def handle(known: Job, fault: Fault) -> Response:
            logs = request.args.get("logs") in ("1", "true")
            shown = status(known, now_s(), _base(), fault.over(known.fault), logs=logs)
            return _json(shown, 200 if shown["status"] == "COMPLETED" else 202)

        return self._about("query", app, name, handle)

    def output(self, app: str, name: str) -> Response:
        """Give the model's own answer, be it an error."""

        def handle(known: Job, fault: Fault) -> Response:
            if known.state(now_s()) not in (State.SUCCEEDED, State.FAILED):
                return error(400, "bad_request", "Request is still in progress")
            failed = failure(known)
            if failed is not None:
                return _json(failed[1], failed[0])
            return _json(result(known, self._links(), fault.over(known.fault)))

        return self._about("query", app, name, handle)

    def cancel(self, app: str, name: str) -> Response:
        """Remove what waits; tell what runs, which does not listen."""

        def handle(known: Job, _fault: Fault) -> Response:
            if self._world.ledger.cancel(known):
                return _json({"status": "OK"})
            if known.state(now_s()) is State.RUNNING:
                return _json({"status": "CANCELLATION_REQUESTED"}, 202)
            return _json({"status": "ALREADY_COMPLETED"}, 400)

        return self._about("cancel", app, name, handle)

    def nothing(self, rest: str) -> Response:
        """Answer for every other address."""
        return self._refusal("query") or error(404, None, f"Path /{rest[:80]} not found")

    def _about(self, operation: str, app: str, name: str, handle: _Handler) -> Response:
        """Answer a call about one request of this key, if the app in its address is the request's."""
        job = self._find(app, name)

        def answer(fault: Fault) -> Response:
            refused = self._refusal(operation)
            if refused is not None:
                return refused
            # Looked up again: the fault may have made the vendor forget it a moment ago.
            known = None if fault.unknown_job else self._find(app, name)
            if known is None:
                return _json({"status": "NOT_FOUND"}, 404) if operation == "cancel" else error(404)
            return handle(known, fault)

        subject = Subject() if job is None else Subject(job.order.prompt, job.order.model)
        return self._world.answer(operation, DIALECT, lambda: subject, answer, job)

    def _find(self, app: str, name: str) -> Job | None:
        job = self._world.ledger.find(name, NAME, self._account(), self._world.config.job_ttl_s)
        known = job is not None and job.order.extra["app"] == app and job.canceled_at > now_s()
        return job if known else None

    def _account(self) -> str:
        return account_of(request.headers.get("Authorization", "").removeprefix("Key "))

    def _links(self) -> Links:
        base = request.host_url
        return lambda job, index: self._link(base, job, index)

    def _refusal(self, operation: str) -> Response | None:
        """Return the answer to a call with a bad key or above a limit, None to go on."""
        if not re.fullmatch(r"Key [!-~]{8,}", request.headers.get("Authorization", "")):
            return error(401)
        if not self._world.too_fast(operation, NAME, self._account()):
            return None
        answer = error(429)
        wait_s = self._world.config.limits.retry_after_s
        if wait_s is not None:
            answer.headers["Retry-After"] = f"{wait_s:g}"
        return answer


def _base() -> str:
    """The address of this dialect as the caller has it."""
    return f"{request.host_url.rstrip('/')}/{NAME}"


def _fate(fault: Fault, kind: str) -> Fault:
    """Return what befalls a request: the fault, or the lack of the package that makes clips."""
    missing = clips.missing() if kind == "video" else None
    return fault if missing is None else Fault(fail="internal_error", fail_message=missing).over(fault)


def _body() -> object:
    body: object = request.get_json(force=True, silent=True)
    return body


def _subject(model: str) -> Subject:
    return Subject(prompt_of(_body()), model)


def _blueprint(world: World, link: Link) -> Blueprint:
    api = _Api(world, link)
    routes = Blueprint(NAME, __name__)
    add = routes.add_url_rule
    add("/.well-known/jwks.json", view_func=api.jwks)
    add("/<path:model>", view_func=api.submit, methods=["POST"])
    add("/<path:app>/requests/<name>/status", view_func=api.state)
    add("/<path:app>/requests/<name>", view_func=api.output)
    add("/<path:app>/requests/<name>/cancel", view_func=api.cancel, methods=["PUT"])
    add("/<path:rest>", view_func=api.nothing, methods=["GET", "PUT"])
    return routes


DIALECT = Dialect(NAME, _blueprint, error)
