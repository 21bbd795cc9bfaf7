"""Every refusal and failure as an RFC 9457 problem: the only place that gives an error its HTTP status.

    Problem            what a view raises: a slug of CATALOGUE, a sentence, and members of its own
    models.fields.Invalid, werkzeug's exceptions, database errors, anything else    become one of them here

CATALOGUE is the contract: /problems/<slug>, the OpenAPI document and a test are made from it. No prompt, no key, no
vendor's words and no exception's message ever reach a body or a log line from here.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException

from models.db import TRANSIENT
from models.fields import FieldError

log = logging.getLogger("weir.api")

MEDIA_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="weir", error="invalid_token"'
_AWAY_RETRY_S = 2


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One type of problem. `retry`: whether the same request may work later, in words."""

    status: int
    title: str
    when: str
    retry: str = "no"


def _entry(status: int, title: str, when: str, retry: str = "no") -> Entry:
    return Entry(status=status, title=title, when=when, retry=retry)


CATALOGUE: Mapping[str, Entry] = {
    "malformed-request": _entry(
        400, "The request cannot be read", "The body is not JSON, not an object, not UTF-8, or names a key twice."
    ),
    "invalid-cursor": _entry(
        400, "The cursor is not valid", "A cursor that this server did not give, or gave for other filters."
    ),
    "idempotency-key-invalid": _entry(
        400, "The idempotency key is not valid", "It must be 1 to 255 visible ASCII characters."
    ),
    "unauthenticated": _entry(401, "A valid API key is needed", "No key, or one that is unknown, revoked or expired."),
    "forbidden": _entry(403, "The API key may not do this", "The key lacks the scope named in `required_scope`."),
    "model-not-allowed": _entry(
        403, "The API key may not ask for this model", "The key is limited to `models`; GET /v1/models shows them."
    ),
    "not-found": _entry(
        404, "There is no such thing", "An unknown path or id, or an id that belongs to somebody else."
    ),
    "method-not-allowed": _entry(405, "The method is not allowed here", "`Allow` lists the methods that are."),
    "not-acceptable": _entry(406, "Only JSON is offered", "`Accept` excludes every type this route can answer with."),
    "idempotency-in-progress": _entry(
        409,
        "The first request with this key is still being accepted",
        "A twin of this request has not been answered yet.",
        "yes, after `Retry-After` seconds",
    ),
    "task-not-cancellable": _entry(409, "The task has ended", "It ended before it could be canceled."),
    "cancel-unsupported": _entry(
        409, "A running task of this provider cannot be canceled", "The provider has no way to stop what it began."
    ),
    "task-not-ready": _entry(
        409, "The output is not there yet", "The task has not ended.", "yes, after `Retry-After` seconds"
    ),
    "result-expired": _entry(410, "The result was removed", "Its time of retention is over; the record remains."),
    "payload-too-large": _entry(413, "The body is too large", "`max_bytes` is the most that is read."),
    "unsupported-media-type": _entry(
        415, "The body's type is not supported", "Bodies are application/json in UTF-8, not compressed."
    ),
    "range-not-satisfiable": _entry(
        416, "The range lies outside of the file", "`Content-Range` gives the file's size."
    ),
    "validation-error": _entry(422, "The request is not valid", "`errors` names every field and what it may be."),
    "unknown-model": _entry(422, "There is no such model", "`did_you_mean` lists the closest; GET /v1/models all."),
    "idempotency-key-reused": _entry(
        422, "The idempotency key was used for another request", "`original_task_id` is the task it made."
    ),
    "rate-limited": _entry(
        429, "Too many requests", "More requests a minute than allowed.", "yes, after `Retry-After` seconds"
    ),
    "too-many-active-tasks": _entry(
        429,
        "Too many tasks at once",
        "As many tasks wait or run as the user, or this key of priority `high`, may have.",
        "yes, when one has ended",
    ),
    "internal-error": _entry(
        500, "The server made a mistake", "A defect; its log has the `request_id`.", "yes, with the same key"
    ),
    "service-unavailable": _entry(
        503, "The service is not available", "The database is away or too busy.", "yes, after `Retry-After` seconds"
    ),
    "capacity-exhausted": _entry(
        503,
        "No provider takes tasks",
        "Every provider of the model is switched off, failing, away or refusing this gateway's credential;"
        " `upstream_name` is the first of them, `candidates` says of each what stands against it.",
        "yes, after `Retry-After` seconds",
    ),
}

_BY_STATUS = {
    400: "malformed-request", 404: "not-found", 405: "method-not-allowed", 406: "not-acceptable",
    413: "payload-too-large", 415: "unsupported-media-type", 416: "range-not-satisfiable",
    503: "service-unavailable",
}  # fmt: skip


