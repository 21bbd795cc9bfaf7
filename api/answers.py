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


def _said(doc: str, **more: object) -> dict[str, object]:
    return {"description": doc, **more}


def _text(doc: str = "", *, null: bool = False, **more: object) -> fields.String:
    return fields.String(required=True, allow_none=null, metadata=_said(doc, **more) if doc or more else {})


def _words(choices: type[Kind | Priority | Stage | Status], doc: str, *, null: bool = False) -> fields.String:
    listed = [str(choice) for choice in choices]
    return fields.String(required=True, allow_none=null, metadata=_said(doc, enum=[*listed, *([None] if null else [])]))


def _whole(doc: str = "", *, null: bool = False) -> fields.Integer:
    return fields.Integer(required=True, allow_none=null, metadata=_said(doc) if doc else {})


def _number(doc: str, *, null: bool = False) -> fields.Float:
    return fields.Float(required=True, allow_none=null, metadata=_said(doc))


def _truth(doc: str) -> fields.Boolean:
    return fields.Boolean(required=True, metadata=_said(doc))


def _time(doc: str, *, null: bool = False) -> fields.String:
    return _text(doc, null=null, format="date-time")


def _object(doc: str) -> fields.Dict:
    return fields.Dict(required=True, metadata=_said(doc))


def _list(schema: type[ma.Schema], doc: str) -> fields.List[Any]:
    return fields.List(fields.Nested(schema), required=True, metadata=_said(doc))


def _texts(doc: str) -> fields.List[Any]:
    return fields.List(fields.String(), required=True, metadata=_said(doc))


class ProblemError(Open):
    """One fault; exactly one of pointer, parameter and header."""

    pointer = fields.String(metadata=_said("JSON Pointer into the body, as a fragment"))
    parameter = fields.String(metadata=_said("name of a query parameter"))
    header = fields.String(metadata=_said("name of a header"))
    detail = _text("what is wrong, for people")
    code = _text("what is wrong, for programs")
    allowed = fields.Dict(metadata=_said("what the field may be: min, max, step, values, max_length ..."))
    nearest = fields.List(fields.Raw(), metadata=_said("legal values close to the one that was sent"))


class Problem(Open):
    """An RFC 9457 problem. Further members are listed with each type at /problems/<slug>."""

    type = _text("/problems/<slug>", format="uri-reference")
    title = _text("the same for every problem of this type")
    status = _whole("the HTTP status")
    detail = _text("this occurrence, for people")
    instance = _text("names this occurrence", format="uri-reference")
    code = _text("the slug with underscores: what programs switch on")
    request_id = _text("of X-Request-Id; the server's log has it too")
    errors = fields.List(fields.Nested(ProblemError), metadata=_said("every fault of the request"))


class Cost(Open):
    """Money, in millionths of the currency."""

    micros = _whole("0 until the task ended with a result")
    currency = _text("ISO 4217")


class Output(Open):
    """One delivered file."""

    url = _text("stable; needs the API key", format="uri-reference")
    media_type = _text(null=True)
    width = _whole("pixels, measured", null=True)
    height = _whole("pixels, measured", null=True)
    duration_s = _number("seconds, of videos", null=True)
    bytes = _whole(null=True)
    sha256 = _text("hex", null=True)
    seed = _whole("the seed it was made with", null=True)
    signed_url = fields.String(metadata=_said("works without a key until `signed_url_expires_at`; only with ?signed=1"))
    signed_url_expires_at = fields.String(metadata=_said("", format="date-time"))


class Adjustment(Open):
    """One way in which the effective values are not what was asked."""

    field = _text()
    code = _text("left_out, replaced, forced, clamped, coupled, size_moved, limit_lifted, no_effect")
    asked = fields.Raw(required=True, allow_none=True)
    effective = fields.Raw(required=True, allow_none=True)
    detail = _text()


class TaskError(Open):
    """Why a task ended without its result."""

    code = _text()
    message = _text(null=True)
    retryable = _truth("whether the same request may succeed with a new key")
    upstream_name = _text("the provider", null=True)
    upstream_code = _text("the vendor's own code", null=True)


