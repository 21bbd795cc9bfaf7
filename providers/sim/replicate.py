"""Replicate: predictions by model, version or deployment, their list, files, and signed webhooks with their secret.

Source: the provider sheet of 2026-11-30; the official SDK 1.0.7 is held against it in
tests/contract/test_sim_replicate_sdk.py. Any `Authorization: Bearer` of at least eight signs is a token, one token is
one account. Habits kept: a prediction that fails is an answer 200; output grows while a model works; `Prefer: wait`
holds the create and then says "processing" of what is done; `Cancel-After` aborts what waits and cancels what runs; a
cancel after the end is answered with 200; a throttling names its wait in words only, unless `limits.retry_after_s` is
set; data is removed with the links (`link_ttl_s`), the record stays. Webhooks are made as callbacks says, which has the
directives for them.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from flask import Blueprint, Response, request

from providers.sim import clips
from providers.sim.callbacks import BadScriptError, Callbacks, Script, script_of
from providers.sim.faults import Fault
from providers.sim.ledger import Job, account_of, now_s
from providers.sim.replicate_answers import SENSITIVE, Links, prediction, upload
from providers.sim.replicate_orders import NAME, WrongInputError, hook_of, named, order_of, prompt_of
from providers.sim.replicate_signing import Signer
from providers.sim.rules import Subject
from providers.sim.world import Dialect, Link, World

_PAGE = 100
_UPLOADS_MAX = 1_000
_TITLES = {
    400: "Bad request",
    401: "Unauthenticated",
    402: "Insufficient credit",
    403: "Forbidden",
    404: "Not found",
    413: "Payload too large",
    422: "Input validation failed",
}
_WORDS = {
    401: "You did not pass a valid authentication token",
    402: "You have insufficient credit to run this model.",
    404: "The requested resource could not be found.",
}
_SPAN = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")

_Handler = Callable[[Job, Fault], Response]


def _json(value: Mapping[str, object], code: int = 200) -> Response:
    return Response(json.dumps(value, ensure_ascii=False), status=code, mimetype="application/json")


def error(code: int, kind: str | None = None, message: str | None = None) -> Response:
    """Return problem details; a throttling has only words."""
    if code == 429:
        return _json({"detail": message or "Request was throttled. Your rate limit resets in ~30s."}, code)
    words = SENSITIVE if kind == "DataInspectionFailed" else message or _WORDS.get(code, _TITLES.get(code, "Error"))
    title = _TITLES.get(code, "Internal server error") if kind != "InvalidParameter" else _TITLES[422]
    return _json({"title": title, "detail": words, "status": code}, code)


def _invalid(wrong: WrongInputError) -> Response:
    """Return the refusal of one field."""
    answer = {"title": _TITLES[422], "detail": f"- {wrong.field}: {wrong.message}\n", "status": 422}
    field = {"type": "invalid", "field": wrong.field, "description": wrong.message}
    return _json({**answer, "invalid_fields": [field]}, 422)


class _Api:
    """The handlers, bound to one world. Each method is one route."""

    def __init__(self, world: World, link: Link) -> None:
        self._world = world
        self._link = link
        self._signer = Signer()
        self._callbacks = Callbacks(world, NAME)
        self._uploads: dict[str, tuple[bytes, str]] = {}

    def create(self) -> Response:
        """Create by the version in the body, which may be a model's name."""
        body = _body()
        return self._create(body.get("version", "") if isinstance(body, Mapping) else "")

    def create_of(self, owner: str, name: str) -> Response:
        """Create by the model, or the deployment, in the address."""
        return self._create(f"{owner}/{name}")

    def _create(self, reference: object) -> Response:
        def handle(fault: Fault) -> Response:
            refused = self._refusal("submit")
            if refused is not None:
                return refused
            if reference == "":
                return _invalid(WrongInputError("version", "version is required"))
            found = named(reference)
            if found is None:
                bad = "The specified version does not exist (or perhaps you don't have permission to use it?)"
                return error(404) if "/models/" in request.path else error(422, None, bad)
            body = _body()
            try:
                order = order_of(*found, body, self._account())
                url, events = hook_of(body if isinstance(body, Mapping) else {})
                script = script_of(order.prompt, NAME)
            except WrongInputError as wrong:
                return _invalid(wrong)
            except BadScriptError as wrong:
                return error(400, None, str(wrong))
            deadline = _seconds(request.headers.get("Cancel-After"))
            if deadline is not None:
                order = replace(order, extra={**order.extra, "deadline_at": now_s() + deadline})
            job = self._world.accept(order, _fate(fault, order.kind), order.prompt)
            self._plan(job, url, events, script)
            return self._created(job)

        return self._world.answer("submit", DIALECT, lambda: Subject(prompt_of(_body()), str(reference)), handle)

    def _created(self, job: Job) -> Response:
        """Answer at once, or after the wait that was preferred: done, but not in a state that says so."""
        match = re.fullmatch(r"wait(?:=(\d{1,2}))?", request.headers.get("Prefer", ""))
        if match is None:
            return _json(self._shown(job, job.fault), 201)
        self._world.pause(min(float(match[1] or 60), job.ends_at - now_s()))
        done = job.ends_at <= now_s() and job.failure is None
        return _json(self._shown(job, Fault(status_word="processing").over(job.fault) if done else job.fault), 201)

    def _plan(self, job: Job, url: str | None, events: tuple[str, ...], script: Script) -> None:
        """Plan the calls that a prediction's webhook wants; output and logs come with the end here."""
        moments = (*((job.starts_at,) if "start" in events else ()), job.ends_at)
        base, links = _base(), self._links()

        def told(as_of: float) -> Mapping[str, object] | None:
            if self._world.ledger.for_file(job.id) is None or job.canceled_at <= as_of:
                return None
            return prediction(job, as_of, base, links, job.fault, ttl_s=self._world.config.link_ttl_s)

        def sign(content: bytes) -> Mapping[str, str]:
            return self._signer.headers(content, now_s())

        if url is not None and math.isfinite(job.ends_at):
            self._callbacks.plan(url, moments, told, script, sign)

    def state(self, name: str) -> Response:
        """Tell a prediction."""
        return self._about("query", name, lambda job, fault: _json(self._shown(job, fault.over(job.fault))))

    def cancel(self, name: str) -> Response:
        """Stop what has not ended; either way the prediction is the answer."""

        def handle(job: Job, _fault: Fault) -> Response:
            self._world.ledger.cancel(job, running=True)
            return _json(self._shown(job, job.fault))

        return self._about("cancel", name, handle)

    def listing(self) -> Response:
        """List the newest, a hundred a page."""

        def handle(_fault: Fault) -> Response:
            refused = self._refusal("list")
            if refused is not None:
                return refused
            start, end = _moment("created_after", 0.0), _moment("created_before", math.inf)
            jobs, low, high = self._world.ledger.window(NAME, self._account(), start, end)
            skipped = request.args.get("cursor", "0")
            top = high - (int(skipped) if skipped.isdecimal() else 0)
            page = [jobs[index] for index in range(top - 1, max(low, top - _PAGE) - 1, -1)]
            more = f"{_base()}/v1/predictions?cursor={high - top + _PAGE}" if top - _PAGE > low else None
            shown = [self._shown(job, job.fault) for job in page]
            return _json({"next": more, "previous": None, "results": shown})

        return self._world.answer("list", DIALECT, Subject, handle)

    def upload(self) -> Response:
        """Keep a file that is to be an input."""
        refused = self._refusal("query")
        given = request.files.get("content")
        if refused is not None or given is None:
            return refused or error(400, None, "Missing content")
        name, content = uuid.uuid4().hex, given.read()
        if len(self._uploads) >= _UPLOADS_MAX:
            self._uploads.pop(next(iter(self._uploads)))
        self._uploads[name] = (content, given.mimetype)
        self._world.ledger.count(NAME, "upload")
        return _json(upload(name, len(content), given.mimetype, _base(), now_s()), 201)

    def uploaded(self, name: str) -> Response:
        """Tell a file that was uploaded."""
        kept = self._uploads.get(name)
        if kept is None:
            return error(404)
        return self._refusal("query") or _json(upload(name, len(kept[0]), kept[1], _base(), now_s()))

    def secret(self) -> Response:
        """Give the secret that webhooks are signed with."""
        return self._refusal("query") or _json({"key": self._signer.secret})

    def version(self, owner: str, name: str, version: str) -> Response:
        """Tell a version, whose schema the SDK looks at for the kind of output."""
        schema = {"components": {"schemas": {"Output": {"type": "array", "items": {"type": "string"}}}}}
        made = {"id": version, "created_at": "2026-01-01T00:00:00Z", "cog_version": "0.9", "openapi_schema": schema}
        return self._refusal("query") or (error(404) if named(f"{owner}/{name}") is None else _json(made))

    def nothing(self, rest: str) -> Response:
        """Answer for every other address."""
        return self._refusal("query") or error(404, None, f"Path /{rest[:80]} not found")

    def _about(self, operation: str, name: str, handle: _Handler) -> Response:
        """Answer a call about one prediction of this token."""
        job = self._find(name)

        def answer(fault: Fault) -> Response:
            refused = self._refusal(operation)
            if refused is not None:
                return refused
            # Looked up again: the fault may have made the vendor forget it a moment ago.
            known = None if fault.unknown_job else self._find(name)
            return error(404) if known is None else handle(known, fault)

        subject = Subject() if job is None else Subject(job.order.prompt, job.order.model)
        return self._world.answer(operation, DIALECT, lambda: subject, answer, job)

    def _find(self, name: str) -> Job | None:
        return self._world.ledger.find(name, NAME, self._account(), self._world.config.job_ttl_s)

    def _shown(self, job: Job, told: Fault) -> dict[str, object]:
        return prediction(job, now_s(), _base(), self._links(), told, ttl_s=self._world.config.link_ttl_s)

    def _account(self) -> str:
        return account_of(request.headers.get("Authorization", "").removeprefix("Bearer "))

    def _links(self) -> Links:
        base = request.host_url
        return lambda job, index: self._link(base, job, index)

    def _refusal(self, operation: str) -> Response | None:
        """Return the answer to a call with a bad token or above a limit, None to go on."""
        if not re.fullmatch(r"Bearer [!-~]{8,}", request.headers.get("Authorization", "")):
            return error(401)
        if not self._world.too_fast(operation, NAME, self._account()):
            return None
        answer = error(429, None, "Request was throttled. Your rate limit resets in ~1s.")
        wait_s = self._world.config.limits.retry_after_s
        if wait_s is not None:
            answer.headers["Retry-After"] = f"{wait_s:g}"
        return answer


