"""PURE  Tables of a configuration file into frozen dataclasses, with every fault named at once.

A field's metadata says what is allowed: `min` and `max` of a number, `choices` of a text. A fault is one line: the
key's full path, what it must be, what it is, and for an unknown key the likely one.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping


def suggest(word: str, known: typing.Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known word, or the empty string."""
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def build(cls: type, table: Mapping[str, object], path: str, errors: list[str]) -> object:
    """An instance of dataclass `cls` from `table`, found at `path`; faults are added to `errors`.

    After a fault the result is of no use but for finding more of them. The field `env` is not a key.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.name != "env"}
    values: dict[str, object] = {}
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        if key not in fields:
            errors.append(f"{where}: unknown key{suggest(key, fields)}")
            continue
        values[key] = _value(hints[key], value, where, errors, fields[key].metadata)
    return cls(**values)


def _value(hint: typing.Any, value: object, where: str, errors: list[str], meta: Mapping[str, object]) -> object:  # noqa: ANN401  a type
    origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _table(hint, value, where, errors)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(typing.get_args(hint)[1], value, where, errors)
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        if not isinstance(value, list):
            errors.append(f"{where}: must be a list, is {value!r}")
            return ()
        return tuple(_value(inner, v, f"{where}[{i}]", errors, {}) for i, v in enumerate(value))
    return _scalar(hint, value, where, errors, meta)


def _mapping(inner: typing.Any, value: object, where: str, errors: list[str]) -> object:  # noqa: ANN401  a type
    if not isinstance(value, dict):
        errors.append(f"{where}: must be a table, is {value!r}")
        return {}
    if not (dataclasses.is_dataclass(inner) and isinstance(inner, type)):
        return value
    return {key: _table(inner, row, f"{where}.{key}", errors) for key, row in value.items()}


def _table(cls: type, value: object, where: str, errors: list[str]) -> object:
    if not isinstance(value, dict):
        errors.append(f"{where}: must be a table, is {value!r}")
        return cls()
    return build(cls, value, where, errors)


def _scalar(hint: type, value: object, where: str, errors: list[str], meta: Mapping[str, object]) -> object:
    wanted: type | types.UnionType = int | float if hint is float else hint
    if not isinstance(value, wanted) or (isinstance(value, bool) and hint is not bool):
        errors.append(f"{where}: must be {hint.__name__}, is {value!r}")
        return value
    lo, hi = meta.get("min"), meta.get("max")
    if lo is not None and hi is not None and not lo <= value <= hi:  # type: ignore[operator]
        errors.append(f"{where}: must be between {lo:,} and {hi:,}, is {value!r}")
    choices = meta.get("choices") or ()
    if choices and value not in choices:  # type: ignore[operator]
        errors.append(f"{where}: must be one of {', '.join(choices)}, is {value!r}")  # type: ignore[arg-type]
    return value
