"""The OpenAPI 3.1 document: one table of operations, made into what flask-smorest wants.

Every operation has its id fixed by hand, its answers, and the problems it can end in by status. The same table
serves the views' decorators and a test that no view answers anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import flask
import marshmallow as ma
from flask_smorest import Api, Blueprint  # type: ignore[import-untyped]  # ships no types; used in this file only

from api import answers, answers_preview, answers_providers, examples
from api.errors import CATALOGUE, MEDIA_TYPE, body_of, from_http
from api.schemas import METADATA_KEY_MAX, METADATA_PAIRS, METADATA_VALUE_MAX, envelope
from models.checks import whole
from models.contract import FIELDS, OPTIONS, FieldSpec, Presets, Role
from models.fields import Kind
from models.lifecycle import Status
from models.settings import Settings

VERSION = "0.1.0"
_DESCRIPTION = """Submit a task, get an id at once, poll until it ends, fetch the result.

`Idempotency-Key` makes a submit safe to repeat: the same key and body never buy twice. A key is remembered for 30 days
after SUCCESS, 24 hours after FAILED, CANCELED or TIMEOUT and 48 hours while the task lives (the installation's settings
may say otherwise); its scope is the user, the `order_id` and the key. While polling send `If-None-Match` and obey
`Retry-After`. Errors are RFC 9457 problems: switch on `code`."""

_AUTH = (401, 403, 503)
_READ = (*_AUTH, 406)

TASK_ID: dict[str, object] = {
    "in": "path", "name": "task_id", "required": True, "description": "the task's id",
    "schema": {"type": "string"}, "example": examples.TASK_ID,
}  # fmt: skip
MODEL_ID: dict[str, object] = {
    "in": "path", "name": "model", "required": True, "description": "the model's name",
    "schema": {"type": "string"}, "example": "sim-image",
}  # fmt: skip


def _query(name: str, doc: str, schema: Mapping[str, object], **more: object) -> dict[str, object]:
    return {"in": "query", "name": name, "description": doc, "required": False, "schema": dict(schema), **more}


def _header(doc: str, type_: str = "string") -> dict[str, object]:
    return {"description": doc, "schema": {"type": type_}}


_WORD, _TIME = {"type": "string", "maxLength": 128}, {"type": "string", "format": "date-time"}
_LIST_QUERY = (
    _query("status", "repeatable", {"type": "array", "items": {"type": "string", "enum": list(map(str, Status))}},
           explode=True, style="form"),
    _query("type", "", {"type": "string", "enum": list(map(str, Kind))}),
    _query("model", "", _WORD),
    _query("provider", "", _WORD),
    _query("order_id", "", _WORD),
    _query("created_after", "that time or later", _TIME),
    _query("created_before", "before that time", _TIME),
    _query("limit", "tasks of a page", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
    _query("cursor", "`next_cursor` of the page before", {"type": "string"}),
)  # fmt: skip
_SIGNED = _query("signed", "1: each output also has a link that needs no key", {"type": "string", "enum": ["0", "1"]})
_IF_NONE_MATCH = {
    "in": "header", "name": "If-None-Match", "required": False, "schema": {"type": "string"},
    "description": "the `ETag` of the last answer: 304 when nothing changed",
}  # fmt: skip
_IDEMPOTENCY_KEY = {
    "in": "header", "name": "Idempotency-Key", "required": False, "schema": {"type": "string"},
    "description": "1 to 255 visible ASCII characters, bare or as a Structured Field String",
}  # fmt: skip
_RETRY = {"Retry-After": _header("seconds until asking again is worth it; absent when final", "integer")}
_ETAG = {"ETag": _header("weak; changes with the task")}
_RATE = {"RateLimit": _header("what is left"), "RateLimit-Policy": _header("of what")}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One documented answer: a schema, or a media type of bytes, or neither (no body)."""

    doc: str
    schema: type[ma.Schema] | None = None
    bytes_of: tuple[str, ...] = ()
    headers: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One line of the table. `problems` are statuses; `open_` needs no key."""

    summary: str
    answers: Mapping[int, Answer]
    problems: Sequence[int] = _READ
    parameters: Sequence[Mapping[str, object]] = ()
    method: str = "GET"
    scope: str | None = None
    takes_body: bool = False
    open_: bool = False


_TASK_MADE = {"Location": _header("the task"), "Idempotent-Replayed": _header("true: nothing new was made"), **_RATE}
_BYTES = ("image/png", "image/jpeg", "image/webp", "video/mp4", "application/octet-stream")
_FILE_HEADERS = {"ETag": _header("the SHA-256 of the bytes"), "Accept-Ranges": _header("bytes")}

OPERATIONS: Mapping[str, Operation] = {
    "createTask": Operation(
        summary="Submit a task",
        method="POST",
        scope="tasks:write",
        takes_body=True,
        parameters=(_IDEMPOTENCY_KEY,),
        answers={
            202: Answer(doc="accepted, or a live task replayed", schema=answers.Task, headers={**_TASK_MADE, **_RETRY}),
            200: Answer(doc="an ended task, replayed", schema=answers.Task, headers=_TASK_MADE),
        },
        problems=(400, 401, 403, 406, 409, 413, 415, 422, 429, 503),
    ),
    "previewTask": Operation(
        summary="Say what a submit would do, and do nothing",
        method="POST",
        scope="tasks:write",
        takes_body=True,
        answers={200: Answer(doc="what would be sent where, and at what price", schema=answers_preview.Preview)},
        problems=(400, 401, 403, 406, 413, 415, 422, 429, 503),
    ),
    "listTasks": Operation(
        summary="List tasks",
        scope="tasks:read",
        parameters=_LIST_QUERY,
        answers={200: Answer(doc="one page", schema=answers.TaskList, headers={"Link": _header('rel="next"')})},
        problems=(400, *_READ, 422),
    ),
    "getTask": Operation(
        summary="Get a task",
        scope="tasks:read",
        parameters=(_SIGNED, _IF_NONE_MATCH),
        answers={
            200: Answer(doc="the task, also a failed one", schema=answers.Task, headers={**_RETRY, **_ETAG}),
            304: Answer(doc="nothing changed", headers={**_RETRY, **_ETAG}),
        },
        problems=(*_READ, 404, 422),
    ),
    "cancelTask": Operation(
        summary="Cancel a task",
        method="DELETE",
        scope="tasks:write",
        answers={
            200: Answer(doc="canceled", schema=answers.Task),
            202: Answer(doc="the provider will be asked", schema=answers.Task, headers=_RETRY),
        },
        problems=(*_READ, 404, 409),
    ),
    "getTaskHistory": Operation(
        summary="Get everything that happened to a task",
        scope="tasks:read",
        answers={200: Answer(doc="transitions and upstream calls", schema=answers.History)},
        problems=(*_READ, 404),
    ),
    "getTaskOutput": Operation(
        summary="Get the bytes of one output",
        scope="tasks:read",
        answers={
            200: Answer(doc="the bytes", bytes_of=_BYTES, headers=_FILE_HEADERS),
            206: Answer(doc="the part that `Range` asked for", bytes_of=_BYTES, headers=_FILE_HEADERS),
            302: Answer(doc="a link that ends soon", headers={"Location": _header("where the bytes are")}),
            304: Answer(doc="nothing changed", headers=_FILE_HEADERS),
        },
        problems=(*_AUTH, 404, 409, 410, 416),
    ),
    "getFile": Operation(
        summary="Get the bytes a signed link is for",
        open_=True,
        answers={
            200: Answer(doc="the bytes", bytes_of=_BYTES, headers=_FILE_HEADERS),
            206: Answer(doc="the part that `Range` asked for", bytes_of=_BYTES, headers=_FILE_HEADERS),
            304: Answer(doc="nothing changed", headers=_FILE_HEADERS),
        },
        problems=(404, 410, 416, 503),
    ),
    "listModels": Operation(summary="List models", answers={200: Answer(doc="all", schema=answers.ModelList)}),
    "getModel": Operation(
        summary="Get a model with its bounds",
        answers={200: Answer(doc="the model", schema=answers.Model)},
        problems=(*_READ, 404),
    ),
    "listPresets": Operation(
        summary="List presets", answers={200: Answer(doc="by family and name, as configured", schema=ma.Schema)}
    ),
    "listProviders": Operation(
        summary="List providers", answers={200: Answer(doc="all", schema=answers_providers.ProviderList)}
    ),
    "getStatus": Operation(
        summary="How the installation is doing", answers={200: Answer(doc="now", schema=answers.State)}
    ),
    "getUsage": Operation(
        summary="The caller's own cost per day, model and provider",
        scope="usage:read",
        parameters=(_query("days", "how far back", {"type": "integer", "minimum": 1, "maximum": 90, "default": 30}),),
        answers={200: Answer(doc="newest day first", schema=answers.Usage)},
        problems=(*_READ, 422),
    ),
    "livez": Operation(
        summary="Whether the process answers",
        open_=True,
        answers={200: Answer(doc="it does", schema=answers.Health)},
        problems=(),
    ),
    "readyz": Operation(
        summary="Whether the process can serve",
        open_=True,
        answers={
            200: Answer(doc="it can", schema=answers.Health),
            503: Answer(doc="it cannot", schema=answers.Health),
        },
        problems=(),
    ),
}


F = TypeVar("F", bound=Callable[..., flask.Response])


def section(name: str, doc: str, prefix: str | None = None) -> flask.Blueprint:
    """A group of routes that the document has as a tag."""
    made: flask.Blueprint = Blueprint(name, name, url_prefix=prefix, description=doc)
    return made


def serves(group: flask.Blueprint, rule: str, name: str, *places: Mapping[str, object]) -> Callable[[F], F]:
    """Decorator: the view serves operation `name` of the table at `rule`; `places` are its path parameters."""
    row, blp = OPERATIONS[name], group
    assert isinstance(blp, Blueprint)

    def register(view: F) -> F:
        documented = blp.doc(**operation(name))(view)
        blp.route(rule, methods=[row.method], endpoint=name, parameters=[dict(place) for place in places])(documented)
        return view

    return register


def operation(name: str) -> dict[str, Any]:
    """One line of the table as OpenAPI has it."""
    row = OPERATIONS[name]
    responses: dict[int, object] = {
        status: _response(answer, examples.ANSWERS.get((name, status))) for status, answer in row.answers.items()
    }
    responses |= {status: f"Problem{status}" for status in (*row.problems, 500)}
    doc: dict[str, Any] = {
        "operationId": name,
        "summary": row.summary,
        "description": f"Needs the scope `{row.scope}`." if row.scope else "",
        "parameters": [dict(parameter) for parameter in row.parameters],
        "responses": responses,
    }
    if row.takes_body:
        schema = {"$ref": "#/components/schemas/TaskRequest"}
        content = {"application/json": {"schema": schema, "example": examples.REQUEST}}
        doc["requestBody"] = {"required": True, "content": content}
    if row.open_:
        doc["security"] = []
    return doc


def _response(answer: Answer, example: Mapping[str, object] | None) -> dict[str, object]:
    found: dict[str, object] = {"description": answer.doc}
    if answer.schema is not None:
        schema: object = {"type": "object"} if answer.schema is ma.Schema else answer.schema
        found["content"] = {"application/json": {"schema": schema, "example": example}}
    if answer.bytes_of:
        found["content"] = {kind: {} for kind in answer.bytes_of}
    known = {"X-Request-Id": _header("yours if it was usable, else ours"), **answer.headers}
    found["headers"] = known
    return found


class WeirApi(Api):  # type: ignore[misc]  # flask-smorest ships no types
    """flask-smorest with our problems instead of its own error shape."""

    DEFAULT_ERROR_RESPONSE_NAME = None  # each operation lists its own

    def _register_responses(self) -> None:
        for status in sorted({entry.status for entry in CATALOGUE.values()}):
            slugs = [slug for slug, entry in CATALOGUE.items() if entry.status == status]
            listed = "; ".join(f"`{slug}`: {CATALOGUE[slug].when}" for slug in slugs)
            content = {MEDIA_TYPE: {"schema": answers.Problem, "example": body_of(slugs[0], CATALOGUE[slugs[0]].when)}}
            self.spec.components.response(f"Problem{status}", {"description": listed, "content": content}, lazy=True)

    handle_http_exception = staticmethod(from_http)  # keeps the exception's own headers


def configure(settings: Settings) -> dict[str, object]:
    """What flask-smorest reads from the app's configuration."""
    return {
        "API_TITLE": "Weir",
        "API_VERSION": VERSION,
        "OPENAPI_VERSION": "3.1.0",
        "API_SPEC_OPTIONS": {
            "info": {"description": _DESCRIPTION, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
            "servers": [{"url": settings.server.public_url or "/"}],
            "security": [{"bearerAuth": []}, {"apiKeyHeader": []}],
        },
    }


def describe(api: WeirApi, settings: Settings, presets: Presets) -> None:
    """Add what is known only with the settings: the request's schema and how to authenticate."""
    components = api.spec.components
    components.security_scheme("bearerAuth", {"type": "http", "scheme": "bearer"})
    components.security_scheme("apiKeyHeader", {"type": "apiKey", "in": "header", "name": "X-Api-Key"})
    components.schema("TaskRequest", task_request(settings, presets))


def task_request(settings: Settings, presets: Presets) -> dict[str, object]:
    """JSON Schema of a POST body, whatever the model; GET /v1/models narrows it."""
    properties = {name: _property(spec) for name, spec in {**FIELDS, **OPTIONS, **envelope(settings)}.items()}
    for name in OPTIONS:
        properties[name]["enum"] = [*presets.family(name), None]
    properties["callback_url"] = {"type": "null", "description": properties["callback_url"]["description"]}
    properties["idempotency_key"] |= {"pattern": "^[!-~]{1,255}$", "minLength": 1, "maxLength": 255}
    properties["metadata"] |= {
        "maxProperties": METADATA_PAIRS,
        "propertyNames": {"minLength": 1, "maxLength": METADATA_KEY_MAX},
        "additionalProperties": {"type": "string", "maxLength": METADATA_VALUE_MAX},
    }
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name, spec in FIELDS.items() if spec.required],
        "additionalProperties": False,
        "examples": [examples.REQUEST],
    }


def _property(spec: FieldSpec) -> dict[str, Any]:
    """One row as a schema. null is as good as absent where the field may be absent."""
    found: dict[str, Any] = {"type": spec.type if spec.required else [spec.type, "null"], "description": spec.doc}
    if spec.choices is not None and spec.format != "sampler":
        found["enum"] = [*map(str, spec.choices), *([] if spec.required else [None])]
    for name, bound in (("minimum", spec.minimum), ("maximum", spec.maximum)):
        if bound is not None:
            found[name] = whole(bound)
    if spec.max_length is not None:
        found["maxLength"] = spec.max_length
    if spec.role is Role.PROMPT:
        found["minLength"] = 1
    if spec.default is not None:
        found["default"] = spec.default
    return found