class Missing(Open):
    """One output that did not come."""

    code = _text()
    message = _text(null=True)
    upstream_code = _text(null=True)
    billed = _truth("the vendor has made it, and bills it; it could not be brought home")


class Links(Open):
    """Where to go on."""

    self = _text(format="uri-reference")
    history = _text(format="uri-reference")
    cancel = _text("DELETE this", format="uri-reference")


class Task(Open):
    """A task. What does not apply is null, never absent; further fields and status words may come."""

    task_id = _text(pattern=TASK_PATTERN)
    type = _words(Kind, "what is made")
    status = _words(Status, "PENDING and RUNNING are live; treat an unknown word as live")
    stage = _words(Stage, "where a RUNNING task is", null=True)
    version = _whole("rises with every transition")
    attempt = _whole("1, and one more for every restart by its idempotency key")
    reused = _truth("an earlier request with this idempotency key made it")
    model = _text()
    provider = _text()
    order_id = _text("yours")
    priority = _words(Priority, "yours")
    input = _object("the parameters as asked")
    effective = _object("the parameters as sent and priced, the seed included")
    adjustments = _list(Adjustment, "where the two differ, and why")
    progress = _number("0 to 1; null when the vendor gives none", null=True)
    queue_position = _whole("1: next in its provider's line", null=True)
    eta_s = _whole("seconds left of a RUNNING task, from how long others took; null when unknown", null=True)
    outputs = _list(Output, "what was delivered")
    partial_ = fields.Boolean(required=True, data_key="partial", metadata=_said("fewer outputs than asked"))
    missing = _list(Missing, "why")
    error = fields.Nested(TaskError, required=True, allow_none=True)
    cost = fields.Nested(Cost, required=True)
    upstream_call_count = _whole("submits that the vendor accepted, or may have accepted")
    risk = _truth("upstream money may have been spent without a result")
    retry_count = _whole("submits after the first")
    poll_count = _whole()
    failed_polls = _whole("unreadable answers in a row")
    last_error = _text("the last of them", null=True)
    created_at = _time("")
    started_at = _time("", null=True)
    finished_at = _time("", null=True)
    deadline_at = _time("when it ends as TIMEOUT")
    cancel_requested_at = _time("", null=True)
    metadata = fields.Dict(keys=fields.String(), values=fields.String(), required=True)
    links = fields.Nested(Links, required=True)


class TaskList(Open):
    """One page, newest first."""

    data = _list(Task, "")
    has_more = _truth("whether there are older ones")
    next_cursor = _text("send as `cursor` with the same filters", null=True)


class Event(Open):
    """One transition."""

    at = _time("")
    version = _whole()
    attempt = _whole()
    reason = _text()
    from_ = fields.String(required=True, allow_none=True, data_key="from")
    to = _text()
    stage = _text(null=True)
    detail = _object("")


class UpstreamCall(Open):
    """One call to the vendor."""

    at = _time("")
    ms = _whole("milliseconds")
    provider = _text()
    operation = _text("submit, observe, cancel, find, fetch")
    verdict = _text("ok, or a kind of failure")
    http_status = _whole(null=True)
    request_id = _text("the vendor's", null=True)
    error = _text(null=True)
    asked_about = _whole("how many tasks the call asked about")


class History(Open):
    """All that happened to a task, the latest 1000 lines of each kind."""

    task_id = _text()
    status = _words(Status, "")
    stage = _words(Stage, "", null=True)
    version = _whole()
    attempt = _whole()
    next_wake_at = _time("when somebody looks at it next", null=True)
    deadline_at = _time("")
    cost = fields.Nested(Cost, required=True)
    events = _list(Event, "")
    upstream_calls = _list(UpstreamCall, "")


class Price(Open):
    """What one unit costs."""

    micros = _whole()
    currency = _text()
    per = _text("image or second")


class Model(Open):
    """A model as callers name it."""

    model = _text()
    type = _words(Kind, "")
    title = _text()
    default = _truth("used when a request of its type names no model")
    available = _truth("a provider of it takes tasks")
    providers = _texts("in order of preference")
    price = fields.Nested(Price, required=True)
    parameters = _object("JSON Schema of its parameters, with its bounds; of the first provider")


class ModelList(Open):
    """Every model."""

    data = _list(Model, "")


