"""A request body -> Wanted: everything a new task's row needs, or every fault at once.

The fields around the parameters (type, model, order_id ...) are rows of the same kind as the parameters' own
(models.fields), so that one check serves all of a flat body and a suggestion for a misspelt name knows all names.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from api import routing
from api.errors import Problem, invalid
from api.parts import Parts
from models.checks import check_fields, check_types
from models.contract import FIELDS, OPTIONS, FieldError, FieldSpec, Invalid, Kind, Priority, Role, resolve
from models.fields import in_order, pointer
from models.settings import ModelSettings, Settings
from tasks.runtime import draw

ORDER_ID_MAX = 128
METADATA_PAIRS, METADATA_KEY_MAX, METADATA_VALUE_MAX = 16, 40, 500
DEADLINE_MIN_S = 5
_NAME_MAX = 128

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")
_PRIORITIES = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}
PRIORITY_NAMES = {number: str(name) for name, number in _PRIORITIES.items()}


def _row(name: str, type_: str, doc: str, **more: object) -> FieldSpec:
    row = FieldSpec(name=name, kinds=frozenset(Kind), type=type_, role=Role.MAKING, doc=doc)
    return dataclasses.replace(row, **more)  # type: ignore[arg-type]  # the names are FieldSpec's


def envelope(settings: Settings) -> Mapping[str, FieldSpec]:
    """The fields of a body that are not parameters. `metadata` is a row too, for its name; its check is its own."""
    longest = settings.deadlines.max_s
    rows = (
        _row("type", "string", "what to make", choices=tuple(Kind), default="image"),
        _row("model", "string", "one of GET /v1/models; absent: the default of the type", max_length=_NAME_MAX),
        _row("provider", "string", "only this provider, out of those of the model", max_length=_NAME_MAX),
        _row(
            "order_id",
            "string",
            "your business order; part of the scope of an idempotency key; no control characters",
            max_length=ORDER_ID_MAX,
            default="",
        ),
        _row(
            "priority", "string", "among your own and others' waiting tasks", choices=tuple(Priority), default="normal"
        ),
        _row("callback_url", "string", "not supported yet: must be absent or null"),
        _row(
            "deadline_s",
            "integer",
            "seconds until the task ends as TIMEOUT: waiting, generating and fetching together",
            minimum=DEADLINE_MIN_S,
            maximum=longest,
            unit="s",
        ),
        _row("metadata", "object", "up to 16 pairs of strings: keys up to 40 characters, values up to 500"),
        _row("strict", "boolean", "true: refuse what would be left out or changed", default=False),
        _row("idempotency_key", "string", "the same as the header Idempotency-Key: 1 to 255 visible ASCII characters"),
    )
    return {row.name: row for row in rows}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A request that can be admitted; names and units as the columns of `tasks`.

    The last two are no columns: why this provider, and what stood for and against each (tasks.routing.told).
    """

    type: Kind
    model: str
    provider: str
    provider_model: str
    order_id: str
    priority: int
    input: Mapping[str, object]
    effective: Mapping[str, object]
    adjustments: Sequence[Mapping[str, object]]
    metadata: Mapping[str, str]
    deadline_s: int
    price_micros: int
    currency: str
    strict: bool
    pinned: bool
    why: str
    candidates: Sequence[Mapping[str, object]]


def wanted(
    body: Mapping[str, object],
    parts: Parts,
    only: Collection[str] | None = None,
    draw: Callable[[int, int], int] = draw,
) -> Wanted:
    """The task that a body asks for. `only`: the models that the caller's key may ask for, None: all.

    Raises Problem validation-error or unknown-model with every fault at once, model-not-allowed, capacity-exhausted.
    """
    models = _allowed(body, parts.settings, only)
    around = envelope(parts.settings)
    asked = {name: value for name, value in body.items() if name in FIELDS or name in OPTIONS}
    errors = list(_check_around({k: v for k, v in body.items() if k not in asked}, around))
    kind = _kind(body)
    if kind is None:
        raise invalid(in_order(errors))
    model = _model(body, kind, models, errors)
    unknown = any(error.pointer == "/model" and error.code == "not_one_of" for error in errors)
    choice = routing.choose(body.get("provider"), kind, model[1], parts) if model else routing.NOBODY
    if choice.stranger:
        errors.append(_fault("provider", "not_one_of", "does not serve this model", allowed={"values": choice.names}))
    bounds = parts.bounds(choice.route) if choice.route else None
    effective: Mapping[str, object] = {}
    adjustments: list[Mapping[str, object]] = []
    if bounds is None:
        errors += check_types(kind, asked)
    else:
        try:
            checked = resolve(kind, asked, bounds, parts.presets, strict=body.get("strict") is True, draw=draw)
            effective = checked.effective
            adjustments = [dataclasses.asdict(note) for note in checked.adjustments]
        except Invalid as exc:
            errors += exc.errors
    if errors:
        close = difflib.get_close_matches(str(body.get("model"))[:_NAME_MAX], models, n=3, cutoff=0.4)
        raise invalid(in_order(errors), close if unknown else None)
    assert model is not None  # else there is an error
    if choice.problem is not None:
        raise choice.problem
    assert choice.route is not None  # else there is a problem
    name, made = model
    return Wanted(
        type=kind,
        model=name,
        provider=choice.route.name,
        provider_model=choice.route.model,
        order_id=str(body.get("order_id") or ""),
        priority=_PRIORITIES[Priority(str(body.get("priority") or Priority.NORMAL))],
        input={k: v for k, v in asked.items() if v is not None},
        effective=effective,
        adjustments=adjustments,
        metadata=dict(body.get("metadata") or {}),  # type: ignore[call-overload]  # checked
        deadline_s=_deadline_s(body, kind, parts.settings),
        price_micros=made.price_of(choice.route),
        currency=made.currency,
        strict=body.get("strict") is True,
        pinned=body.get("provider") is not None,
        why=choice.why,
        candidates=choice.candidates,
    )


def _allowed(
    body: Mapping[str, object], settings: Settings, only: Collection[str] | None
) -> Mapping[str, ModelSettings]:
    """The models that a key may ask for. Raises Problem model-not-allowed for one that it may not."""
    if only is None:
        return settings.models
    models = {name: model for name, model in settings.models.items() if name in only}
    asked = body.get("model")
    if isinstance(asked, str) and asked in settings.models and asked not in models:
        raise Problem("model-not-allowed", f"This key may not ask for the model {asked}.", models=list(models))
    return models


def _check_around(given: Mapping[str, object], around: Mapping[str, FieldSpec]) -> list[FieldError]:
    """Faults of the fields that are not parameters, unknown names among them."""
    optional = {name: dataclasses.replace(spec, required=False) for name, spec in {**FIELDS, **OPTIONS}.items()}
    plain = {name: value for name, value in given.items() if name not in ("metadata", "callback_url")}
    errors = list(check_fields(Kind.IMAGE, plain, {**optional, **around}))
    order_id = given.get("order_id")
    if isinstance(order_id, str) and _CONTROL.search(order_id):
        errors.append(_fault("order_id", "invalid_format", "must not contain control characters"))
    if given.get("callback_url") is not None:
        detail = "callback_url is not supported yet: poll the task at `links.self` instead"
        errors.append(_fault("callback_url", "unknown_field", detail))
    return errors + _check_metadata(given.get("metadata"))


def _check_metadata(metadata: object) -> list[FieldError]:
    if metadata is None:
        return []
    if not isinstance(metadata, dict):
        return [_fault("metadata", "invalid_type", "must be an object of strings")]
    errors = []
    if len(metadata) > METADATA_PAIRS:
        errors.append(_fault("metadata", "too_long", f"must have at most {METADATA_PAIRS} pairs, has {len(metadata)}"))
    for key, value in list(metadata.items())[: METADATA_PAIRS + 1]:
        place = "/metadata" + pointer(key)
        if not 1 <= len(key) <= METADATA_KEY_MAX or _UNSTORABLE.search(key):
            detail = f"a key must have 1 to {METADATA_KEY_MAX} characters, none of them U+0000"
            errors.append(FieldError(pointer=place, code="invalid_format", detail=detail))
        if not isinstance(value, str):
            errors.append(FieldError(pointer=place, code="invalid_type", detail="must be a string"))
        elif len(value) > METADATA_VALUE_MAX:
            detail = f"must have at most {METADATA_VALUE_MAX} characters, has {len(value)}"
            errors.append(FieldError(pointer=place, code="too_long", detail=detail))
        elif _UNSTORABLE.search(value):
            errors.append(FieldError(pointer=place, code="invalid_format", detail="must not contain U+0000"))
    return errors


def _fault(name: str, code: str, detail: str, **more: object) -> FieldError:
    return FieldError(pointer=pointer(name), code=code, detail=detail, **more)  # type: ignore[arg-type]  # allowed, nearest


def _kind(body: Mapping[str, object]) -> Kind | None:
    """What is to be made; None when `type` is no type (its fault is noted by the check of the rows)."""
    value = body.get("type")
    if value is None:
        return Kind.IMAGE
    return Kind(value) if isinstance(value, str) and value in set(Kind) else None


def _model(
    body: Mapping[str, object], kind: Kind, models: Mapping[str, ModelSettings], errors: list[FieldError]
) -> tuple[str, ModelSettings] | None:
    """The model by its name, or the type's default; None with a fault noted, if there is no such or it is no name."""
    name = body.get("model")
    names = [n for n, m in models.items() if m.type == kind]
    if name is None:
        chosen = [(n, m) for n, m in models.items() if m.type == kind and m.default]
        if not chosen:
            lacks = f"there is no default model for {kind} tasks: name one" if names else _none_of(kind)
            errors.append(_fault("model", "required", lacks, allowed={"values": names}))
        return chosen[0] if chosen else None
    if not isinstance(name, str) or len(name) > _NAME_MAX:
        return None
    known = models.get(name)
    if known is None:
        lacks = "there is no such model" if names else _none_of(kind)
        errors.append(_fault("model", "not_one_of", lacks, allowed={"values": names}))
        return None
    if known.type != kind:
        detail = f"this model makes {known.type}s and the task's type is {kind}: set type to {known.type}"
        errors.append(_fault("model", "inconsistent", detail, allowed={"values": names}))
        return None
    return name, known


def _none_of(kind: Kind) -> str:
    return f"no model for {kind} tasks is configured here: the operator adds one under [models]"


def _deadline_s(body: Mapping[str, object], kind: Kind, settings: Settings) -> int:
    asked = body.get("deadline_s")
    if isinstance(asked, int):
        return asked
    return settings.deadlines.image_s if kind is Kind.IMAGE else settings.deadlines.video_s
