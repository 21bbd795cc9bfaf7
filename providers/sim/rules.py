"""The script of faults: rules as a caller sends them, and the book that picks one per call.

Knows nothing of HTTP, jobs or dialects. Invariant: a rule strikes at most `times` times, also when
many threads ask at once.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from providers.sim.faults import (
    ACTIONS,
    NO_FAULT,
    OPERATIONS,
    BadRuleError,
    Fault,
    fault_from,
    is_number,
    is_one_of,
    is_text,
    is_whole,
    unknown_part,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subject:
    """What a call is about: the words that a rule's `match` is held against."""

    prompt: str = ""
    model: str = ""


@dataclass(slots=True, kw_only=True)
class Rule:
    """One line of the script, with its own counters."""

    on: str
    dialect: str | None
    prompt_contains: str | None
    model: str | None
    times: int | None
    after: int
    probability: float
    seed: int
    do: Mapping[str, object]
    fault: Fault
    seen: int = 0
    hits: int = 0
    dice: random.Random = field(default_factory=random.Random)

    @property
    def picky(self) -> bool:
        """Whether the subject of the call has to be known, which costs reading its body."""
        return self.prompt_contains is not None or self.model is not None

    def fits(self, subject: Subject) -> bool:
        """Whether this rule is about `subject`."""
        if self.model is not None and subject.model != self.model:
            return False
        return self.prompt_contains is None or self.prompt_contains in subject.prompt

    def strikes(self) -> bool:
        """Count one matching call and say whether the fault is done to it."""
        if self.times is not None and self.hits >= self.times:
            return False
        self.seen += 1
        if self.seen <= self.after or self.dice.random() >= self.probability:
            return False
        self.hits += 1
        return True

    def as_json(self) -> dict[str, object]:
        """Return the rule as it was sent, with `seen` and `hits`."""
        match = {"prompt_contains": self.prompt_contains, "model": self.model}
        return {
            "on": self.on,
            "dialect": self.dialect,
            "match": {k: v for k, v in match.items() if v is not None},
            "times": self.times,
            "after": self.after,
            "probability": self.probability,
            "seed": self.seed,
            "do": dict(self.do),
            "seen": self.seen,
            "hits": self.hits,
        }


_RULE_PARTS = ("on", "dialect", "match", "times", "after", "probability", "seed", "do")
_MATCH_PARTS = ("prompt_contains", "model")


def rule_from(sent: object, dialects: Sequence[str]) -> Rule:
    """Check one rule as it came over the wire. Raises BadRuleError."""
    if not isinstance(sent, Mapping):
        message = f"a rule is {sent!r}; allowed: an object with {', '.join(_RULE_PARTS)}"
        raise BadRuleError(message)
    for name in sent:
        if name not in _RULE_PARTS:
            raise BadRuleError(unknown_part("a rule", name, _RULE_PARTS))
    on = _part(sent, "on", "any", is_one_of("any", *OPERATIONS), ", ".join(("any", *OPERATIONS)))
    do = sent.get("do")
    if not isinstance(do, Mapping) or not do:
        message = f"do is {do!r}; allowed: an object with {', '.join(ACTIONS)}"
        raise BadRuleError(message)
    seed = _part(sent, "seed", 0, is_whole(0, 2**63), "a whole number, 0 and up")
    times = _part(sent, "times", None, is_whole(1, 10**9), "null or a whole number, 1 and up")
    match = _match(sent.get("match") or {})
    return Rule(
        on=str(on),
        dialect=_part(sent, "dialect", None, is_one_of(*dialects), f"null, {', '.join(dialects)}"),
        times=times,
        after=_part(sent, "after", 0, is_whole(0, 10**9), "a whole number, 0 and up"),
        probability=_part(sent, "probability", 1.0, is_number(0, 1), "a number, 0 to 1"),
        seed=seed,
        do=do,
        fault=fault_from(do, str(on)),
        # The dice decide which calls fail, so that a run can be repeated; nothing is secret here.
        dice=random.Random(seed),  # noqa: S311
        prompt_contains=match["prompt_contains"],
        model=match["model"],
    )


def _part(sent: Mapping[str, object], name: str, default: T, check: Callable[[object], bool], allowed: str) -> T:
    value = sent.get(name)
    if value is None:
        return default
    if not check(value):
        message = f"{name} is {value!r}; allowed: {allowed}"
        raise BadRuleError(message)
    return value  # type: ignore[return-value]  # `check` has seen to it


def _match(sent: object) -> dict[str, str | None]:
    if not isinstance(sent, Mapping):
        message = f"match is {sent!r}; allowed: an object with {', '.join(_MATCH_PARTS)}"
        raise BadRuleError(message)
    for name in sent:
        if name not in _MATCH_PARTS:
            raise BadRuleError(unknown_part("match", name, _MATCH_PARTS))
    return {name: _part(sent, name, None, is_text, "a text") for name in _MATCH_PARTS}


class FaultBook:
    """The rules in force, in the order they came. The first that strikes wins."""

    def __init__(self, dialects: Sequence[str]) -> None:
        """Start with no rule; `dialects` are the names that a rule may give."""
        self._dialects = tuple(dialects)
        self._rules: list[Rule] = []
        self._lock = threading.Lock()

    def add(self, sent: object) -> None:
        """Append a list of rules, or none of them. Raises BadRuleError naming the bad one."""
        if not isinstance(sent, list):
            message = f"the body is {type(sent).__name__}; allowed: a list of rules"
            raise BadRuleError(message)
        rules = []
        for place, one in enumerate(sent):
            try:
                rules.append(rule_from(one, self._dialects))
            except BadRuleError as error:
                message = f"rule {place}: {error}"
                raise BadRuleError(message) from error
        with self._lock:
            self._rules = [*self._rules, *rules]

    def clear(self) -> None:
        """Take every rule away."""
        with self._lock:
            self._rules = []

    def pick(self, on: str, dialect: str, subject: Callable[[], Subject]) -> Fault:
        """Return the fault of the first rule that strikes this call, NO_FAULT if none does.

        `subject` is asked only when a rule needs it, so a rule without `match` acts before the
        request's body has been read.
        """
        if not self._rules:
            return NO_FAULT
        about: Subject | None = None
        for rule in self._rules:
            if rule.on not in ("any", on) or rule.dialect not in (None, dialect):
                continue
            if rule.picky:
                about = about or subject()
                if not rule.fits(about):
                    continue
            with self._lock:
                struck = rule.strikes()
            if struck:
                return rule.fault
        return NO_FAULT

    def as_json(self) -> list[dict[str, object]]:
        """Return every rule with its counters."""
        with self._lock:
            return [rule.as_json() for rule in self._rules]