class Circuit(Open):
    """The breaker of one operation of one provider."""

    state = _text("", enum=["closed", "open", "half_open"])
    since = _time("when it came to this state; null: closed for as long as is remembered", null=True)
    failure_rate = _number("share of the last minute's calls that failed, 0 to 1")
    calls = _whole("in the last minute")
    last_error = _text("kind of the last failure", null=True)
    next_probe_s = _number("seconds until one call is let through to see; null: closed", null=True)
    admits_percent = _whole("share of calls that may go; rises step by step after a recovery")


class Pause(Open):
    """What the vendor asked the whole fleet to wait."""

    paused_for_s = _number("seconds left; 0: none")
    why = _text("kind of the answer that asked for it", null=True)


class Credential(Open):
    """By the name of the variable it is in."""

    alias, why = _text("null: none is configured", null=True), _text("", null=True)
    state = _text("`out`: the vendor refuses it", enum=["in_use", "out", "unknown"])


class Condition(Open):
    """What the health probes say."""

    healthy = _truth("false: three probes in a row came to nothing, new tasks go elsewhere")
    misses = _whole("probes in a row that came to nothing")
    why = _text("kind of the last failure", null=True)


class Provider(Open):
    """One configured way to a vendor. `breaker`, `pause` and `health` are null while Redis is away."""

    provider = _text()
    adapter = _text()
    enabled = _truth("takes new tasks")
    models = _texts("that name it")
    in_flight = _whole("tasks RUNNING there")
    waiting = _whole("tasks PENDING for it")
    max_in_flight = _whole("the cap")
    breaker = fields.Dict(
        keys=fields.String(),
        values=fields.Nested(Circuit),
        required=True,
        allow_none=True,
        metadata=_said("by operation: submit_image, submit_video, observe, fetch"),
    )
    pause = fields.Nested(Pause, required=True, allow_none=True)
    credential = fields.Nested(Credential, required=True)
    credentials = _list(Credential, "the first, which is `credential`, and any more; a task stays with its own")
    health = fields.Nested(Condition, required=True, allow_none=True)


class ProviderList(Open):
    """Every provider."""

    data = _list(Provider, "")


class QueueState(Open):
    """The live tasks of one type."""

    type = _words(Kind, "")
    waiting = _whole()
    running = _whole()
    cap = _whole("most that may run at one moment")
    oldest_waiting_s = _number("seconds the longest has waited", null=True)


class Crew(Open):
    """Who takes from one queue. A worker that takes from several is counted at each."""

    queue = _text("")
    workers = _whole("processes that said within the last 30 s that they are there")
    slots = _whole("calls they make at one moment")


class State(Open):
    """How the installation is doing."""

    queues = _list(QueueState, "")
    workers = fields.List(
        fields.Nested(Crew), required=True, allow_none=True, metadata=_said("by queue; null: Redis is away")
    )
    running_cap = _whole("most tasks that may run at one moment, all types")
    live = _object("live tasks by status")
    ended_last_day = _object("tasks that ended in the last 24 hours, by status")
    sweep_age_s = _number("seconds since the sweep last ran; null: never", null=True)
    settings = _object("of the process that answers: loaded_at, refused_at (null: the file is as it was last read)")


class UsageLine(Open):
    """What ended on one UTC day."""

    day = _text(format="date")
    model = _text()
    provider = _text()
    currency = _text()
    tasks = _whole("ended")
    succeeded = _whole()
    outputs = _whole("delivered")
    cost_micros = _whole()
    at_risk = _whole("tasks whose upstream money may be lost")
    lost_micros = _whole("what those would have cost: the most that may be lost")
    replays = _whole("times a key was repeated and answered with its task")


class Usage(Open):
    """The caller's own usage, newest day first."""

    days = _whole("how far back")
    duplicate_rate = _number("replays as a share of all submissions, 0 to 1")
    data = _list(UsageLine, "")


class Check(Open):
    """One dependency."""

    status = _text("pass, warn or fail")
    ms = _whole("milliseconds it took")


class Health(Open):
    """Whether the process can serve."""

    status = _text("pass, warn or fail")
    checks = fields.Dict(keys=fields.String(), values=fields.Nested(Check))
