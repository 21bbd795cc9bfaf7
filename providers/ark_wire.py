"""PURE  What Ark's answers mean: its codes, a task of the video API, the images of the synchronous one.

Sources: volcengine.com/docs/82379, pages 1541523 (images), 1521309 (query) and 1299023 (errors) [docs]; the official
Python SDK volcengine-python-sdk 5.0.54 [SDK]; reports of what the live service did [3p-live]; all read 2026-11-30.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping

from models.failures import FAILURES
from models.failures import FailureKind as K
from models.lifecycle import Canceled, Error, Failed, Finished, Missing, Observation, Output, Unreadable, Working
from providers.verdicts import Dialect, VendorError, clean, code_kind

# [docs] 1299023; dotted codes that are not listed are read without their last part.
CODES: Mapping[str, K] = {
    **dict.fromkeys(
        ("MissingParameter", "InvalidParameter", "InvalidImageURL", "OutofContextError", "InvalidEndpoint"),
        K.INVALID_PARAMETER,
    ),
    **dict.fromkeys(("InvalidEndpointOrModel", "UnsupportedModel", "NotFound", "InvalidAction"), K.INVALID_PARAMETER),
    **dict.fromkeys(
        (
            "SensitiveContentDetected",
            *(f"{way}{what}SensitiveContentDetected" for way in ("Input", "Output") for what in ("Text", "Image")),
            *(f"{way}{what}SensitiveContentDetected" for way in ("Input", "Output") for what in ("Video", "Audio")),
            *(f"{way}{what}RiskDetection" for way in ("Input", "Output") for what in ("Text", "Image")),
        ),
        K.CONTENT_FILTERED,
    ),
    "ContentSecurityDetectionError": K.PROVIDER_ERROR,  # the check itself broke: no word about the content
    **dict.fromkeys(("AuthenticationError", "InvalidAccountStatus"), K.PROVIDER_AUTH),
    **dict.fromkeys(("AccountOverdueError", "OperationDenied.ServiceOverdue", "InvalidSubscription"), K.PROVIDER_QUOTA),
    # Of one model or one service of the account; the others go on.
    **dict.fromkeys(
        (
            "AccessDenied",
            "OperationDenied",
            "ModelNotOpen",
            "InvalidEndpointOrModel.ModelIDAccessDisabled",
            "SetLimitExceeded",
        ),
        K.MODEL_DENIED,
    ),
    **dict.fromkeys(
        (
            "RateLimitExceeded",
            "ModelAccountRpmRateLimitExceeded",
            "ModelAccountTpmRateLimitExceeded",
            "ModelAccountIpmRateLimitExceeded",
            "APIAccountRpmRateLimitExceeded",
            "AccountRateLimitExceeded",
            "RequestBurstTooFast",
            "InflightBatchsizeExceeded",
        ),
        K.RATE_LIMITED,
    ),
    # A full queue, a spent window or a spent free quota: only the words tell. Tried again a few times, then given up.
    **dict.fromkeys(("ServerOverloaded", "QuotaExceeded"), K.OVERLOADED),
    "InternalServiceError": K.SERVER_ERROR,
}
_OF_THE_JOB = frozenset({K.INVALID_PARAMETER, K.CONTENT_FILTERED, K.PROVIDER_AUTH, K.PROVIDER_QUOTA, K.MODEL_DENIED})
_OF_THE_CALL = _OF_THE_JOB | {K.RATE_LIMITED, K.OVERLOADED}


def error_of(fields: Mapping[str, object]) -> VendorError | None:
    """The error in an answer, None where it is a task's own reason or stands beside a list of images."""
    error = mapping(fields.get("error"))
    if not error or "data" in fields or fields.get("status"):
        return None
    code, message = error.get("code"), error.get("message")
    return VendorError(str(code) if code else None, message if isinstance(message, str) else "")


DIALECT = Dialect(codes=CODES, error_of=error_of)


