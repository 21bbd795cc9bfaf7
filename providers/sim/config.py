"""The simulator's settings: how long jobs take, what is limited, how links behave.

May not know HTTP, jobs or dialects. Invariant: a `Config` that exists has been checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

_DAY_S = 86_400.0
_LONGEST_S = 7 * _DAY_S


class BadSettingError(ValueError):
    """A setting of the simulator is unknown or out of range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one key may do; None means no limit. Above a limit the answer is HTTP 429."""

    queries_per_s: float | None = None
    """Queries, lists and cancels, each counted by itself, in any second. At least 1."""
    submits_per_s: float | None = None
    """Submits in any second. At least 1."""
    in_flight: int | None = None
    """Jobs of one key that have not ended."""
    retry_after_s: float | None = None
    """Sent as `Retry-After` with each 429 of a limit; None leaves the header out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be set, by constructor or by `POST /_sim/config`."""

    image_s: tuple[float, float] = (2.0, 4.0)
    """Seconds a picture takes, lowest and highest; the job's prompt and seed decide where."""
    video_s: tuple[float, float] = (4.0, 6.0)
    """Seconds a clip takes, lowest and highest."""
    pending_share: float = 0.2
    """Part of that time that a job spends PENDING, 0..1."""
    link_ttl_s: float = _DAY_S
    """Seconds a result link lives after the job has ended."""
    link_token_chars: int = 0
    """Length of an extra `security-token` in each link: real signed links exceed 1,000 signs."""
    job_ttl_s: float = _DAY_S
    """Seconds after which a job's record is gone (its id is then unknown)."""
    keep_jobs: int = 200_000
    """Jobs kept in memory; the oldest goes first."""
    share_media: bool = False
    """One picture and one clip per size for every job: load tests must not pay for rendering."""
    limits: Limits = Limits()

    def changed(self, wanted: Mapping[str, object]) -> Config:
        """Return a copy with `wanted` settings, `limits` merged field by field.

        Raises BadSettingError naming the setting, the value and what is allowed.
        """
        known = {f.name for f in fields(self)}
        new: dict[str, object] = {}
        for name, value in wanted.items():
            if name not in known:
                raise BadSettingError(_unknown("setting", name, known))
            new[name] = _limits(self.limits, value) if name == "limits" else _value(name, value)
        return replace(self, **new)  # type: ignore[arg-type]  # each value was checked above

    def as_json(self) -> dict[str, object]:
        """Return the settings as JSON values."""
        return asdict(self)


def _unknown(what: str, name: str, known: set[str]) -> str:
    return f"unknown {what} {name!r}; allowed: {', '.join(sorted(known))}"


def _number(value: object, low: float, high: float) -> float | None:
    """Return `value` as a number in [low, high], or None. Booleans are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if low <= value <= high else None


# name -> lowest, highest. What is not here is a range of seconds or a flag.
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "pending_share": (0, 1),
    "link_ttl_s": (0, _LONGEST_S),
    "link_token_chars": (0, 8_000),
    "job_ttl_s": (0, _LONGEST_S),
    "keep_jobs": (1, 10_000_000),
}
_WHOLE = frozenset({"link_token_chars", "keep_jobs", "in_flight"})
_LIMIT_BOUNDS: Mapping[str, tuple[float, float]] = {
    "queries_per_s": (1, 1_000_000),
    "submits_per_s": (1, 1_000_000),
    "in_flight": (0, 1_000_000),
    "retry_after_s": (0, 86_400),
}


def _value(name: str, value: object) -> object:
    if name in _BOUNDS:
        return _bounded(name, value, _BOUNDS[name])
    if name == "share_media":
        if isinstance(value, bool):
            return value
        message = f"{name} is {value!r}; allowed: true, false"
        raise BadSettingError(message)
    if isinstance(value, list | tuple) and len(value) == 2:
        low, high = (_number(part, 0, _LONGEST_S) for part in value)
        if low is not None and high is not None and low <= high:
            return (float(low), float(high))
    message = f"{name} is {value!r}; allowed: [lowest, highest] in seconds, 0 and up"
    raise BadSettingError(message)


def _bounded(name: str, value: object, bounds: tuple[float, float]) -> float:
    number = _number(value, *bounds)
    if number is None or (name in _WHOLE and number != int(number)):
        kind = "whole number" if name in _WHOLE else "number"
        message = f"{name} is {value!r}; allowed: a {kind} from {bounds[0]:g} to {bounds[1]:g}"
        raise BadSettingError(message)
    return int(number) if name in _WHOLE else float(number)


def _limits(old: Limits, value: object) -> Limits:
    if not isinstance(value, Mapping):
        message = f"limits is {value!r}; allowed: an object with {', '.join(_LIMIT_BOUNDS)}"
        raise BadSettingError(message)
    new: dict[str, float | None] = {}
    for name, limit in value.items():
        if name not in _LIMIT_BOUNDS:
            raise BadSettingError(_unknown("limit", str(name), set(_LIMIT_BOUNDS)))
        new[name] = None if limit is None else _bounded(name, limit, _LIMIT_BOUNDS[name])
    return replace(old, **new)  # type: ignore[arg-type]  # each value was checked above
