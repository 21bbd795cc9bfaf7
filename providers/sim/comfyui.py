"""The ComfyUI dialect: one server of today at `/comfyui`, one of summer 2025 at `/comfyui/old`.

Source: the sheet of 2026-11-30 and the exchanges with a real 0.33.0 recorded that day, which are replayed against this
in tests/contract. Whoever reaches a server sees and stops everybody's jobs: there are no accounts and no key. The
settings `limits` mean nothing here, since the vendor has none.

The server of 2025 knows no jobs API, takes any text as an id, and stops whatever runs when it is told to interrupt.
Invariant: every route is there with and without `/api` before it, but the jobs API, which is there with it only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from http import HTTPStatus

from flask import Blueprint, Response, request

from providers.sim import clips, comfyui_jobs
from providers.sim.comfyui_jobs import BadFilterError
from providers.sim.comfyui_machine import Entry, Machine, new_id
from providers.sim.comfyui_nodes import CLASSES, MODELS, object_info
from providers.sim.comfyui_orders import NAME, order_of, words_of
from providers.sim.comfyui_validation import RejectedError, check, whole_error
from providers.sim.comfyui_views import UPLOAD_MAX, Files, as_json, empty, trouble
from providers.sim.faults import Fault
from providers.sim.ledger import account_of
from providers.sim.rules import Subject
from providers.sim.world import Dialect, Link, World

_SECRET_EXTRAS = ("api_key_comfy_org", "auth_token_comfy_org")
_BAD_ID = (
    "prompt_id must be a UUID string in canonical lowercase hyphenated form; omit it to let the server generate one"
)
_USUAL = {
    400: ("prompt_outputs_failed_validation", "Prompt outputs failed validation"),
    429: ("rate_limited", "Too many requests"),
}


def error(status: int, code: str | None = None, message: str | None = None) -> Response:
    """Return an error in the shape of /prompt."""
    usual = _USUAL.get(status, ("error", "Server error"))
    return as_json({"error": whole_error(code or usual[0], message or usual[1]), "node_errors": {}}, status)


class _Server:
    """The handlers of one server, bound to its machine. Each method is one route."""

    def __init__(self, world: World, *, old: bool) -> None:
        self._world, self._old = world, old
        self.machine = Machine(world)
        self.files = Files(world, self.machine, DIALECT)

    # --- submit ---

    def submit(self) -> Response:
        """POST /prompt."""
        if request.method == "GET":
            return self._count()

        def subject() -> Subject:
            body = request.get_json(force=True, silent=True)
            return Subject(*words_of(body.get("prompt") if isinstance(body, Mapping) else None))

        return self._world.answer("submit", DIALECT, subject, self._take)

    def _take(self, fault: Fault) -> Response:
        body = request.get_json(force=True, silent=True)
        if not isinstance(body, dict) or not _is_sound(body):
            return trouble()
        if "prompt" not in body:
            return _refused(whole_error("no_prompt", "No prompt provided", "No prompt provided"))
        prompt_id = new_id(body.get("prompt_id"), any_text=self._old and "prompt_id" in body)
        if prompt_id is None:
            return _refused(whole_error("invalid_prompt_id", "prompt_id must be a valid UUID", _BAD_ID))
        try:
            checked = check(body["prompt"], lambda name: self.machine.disk.input_of(name) is not None)
        except RejectedError as rejected:
            return as_json(rejected.body, 400)
        return self._queue(body, prompt_id, checked.outputs, checked.node_errors, fault)

    def _queue(
        self, body: dict[str, object], prompt_id: str, targets: list[str], node_errors: object, fault: Fault
    ) -> Response:
        graph = body["prompt"]
        assert isinstance(graph, dict), "checked before"
        order = order_of(graph, targets, account_of(NAME), prompt_id)
        missing = clips.missing() if order.kind == "video" else None
        fate = fault if missing is None else Fault(fail="ImportError", fail_message=missing).over(fault)
        job = self._world.accept(order, fate, words_of(graph)[0])
        place = float(body["number"]) if body.get("number") is not None else self.machine.next_number()  # type: ignore[arg-type]  # checked before
        if body.get("number") is None and body.get("front"):
            place = -place
        entry = Entry(
            number=place,
            prompt_id=prompt_id,
            graph=graph,
            extra=self._extra(body, int(job.created_at * 1000)),
            targets=targets,
            job=job,
            takes_s=job.ends_at - job.starts_at if job.fault.stuck is None else 0.0,
        )
        with self.machine.lock:
            self.machine.work()
            doubled = any((one.number, one.prompt_id) == (place, prompt_id) for one in self.machine.pending)
            self.machine.put(entry)
        # The heap compares two dicts then: it is in the queue and the answer is an error all the same.
        return trouble() if doubled else as_json({"prompt_id": prompt_id, "number": place, "node_errors": node_errors})

    def _extra(self, body: Mapping[str, object], created_ms: int) -> dict[str, object]:
        sent = body.get("extra_data")
        extra = {k: v for k, v in sent.items() if k not in _SECRET_EXTRAS} if isinstance(sent, Mapping) else {}
        extra |= {"client_id": body["client_id"]} if body.get("client_id") else {}
        return extra if self._old else {**extra, "create_time": created_ms}

    def _count(self) -> Response:
        with self.machine.lock:
            self.machine.work()
            left = len(self.machine.pending) + (self.machine.running is not None)
        return as_json({"exec_info": {"queue_remaining": left}})

    # --- state ---

    def queue(self) -> Response:
        """GET /queue: a question about every job in it; POST /queue: delete and clear."""
        if request.method == "POST":
            return self._world.answer("cancel", DIALECT, Subject, self._delete)
        self.machine.work()
        live = self._live()
        struck = next((one for one in live if one.job.later.get("query")), None)
        subject = Subject(" ".join(one.job.order.prompt for one in live), " ".join(one.job.order.model for one in live))

        def handle(fault: Fault) -> Response:
            hidden = self._hidden([struck] if struck else live, fault)
            with self.machine.lock:
                self.machine.work()
                shown = [one for one in self._live() if one not in hidden]
                running = [comfyui_jobs.item(one) for one in shown if one is self.machine.running]
                waiting = [comfyui_jobs.item(one) for one in shown if one is not self.machine.running]
            return as_json({"queue_running": running, "queue_pending": waiting})

        return self._world.answer("query", DIALECT, lambda: subject, handle, struck.job if struck else None)

    def _live(self) -> list[Entry]:
        with self.machine.lock:
            return [*([self.machine.running] if self.machine.running else []), *self.machine.waiting()]

    def _hidden(self, told: list[Entry], fault: Fault) -> list[Entry]:
        """The jobs that a fault takes out of this answer. What it makes of them stands where states are told."""
        if not (fault.unknown_job or fault.status_word or fault.no_payload):
            return []
        if not fault.unknown_job:
            for one in told:
                one.job.later.setdefault("query", []).insert(0, fault)
        return told

    def history(self, prompt_id: str | None = None) -> Response:
        """GET /history/{id} and /history; POST /history: forget."""
        if request.method == "POST":
            return self._world.answer("cancel", DIALECT, Subject, self._forget)
        if prompt_id is None:
            return self._world.answer("list", DIALECT, Subject, lambda _fault: self._whole_history())
        self.machine.work()
        entry = self.machine.find(prompt_id)

        def handle(fault: Fault) -> Response:
            with self.machine.lock:
                self.machine.work()
                known = self.machine.history.get(prompt_id)
                if entry is not None and fault.status_word is not None:
                    told = dataclasses.replace(entry, status=fault.status_word, outputs={})
                    return as_json({prompt_id: comfyui_jobs.record(told)})
                if known is None or fault.unknown_job:
                    return as_json({})
                shown = dataclasses.replace(known, outputs={}) if fault.no_payload else known
                return as_json({prompt_id: comfyui_jobs.record(shown)})

        return self._world.answer("query", DIALECT, lambda: _about(entry), handle, entry.job if entry else None)

    def _whole_history(self) -> Response:
        try:
            most = request.args.get("max_items", type=str)
            count, offset = None if most is None else int(most), int(request.args.get("offset", -1))
        except ValueError:
            return trouble()
        with self.machine.lock:
            self.machine.work()
            found = list(self.machine.history.values())
            if offset < 0:
                offset = max(0, len(found) - count) if count is not None else 0
            shown = found[offset:] if count is None else found[offset : offset + count]
            return as_json({one.prompt_id: comfyui_jobs.record(one) for one in shown})

    def jobs(self) -> Response:
        """GET /api/jobs."""

        def handle(_fault: Fault) -> Response:
            with self.machine.lock:
                self.machine.work()
                try:
                    return as_json(comfyui_jobs.page(self.machine, request.args))
                except BadFilterError as bad:
                    return as_json({"error": str(bad)}, 400)

        return self._world.answer("list", DIALECT, Subject, handle)

    def job(self, prompt_id: str) -> Response:
        """GET /api/jobs/{id}."""
        self.machine.work()
        entry = self.machine.find(prompt_id)

        def handle(fault: Fault) -> Response:
            with self.machine.lock:
                self.machine.work()
                known = None if fault.unknown_job else self.machine.find(prompt_id)
                if known is None:
                    return as_json({"error": "Job not found"}, 404)
                return as_json(comfyui_jobs.job(known, self.machine, whole=True))

        return self._world.answer("query", DIALECT, lambda: _about(entry), handle, entry.job if entry else None)

    # --- stop ---

    def _delete(self, _fault: Fault) -> Response:
        body = request.get_json(force=True, silent=True)
        if not isinstance(body, Mapping):
            return trouble()
        ids = [one.prompt_id for one in self._live()] if body.get("clear") else body.get("delete") or []
        for prompt_id in ids:
            self.machine.remove(str(prompt_id))
        return empty()

    def _forget(self, _fault: Fault) -> Response:
        body = request.get_json(force=True, silent=True)
        if not isinstance(body, Mapping):
            return trouble()
        with self.machine.lock:
            self.machine.work()
            for prompt_id in list(self.machine.history) if body.get("clear") else body.get("delete") or []:
                self.machine.history.pop(prompt_id, None)
        return empty()

    def interrupt(self) -> Response:
        """POST /interrupt: what runs, or only the job that is named; the old server does not look at the name."""

        def handle(_fault: Fault) -> Response:
            body = request.get_json(force=True, silent=True)
            named = body.get("prompt_id") if isinstance(body, Mapping) else None
            self.machine.interrupt(None if self._old or named is None else str(named))
            return empty()

        return self._world.answer("cancel", DIALECT, Subject, handle)

    def cancel(self, prompt_id: str) -> Response:
        """POST /api/jobs/{id}/cancel."""
        stop = lambda _fault: as_json({"cancelled": self._stop(prompt_id)})  # noqa: E731 - one line, one use
        return self._world.answer("cancel", DIALECT, lambda: _about(self.machine.find(prompt_id)), stop)

    def cancel_many(self) -> Response:
        """POST /api/jobs/cancel."""

        def handle(_fault: Fault) -> Response:
            body = request.get_json(force=True, silent=True)
            ids = body.get("job_ids") if isinstance(body, Mapping) else None
            if not isinstance(ids, list):
                return as_json({"error": "job_ids must be a list"}, 400)
            wrong = [one for one in ids if new_id(one or "", any_text=False) is None]
            if wrong:
                return as_json({"error": "job_ids contains invalid id(s)", "invalid_ids": wrong}, 400)
            return as_json({"cancelled": [self._stop(str(one)) for one in ids].count(True) > 0})

        return self._world.answer("cancel", DIALECT, Subject, handle)

    def _stop(self, prompt_id: str) -> bool:
        # What runs goes first: the same id may wait a second time.
        return self.machine.interrupt(prompt_id) or self.machine.remove(prompt_id)

    # --- the server itself ---

    def stats(self) -> Response:
        """GET /system_stats: what a probe asks for."""
        version = "0.3.50" if self._old else "0.33.0"
        system = {"os": "linux", "ram_total": 2**35, "ram_free": 2**34, "comfyui_version": version, "argv": ["main.py"]}
        device = {"name": "cpu", "type": "cpu", "index": None, "vram_total": 2**35, "vram_free": 2**34}
        return as_json({"system": system, "devices": [device]})

    def features(self) -> Response:
        """GET /features."""
        return as_json({"supports_preview_metadata": True, "max_upload_size": UPLOAD_MAX, "node_replacements": True})

    def info(self, name: str | None = None) -> Response:
        """GET /object_info and /object_info/{class}; an unknown class is an empty object."""
        names = list(CLASSES) if name is None else [name] if name in CLASSES else []
        return as_json({one: object_info(one) for one in names})

    def models(self, folder: str | None = None) -> Response:
        """GET /models and /models/{folder}."""
        if folder is None:
            return as_json(list(MODELS))
        return as_json(MODELS[folder]) if folder in MODELS else empty(404)

    def free(self) -> Response:
        """POST /free: the models go, the files stay."""
        return empty()


def _is_sound(body: Mapping[str, object]) -> bool:
    """Whether the handler gets through it at all; the graph an editor saves is not such."""
    graph, number = body.get("prompt", {}), body.get("number", 0)
    nodes = isinstance(graph, dict) and all(isinstance(node, dict) for node in graph.values())
    counted = number is None or (isinstance(number, int | float) and not isinstance(number, bool))
    return nodes and counted and isinstance(body.get("extra_data", {}), dict)


def _refused(told: Mapping[str, object]) -> Response:
    return as_json({"error": told, "node_errors": {}}, 400)


def _about(entry: Entry | None) -> Subject:
    return Subject() if entry is None else Subject(entry.job.order.prompt, entry.job.order.model)


def _cross_site() -> Response | None:
    """The loopback protection: a browser's page from elsewhere gets an empty 403."""
    origin = request.headers.get("Origin")
    elsewhere = origin is not None and origin.partition("://")[2] != request.host
    return empty(403) if elsewhere or request.headers.get("Sec-Fetch-Site") == "cross-site" else None


