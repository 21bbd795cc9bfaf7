"""What a simulated ComfyUI serves and takes: results, previews and uploads; and how it answers at all.

May not know the queue. Invariant: no name leads out of the three folders.
"""

from __future__ import annotations

import dataclasses
import json

from flask import Response, request

from providers.sim import inline
from providers.sim.comfyui_files import FOLDERS, Made, OutsideError, is_within
from providers.sim.comfyui_machine import Machine
from providers.sim.faults import Fault
from providers.sim.files import FileStore
from providers.sim.rules import Subject
from providers.sim.world import Dialect, World

UPLOAD_MAX = 104_857_600
_TROUBLE = "500 Internal Server Error\n\nServer got itself in trouble"
_TYPES = {"png": "image/png", "webp": "image/webp", "mp4": "video/mp4"}


def as_json(value: object, status: int = 200) -> Response:
    """An answer as this server writes it."""
    return Response(json.dumps(value), status=status, content_type="application/json; charset=utf-8")


def empty(status: int = 200) -> Response:
    """An answer without a body: this server's usual way to say yes, and no."""
    return Response(b"", status=status)


def trouble() -> Response:
    """What an exception in a handler looks like: mostly the client's mistake."""
    return Response(_TROUBLE, status=500, content_type="text/plain; charset=utf-8")


class Files:
    """The routes of one server's disk."""

    def __init__(self, world: World, machine: Machine, dialect: Dialect) -> None:
        """Serve what the machine's disk has."""
        self._world, self._machine, self._dialect = world, machine, dialect
        self._store = FileStore(world)

    def view(self) -> Response:
        """GET /view: every refusal is an empty body."""
        name, subfolder = request.args.get("filename", ""), request.args.get("subfolder", "")
        folder = request.args.get("type", "output")
        if not name:
            return empty(404)
        if name.startswith("/") or ".." in name or folder not in FOLDERS:
            return empty(400)
        if not is_within(subfolder):
            return empty(403)
        self._machine.work()
        upload = self._machine.disk.uploads.get((folder, subfolder, name))
        if upload is not None:
            return _named(Response(upload, content_type=_media_type(name)), name)
        made = self._machine.disk.made.get((folder, subfolder, name))
        if made is None or self._world.ledger.for_file(made.job.id) is None:
            return empty(404)
        handle = lambda fault: self._file(made, name, fault if fault.spoils_file else made.job.fault)  # noqa: E731 - same
        about = Subject(made.job.order.prompt, made.job.order.model)
        return self._world.answer("fetch", self._dialect, lambda: about, handle, made.job)

    def _file(self, made: Made, name: str, told: Fault) -> Response:
        if told.expired_link:
            return empty(404)  # somebody has tidied up: files have no end of their own
        if told.redirect is not None:
            target = told.redirect.replace("{file}", f"view?{request.query_string.decode()}")
            return Response(status=302, headers={"Location": target})
        order, ending = made.job.order, name.rpartition(".")[2]
        if not told.spoils_file:
            still = order.kind == "video" and ending != "mp4"
            drawn = dataclasses.replace(order, kind="image", image_type=ending) if still else order
            content = self._store.content(drawn, made.index)
        else:
            content = inline.content(self._store, made.job, made.index, told)
        answer = Response(content, content_type=told.content_type or _media_type(name))
        answer.add_etag()
        whole = answer.make_conditional(request.environ, accept_ranges=True, complete_length=len(content))
        return _named(whole, name)  # type: ignore[arg-type]  # typed as the base class

    def upload(self) -> Response:
        """POST /upload/image and /upload/mask."""
        if (request.content_length or 0) > UPLOAD_MAX:
            words = f"Maximum request body size {UPLOAD_MAX} exceeded."
            return Response(words, status=413, content_type="text/plain; charset=utf-8")
        image = request.files.get("image")
        if image is None or not image.filename:
            return empty(400)
        folder, subfolder = request.form.get("type", "input"), request.form.get("subfolder", "")
        if folder not in FOLDERS:
            return trouble()
        again = request.form.get("overwrite", "") in ("true", "1")
        self._machine.work()
        try:
            with self._machine.lock:
                name = self._machine.disk.upload(folder, subfolder, image.filename, image.read(), overwrite=again)
        except OutsideError:
            return empty(400)
        return as_json({"name": name, "subfolder": subfolder, "type": folder})


def _media_type(name: str) -> str:
    return _TYPES.get(name.rpartition(".")[2], "application/octet-stream")


def _named(answer: Response, name: str) -> Response:
    answer.headers["Content-Disposition"] = f'filename="{name}"'
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer
