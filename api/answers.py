"""What the API answers, as marshmallow schemas: the OpenAPI document is made from them, and a test holds them to it.

Bodies are written by shapes.py and not dumped through these: one place decides what is shown, this one describes it.
"""

from __future__ import annotations

from typing import Any

import marshmallow as ma
from marshmallow import fields

from models.fields import Kind, Priority
from models.lifecycle import Stage, Status

TASK_PATTERN = "^task_[0-7][0-9a-hjkmnp-tv-z]{25}$"


class Open(ma.Schema):
    """An answer to which fields may be added: clients ignore what they do not know."""

    class Meta:
        """Says so to the document's writer."""

        unknown = ma.INCLUDE


def said(doc: str, **more: object) -> dict[str, object]:
    """A field's description, with more of its JSON Schema."""
    return {"description": doc, **more}


def text(doc: str = "", *, null: bool = False, **more: object) -> fields.String:
    """A text; `null`: or null."""
    return fields.String(required=True, allow_none=null, metadata=said(doc, **more) if doc or more else {})


def words(choices: type[Kind | Priority | Stage | Status], doc: str, *, null: bool = False) -> fields.String:
    """One of an enumeration."""
    values = [str(choice) for choice in choices]
    return fields.String(required=True, allow_none=null, metadata=said(doc, enum=[*values, *([None] if null else [])]))


def whole(doc: str = "", *, null: bool = False) -> fields.Integer:
    """A whole number."""
    return fields.Integer(required=True, allow_none=null, metadata=said(doc) if doc else {})


def number(doc: str, *, null: bool = False) -> fields.Float:
    """A number."""
    return fields.Float(required=True, allow_none=null, metadata=said(doc))


def truth(doc: str) -> fields.Boolean:
    """True or false."""
    return fields.Boolean(required=True, metadata=said(doc))


def moment(doc: str, *, null: bool = False) -> fields.String:
    """An RFC 3339 time in UTC."""
    return text(doc, null=null, format="date-time")


def mapping(doc: str) -> fields.Dict:
    """An object of any keys."""
    return fields.Dict(required=True, metadata=said(doc))


def listed(schema: type[ma.Schema], doc: str) -> fields.List[Any]:
    """A list of objects."""
    return fields.List(fields.Nested(schema), required=True, metadata=said(doc))


def texts(doc: str) -> fields.List[Any]:
    """A list of texts."""
    return fields.List(fields.String(), required=True, metadata=said(doc))


class ProblemError(Open):
    """One fault; exactly one of pointer, parameter and header."""

    pointer = fields.String(metadata=said("JSON Pointer into the body, as a fragment"))
    parameter = fields.String(metadata=said("name of a query parameter"))
    header = fields.String(metadata=said("name of a header"))
    detail = text("what is wrong, for people")
    code = text("what is wrong, for programs")
    allowed = fields.Dict(metadata=said("what the field may be: min, max, step, values, max_length ..."))
    nearest = fields.List(fields.Raw(), metadata=said("legal values close to the one that was sent"))


class Problem(Open):
    """An RFC 9457 problem. Further members are listed with each type at /problems/<slug>."""

    type = text("/problems/<slug>", format="uri-reference")
    title = text("the same for every problem of this type")
    status = whole("the HTTP status")
    detail = text("this occurrence, for people")
    instance = text("names this occurrence", format="uri-reference")
    code = text("the slug with underscores: what programs switch on")
    request_id = text("of X-Request-Id; the server's log has it too")
    errors = fields.List(fields.Nested(ProblemError), metadata=said("every fault of the request"))


class Cost(Open):
    """Money, in millionths of the currency."""

    micros = whole("0 until the task ended with a result")
    currency = text("ISO 4217")


class Output(Open):
    """One delivered file."""

    url = text("stable; needs the API key", format="uri-reference")
    media_type = text(null=True)
    width = whole("pixels, measured", null=True)
    height = whole("pixels, measured", null=True)
    duration_s = number("seconds, of videos", null=True)
    bytes = whole(null=True)
    sha256 = text("hex", null=True)
    seed = whole("the seed it was made with", null=True)
    signed_url = fields.String(metadata=said("works without a key until `signed_url_expires_at`; only with ?signed=1"))
    signed_url_expires_at = fields.String(metadata=said("", format="date-time"))


class Adjustment(Open):
    """One way in which the effective values are not what was asked."""

    field = text()
    code = text("left_out, replaced, forced, clamped, coupled, size_moved, limit_lifted, no_effect")
    asked = fields.Raw(required=True, allow_none=True)
    effective = fields.Raw(required=True, allow_none=True)
    detail = text()


class TaskError(Open):
    """Why a task ended without its result."""

    code = text()
    message = text(null=True)
    retryable = truth("whether the same request may succeed with a new key")
    upstream_name = text("the provider", null=True)
    upstream_code = text("the vendor's own code", null=True)


class Missing(Open):
    """One output that did not come."""

    code = text()
    message = text(null=True)
    upstream_code = text(null=True)
    billed = truth("the vendor has made it, and bills it; it could not be brought home")


class Links(Open):
    """Where to go on."""

    self = text(format="uri-reference")
    history = text(format="uri-reference")
    cancel = text("DELETE this", format="uri-reference")


class Task(Open):
    """A task. What does not apply is null, never absent; further fields and status words may come."""

    task_id = text(pattern=TASK_PATTERN)
    type = words(Kind, "what is made")
    status = words(Status, "PENDING and RUNNING are live; treat an unknown word as live")
    stage = words(Stage, "where a RUNNING task is", null=True)
    version = whole("rises with every transition")
    attempt = whole("1, and one more for every restart by its idempotency key")
    reused = truth("an earlier request with this idempotency key made it")
    model = text()
    provider = text()
    order_id = text("yours")
    priority = words(Priority, "yours")
    input = mapping("the parameters as asked")
    effective = mapping("the parameters as sent and priced, the seed included")
    adjustments = listed(Adjustment, "where the two differ, and why")
    progress = number("0 to 1; null when the vendor gives none", null=True)
    queue_position = whole("1: next in its provider's line", null=True)
    eta_s = whole(
        "seconds until it is made, from how long others took and the line before it; null: unknown", null=True
    )
    outputs = listed(Output, "what was delivered")
    partial_ = fields.Boolean(required=True, data_key="partial", metadata=said("fewer outputs than asked"))
    missing = listed(Missing, "why")
    error = fields.Nested(TaskError, required=True, allow_none=True)
    cost = fields.Nested(Cost, required=True)
    upstream_call_count = whole("submits that the vendor accepted, or may have accepted")
    risk = truth("upstream money may have been spent without a result")
    retry_count = whole("submits after the first")
    poll_count = whole()
    failed_polls = whole("unreadable answers in a row")
    last_error = text("the last of them", null=True)
    created_at = moment("")
    started_at = moment("", null=True)
    finished_at = moment("", null=True)
    deadline_at = moment("when it ends as TIMEOUT")
    cancel_requested_at = moment("", null=True)
    metadata = fields.Dict(keys=fields.String(), values=fields.String(), required=True)
    links = fields.Nested(Links, required=True)


class TaskList(Open):
    """One page, newest first."""

    data = listed(Task, "")
    has_more = truth("whether there are older ones")
    next_cursor = text("send as `cursor` with the same filters", null=True)


class Event(Open):
    """One transition."""

    at = moment("")
    version = whole()
    attempt = whole()
    reason = text()
    from_ = fields.String(required=True, allow_none=True, data_key="from")
    to = text()
    stage = text(null=True)
    detail = mapping("")


class UpstreamCall(Open):
    """One call to the vendor."""

    at = moment("")
    ms = whole("milliseconds")
    provider = text()
    operation = text("submit, observe, cancel, find, fetch")
    verdict = text("ok, or a kind of failure")
    http_status = whole(null=True)
    request_id = text("the vendor's", null=True)
    error = text(null=True)
    asked_about = whole("how many tasks the call asked about")


class History(Open):
    """All that happened to a task, the latest 1000 lines of each kind."""

    task_id = text()
    status = words(Status, "")
    stage = words(Stage, "", null=True)
    version = whole()
    attempt = whole()
    next_wake_at = moment("when somebody looks at it next", null=True)
    deadline_at = moment("")
    cost = fields.Nested(Cost, required=True)
    events = listed(Event, "")
    upstream_calls = listed(UpstreamCall, "")


class Price(Open):
    """What one unit costs."""

    micros = whole()
    currency = text()
    per = text("image or second")


class Model(Open):
    """A model as callers name it."""

    model = text()
    type = words(Kind, "")
    title = text()
    default = truth("used when a request of its type names no model")
    available = truth("a provider of it takes tasks")
    providers = texts("in order of preference")
    price = fields.Nested(Price, required=True)
    parameters = mapping("JSON Schema of its parameters, with its bounds; of the first provider")


class ModelList(Open):
    """Every model."""

    data = listed(Model, "")


class QueueState(Open):
    """The live tasks of one type."""

    type = words(Kind, "")
    waiting = whole()
    running = whole()
    cap = whole("most that may run at one moment")
    oldest_waiting_s = number("seconds the longest has waited", null=True)


class Crew(Open):
    """Who takes from one queue. A worker that takes from several is counted at each."""

    queue = text("")
    workers = whole("processes that said within the last 30 s that they are there")
    slots = whole("calls they make at one moment")


class State(Open):
    """How the installation is doing."""

    queues = listed(QueueState, "")
    workers = fields.List(
        fields.Nested(Crew), required=True, allow_none=True, metadata=said("by queue; null: Redis is away")
    )
    running_cap = whole("most tasks that may run at one moment, all types")
    live = mapping("live tasks by status")
    ended_last_day = mapping("tasks that ended in the last 24 hours, by status")
    sweep_age_s = number("seconds since the sweep last ran; null: never", null=True)
    settings = mapping("of the process that answers: loaded_at, refused_at (null: the file is as it was last read)")


class UsageLine(Open):
    """What ended on one UTC day."""

    day = text(format="date")
    model = text()
    provider = text()
    currency = text()
    tasks = whole("ended")
    succeeded = whole()
    outputs = whole("delivered")
    cost_micros = whole()
    at_risk = whole("tasks whose upstream money may be lost")
    lost_micros = whole("what those would have cost: the most that may be lost")
    replays = whole("times a key was repeated and answered with its task")


class Usage(Open):
    """The caller's own usage, newest day first."""

    days = whole("how far back")
    duplicate_rate = number("replays as a share of all submissions, 0 to 1")
    data = listed(UsageLine, "")


class Check(Open):
    """One dependency."""

    status = text("pass, warn or fail")
    ms = whole("milliseconds it took")


class Health(Open):
    """Whether the process can serve."""

    status = text("pass, warn or fail")
    checks = fields.Dict(keys=fields.String(), values=fields.Nested(Check))
