"""What may go wrong with a call or a job, as a value that has been checked.

Knows nothing of HTTP, jobs or dialects. The package docstring explains every action; `ACTIONS` is
that list as data, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

OPERATIONS = ("submit", "query", "list", "cancel", "fetch")
WRONG_BYTES = ("html", "text", "png", "jpeg", "webp", "mp4", "empty")


class BadRuleError(ValueError):
    """A fault rule cannot be understood; the message names the part, the value, what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is done to one call, or to the job that a submit makes. The default does nothing."""

    latency_s: float = 0.0
    forget: bool = False
    reset: bool = False
    status: int | None = None
    code: str | None = None
    message: str | None = None
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    html: bool = False
    retry_after: str | None = None
    accepted: bool = False
    hold_s: float = 0.0
    lost_answer: str | None = None
    drip_s: float | None = None
    drip_bytes: int = 1
    cut_after: int | None = None
    half_json: bool = False
    status_word: str | None = None
    unknown_job: bool = False
    no_payload: bool = False
    stuck: str | None = None
    slow_s: float | None = None
    fail: str | None = None
    fail_message: str | None = None
    partial: int | None = None
    expired_link: bool = False
    redirect: str | None = None
    content_type: str | None = None
    wrong_bytes: str | None = None
    huge_bytes: int | None = None

    def over(self, other: Fault) -> Fault:
        """Return `other` with everything that is set here put over it."""
        if self is NO_FAULT:
            return other
        mine = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(other, **{k: v for k, v in mine.items() if v != getattr(NO_FAULT, k)})

    @property
    def replaces_answer(self) -> bool:
        """Whether another answer is given than the vendor's own."""
        return self.status is not None or self.html

    @property
    def spoils_file(self) -> bool:
        """Whether a download is changed by this."""
        return (
            self.expired_link
            or self.redirect is not None
            or self.content_type is not None
            or self.wrong_bytes is not None
            or self.huge_bytes is not None
        )


NO_FAULT = Fault()


@dataclass(frozen=True, slots=True)
class Action:
    """One key of `do`: which operations it makes sense for and which values it takes."""

    on: tuple[str, ...]
    allowed: str
    check: Callable[[object], bool]


def is_number(low: float, high: float) -> Callable[[object], bool]:
    """Return a check for numbers (no booleans) from `low` to `high`."""

    def check(value: object) -> bool:
        known = isinstance(value, int | float) and not isinstance(value, bool)
        return known and low <= value <= high  # type: ignore[operator]  # known to be a number

    return check


def is_whole(low: int, high: int) -> Callable[[object], bool]:
    """Return a check for whole numbers (no booleans) from `low` to `high`."""

    def check(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return check


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def is_text(value: object) -> bool:
    """Whether it is a text with at least one sign."""
    return isinstance(value, str) and value != ""


def is_one_of(*words: str) -> Callable[[object], bool]:
    """Return a check for any of `words`."""
    return lambda value: value in words


def _is_headers(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())


def _anything(_value: object) -> bool:
    return True


_SECONDS = "seconds, 0 to 3600"
_seconds = is_number(0, 3600)
_JOB = ("submit",)
_ANSWERED = ("submit", "query")
_FILE = ("submit", "fetch")

ACTIONS: Mapping[str, Action] = {
    "latency_s": Action(OPERATIONS, _SECONDS, _seconds),
    "forget": Action(OPERATIONS, "true, false", _is_flag),
    "reset": Action(OPERATIONS, "true, false", _is_flag),
    "status": Action(OPERATIONS, "an HTTP status, 200 to 599", is_whole(200, 599)),
    "code": Action(OPERATIONS, "the vendor's error code", is_text),
    "message": Action(OPERATIONS, "the vendor's error text", is_text),
    "body": Action(OPERATIONS, "a text, or any JSON value", _anything),
    "headers": Action(OPERATIONS, "an object of texts", _is_headers),
    "html": Action(OPERATIONS, "true, false", _is_flag),
    "retry_after": Action(OPERATIONS, "a text such as '2' or an HTTP date", is_text),
    "accepted": Action(("submit", "cancel"), "true, false", _is_flag),
    "hold_s": Action(OPERATIONS, _SECONDS, _seconds),
    "lost_answer": Action(OPERATIONS, "'reset', 'close'", is_one_of("reset", "close")),
    "drip_s": Action(OPERATIONS, "seconds between pieces, 0.001 to 60", is_number(0.001, 60)),
    "drip_bytes": Action(OPERATIONS, "bytes in a piece, 1 to 1000000", is_whole(1, 1_000_000)),
    "cut_after": Action(OPERATIONS, "bytes, 0 to 10^9", is_whole(0, 10**9)),
    "half_json": Action(OPERATIONS, "true, false", _is_flag),
    "status_word": Action(_ANSWERED, "any word", is_text),
    "unknown_job": Action(("query",), "true, false", _is_flag),
    "no_payload": Action(_ANSWERED, "true, false", _is_flag),
    "stuck": Action(_JOB, "'PENDING', 'RUNNING'", is_one_of("PENDING", "RUNNING")),
    "slow_s": Action(_JOB, _SECONDS, _seconds),
    "fail": Action(_JOB, "the vendor's error code", is_text),
    "fail_message": Action(_JOB, "the vendor's error text", is_text),
    "partial": Action(_JOB, "images that succeed, 0 to 100", is_whole(0, 100)),
    "expired_link": Action(_FILE, "true, false", _is_flag),
    "redirect": Action(_FILE, "a path or a URL", is_text),
    "content_type": Action(_FILE, "a media type", is_text),
    "wrong_bytes": Action(_FILE, ", ".join(map(repr, WRONG_BYTES)), is_one_of(*WRONG_BYTES)),
    "huge_bytes": Action(_FILE, "bytes, 1 to 10^12", is_whole(1, 10**12)),
}


def fault_from(do: Mapping[str, object], on: str = "any") -> Fault:
    """Check `do` for operation `on` ('any' for all) and make the fault of it. Raises BadRuleError."""
    for name, value in do.items():
        action = ACTIONS.get(name)
        if action is None:
            raise BadRuleError(unknown_part("do", name, ACTIONS))
        if on not in ("any", *action.on):
            message = f"do.{name} has no meaning on {on!r}; it is for: {', '.join(action.on)}"
            raise BadRuleError(message)
        if not action.check(value):
            message = f"do.{name} is {value!r}; allowed: {action.allowed}"
            raise BadRuleError(message)
    if "status" not in do:
        for name in ("code", "message", "body", "retry_after"):
            if name in do and not (name == "retry_after" and do.get("html")):
                message = f"do.{name} is {do[name]!r} without do.status; allowed: both or neither"
                raise BadRuleError(message)
    return Fault(**do)  # type: ignore[arg-type]  # every value was checked against its action


def unknown_part(where: str, name: object, known: Iterable[str]) -> str:
    """Return the sentence for a part that nobody knows."""
    return f"{where} has the unknown part {name!r}; allowed: {', '.join(known)}"
