"""Faults that a prompt asks for itself: `a red cup [[sim: slow 20]] [[sim: partial 1]]`.

For a person with curl: no rule has to be posted first. May not know HTTP, jobs or dialects.
Invariant: a directive that nobody knows is an error that names the known ones, never silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from providers.sim.faults import BadRuleError, Fault, fault_from

_FORM = re.compile(r"\[\[\s*sim:\s*([^\[\]]*?)\s*\]\]")
_STATUS = re.compile(r"(accepted-|poll-|file-|)([2-5]\d\d)")
_MOST_CALLS = 1000


class BadDirectiveError(ValueError):
    """A directive in a prompt cannot be understood."""


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive, read: on which operation it strikes, how often, what it does."""

    name: str
    on: str
    times: int | None
    """How many calls it strikes; None = each. A submit's are counted per prompt."""
    fault: Fault


@dataclass(frozen=True, slots=True)
class _Form:
    """How a directive's words become a fault."""

    on: str
    usage: str
    do: Callable[[Sequence[str]], Mapping[str, object]]
    least: int = 0
    most: int = 0
    """Fewest and most words after the name."""
    times: Callable[[Sequence[str]], int | None] = lambda _words: None


def _nth(place: int, default: int = 1) -> Callable[[Sequence[str]], int]:
    return lambda words: int(words[place]) if len(words) > place else default


def _status(status: int, *, accepted: bool) -> Callable[[Sequence[str]], Mapping[str, object]]:
    def do(words: Sequence[str]) -> Mapping[str, object]:
        done: dict[str, object] = {"status": status}
        # What a proxy says is a page, what the vendor says is JSON.
        done |= {"html": True} if status in (502, 504, 524) else {}
        done |= {"retry_after": words[1]} if len(words) > 1 else {}
        return done | ({"accepted": True} if accepted else {})

    return do


def _optional(name: str, default: str) -> Callable[[Sequence[str]], Mapping[str, object]]:
    return lambda words: {name: words[0] if words else default}


FORMS: Mapping[str, _Form] = {
    "fail": _Form("submit", "fail [CODE]", _optional("fail", "InternalError.Algo"), most=1),
    "filtered": _Form("submit", "filtered", lambda _: {"fail": "DataInspectionFailed"}),
    "reject": _Form(
        "submit",
        "reject [CODE]",
        lambda words: {"status": 400, "code": words[0] if words else "DataInspectionFailed"},
        most=1,
    ),
    "stuck": _Form("submit", "stuck [PENDING|RUNNING]", _optional("stuck", "RUNNING"), most=1),
    "slow": _Form("submit", "slow SECONDS", lambda w: {"slow_s": float(w[0])}, 1, 1),
    "partial": _Form("submit", "partial COUNT", lambda w: {"partial": int(w[0])}, 1, 1),
    "no-payload": _Form("submit", "no-payload", lambda _: {"no_payload": True}),
    "word": _Form("submit", "word WORD", lambda w: {"status_word": w[0]}, 1, 1),
    "hold": _Form("submit", "hold SECONDS [TIMES]", lambda w: {"hold_s": float(w[0])}, 1, 2, _nth(1)),
    "lost-answer": _Form("submit", "lost-answer [TIMES]", lambda _: {"lost_answer": "reset"}, 0, 1, _nth(0)),
    "reset": _Form("submit", "reset [TIMES]", lambda _: {"reset": True}, 0, 1, _nth(0)),
    "half": _Form("submit", "half [TIMES]", lambda _: {"half_json": True}, 0, 1, _nth(0)),
    "poll-reset": _Form("query", "poll-reset [TIMES]", lambda _: {"reset": True}, 0, 1, _nth(0)),
    "poll-half": _Form("query", "poll-half [TIMES]", lambda _: {"half_json": True}, 0, 1, _nth(0)),
    "poll-unknown": _Form("query", "poll-unknown [TIMES]", lambda _: {"unknown_job": True}, 0, 1, _nth(0)),
    "poll-word": _Form("query", "poll-word WORD [TIMES]", lambda w: {"status_word": w[0]}, 1, 2, _nth(1)),
    "expired": _Form("submit", "expired", lambda _: {"expired_link": True}),
    "redirect": _Form("submit", "redirect URL", lambda w: {"redirect": w[0]}, 1, 1),
    "file-type": _Form("submit", "file-type TYPE", lambda w: {"content_type": w[0]}, 1, 1),
    "file-bytes": _Form("submit", "file-bytes KIND", lambda w: {"wrong_bytes": w[0]}, 1, 1),
    "file-huge": _Form("submit", "file-huge BYTES", lambda w: {"huge_bytes": int(w[0])}, 1, 1),
    "file-cut": _Form("fetch", "file-cut BYTES [TIMES]", lambda w: {"cut_after": int(w[0])}, 1, 2, _nth(1)),
    "file-drip": _Form("fetch", "file-drip SECONDS [TIMES]", lambda w: {"drip_s": float(w[0])}, 1, 2, _nth(1)),
}
_STATUS_FORMS = {"": "submit", "accepted-": "submit", "poll-": "query", "file-": "fetch"}
_STATUS_USAGE = "[accepted-|poll-|file-]STATUS [TIMES [RETRY_AFTER]]"


def bare(prompt: str) -> str:
    """Return the prompt without its directives: what a picture shows."""
    return " ".join(_FORM.sub(" ", prompt).split()) if "[[" in prompt else prompt


def read(prompt: str) -> list[Directive]:
    """Return the directives of a prompt that strike its submit. Raises BadDirectiveError."""
    return [one for one in _all(prompt) if one.on == "submit"]


def later(prompt: str) -> dict[str, list[Fault]]:
    """Return the faults that wait for later calls about this prompt's job, by operation."""
    waiting: dict[str, list[Fault]] = {}
    for one in _all(prompt):
        if one.on != "submit":
            waiting.setdefault(one.on, []).extend([one.fault] * (one.times or 1))
    return waiting


def _all(prompt: str) -> list[Directive]:
    # Nearly every prompt ends here, with no regular expression run over it.
    return [_one(text) for text in _FORM.findall(prompt)] if "[[" in prompt else []


def _one(text: str) -> Directive:
    name, *words = text.split() or [""]
    form = FORMS.get(name) or _status_form(name)
    if form is None:
        known = ", ".join([*FORMS, _STATUS_USAGE])
        message = f"unknown directive {name!r}; allowed: {known}"
        raise BadDirectiveError(message)
    try:
        if not form.least <= len(words) <= form.most:
            raise ValueError(words)  # noqa: TRY301 - one message for all that is wrong with words
        fault, times = fault_from(form.do(words)), form.times(words)
    except BadRuleError as error:
        message = f"directive {text!r}: {error}"
        raise BadDirectiveError(message) from error
    except ValueError as error:
        message = f"directive {text!r}; allowed: {form.usage}"
        raise BadDirectiveError(message) from error
    if times is not None and not 1 <= times <= _MOST_CALLS:
        message = f"directive {text!r}: TIMES is {times}; allowed: 1 to {_MOST_CALLS}"
        raise BadDirectiveError(message)
    return Directive(text, form.on, times, fault)


def _status_form(name: str) -> _Form | None:
    match = _STATUS.fullmatch(name)
    if match is None:
        return None
    prefix, status = match.groups()
    do = _status(int(status), accepted=prefix == "accepted-")
    return _Form(_STATUS_FORMS[prefix], _STATUS_USAGE, do, 0, 2, _nth(0))
