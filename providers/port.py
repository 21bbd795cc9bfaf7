"""The port: what Weir asks of a vendor, in five verbs, and how a vendor's no is said.

An adapter translates and classifies, nothing more: it keeps no state, opens no transaction, never sleeps and never
decides what happens to a task. `submit` and `cancel` are called at most once per claim and never repeated by an
adapter; whatever happened on the wire is said by one of four outcomes (submit) or by an Observation (observe).

    ProviderError(kind)   something a vendor or the wire did, as a kind of models.failures
    Forged                a callback that the vendor did not sign

`providers/http.py` raises it; `submit` turns them into outcomes with `outcome_of`, so that no adapter can forget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from models.contract import Kind, ModelBounds
from models.failures import FAILURES, FailureKind
from models.lifecycle import Error, Finished, Observation
from providers.inline import Picture


class ProviderError(Exception):
    """A call to a vendor came to nothing. The message is cleaned: no key, no signed link, no page."""

    def __init__(
        self,
        kind: FailureKind,
        message: str = "",
        *,
        upstream_code: str | None = None,
        http_status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message or FAILURES[kind].message)
        self.kind = kind
        self.upstream_code = upstream_code
        self.http_status = http_status
        self.retry_after_s = retry_after_s

    def error(self) -> Error:
        """The same as a value for the row."""
        return Error(kind=self.kind, message=str(self), upstream_code=self.upstream_code, http_status=self.http_status)


class Forged(Exception):  # noqa: N818  what it is; nobody handles it as an error of ours
    """A callback without the vendor's signature, or with one that does not hold, or too old."""


# Reads a callback (headers with lower-case names, raw body) and gives the vendor's id in it, None where it names none.
# Raises Forged. The body is never believed beyond that id: it only says when to ask.
CallbackReader = Callable[[Mapping[str, str], bytes], str | None]


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that an adapter may know of a task.

    `effective` is complete and checked (models.contract.resolve). `reference` is our id towards the vendor, derived
    from task id and attempt: the same for a repeat of the same attempt, another one after a restart.
    """

    task_id: str
    attempt: int
    kind: Kind
    model: str  # the vendor's name of the model
    effective: Mapping[str, object] = field(repr=False)
    # Parameter -> the bytes of a reference picture (`image`, `mask`, `first_frame`, `last_frame`), fetched and checked.
    inputs: Mapping[str, Picture] = field(default_factory=dict, repr=False)
    reference: str = ""
    receipt: str | None = None
    claimed_at_s: float = 0.0  # unix seconds of the claim, by the database's clock: a bound for `find` in listings
    callback_url: str | None = field(default=None, repr=False)  # where the vendor may call when done; holds a token


# The four words of a submit.


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The vendor took it. `finished` is set by synchronous vendors, whose answer is the result."""

    receipt: str
    finished: Finished | None = None
    request_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A final no: repeating the same request cannot mend it."""

    error: Error


@dataclass(frozen=True, kw_only=True)
class NotAccepted:
    """Not sent, or surely not taken (a definite "busy" included). May be sent again later.

    `absent`: said by the vendor itself, asked by our reference: whatever was sent before came to nothing either.
    """

    error: Error
    absent: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Uncertain:
    """Sent, and no readable verdict: the vendor may have it. Never sent again without asking."""

    error: Error


Outcome = Accepted | Refused | NotAccepted | Uncertain


class CancelAnswer(StrEnum):
    """What the vendor said to a cancel."""

    CONFIRMED = "confirmed"
    REFUSED = "refused"  # too late, or it does not stop what runs: the task goes on
    UNCLEAR = "unclear"  # no readable verdict: the task goes on and the next observation tells


class FindAnswer(StrEnum):
    """What a search by our own id gave when it gave no receipt."""

    ABSENT = "absent"  # the vendor surely has no such job
    LATER = "later"  # not known now, since the vendor did not answer or may not show it yet: worth asking again
    UNCLEAR = "unclear"  # it cannot be told, now or later


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What an adapter can do, as data. Every bound names its source in the adapter's file."""

    kinds: frozenset[Kind]
    models: Mapping[str, ModelBounds]  # the vendor's model name -> what it can make
    cancel: bool  # there is a cancel call for at least some states
    find: bool  # a lost job can be looked up by our own id
    honours_reference: bool = False  # the vendor treats our reference as an idempotency key
    list_call: bool = False  # one call answers for many receipts, so that a wave may tick
    list_from: int = 1  # fewer receipts than this are asked about singly all the same
    synchronous: frozenset[str] = frozenset()  # models whose submit returns the finished result
    callback: CallbackReader | None = None  # the vendor calls `Job.callback_url` when a job ends; None: it does not


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call as it went over the wire, for the history: what was asked, how it ended, never what was in it."""

    operation: str  # submit, observe, cancel, find, fetch, check
    started_at_s: float  # unix seconds
    ms: int
    verdict: str  # "ok" or a FailureKind's value
    http_status: int | None = None
    receipts: tuple[str, ...] = ()  # which jobs a batch call asked about
    error: str | None = None  # cleaned, at most 200 characters
    request_id: str | None = None


class Provider(Protocol):
    """One configured way to a vendor. Thread-safe; built once per process, after the fork."""

    name: str
    capabilities: Capabilities

    def submit(self, job: Job) -> Outcome:
        """Ask for one upstream job. Never raises for what a vendor did."""

    def observe(self, receipts: Sequence[str], kind: Kind) -> Mapping[str, Observation]:
        """What is known of these jobs now, in as few calls as the vendor allows.

        At most `polling.side_by_side` calls at one moment and `polling.round_s` seconds in all; a receipt that was
        not asked about in time is left out of the answer. Never raises for what a vendor did.
        """

    def cancel(self, job: Job) -> CancelAnswer:
        """Ask to stop this job and no other."""

    def find(self, job: Job) -> str | FindAnswer:
        """The receipt of a job whose submit has no known verdict, by our own reference."""

    def check(self) -> None:
        """Ask the vendor something harmless with the configured credential, in one call that makes and costs nothing.

        Raises ProviderError: what is wrong with the network, the vendor or the credential.
        """

    def result_headers(self) -> Mapping[str, str]:
        """Headers (a credential) that results on the provider's own host ask for; empty where links are signed."""
        ...


def outcome_of(exc: ProviderError) -> Outcome:
    """The outcome that an error of the submit call means, from its kind's row in the failure table."""
    facts = FAILURES[exc.kind]
    if facts.repeat or facts.waits:
        return NotAccepted(error=exc.error(), retry_after_s=exc.retry_after_s)
    return Refused(error=exc.error()) if facts.certain else Uncertain(error=exc.error())
