"""The Stable Diffusion WebUI dialect: txt2img, img2img, lists, progress, interrupt.

Source: the provider sheet of 2026-11-30. Four servers stand side by side: `http://HOST:PORT/sdwebui` (A1111 1.10),
`.../sdwebui/forge`, `.../sdwebui/v18` (schedules inside the names) and `.../sdwebui/locked` (`operator:let-me-in`).
Invariant: one job at a time for each, whoever asks; what was interrupted is answered like what was finished.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode
from collections.abc import Callable, Mapping

from flask import Blueprint, Response, request

from providers.sim import inline
from providers.sim.faults import Fault
from providers.sim.files import FileStore
from providers.sim.ledger import Job, account_of
from providers.sim.rules import Subject
from providers.sim.sdwebui_lists import GENERATIONS, Generation
from providers.sim.sdwebui_machine import Machine
from providers.sim.sdwebui_orders import NAME, Asked, RefusedError, asked_of
from providers.sim.world import Dialect, Link, World

_USUAL = {429: "Too Many Requests", 401: "Incorrect username or password", 404: "Not Found"}
_MEMORY = {"ram": {"free": 8e9, "used": 8e9, "total": 16e9}, "cuda": {"system": {"free": 9e9, "total": 24e9}}}
# What rules and directives call things, as Python would.
_OURS = {"InternalError.Algo": "OutOfMemoryError", "": "OutOfMemoryError", "DataInspectionFailed": "RuntimeError"}


class BrokenError(Exception):
    """The job raised: Python's name for it, and the text."""

    def __init__(self, name: str, text: str) -> None:
        """Name and text."""
        super().__init__(text)
        self.name, self.text = name, text


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value, ensure_ascii=False), status=status, mimetype="application/json")


def error(status: int, code: str | None = None, message: str | None = None) -> Response:
    """Return an error as A1111 words it. Its HTTPException has no code; other names are Python's."""
    name = code if code and code.endswith(("Error", "Exception")) else "HTTPException"
    text = message or _USUAL.get(status, "The request was refused.")
    told = {"detail": text, "errors": ""} if name == "HTTPException" else {"detail": "", "errors": text}
    return _json({"error": name, "body": "", **told}, status)


