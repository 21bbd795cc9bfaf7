"""PURE  One value against one row: types, ranges, lengths, lists. Nothing is converted.

The same functions serve the contract's own rows and a model's narrower ones.

Invariant: no text of a prompt or a link is ever in a fault; a word that a list does not have is not
repeated either.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping

from models.fields import FIELDS, OPTIONS, FieldError, FieldSpec, Kind, Role, in_order, pointer
from models.samplers import parse_sampler

_REFERENCE = re.compile(
    r"https?://[^\s/]\S*|file_[0-9A-Za-z_-]{1,80}|data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=_-]+", re.IGNORECASE
)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_A_TYPE = {"string": "a string", "integer": "an integer", "number": "a number", "boolean": "true or false"}


def check_types(kind: Kind, asked: Mapping[str, object]) -> tuple[FieldError, ...]:
    """All that is wrong with `asked` whatever the model, sorted by pointer, at most 50; or ().

    `asked` holds the parameters and options of a flat request and nothing else. null counts as
    absent.
    """
    return check_fields(kind, asked, {**FIELDS, **OPTIONS})


def check_fields(kind: Kind, asked: Mapping[str, object], specs: Mapping[str, FieldSpec]) -> tuple[FieldError, ...]:
    """As `check_types`, by rows of the caller's choosing: `specs` names every field there is."""
    errors = [
        FieldError(pointer=pointer(spec.name), code="required", detail="is required", allowed=allowed(spec))
        for spec in specs.values()
        if spec.required and kind in spec.kinds and spec.name not in asked
    ]
    errors += [found for name, value in asked.items() if (found := _check_field(kind, name, value, specs))]
    return in_order(errors)


def _check_field(kind: Kind, name: str, value: object, specs: Mapping[str, FieldSpec]) -> FieldError | None:
    spec = specs.get(name)
    if spec is None:
        close = difflib.get_close_matches(name[:64], specs, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return FieldError(pointer=pointer(name), code="unknown_field", detail=f"there is no such field{hint}")
    if value is None:
        if not spec.required:
            return None
        return FieldError(
            pointer=pointer(name), code="null_not_allowed", detail="must not be null", allowed=allowed(spec)
        )
    if kind not in spec.kinds:
        other = next(iter(spec.kinds))
        detail = f"belongs to {other} tasks; this is {'an' if kind is Kind.IMAGE else 'a'} {kind} task"
        return FieldError(pointer=pointer(name), code="inconsistent", detail=detail)
    return check_value(spec, value)


def check_value(spec: FieldSpec, value: object) -> FieldError | None:
    """What is wrong with `value` (not None) as a value of `spec`, or None."""
    if not _is_a(spec.type, value):
        return _error(spec, "invalid_type", f"must be {_A_TYPE[spec.type]}")
    if isinstance(value, str):
        return _check_text(spec, value)
    if isinstance(value, bool):
        return None
    assert isinstance(value, int | float)
    return _check_number(spec, value)


def _is_a(wanted: str, value: object) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "number":
        return isinstance(value, int | float)
    return isinstance(value, {"string": str, "integer": int}.get(wanted, bool))


def _check_text(spec: FieldSpec, value: str) -> FieldError | None:
    if _UNSTORABLE.search(value):
        return _error(spec, "invalid_format", "must not contain U+0000 or half of a surrogate pair")
    if spec.max_length is not None and len(value) > spec.max_length:
        return _error(spec, "too_long", f"must have at most {spec.max_length} characters, has {len(value)}")
    if spec.role is Role.PROMPT and not value.strip():
        return _error(spec, "invalid_format", "must not be blank")
    if spec.format == "reference" and not _REFERENCE.fullmatch(value):
        return _error(spec, "invalid_format", "must be an http or https URL, a file_... id or data:image/...;base64,")
    if spec.choices is None or value in spec.choices or (spec.format == "sampler" and _is_sampler(value)):
        return None
    names = [str(choice) for choice in spec.choices]
    close = difflib.get_close_matches(value.lower(), names, n=3)
    return _error(spec, "not_one_of", f"must be one of {', '.join(names) or 'nothing: none is configured'}", close)


def _is_sampler(value: str) -> bool:
    try:
        parse_sampler(value)
    except ValueError:
        return False
    return True


def _check_number(spec: FieldSpec, value: float) -> FieldError | None:
    low, high = spec.minimum, spec.maximum
    if not abs(value) < math.inf:  # true of NaN as well; math.isfinite fails on a huge int
        return _error(spec, "out_of_range", "must be a finite number")
    if spec.choices is not None:
        numbers: list[int] = sorted(number for number in spec.choices if not isinstance(number, str))
        if value in numbers:
            return None
        close = sorted(sorted(numbers, key=lambda number: abs(number - value))[:2])
        return _error(spec, "not_one_of", f"must be one of {', '.join(map(str, numbers))}", close)
    if low is not None and value < low:
        return _error(spec, "out_of_range", f"must be {_span(spec)}", [whole(low)])
    if high is not None and value > high:
        return _error(spec, "out_of_range", f"must be {_span(spec)}", [whole(high)])
    return None


def _span(spec: FieldSpec) -> str:
    low, high = spec.minimum, spec.maximum
    unit = f" {spec.unit}" if spec.unit else ""
    if high is None:
        return f"at least {whole(low or 0)}{unit}"
    if low == high:
        return f"{whole(high)}{unit}"
    return f"between {whole(low or 0)} and {whole(high)}{unit}"


def whole(number: float) -> float:
    """`number` as an int where it is one, so that a bound reads 64 and not 64.0."""
    return int(number) if float(number).is_integer() else number


def allowed(spec: FieldSpec) -> dict[str, object]:
    """What a field may be, as data for a machine: the `allowed` of a FieldError."""
    found: dict[str, object] = {"type": spec.type}
    if spec.choices is not None:
        return found | {"values": list(spec.choices)}
    if spec.minimum is not None:
        found["min"] = whole(spec.minimum)
    if spec.maximum is not None:
        found["max"] = whole(spec.maximum)
    if spec.step is not None:
        found["step"] = spec.step
    if spec.max_length is not None:
        found["max_length"] = spec.max_length
    return found


def _error(spec: FieldSpec, code: str, detail: str, nearest: Iterable[object] = ()) -> FieldError:
    return FieldError(
        pointer=pointer(spec.name), code=code, detail=detail, allowed=allowed(spec), nearest=list(nearest) or None
    )
