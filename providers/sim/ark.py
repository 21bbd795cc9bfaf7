"""The Ark dialect: Seedream pictures in the call itself, Seedance clips as tasks.

Source: the provider sheet of 2026-11-30; the official SDK 5.0.54 is held against it in tests/contract/test_sim_ark.py.
Any bearer of at least eight signs is a key, one key is one account. Habits kept: DELETE means cancel, refusal or
removal by the task's state; a refused image is an element of a 200; every null is absent; calls come to `callback_url`
(see callbacks, which has the directives for them).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping

from flask import Blueprint, Response, request

from providers.sim import clips
from providers.sim.ark_answers import (
    CANCELLED,
    EXPIRED,
    QUEUED,
    RUNNING,
    WORDS,
    Links,
    code_of,
    expires_at,
    images,
    job_id,
    stream,
    task,
    task_id,
    word_of,
)
from providers.sim.ark_orders import NAME, RefusedError, image_order, model_of, prompt_of, video_order
from providers.sim.callbacks import BadScriptError, Callbacks, script_of
from providers.sim.faults import Fault
from providers.sim.ledger import Job, account_of, now_s
from providers.sim.rules import Subject
from providers.sim.world import Dialect, Link, World

_USUAL = {
    400: ("InvalidParameter", "BadRequest", "A parameter of the request is not valid."),
    401: ("AuthenticationError", "Unauthorized", "The API key in the request is missing or invalid."),
    403: ("AccessDenied", "Forbidden", "The request was refused."),
    404: ("NotFound.TaskNotFound", "NotFound", "The task does not exist."),
    409: ("InvalidAction.RunningTaskDeletion", "Conflict", "The task is running and cannot be deleted."),
    429: ("RateLimitExceeded.EndpointRPMExceeded", "TooManyRequests", "Too many requests, try again later."),
}
_INTERNAL = ("InternalServiceError", "InternalServerError", "The service met an internal error.")
_PAGE_MAX = 500


def _json(value: Mapping[str, object], status: int = 200) -> Response:
    answer = Response(json.dumps(value, ensure_ascii=False), status=status, mimetype="application/json")
    answer.headers["X-Request-Id"] = uuid.uuid4().hex
    return answer


def error(status: int, code: str | None = None, message: str | None = None, param: str = "") -> Response:
    """Return an error body as this vendor sends it; status 200 is one of them."""
    usual, kind, text = _USUAL.get(status, _INTERNAL)
    named = code_of(code, "InputText") if code else usual
    words = f"{message or text} Request id: {uuid.uuid4().hex}"
    return _json({"error": {"code": named, "message": words, "param": param, "type": kind}}, status)


class _Api:
    """The handlers, bound to one world. Each method is one route."""

    def __init__(self, world: World, link: Link) -> None:
        self._world = world
        self._link = link
        self._callbacks = Callbacks(world, NAME)
        self._deleted: set[str] = set()

    def generate(self) -> Response:
        """A1: make pictures while the caller waits."""

        def handle(fault: Fault) -> Response:
            refused = self._refusal("submit")
            if refused is not None:
                return refused
            try:
                body = _body()
                order = image_order(body, self._account())
            except RefusedError as refusal:
                return _refused(refusal)
            job = self._world.accept(order, fault, prompt_of(body))
            self._world.pause(job.ends_at - now_s())
            if job.failure is not None and fault.partial != 0:
                code = code_of(job.failure[0], "OutputImage")
                return error(400 if "Sensitive" in code else 500, code, job.failure[1])
            if order.extra["stream"]:
                return Response(stream(job, self._links()), mimetype="text/event-stream")
            return _json(images(job, self._links()))

        return self._world.answer("submit", DIALECT, _subject, handle)

    def create(self) -> Response:
        """A2: take a clip's order."""

        def handle(fault: Fault) -> Response:
            refused = self._refusal("submit")
            if refused is not None:
                return refused
            try:
                body = _body()
                order, script = video_order(body, self._account()), script_of(prompt_of(body), NAME)
            except RefusedError as refusal:
                return _refused(refusal)
            except BadScriptError as wrong:
                return error(400, "InvalidParameter", str(wrong), "content.text")
            missing = clips.missing()
            fate = fault if missing is None else Fault(fail="InternalError", fail_message=missing).over(fault)
            job = self._world.accept(order, fate, prompt_of(body))
            url = order.extra["callback_url"]
            if isinstance(url, str):
                links = self._links()
                end = min(job.ends_at, expires_at(job))
                moments = (job.created_at, *((job.starts_at,) if job.starts_at < end else ()), end)
                self._callbacks.plan(url, moments, lambda as_of: self._told(job, as_of, links), script)
            made: dict[str, object] = {"id": task_id(job)}
            if order.extra["safety_identifier"] is not None:
                made["safety_identifier"] = order.extra["safety_identifier"]
            return _json(made)

        return self._world.answer("submit", DIALECT, _subject, handle)

    def _told(self, job: Job, as_of: float, links: Links) -> Mapping[str, object] | None:
        """What a callback carries; nothing for a task that was cancelled or that nobody knows any more."""
        gone = self._world.ledger.for_file(job.id) is None or job.id in self._deleted
        return None if gone or job.canceled_at <= now_s() else task(job, as_of, links, job.fault)

    def get(self, name: str) -> Response:
        """A3."""
        job = self._find(name)

        def handle(fault: Fault) -> Response:
            refused = self._refusal("query")
            if refused is not None:
                return refused
            # Looked up again: the fault may have made the vendor forget it a moment ago.
            known = None if fault.unknown_job else self._find(name)
            if known is None:
                return error(404)
            return _json(task(known, now_s(), self._links(), fault.over(known.fault)))

        return self._world.answer("query", DIALECT, lambda: _about(job), handle, job)

    def page(self) -> Response:
        """A4: newest first."""

        def handle(_fault: Fault) -> Response:
            refused = self._refusal("list")
            if refused is not None:
                return refused
            try:
                number, size = _number("page_num", 1, 1_000_000), _number("page_size", 10, _PAGE_MAX)
                found = self._matching()
            except RefusedError as refusal:
                return _refused(refusal)
            now, links, skip = now_s(), self._links(), (number - 1) * size
            items = [task(job, now, links, job.fault) for job in found[skip : skip + size]]
            return _json({"items": items, "total": len(found)})

        subject = Subject(model=request.args.get("filter.model", ""))
        return self._world.answer("list", DIALECT, lambda: subject, handle)

    def _matching(self) -> list[Job]:
        """Every task of the account that the filters let through. Raises RefusedError."""
        asked = request.args
        word, model = asked.get("filter.status"), asked.get("filter.model")
        if word is not None and word not in {*WORDS.values(), EXPIRED}:
            raise RefusedError(400, "InvalidParameter", f"filter.status {word!r} is not a status.", "filter.status")
        names = asked.getlist("filter.task_ids")
        if names:
            jobs = [job for name in dict.fromkeys(names) if (job := self._find(name)) is not None]
            jobs.sort(key=lambda job: job.created_at, reverse=True)
        else:
            now = now_s()
            since = now - self._world.config.job_ttl_s
            held, low, high = self._world.ledger.window(NAME, self._account(), since, now + 1)
            jobs = [job for job in held[low:high][::-1] if job.order.kind == "video" and job.id not in self._deleted]
        now = now_s()
        return [
            job
            for job in jobs
            if (word is None or word_of(job, now) == word)
            and (not model or job.order.model == model)
            and asked.get("filter.service_tier") in (None, job.order.extra["service_tier"])
        ]

    def delete(self, name: str) -> Response:
        """A5: cancel, refuse or remove, whatever the state makes of it."""
        job = self._find(name)

        def handle(_fault: Fault) -> Response:
            refused = self._refusal("cancel")
            if refused is not None:
                return refused
            known = self._find(name)
            if known is None:
                return error(404)
            word = word_of(known, now_s())
            if word == QUEUED and self._world.ledger.cancel(known):
                return _json({})
            if word in (QUEUED, RUNNING):
                return error(409)
            if word == CANCELLED:
                return error(409, "InvalidAction", "The task has been cancelled and cannot be deleted.")
            self._deleted.add(known.id)
            return _json({})

        return self._world.answer("cancel", DIALECT, lambda: _about(job), handle, job)

    def _key(self) -> str:
        return request.headers.get("Authorization", "").removeprefix("Bearer ")

    def _account(self) -> str:
        return account_of(self._key())

    def _find(self, name: str) -> Job | None:
        job = self._world.ledger.find(job_id(name), NAME, self._account(), self._world.config.job_ttl_s)
        known = job is not None and job.order.kind == "video" and job.id not in self._deleted
        return job if known else None

    def _links(self) -> Links:
        base = request.host_url
        return lambda job, index: self._link(base, job, index)

    def _refusal(self, operation: str) -> Response | None:
        """Return the answer to a call with a bad key or above a limit, None to go on."""
        bearer = request.headers.get("Authorization", "").startswith("Bearer ")
        if not bearer or not re.fullmatch(r"[!-~]{8,}", self._key()):
            return error(401)
        if not self._world.too_fast(operation, NAME, self._account()):
            return None
        answer = error(429)
        wait_s = self._world.config.limits.retry_after_s
        if wait_s is not None:
            answer.headers["Retry-After"] = f"{wait_s:g}"
        return answer