def _base() -> str:
    """The address of this dialect as the caller has it."""
    return f"{request.host_url.rstrip('/')}/{NAME}"


def _fate(fault: Fault, kind: str) -> Fault:
    """Return what befalls a prediction: the fault, or the lack of the package that makes clips."""
    missing = clips.missing() if kind == "video" else None
    return fault if missing is None else Fault(fail="InternalError", fail_message=missing).over(fault)


def _body() -> object:
    body: object = request.get_json(force=True, silent=True)
    return body


def _seconds(told: str | None) -> float | None:
    """Return the seconds of `90`, `90s`, `5m` or `1h30m45s`; None for none of these, or less than five."""
    match = _SPAN.fullmatch(told or "")
    total = sum(int(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
    return float(total) if total >= 5 else None


def _moment(name: str, default: float) -> float:
    try:
        return datetime.fromisoformat(request.args[name]).timestamp()
    except (KeyError, ValueError):
        return default


def _blueprint(world: World, link: Link) -> Blueprint:
    api = _Api(world, link)
    routes = Blueprint(NAME, __name__)
    add = routes.add_url_rule
    add("/v1/predictions", view_func=api.create, methods=["POST"])
    add("/v1/models/<owner>/<name>/predictions", view_func=api.create_of, methods=["POST"])
    add("/v1/deployments/<owner>/<name>/predictions", "create_on", view_func=api.create_of, methods=["POST"])
    add("/v1/predictions", view_func=api.listing)
    add("/v1/predictions/<name>", view_func=api.state)
    add("/v1/predictions/<name>/cancel", view_func=api.cancel, methods=["POST"])
    add("/v1/files", view_func=api.upload, methods=["POST"])
    add("/v1/files/<name>", view_func=api.uploaded)
    add("/v1/webhooks/default/secret", view_func=api.secret)
    add("/v1/models/<owner>/<name>/versions/<version>", view_func=api.version)
    add("/<path:rest>", view_func=api.nothing, methods=["GET", "POST"])
    return routes


DIALECT = Dialect(NAME, _blueprint, error)
