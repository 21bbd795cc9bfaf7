"""What GET /v1/providers answers, as schemas (see api.answers)."""

from __future__ import annotations

from marshmallow import fields

from api.answers import Open, listed, moment, number, said, text, texts, truth, whole


class Circuit(Open):
    """The breaker of one operation of one provider."""

    state = text("", enum=["closed", "open", "half_open"])
    since = moment("when it came to this state; null: closed for as long as is remembered", null=True)
    failure_rate = number("share of the last minute's calls that failed, 0 to 1")
    calls = whole("in the last minute")
    last_error = text("kind of the last failure", null=True)
    next_probe_s = number("seconds until one call is let through to see; null: closed", null=True)
    admits_percent = whole("share of calls that may go; rises step by step after a recovery")


class Pause(Open):
    """What the vendor asked the whole fleet to wait."""

    paused_for_s = number("seconds left; 0: none")
    why = text("kind of the answer that asked for it", null=True)


class Credential(Open):
    """By the name of the variable it is in."""

    alias, why = text("null: none is configured", null=True), text("", null=True)
    state = text("`out`: the vendor refuses it", enum=["in_use", "out", "unknown"])


class Condition(Open):
    """What the health probes say."""

    healthy = truth("false: three probes in a row came to nothing, new tasks go elsewhere")
    misses = whole("probes in a row that came to nothing")
    why = text("kind of the last failure", null=True)


class Provider(Open):
    """One configured way to a vendor. `breaker`, `pause` and `health` are null while Redis is away."""

    provider = text()
    adapter = text()
    enabled = truth("takes new tasks")
    models = texts("that name it")
    in_flight = whole("tasks RUNNING there")
    waiting = whole("tasks PENDING for it")
    max_in_flight = whole("the cap")
    breaker = fields.Dict(
        keys=fields.String(),
        values=fields.Nested(Circuit),
        required=True,
        allow_none=True,
        metadata=said("by operation: submit_image, submit_video, observe, fetch"),
    )
    pause = fields.Nested(Pause, required=True, allow_none=True)
    credential = fields.Nested(Credential, required=True)
    credentials = listed(Credential, "the first, which is `credential`, and any more; a task stays with its own")
    health = fields.Nested(Condition, required=True, allow_none=True)


class ProviderList(Open):
    """Every provider."""

    data = listed(Provider, "")