def from_wire(fields: Mapping[str, object], secrets: tuple[str, ...] = ()) -> Observation:
    """What a task's JSON says of it. Total: an answer without a state is Unreadable."""
    word = fields.get("status")
    if not isinstance(word, str) or not word:
        return Unreadable(error=Error(kind=K.UNREADABLE, message="The answer names no state."))
    match word:
        case "succeeded":
            return _clip_made(fields)
        case "failed":
            return Failed(error=_reason(fields.get("error"), secrets))
        case "expired":  # waited or ran past `execution_expires_after`; only success is billed [docs]
            late = Error(kind=K.PROVIDER_ERROR, message="The provider gave up waiting.", upstream_code=word)
            return Failed(error=late)
        case "cancelled" | "canceled":  # two l are documented
            return Canceled()
        case _:  # queued, running, and whatever they or a gateway before them think of next
            return Working(word=clean(word)[:40])


def _clip_made(fields: Mapping[str, object]) -> Finished:
    """One clip. "Done" without a link gives no output and nothing missing."""
    url, seed = mapping(fields.get("content")).get("video_url"), _number(fields.get("seed"))
    known = int(seed) if seed is not None and seed >= 0 else None
    outputs = (Output(url=url, place=0, seed=known),) if isinstance(url, str) and url else ()
    return Finished(outputs=outputs, usage=_usage(fields))


def _reason(error: object, secrets: tuple[str, ...], kinds: frozenset[K] = _OF_THE_JOB) -> Error:
    """Why a task, or an image, failed. A code that is none of `kinds` says nothing of the job: the vendor failed."""
    found = mapping(error)
    code, message = found.get("code"), found.get("message")
    named = code if isinstance(code, str) else None
    kind = code_kind(named, CODES)
    kind = kind if kind is not None and kind in kinds else K.PROVIDER_ERROR
    words = clean(message, secrets) or FAILURES[kind].message
    return Error(kind=kind, message=words, upstream_code=clean(named, secrets)[:100] or None)


def from_images(fields: Mapping[str, object], asked: int, secrets: tuple[str, ...] = ()) -> Finished:
    """The images of a synchronous answer, in the vendor's order, and why each of the `asked` others is not there.

    Total. No outputs and nothing missing: the answer names neither an image nor a reason.
    """
    outputs: list[Output] = []
    missing: list[Missing] = []
    parts = fields.get("data")
    for place, part in enumerate(parts if isinstance(parts, list) else []):
        output = _image(mapping(part), place)
        if output is not None:
            outputs.append(output)
        elif mapping(part).get("error"):
            missing.append(_missing(_reason(mapping(part)["error"], secrets)))
    usage = _usage(fields)
    short = asked - len(outputs) - len(missing)
    if fields.get("error"):  # stopped the rest of a group, or all of it
        missing += [_missing(_reason(fields["error"], secrets, _OF_THE_CALL))] * short
    elif (outputs or missing) and short > 0:  # a group may be smaller than it was allowed to be
        missing += [Missing(kind=K.RESULT_MISSING, message="The provider made fewer images.")] * short
    elif not outputs and not missing and parts == [] and not usage.get("generated_images"):
        missing.append(Missing(kind=K.PROVIDER_ERROR, message="The provider answered without an image."))
    return Finished(outputs=tuple(outputs), missing=tuple(missing), usage=usage)


def _image(part: Mapping[str, object], place: int) -> Output | None:
    url, text = part.get("url"), part.get("b64_json")
    if isinstance(url, str) and url:
        return Output(url=url, place=place)
    if not isinstance(text, str) or not text:
        return None
    try:
        content = binascii.a2b_base64(text.rpartition(";base64,")[2], strict_mode=True)
    except ValueError:
        content = text.encode("utf-8", "replace")  # judged with the other bytes: a page is no picture
    return Output(content=content, place=place)


def _missing(error: Error) -> Missing:
    return Missing(kind=error.kind, message=error.message, upstream_code=error.upstream_code)


def _usage(fields: Mapping[str, object]) -> dict[str, object]:
    """The numbers of the usage block: what is billed. Often it is not there, which makes nothing free."""
    found = {name: _number(value) for name, value in mapping(fields.get("usage")).items()}
    return {name: value for name, value in found.items() if value is not None}


def _number(value: object) -> float | None:
    """A finite number; whole ones as int."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def mapping(value: object) -> Mapping[str, object]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}