class _Server:
    """One server. Each public method is one route."""

    def __init__(self, world: World, generation: Generation) -> None:
        self._world, self._generation = world, generation
        self._machine = Machine(world.stopping)
        self._store = FileStore(world)

    def generate(self, *, image: bool) -> Response:
        """Wait in line, make the pictures, answer with them."""

        def handle(fault: Fault) -> Response:
            refused = self._refusal("submit")
            if refused is not None:
                return refused
            body = _body()
            if body is None:
                return self._invalid("Input should be a valid dictionary", "body")
            try:
                asked = asked_of(body, self._generation, self._account(), image=image)
                with self._machine.turn(asked.task_id, asked.steps) as turn:
                    job = self._world.accept(asked.order, fault, asked.order.prompt)
                    self._machine.work(turn, job.ends_at - job.created_at)
                    _raise_for(job)
            except RefusedError as refusal:
                return self._refused(refusal)
            except BrokenError as broken:
                return self._broken(broken)
            return _json(self._result(job, asked, body))

        return self._world.answer("submit", DIALECT, lambda: _subject(_body()), handle)

    def _result(self, job: Job, asked: Asked, body: Mapping[str, object]) -> Mapping[str, object]:
        order, good = job.order, 0 if job.fault.no_payload else job.good
        images = [inline.as_base64(self._store, job, index) for index in range(good)]
        grid = asked.save and len(images) > 1
        if body.get("send_images") is False:
            images = []
        seeds = [order.seed + index for index in range(order.n)]
        info = {
            "prompt": order.prompt,
            "all_prompts": [order.prompt] * order.n,
            "negative_prompt": order.extra["negative_prompt"],
            "seed": order.seed,
            "all_seeds": seeds,
            "width": order.width,
            "height": order.height,
            "sampler_name": asked.sampler,
            "cfg_scale": order.extra["cfg_scale"],
            "steps": asked.steps,
            "batch_size": body.get("batch_size", 1),
            "sd_model_name": order.model,
            "extra_generation_params": {"Schedule type": asked.scheduler} if asked.scheduler else {},
            "index_of_first_image": 1 if grid else 0,
            "infotexts": [f"{order.prompt}\nSteps: {asked.steps}, Seed: {seed}" for seed in seeds],
            "version": self._generation.version,
        }
        # The request as it came, with its -1: only `info` knows the seed.
        echo = {**body, "init_images": None, "mask": None} if "init_images" in body else dict(body)
        return {"images": images[:1] * grid + images, "parameters": echo, "info": json.dumps(info)}

    def progress(self) -> Response:
        """Tell of whatever runs, whoever owns it."""

        def handle(_fault: Fault) -> Response:
            running = self._machine.running()
            share = running.progress() if running else 0.0
            steps = running.steps if running else 0
            state = {
                "skipped": False,
                "interrupted": bool(running and running.interrupted.is_set()),
                "stopping_generation": False,
                "job": "scripts_txt2img" if running else "",
                "job_count": 1 if running else 0,
                "job_timestamp": "20261130100000" if running else "0",
                "job_no": 0,
                "sampling_step": math.floor(share * steps),
                "sampling_steps": steps,
            }
            told = {"progress": share, "eta_relative": 0.0, "state": state, "current_image": None, "textinfo": None}
            return self._refusal("query") or _json(told)

        return self._world.answer("query", DIALECT, Subject, handle)

    def internal_progress(self) -> Response:
        """Tell of one task; no login is asked for."""
        body = _body() or {}
        return _json(self._machine.about(str(body.get("id_task", ""))))

    def pending(self) -> Response:
        """Tell who waits."""
        waiting = self._machine.waiting()
        return _json({"size": len(waiting), "tasks": waiting})

    def interrupt(self) -> Response:
        """Stop whatever runs."""

        def handle(_fault: Fault) -> Response:
            refused = self._refusal("cancel")
            if refused is None:
                self._machine.interrupt()
            return refused or _json({})

        return self._world.answer("cancel", DIALECT, Subject, handle)

    def lists(self, what: str) -> Response:
        """Give one of the lists."""
        makers: Mapping[str, Callable[[], object]] = {
            "samplers": self._generation.sampler_list,
            "schedulers": self._generation.scheduler_list,
            "sd-models": lambda: [{"title": "loaded.safetensors [abc]", "model_name": "loaded", "hash": "abc"}],
            "upscalers": lambda: [{"name": "None"}, {"name": "Lanczos"}],
            "latent-upscale-modes": lambda: [{"name": "Latent"}],
            "scripts": lambda: {"txt2img": [], "img2img": []},
            "options": lambda: {"samples_format": "png", "sd_model_checkpoint": "loaded.safetensors [abc]"},
            "memory": lambda: _MEMORY,
        }

        def handle(_fault: Fault) -> Response:
            refused = self._refusal("list")
            if refused is not None:
                return refused
            if what not in makers or (what == "schedulers" and not self._generation.labels):
                return _json({"detail": "Not Found"}, 404)
            return _json(makers[what]())

        return self._world.answer("list", DIALECT, Subject, handle)

    def _refused(self, refusal: RefusedError) -> Response:
        if refusal.where:
            return self._invalid(refusal.message, refusal.where)
        if self._generation.fastapi_errors:
            return _json({"detail": refusal.message}, refusal.status)
        return error(refusal.status, None, refusal.message)

    def _invalid(self, message: str, where: str) -> Response:
        """A fault of the schema; like the server's, it repeats what was sent."""
        sent = (_body() or {}).get(where)
        return _json({"detail": [{"loc": ["body", where], "msg": message, "type": "value_error", "input": sent}]}, 422)

    def _broken(self, broken: BrokenError) -> Response:
        if self._generation.fastapi_errors:
            return Response("Internal Server Error", status=500, mimetype="text/plain")
        return error(500, broken.name, broken.text)

    def _account(self) -> str:
        return account_of(request.headers.get("Authorization", ""))

    def _refusal(self, operation: str) -> Response | None:
        """Return the answer to a call without the login or above a limit, None to go on."""
        if self._generation.login and _login() != self._generation.login:
            answer = error(401)
            answer.headers["WWW-Authenticate"] = "Basic"
            return answer
        return error(429) if self._world.too_fast(operation, NAME, self._account()) else None


def _login() -> str:
    sent = request.headers.get("Authorization", "")
    try:
        return b64decode(sent.removeprefix("Basic ")).decode()
    except ValueError:
        return ""


def _raise_for(job: Job) -> None:
    if job.failure is not None:
        code, text = job.failure
        name = _OURS.get(code, code)
        scripted = text.startswith(("The job failed by script", "Output data"))
        raise BrokenError(name, "CUDA out of memory. Tried to allocate 2.00 GiB." if scripted else text)


def _body() -> Mapping[str, object] | None:
    found = request.get_json(force=True, silent=True)
    return found if isinstance(found, Mapping) else None


def _subject(body: Mapping[str, object] | None) -> Subject:
    prompt = (body or {}).get("prompt")
    return Subject(prompt if isinstance(prompt, str) else "")


def _blueprint(world: World, _link: Link) -> Blueprint:
    routes = Blueprint(NAME, __name__)
    for generation in GENERATIONS:
        server = _Server(world, generation)
        base = f"/{generation.name}" if generation.name else ""
        views: list[tuple[str, str, Callable[..., Response], dict[str, object]]] = [
            ("POST", "/sdapi/v1/txt2img", server.generate, {"image": False}),
            ("POST", "/sdapi/v1/img2img", server.generate, {"image": True}),
            ("POST", "/sdapi/v1/interrupt", server.interrupt, {}),
            ("GET", "/sdapi/v1/progress", server.progress, {}),
            ("GET", "/sdapi/v1/<what>", server.lists, {}),
            ("POST", "/internal/progress", server.internal_progress, {}),
            ("GET", "/internal/pending-tasks", server.pending, {}),
        ]
        for number, (method, path, view, defaults) in enumerate(views):
            endpoint = f"{generation.name}_{number}"
            routes.add_url_rule(base + path, endpoint=endpoint, view_func=view, methods=[method], defaults=defaults)
    return routes


DIALECT = Dialect(NAME, _blueprint, error)