def _unrouted(path: str) -> Response:
    """What has no route: an empty 404, or a 405 where only the method is wrong."""
    first, *rest = path.removeprefix("old/").removeprefix("api/").split("/")
    if first in ("prompt", "queue", "history", "interrupt") and (not rest or first == "history"):
        return Response("405: Method Not Allowed", status=405, content_type="text/plain; charset=utf-8")
    return empty(HTTPStatus.NOT_FOUND)


def _blueprint(world: World, _link: Link) -> Blueprint:
    routes = Blueprint(NAME, __name__)
    routes.before_request(_cross_site)
    for place, old in (("", False), ("/old", True)):
        server = _Server(world, old=old)
        for base in (place, f"{place}/api"):
            _classic(routes, server, base)
        if not old:
            _jobs_api(routes, server, f"{place}/api")
    every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    routes.add_url_rule("/<path:path>", endpoint="unrouted", view_func=_unrouted, methods=every)
    return routes


def _classic(routes: Blueprint, server: _Server, base: str) -> None:
    both, post = ["GET", "POST"], ["POST"]
    for path, view, methods in (
        ("/prompt", server.submit, both),
        ("/queue", server.queue, both),
        ("/history", server.history, both),
        ("/history/<prompt_id>", server.history, ["GET"]),
        ("/interrupt", server.interrupt, post),
        ("/free", server.free, post),
        ("/view", server.files.view, ["GET"]),
        ("/upload/image", server.files.upload, post),
        ("/upload/mask", server.files.upload, post),
        ("/system_stats", server.stats, ["GET"]),
        ("/features", server.features, ["GET"]),
        ("/object_info", server.info, ["GET"]),
        ("/object_info/<name>", server.info, ["GET"]),
        ("/models", server.models, ["GET"]),
        ("/models/<folder>", server.models, ["GET"]),
    ):
        named = f"{base}{path}".replace("/", "_").translate(str.maketrans("", "", "<>"))
        routes.add_url_rule(base + path, endpoint=named, view_func=view, methods=methods)


def _jobs_api(routes: Blueprint, server: _Server, base: str) -> None:
    routes.add_url_rule(f"{base}/jobs", view_func=server.jobs)
    routes.add_url_rule(f"{base}/jobs/<prompt_id>", view_func=server.job)
    routes.add_url_rule(f"{base}/jobs/<prompt_id>/cancel", view_func=server.cancel, methods=["POST"])
    routes.add_url_rule(f"{base}/jobs/cancel", view_func=server.cancel_many, methods=["POST"])


DIALECT = Dialect(NAME, _blueprint, error)
