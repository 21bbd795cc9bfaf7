"""The store behind a vendor's result links: signed, expiring, rendered when first fetched.

May not know any dialect. Invariants: a link is honoured only byte for byte as it was given out;
no picture is made before somebody wants it, and two who want it at once pay for one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator
from urllib.parse import quote
from xml.sax.saxutils import escape

from flask import Blueprint, Response, request

from providers.sim import clips, directives, pictures
from providers.sim.faults import Fault
from providers.sim.ledger import Job, Order, now_s
from providers.sim.rules import Subject
from providers.sim.wire import html_page
from providers.sim.world import Dialect, World

_CACHE_BYTES = 96 * 1024 * 1024
_PIECE = bytes(65_536)
_MEDIA_TYPES = pictures.MEDIA_TYPES | {"mp4": clips.MEDIA_TYPE}
_HEADS = {
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF\0",
    "webp": b"RIFF\xff\xff\xff\x7fWEBPVP8 ",
    "mp4": b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1mp41",
}


class FileStore:
    """Makes links, checks them, and keeps the files that were made last."""

    def __init__(self, world: World) -> None:
        """Start with a new signing secret: links of another run are not honoured."""
        self._world = world
        self._secret = secrets.token_bytes(32)
        self._token = secrets.token_urlsafe(6_000)
        self._kept: OrderedDict[tuple[object, ...], bytes] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()
        # Renderings of different files run side by side, those of one file never.
        self._doors = tuple(threading.Lock() for _ in range(32))

    def link(self, base: str, job: Job, index: int) -> str:
        """Return the link to output `index` of a job below `base` (scheme and host)."""
        name = f"{job.id}-{index}.{_ending(job.order)}"
        return f"{base.rstrip('/')}/files/{name}?{self._query(job, name)}"

    def _query(self, job: Job, name: str) -> str:
        config = self._world.config
        # Spoiled links are born a minute past their end, as if they had been kept too long.
        lives = -60 if job.fault.expired_link else config.link_ttl_s
        expires = int(min(job.ends_at, 2**40) + lives)
        mark = hmac.digest(self._secret, f"GET\n{name}\n{expires}".encode(), hashlib.sha1)
        token = self._token[: config.link_token_chars]
        extra = f"&security-token={token}" if token else ""
        signature = quote(base64.b64encode(mark), safe="")
        return f"Expires={expires}&OSSAccessKeyId=SIM{extra}&Signature={signature}"

    def refusal(self, job: Job, name: str) -> Response | None:
        """Return why the current request may not have a file, None when it may."""
        if "Authorization" in request.headers:
            # A signed link and a key are two proofs; the real store refuses both together.
            self._world.ledger.count(job.order.dialect, "fetch_with_credentials")
            return oss_error(400, "InvalidArgument", "Only one auth mechanism is allowed.")
        wanted = self._query(job, name)
        if not hmac.compare_digest(request.query_string, wanted.encode()):
            return oss_error(403, "SignatureDoesNotMatch", "The request signature does not match.")
        if now_s() >= float(request.args["Expires"]):
            return oss_error(403, "AccessDenied", "Request has expired.")
        return None

    def content(self, order: Order, index: int) -> bytes:
        """Return output `index` of an order; made now if it is not among those kept."""
        prompt, seed = directives.bare(order.prompt), order.seed + index
        if self._world.config.share_media:
            prompt, seed = "One file for every job of a load test", 0
        size = (order.width, order.height)
        key = (order.kind, order.image_type, prompt, seed, *size, order.duration_s)
        with self._doors[hash(key) % len(self._doors)]:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key]
            if order.kind == "video":
                made = clips.clip(prompt, seed, *size, order.duration_s)
            else:
                made = pictures.picture(prompt, seed, *size, order.image_type)
            self._keep(key, made)
            return made

    def _keep(self, key: tuple[object, ...], made: bytes) -> None:
        with self._lock:
            self._kept[key] = made
            self._kept_bytes += len(made)
            while self._kept_bytes > _CACHE_BYTES and len(self._kept) > 1:
                _, old = self._kept.popitem(last=False)
                self._kept_bytes -= len(old)


def _ending(order: Order) -> str:
    return "mp4" if order.kind == "video" else order.image_type


def oss_error(status: int, code: str | None, message: str | None) -> Response:
    """Return an error in the words of an object store, which speaks XML."""
    fallback = {403: "AccessDenied", 404: "NoSuchKey", 503: "SlowDown"}.get(status, "InternalError")
    text = escape(message or "The simulator was told to refuse this.")
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code or fallback}</Code><Message>{text}</Message></Error>\n"
    )
    return Response(body, status=status, mimetype="application/xml")


def blueprint(world: World, store: FileStore) -> Blueprint:
    """Return the routes below /files. `/files/moved/...` is where a redirect can point to."""
    routes = Blueprint("files", __name__)

    @routes.get("/files/<name>")
    def fetch(name: str) -> Response:
        job = _job_of(world, name)
        if job is None:
            return oss_error(404, "NoSuchKey", "The specified key does not exist.")
        dialect = Dialect(job.order.dialect, lambda _world, _link: routes, oss_error)

        def handle(fault: Fault) -> Response:
            # What this download is told to do goes before what the job was told at its submit.
            told = fault if fault.spoils_file else job.fault
            return store.refusal(job, name) or _file(store, job, name, told)

        about = Subject(job.order.prompt, job.order.model)
        return world.answer("fetch", dialect, lambda: about, handle, job)

    @routes.get("/files/moved/<name>")
    def fetch_moved(name: str) -> Response:
        job = _job_of(world, name)
        if job is None:
            return oss_error(404, "NoSuchKey", "The specified key does not exist.")
        world.ledger.count(job.order.dialect, "fetch_moved")
        return store.refusal(job, name) or _plain(store, job, name)

    return routes


def _job_of(world: World, name: str) -> Job | None:
    """Return the job that has a file of this name by now, None for a name nobody gave out."""
    stem, _, ending = name.rpartition(".")
    job_id, _, index = stem.rpartition("-")
    job = world.ledger.for_file(job_id)
    if job is None or ending != _ending(job.order) or not index.isdecimal():
        return None
    return job if int(index) < job.good else None


def _plain(store: FileStore, job: Job, name: str) -> Response:
    index = int(name.rpartition(".")[0].rpartition("-")[2])
    content = store.content(job.order, index)
    answer = Response(content, mimetype=_MEDIA_TYPES[_ending(job.order)])
    return answer.make_conditional(  # type: ignore[return-value]  # typed as the base class
        request.environ, accept_ranges=True, complete_length=len(content)
    )


def _file(store: FileStore, job: Job, name: str, told: Fault) -> Response:
    """Return the file, or what a fault puts in its place."""
    if told.expired_link:
        return oss_error(403, "AccessDenied", "Request has expired.")
    if told.redirect is not None:
        target = told.redirect.replace("{file}", f"{name}?{request.query_string.decode()}")
        return Response(status=302, headers={"Location": target})
    kind = _ending(job.order)
    if told.huge_bytes is not None:
        answer = Response(_huge(kind, told.huge_bytes), mimetype=_MEDIA_TYPES[kind])
        answer.content_length = told.huge_bytes
    elif told.wrong_bytes is not None:
        answer = _wrong(job.order, told.wrong_bytes, _MEDIA_TYPES[kind])
    else:
        answer = _plain(store, job, name)
    if told.content_type is not None:
        answer.headers["Content-Type"] = told.content_type
    return answer


def _huge(kind: str, size: int) -> Iterator[bytes]:
    """Yield `size` bytes that begin like a file of this kind, so that only their number is wrong."""
    yield _HEADS[kind][:size]
    left = size - len(_HEADS[kind])
    while left > 0:
        yield _PIECE[:left]
        left -= len(_PIECE)


def _wrong(order: Order, kind: str, declared: str) -> Response:
    """Return bytes of another kind under the type that was to be expected; pages say they are."""
    if kind == "html":
        page = html_page(404)
        page.status_code = 200
        return page
    if kind == "text":
        return Response("This is no picture.", mimetype="text/plain")
    if kind == "empty":
        return Response(b"", content_type=declared)
    if kind == "mp4":
        return Response(_HEADS["mp4"] + bytes(2_000), content_type=declared)
    small = pictures.picture(directives.bare(order.prompt), order.seed, 256, 256, kind)
    return Response(small, content_type=declared)
