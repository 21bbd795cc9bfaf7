"""What POST /v1/tasks/preview answers, as schemas (see api.answers)."""

from __future__ import annotations

from marshmallow import fields

from api.answers import Adjustment, Open, said
from models.fields import Kind


class PreviewPrice(Open):
    """Money, in millionths of the currency."""

    micros = fields.Integer(required=True, metadata=said("of the whole task, when everything that is asked for comes"))
    currency = fields.String(required=True, metadata=said("ISO 4217"))


class Candidate(Open):
    """One provider of the model, and why it would or would not make the task."""

    provider = fields.String(required=True)
    model = fields.String(required=True, metadata=said("the vendor's name of the model"))
    place = fields.Integer(required=True, metadata=said("in the order; those of one place share by weight or price"))
    weight = fields.Integer(required=True)
    price_micros = fields.Integer(required=True, metadata=said("per image, or per second of video"))
    chosen = fields.Boolean(required=True)
    reason = fields.String(required=True)


class Routing(Open):
    """Who would make it, and why."""

    why = fields.String(required=True)
    candidates = fields.List(fields.Nested(Candidate), required=True, metadata=said("in order of preference"))


class Preview(Open):
    """What a submit of this body would do now. Nothing was stored, and nothing is held for the caller."""

    type = fields.String(required=True, metadata=said("what is made", enum=list(map(str, Kind))))
    model = fields.String(required=True)
    provider = fields.String(required=True)
    provider_model = fields.String(required=True, metadata=said("the vendor's name of the model"))
    input = fields.Dict(required=True, metadata=said("the parameters as asked"))
    effective = fields.Dict(required=True, metadata=said("the parameters as they would be sent and priced"))
    drawn_at_submit = fields.List(
        fields.String(),
        required=True,
        metadata=said("parameters that are null in `effective`, since chance gives them when the task is submitted"),
    )
    adjustments = fields.List(fields.Nested(Adjustment), required=True, metadata=said("where the two differ, and why"))
    price = fields.Nested(PreviewPrice, required=True)
    deadline_s = fields.Integer(required=True, metadata=said("seconds the task would have"))
    routing = fields.Nested(Routing, required=True)