class Problem(Exception):  # noqa: N818  most of them are refusals, not errors
    """An answer that is not the resource: `slug` of CATALOGUE, one sentence, further members, further headers."""

    def __init__(self, slug: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: object) -> None:
        super().__init__(f"{slug}: {detail}")
        self.slug = slug
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members

    @property
    def status(self) -> int:
        """The HTTP status."""
        return CATALOGUE[self.slug].status


def unauthenticated() -> Problem:
    """One wording for no key, an unknown, a revoked and an expired one: nothing can be told apart."""
    detail = "Send a valid API key as `Authorization: Bearer <key>`."
    return Problem("unauthenticated", detail, headers={"WWW-Authenticate": CHALLENGE})


def not_found() -> Problem:
    """The same for an unknown id and for somebody else's."""
    return Problem("not-found", "There is nothing here for this key.")


def too_large() -> Problem:
    """A body above the bound of this request."""
    most = request.max_content_length
    detail = f"A body may have at most {most} bytes. Inline images grow by a third in base64: give a URL instead."
    return Problem("payload-too-large", detail, max_bytes=most)


def invalid(errors: Iterable[FieldError], did_you_mean: list[str] | None = None) -> Problem:
    """Every fault of a body at once. `did_you_mean` not None: an unknown model is among them."""
    rows = [error_wire("pointer", "#" + error.pointer, error) for error in errors]
    if did_you_mean is not None:
        return Problem("unknown-model", counted(len(rows)), errors=rows, did_you_mean=did_you_mean)
    return Problem("validation-error", counted(len(rows)), errors=rows)


def counted(n: int) -> str:
    """How many fields, in words."""
    return "1 field is not valid" if n == 1 else f"{n} fields are not valid"


def error_wire(place: str, name: str, error: FieldError) -> dict[str, object]:
    """One line of `errors`; `place` is pointer, parameter or header."""
    row: dict[str, object] = {place: name, "detail": error.detail, "code": error.code}
    if error.allowed is not None:
        row["allowed"] = dict(error.allowed)
    if error.nearest is not None:
        row["nearest"] = list(error.nearest)
    return row


def dumps(payload: object) -> bytes:
    """JSON in UTF-8, a newline behind it for whoever reads it in a terminal."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace") + b"\n"  # half a surrogate pair in an echoed field name becomes "?"


def body_of(slug: str, detail: str, request_id: str = "req_01m8qbegqyegwvd26xmm9akxv3") -> dict[str, object]:
    """The members that every problem has."""
    entry = CATALOGUE[slug]
    return {
        "type": f"/problems/{slug}",
        "title": entry.title,
        "status": entry.status,
        "detail": detail,
        "instance": f"/v1/requests/{request_id}",
        "code": slug.replace("-", "_"),
        "request_id": request_id,
    }


def rendered(problem: Problem) -> Response:
    """The problem as an answer."""
    body = {**body_of(problem.slug, problem.detail, g.get("request_id", "")), **problem.members}
    response = Response(dumps(body), status=problem.status, content_type=MEDIA_TYPE)
    response.headers["Cache-Control"] = "no-store"
    response.headers.update(problem.headers)
    return response


def from_http(error: HTTPException) -> Response:
    """Werkzeug's exceptions, their own headers kept (`Allow` of a 405, `Content-Range` of a 416)."""
    status = error.code or 500
    if status < 400:
        return Response(error.get_response(request.environ).get_data(), status, dict(error.get_headers()))
    slug = _BY_STATUS.get(status, "malformed-request" if status < 500 else "internal-error")
    headers = {k: v for k, v in error.get_headers() if k.lower() not in ("content-type", "content-length")}
    if slug == "payload-too-large":
        return rendered(too_large())
    return rendered(Problem(slug, CATALOGUE[slug].when, headers=headers))


def _away(error: Exception) -> Response:
    log.warning("the database is away or busy (%s), request %s", type(error).__name__, g.get("request_id"))
    detail = "The database is away or too busy; nothing was changed."
    return rendered(Problem("service-unavailable", detail, headers={"Retry-After": str(_AWAY_RETRY_S)}))


def _bug(error: Exception) -> Response:
    # Not the message: a database error quotes the row, and with it the prompt.
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("request %s failed: %s\n%s", g.get("request_id"), type(error).__name__, frames)
    return rendered(Problem("internal-error", "This is a defect of the server; its log has the request_id."))


def register(app: Flask) -> None:
    """Make every error of this app a problem. Werkzeug's own come through flask-smorest's handler (openapi.py)."""
    app.register_error_handler(Problem, rendered)
    for kind in TRANSIENT:
        app.register_error_handler(kind, _away)
    app.register_error_handler(Exception, _bug)
