"""The OpenAI dialect: images (generate, edit), videos (create, get, list, delete, content), models.

Source: the provider sheet of 2026-11-30; the official SDK 3.57.0 is held against it in
tests/contract/test_sim_openai.py. One key is one account. A picture's call is held until the picture is made.
Base `http://HOST:PORT/openai/v1`.
Invariant: every error is the vendor's envelope with all four keys, and every answer has an `x-request-id`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping

from flask import Blueprint, Response, request

from providers.sim import clips, directives, inline, openai_orders, openai_videos, pictures
from providers.sim.faults import Fault
from providers.sim.files import FileStore
from providers.sim.ledger import Job, State, account_of, now_s
from providers.sim.openai_orders import NAME, RefusedError, image_order, sent_of, video_order
from providers.sim.rules import Subject
from providers.sim.world import Dialect, Link, World

_USUAL = {
    400: ("invalid_value", "The request was refused."),
    401: ("invalid_api_key", "Incorrect API key provided."),
    403: ("unsupported_country_region_territory", "Country, region, or territory not supported."),
    404: ("not_found", "The requested resource was not found."),
    429: ("rate_limit_exceeded", "Rate limit reached for images per minute."),
    503: ("server_is_overloaded", "The server is overloaded, please try again later."),
}
# What rules and directives call things, in this vendor's words.
_OURS = {
    "DataInspectionFailed": ("moderation_blocked", "Your request was rejected by the safety system."),
    "InvalidParameter": ("invalid_value", "Invalid value."),
    "InternalError.Algo": ("server_error", "The server had an error while processing your request."),
    "": ("server_error", "The server had an error while processing your request."),
}
_TYPES = {
    "moderation_blocked": "image_generation_user_error",
    "insufficient_quota": "insufficient_quota",
    "rate_limit_exceeded": "requests",
    "server_error": "server_error",
    "server_is_overloaded": "server_error",
}
_POLL_AFTER_MS = "1000"


def _json(value: Mapping[str, object], status: int = 200) -> Response:
    answer = Response(json.dumps(value, ensure_ascii=False), status=status, mimetype="application/json")
    answer.headers["x-request-id"] = f"req_{uuid.uuid4().hex}"
    answer.headers["openai-version"] = "2020-10-01"
    return answer


def error(status: int, code: str | None = None, message: str | None = None, param: str | None = None) -> Response:
    """Return an error in the vendor's envelope; 200 is what servers that copy the shape do."""
    usual = _USUAL.get(status, ("server_error", "The server had an error while processing your request."))
    named, words = _OURS.get(code, (code, None)) if code is not None else usual
    kind = _TYPES.get(str(named), "server_error" if status >= 500 else "invalid_request_error")
    text = message or words or usual[1]
    return _json({"error": {"message": text, "type": kind, "param": param, "code": named}}, status)


def failure_of(job: Job) -> tuple[str, str] | None:
    """Return code and text a job fails with, in the vendor's words; None when it succeeds."""
    if job.failure is None:
        return None
    code, message = job.failure
    named, words = _OURS.get(code, (code, message))
    return named, words if message.startswith(("The job failed by script", "Output data")) else message


