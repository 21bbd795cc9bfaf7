"""The DashScope dialect: submit, query, cancel and list as Alibaba Cloud Model Studio speaks them.

Source: the provider sheet of 2026-11-30; the official SDK 2.0.2 is held against it in
tests/contract/test_sim_dashscope.py. One key is one account: it sees its own tasks and no others.
Invariant: whatever may be known of a task (FAILED, UNKNOWN) comes with HTTP 200, as the vendor's.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping

from flask import Blueprint, Response, request

from providers.sim import clips
from providers.sim.dashscope_list import BadFilterError, page
from providers.sim.dashscope_models import (
    FRAMES,
    MESSAGES,
    MESSAGES_ASYNC,
    TEXT2IMAGE,
    VIDEO,
)
from providers.sim.dashscope_orders import (
    NAME,
    RefusedError,
    is_synchronous,
    model_of,
    order_of,
    prompt_of,
)
from providers.sim.dashscope_tasks import Links, finished, task_output, usage
from providers.sim.faults import Fault
from providers.sim.ledger import Job, Order, State, account_of, now_s
from providers.sim.rules import Subject
from providers.sim.world import Dialect, Link, World

_SERVICES = {
    f"/services/aigc/{TEXT2IMAGE}/image-synthesis": TEXT2IMAGE,
    f"/services/aigc/{MESSAGES}/generation": MESSAGES,
    f"/services/aigc/{MESSAGES_ASYNC}/generation": MESSAGES_ASYNC,
    f"/services/aigc/{VIDEO}/video-synthesis": VIDEO,
    f"/services/aigc/{FRAMES}/video-synthesis": FRAMES,
}
_CODES = {
    400: ("InvalidParameter", "The request was refused."),
    401: ("InvalidApiKey", "Invalid API-key provided."),
    403: ("AccessDenied", "Access denied."),
    404: ("NotFound", "Not found."),
    429: ("Throttling.RateQuota", "Requests rate limit exceeded, please try again later."),
    503: ("ModelUnavailable", "The model is unavailable, please try again later."),
}
_NOT_PENDING = "Failed to cancel the task, please confirm if the task is in PENDING status."


def _json(value: Mapping[str, object], status: int = 200) -> Response:
    text = json.dumps({**value, "request_id": str(uuid.uuid4())}, ensure_ascii=False)
    return Response(text, status=status, mimetype="application/json")


def error(status: int, code: str | None = None, message: str | None = None) -> Response:
    """Return an error body as this vendor sends it; status 200 is one of them."""
    usual = _CODES.get(status, ("InternalError", "An internal error has occurred."))
    return _json({"code": code or usual[0], "message": message or usual[1]}, status)


class _Api:
    """The handlers, bound to one world. Each method is one route."""

    def __init__(self, world: World, link: Link) -> None:
        self._world = world
        self._link = link

    def submit(self, service: str) -> Response:
        """E1, E3, E4, E5, E6: take an order."""

        def subject() -> Subject:
            body = request.get_json(force=True, silent=True)
            return Subject(prompt_of(body), model_of(body))

        def handle(fault: Fault) -> Response:
            body = request.get_json(force=True, silent=True)
            refused = self._refusal("submit") or _mode_refusal(service)
            if refused is not None:
                return refused
            try:
                order = order_of(body, service, self._account())
            except RefusedError as refusal:
                return error(refusal.status, refusal.code, refusal.message)
            job = self._world.accept(order, _fate(order, fault), prompt_of(body))
            if is_synchronous(service):
                return self._wait_for(job)
            return _json({"output": {"task_status": "PENDING", "task_id": job.id}})

        return self._world.answer("submit", DIALECT, subject, handle)

    def _wait_for(self, job: Job) -> Response:
        """E3: hold the call until the job has ended and answer with its result."""
        self._world.pause(job.ends_at - now_s())
        if job.failure is not None:
            code, message = job.failure
            status = 400 if code.startswith("DataInspection") else 500
            return error(status, code or None, message)
        output = finished(job, self._links(), with_task=False)
        return _json({"output": output, "usage": usage(job)})

    def query(self, task_id: str) -> Response:
        """E7."""
        job = self._find(task_id)

        def handle(fault: Fault) -> Response:
            refused = self._refusal("query")
            if refused is not None:
                return refused
            # Looked up again: the fault may have made the vendor forget it a moment ago.
            known = None if fault.unknown_job else self._find(task_id)
            if known is None:
                return _json({"output": {"task_id": task_id, "task_status": "UNKNOWN"}})
            told = fault.over(known.fault)
            now = now_s()
            answer: dict[str, object] = {"output": task_output(known, now, self._links(), told)}
            if told.status_word is None and known.state(now) is State.SUCCEEDED:
                answer["usage"] = usage(known)
            return _json(answer)

        return self._world.answer("query", DIALECT, lambda: _about(job), handle, job)

    def cancel(self, task_id: str) -> Response:
        """E8: only what is still PENDING."""
        job = self._find(task_id)

        def handle(_fault: Fault) -> Response:
            refused = self._refusal("cancel")
            if refused is not None:
                return refused
            known = self._find(task_id)
            if known is None or not self._world.ledger.cancel(known):
                return error(400, "UnsupportedOperation", _NOT_PENDING)
            return _json({})

        return self._world.answer("cancel", DIALECT, lambda: _about(job), handle, job)

    def list(self) -> Response:
        """E9."""

        def handle(_fault: Fault) -> Response:
            refused = self._refusal("list")
            if refused is not None:
                return refused
            try:
                found = page(self._world, self._account(), request.args)
            except BadFilterError as bad:
                return error(400, "InvalidParameter", str(bad))
            return _json(found)

        subject = Subject(model=request.args.get("model_name", ""))
        return self._world.answer("list", DIALECT, lambda: subject, handle)

    def _account(self) -> str:
        return account_of(request.headers.get("Authorization", "").removeprefix("Bearer "))

    def _find(self, task_id: str) -> Job | None:
        ttl_s = self._world.config.job_ttl_s
        return self._world.ledger.find(task_id, NAME, self._account(), ttl_s)

    def _links(self) -> Links:
        base = request.host_url
        return lambda job, index: self._link(base, job, index)

    def _refusal(self, operation: str) -> Response | None:
        """Return the answer to a call with a bad key or above a limit, None to go on."""
        if not request.headers.get("Authorization", "").startswith("Bearer sk-"):
            return error(401)
        if not self._world.too_fast(operation, NAME, self._account()):
            return None
        answer = error(429)
        wait_s = self._world.config.limits.retry_after_s
        if wait_s is not None:
            answer.headers["Retry-After"] = f"{wait_s:g}"
        return answer


def _mode_refusal(service: str) -> Response | None:
    """Return the 403 for a missing, or a superfluous, `X-DashScope-Async: enable`."""
    asked = request.headers.get("X-DashScope-Async", "").lower() == "enable"
    if asked != is_synchronous(service):
        return None
    mode = "asynchronous" if asked else "synchronous"
    return error(403, "AccessDenied", f"current user api does not support {mode} calls.")


def _fate(order: Order, fault: Fault) -> Fault:
    """Return what befalls a job: the fault, or the lack of the package that makes clips."""
    missing = clips.missing() if order.kind == "video" else None
    return fault if missing is None else Fault(fail="InternalError", fail_message=missing).over(fault)


def _about(job: Job | None) -> Subject:
    return Subject() if job is None else Subject(job.order.prompt, job.order.model)


def _blueprint(world: World, link: Link) -> Blueprint:
    api = _Api(world, link)
    routes = Blueprint(NAME, __name__)
    for path, service in _SERVICES.items():
        routes.add_url_rule(
            f"/api/v1{path}",
            endpoint=service,
            view_func=api.submit,
            methods=["POST"],
            defaults={"service": service},
        )
    routes.add_url_rule("/api/v1/tasks/<task_id>", view_func=api.query)
    routes.add_url_rule("/api/v1/tasks/<task_id>/cancel", view_func=api.cancel, methods=["POST"])
    # The documentation writes it with the slash, the SDK without.
    routes.add_url_rule("/api/v1/tasks", view_func=api.list)
    routes.add_url_rule("/api/v1/tasks/", view_func=api.list, endpoint="list_slash")
    return routes


DIALECT = Dialect(NAME, _blueprint, error)
