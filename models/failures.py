"""PURE  What can go wrong with a vendor or a task, as one table.

A row answers four questions about a kind: may the same call be repeated, does it count against the breaker, is it
*certain* that the vendor refused it, failed it or never got it, so that nothing of ours runs on or was paid for (only
then may the same idempotency key start again), and may the caller try again with a new key.

Adding a kind: one line here. `providers/http.py` maps statuses, bodies and exceptions to kinds; a test walks all of
requests' exceptions and every status from 100 to 599.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Every kind of failure; the value is the code a caller sees."""

    # the vendor's definite no to this request
    INVALID_PARAMETER = "invalid_parameter"
    CONTENT_FILTERED = "content_filtered"
    PROVIDER_AUTH = "provider_auth"
    PROVIDER_QUOTA = "provider_quota"
    MODEL_DENIED = "provider_model_denied"
    # the vendor did not take it, or not now
    NOT_SENT = "provider_unreachable"
    RATE_LIMITED = "provider_rate_limited"
    OVERLOADED = "provider_overloaded"
    HELD = "provider_held"
    # no readable verdict
    UNREADABLE = "provider_unreadable"
    READ_TIMEOUT = "provider_timeout"
    SERVER_ERROR = "provider_server_error"
    SUBMIT_UNCONFIRMED = "submit_unconfirmed"
    # the vendor took the job, and it came to nothing
    PROVIDER_ERROR = "provider_error"
    UPSTREAM_LOST = "upstream_lost"
    UPSTREAM_CANCELED = "upstream_canceled"
    RESULT_MISSING = "result_missing"
    RESULT_UNAVAILABLE = "result_unavailable"
    RESULT_INVALID = "result_invalid"
    STORAGE = "storage_unavailable"
    # ours
    DEADLINE = "deadline_exceeded"
    STUCK = "stuck"
    CREDENTIALS_GONE = "credentials_gone"
    PROVIDER_GONE = "provider_gone"
    INTERNAL = "internal_error"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One row of the table."""

    repeat: bool  # the same call may be repeated within its bounds
    breaker: bool  # counts as the provider's failure
    certain: bool  # refused, failed or never taken: nothing runs on and nothing was paid for
    waits: bool = False  # nothing is wrong with the task: it waits in line, and spends no try
    retryable: bool  # shown to the caller: the same request may work later
    message: str  # what the caller reads when the vendor gave no words of its own


def _no(message: str, *, breaker: bool = False, retryable: bool = False, waits: bool = False) -> Facts:
    return Facts(
        repeat=False, breaker=breaker, certain=True, waits=waits, retryable=retryable or waits, message=message
    )


def _later(message: str, *, breaker: bool = True, waits: bool = False) -> Facts:
    return Facts(repeat=True, breaker=breaker, certain=True, waits=waits, retryable=True, message=message)


def _doubt(message: str, *, breaker: bool = True, retryable: bool = False) -> Facts:
    return Facts(repeat=False, breaker=breaker, certain=False, retryable=retryable, message=message)


K = FailureKind
FAILURES: Mapping[FailureKind, Facts] = {
    K.INVALID_PARAMETER: _no("The provider refused a parameter."),
    K.CONTENT_FILTERED: _no("The provider refused the content."),
    K.PROVIDER_AUTH: _no("The provider refused this gateway's credential.", waits=True),
    K.PROVIDER_QUOTA: _no("This gateway's account at the provider has no quota left.", waits=True),
    K.MODEL_DENIED: _no("This gateway's account at the provider may not use the model."),
    K.NOT_SENT: _later("The provider could not be reached; nothing was sent."),
    K.RATE_LIMITED: _later("The provider asks to slow down.", breaker=False, waits=True),
    K.OVERLOADED: _later("The provider is busy and did not take the task."),
    K.HELD: _later(
        "Held back: the provider is failing, pausing or refusing its credential.", breaker=False, waits=True
    ),
    K.UNREADABLE: _doubt("The provider's answer could not be read."),
    K.READ_TIMEOUT: _doubt("The provider did not answer in time."),
    K.SERVER_ERROR: _doubt("The provider reported an error of its own."),
    K.SUBMIT_UNCONFIRMED: _doubt("It is not known whether the provider took the task; it was not sent again."),
    K.PROVIDER_ERROR: _no("The provider could not make it.", breaker=True, retryable=True),
    K.UPSTREAM_LOST: _doubt("The provider no longer knows the task.", retryable=True),
    K.UPSTREAM_CANCELED: _no("The provider canceled the task by itself.", retryable=True),
    K.RESULT_MISSING: _doubt("The provider says done but names no result.", retryable=True),
    K.RESULT_UNAVAILABLE: _doubt("The result could not be fetched from the provider.", retryable=True),
    K.RESULT_INVALID: _doubt("What the provider delivered is not the result it names.", retryable=True),
    K.STORAGE: Facts(
        repeat=False,
        breaker=False,
        certain=False,
        waits=True,
        retryable=True,
        message="The result is made and could not be stored yet.",
    ),
    K.DEADLINE: _doubt("The task did not finish before its deadline.", breaker=False, retryable=True),
    K.STUCK: _doubt("The task stood still and was given up.", breaker=False, retryable=True),
    K.CREDENTIALS_GONE: _doubt("The credential that made the task was removed.", breaker=False),
    K.PROVIDER_GONE: _doubt("The provider that made the task was removed from the configuration.", breaker=False),
    K.INTERNAL: _doubt("This gateway made a mistake.", breaker=False, retryable=True),
}