class _Api:
    """The handlers, bound to one world. Each method is one route."""

    def __init__(self, world: World, link: Link) -> None:
        self._world = world
        self._link = link
        self._store = FileStore(world)
        self._deleted: set[str] = set()

    def images(self, *, edit: bool) -> Response:
        """Make pictures and answer with them."""

        def handle(fault: Fault) -> Response:
            refused = self._refusal("submit")
            if refused is not None:
                return refused
            sent = sent_of(request)
            try:
                order = image_order(sent, self._account(), edit=edit)
            except RefusedError as refusal:
                return error(refusal.status, refusal.code, refusal.message, refusal.param)
            job = self._world.accept(order, fault, order.prompt)
            self._world.pause(job.ends_at - now_s())
            failed = failure_of(job)
            if failed is not None:
                return error(400 if failed[0] == "moderation_blocked" else 500, *failed)
            return _json(self._pictures(job))

        return self._world.answer("submit", DIALECT, _subject, handle)

    def _pictures(self, job: Job) -> Mapping[str, object]:
        order, host = job.order, request.host_url
        made: list[Mapping[str, object]] = []
        for index in range(0 if job.fault.no_payload else job.good):
            if order.extra["url"]:
                made.append({"url": self._link(host, job, index)})
            else:
                made.append({"b64_json": inline.as_base64(self._store, job, index)})
        tokens = 272 * len(made)
        return {
            "created": int(now_s()),
            "background": "opaque",
            "output_format": order.image_type,
            "quality": order.extra["quality"],
            "size": order.extra["size"],
            "data": made,
            "usage": {
                "input_tokens": 14,
                "input_tokens_details": {"text_tokens": 14, "image_tokens": 0},
                "output_tokens": tokens,
                "output_tokens_details": {"image_tokens": tokens, "text_tokens": 0},
                "total_tokens": 14 + tokens,
            },
        }

    def create(self) -> Response:
        """Take an order for a clip."""

        def handle(fault: Fault) -> Response:
            refused = self._refusal("submit")
            if refused is not None:
                return refused
            try:
                order = video_order(sent_of(request), self._account())
            except RefusedError as refusal:
                return error(refusal.status, refusal.code, refusal.message, refusal.param)
            job = self._world.accept(order, _fate(fault), order.prompt)
            return _json(openai_videos.record(job, now_s(), failure_of(job), job.fault))

        return self._world.answer("submit", DIALECT, _subject, handle)

    def retrieve(self, video_id: str) -> Response:
        """Tell of one clip."""
        job = self._find(video_id)

        def handle(fault: Fault) -> Response:
            refused = self._refusal("query")
            if refused is not None:
                return refused
            known = None if fault.unknown_job else self._find(video_id)
            if known is None:
                return error(404, "not_found", f"Video with id '{video_id[:60]}' not found.")
            answer = _json(openai_videos.record(known, now_s(), failure_of(known), fault.over(known.fault)))
            if known.ends_at > now_s():
                answer.headers["openai-poll-after-ms"] = _POLL_AFTER_MS
            return answer

        return self._world.answer("query", DIALECT, lambda: _about(job), handle, job)

    def list(self) -> Response:
        """Tell of this key's clips, page by page."""

        def handle(_fault: Fault) -> Response:
            refused = self._refusal("list")
            if refused is not None:
                return refused
            jobs, low, high = self._world.ledger.window(NAME, self._account(), 0, now_s() + 1)
            clips_of = [job for job in jobs[low:high] if self._find(openai_videos.id_of(job)) is job]
            try:
                page = openai_videos.page(clips_of, request.args)
            except RefusedError as refusal:
                return error(refusal.status, refusal.code, refusal.message, refusal.param)
            now = now_s()
            records = [openai_videos.record(job, now, failure_of(job), job.fault) for job in page.jobs]
            ends = {"first_id": records[0]["id"], "last_id": records[-1]["id"]} if records else {}
            empty = {"first_id": None, "last_id": None}
            return _json({"object": "list", "data": records, **empty, **ends, "has_more": page.more})

        return self._world.answer("list", DIALECT, Subject, handle)

    def delete(self, video_id: str) -> Response:
        """Forget a clip that has ended."""
        job = self._find(video_id)

        def handle(_fault: Fault) -> Response:
            refused = self._refusal("cancel")
            if refused is not None:
                return refused
            known = self._find(video_id)
            if known is None:
                return error(404)
            if known.state(now_s()) not in (State.SUCCEEDED, State.FAILED):
                return error(400, "invalid_value", "Only completed or failed videos can be deleted.")
            self._deleted.add(known.id)
            return _json({"id": video_id, "object": "video.deleted", "deleted": True})

        return self._world.answer("cancel", DIALECT, lambda: _about(job), handle, job)

    def content(self, video_id: str) -> Response:
        """Give a finished clip's bytes, to its owner's key only."""
        job = self._find(video_id)

        def handle(fault: Fault) -> Response:
            refused = self._refusal("query")
            if refused is not None:
                return refused
            known = self._find(video_id)
            if known is None:
                return error(404)
            told = fault if fault.spoils_file else known.fault
            if known.state(now_s()) is not State.SUCCEEDED:
                return error(400, "video_not_ready", "The video is not ready yet.")
            return self._bytes(known, told)

        return self._world.answer("fetch", DIALECT, lambda: _about(job), handle, job)

    def _bytes(self, job: Job, told: Fault) -> Response:
        if told.expired_link:
            return error(404, "not_found", "The video has expired.")
        if told.redirect is not None:
            signed = self._link(request.host_url, job, 0).rpartition("/")[2]
            return Response(status=302, headers={"Location": told.redirect.replace("{file}", signed)})
        variant = request.args.get("variant", "video")
        if variant in ("thumbnail", "spritesheet"):
            words = directives.bare(job.order.prompt)
            small = pictures.picture(words, job.order.seed, job.order.width, job.order.height, "webp")
            return Response(small, mimetype="image/webp")
        answer = Response(inline.content(self._store, job, 0, told), mimetype=clips.MEDIA_TYPE)
        if told.content_type is not None:
            answer.headers["Content-Type"] = told.content_type
        return answer

    def models(self) -> Response:
        """List the models."""
        refused = self._refusal("query")
        listed = [
            {"id": name, "object": "model", "created": 1_790_000_000, "owned_by": "sim"}
            for name in openai_orders.MODELS
        ]
        return refused or _json({"object": "list", "data": listed})

    def _account(self) -> str:
        return account_of(request.headers.get("Authorization", "").removeprefix("Bearer "))

    def _find(self, video_id: str) -> Job | None:
        job_id = openai_videos.job_id_of(video_id)
        if job_id is None or job_id in self._deleted:
            return None
        job = self._world.ledger.find(job_id, NAME, self._account(), self._world.config.job_ttl_s)
        return job if job is not None and job.order.kind == "video" else None

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


def _subject() -> Subject:
    sent = sent_of(request)
    return Subject(sent.text("prompt"), sent.text("model"))


def _fate(fault: Fault) -> Fault:
    """Return what befalls a clip: the fault, or the lack of the package that makes clips."""
    missing = clips.missing()
    return fault if missing is None else Fault(fail="server_error", fail_message=missing).over(fault)


def _about(job: Job | None) -> Subject:
    return Subject() if job is None else Subject(job.order.prompt, job.order.model)


def _blueprint(world: World, link: Link) -> Blueprint:
    api = _Api(world, link)
    routes = Blueprint(NAME, __name__)
    add = routes.add_url_rule
    for path, edit in (("generations", False), ("edits", True)):
        where = f"/v1/images/{path}"
        add(where, endpoint=path, view_func=api.images, methods=["POST"], defaults={"edit": edit})
    add("/v1/videos", view_func=api.create, methods=["POST"])
    add("/v1/videos", view_func=api.list)
    add("/v1/videos/<video_id>", view_func=api.retrieve)
    add("/v1/videos/<video_id>", view_func=api.delete, methods=["DELETE"])
    add("/v1/videos/<video_id>/content", view_func=api.content)
    add("/v1/models", view_func=api.models)
    return routes


DIALECT = Dialect(NAME, _blueprint, error)