def _refused(refusal: RefusedError) -> Response:
    return error(refusal.status, refusal.code, refusal.message, refusal.param)


def _number(name: str, default: int, most: int) -> int:
    text = request.args.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,7}", text) or not 1 <= int(text) <= most:
        raise RefusedError(400, "InvalidParameter", f"{name} {text!r} must be from 1 to {most}.", name)
    return int(text)


def _body() -> object:
    body: object = request.get_json(force=True, silent=True)
    return body


def _subject() -> Subject:
    body = _body()
    return Subject(prompt_of(body), model_of(body))


def _about(job: Job | None) -> Subject:
    return Subject() if job is None else Subject(job.order.prompt, job.order.model)


def _blueprint(world: World, link: Link) -> Blueprint:
    api = _Api(world, link)
    routes = Blueprint(NAME, __name__)
    tasks = "/api/v3/contents/generations/tasks"
    routes.add_url_rule("/api/v3/images/generations", view_func=api.generate, methods=["POST"])
    routes.add_url_rule(tasks, view_func=api.create, methods=["POST"])
    routes.add_url_rule(tasks, view_func=api.page, methods=["GET"])
    routes.add_url_rule(f"{tasks}/<name>", view_func=api.get, methods=["GET"])
    routes.add_url_rule(f"{tasks}/<name>", view_func=api.delete, methods=["DELETE"])
    return routes


DIALECT = Dialect(NAME, _blueprint, error)
