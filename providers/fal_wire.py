"""What goes to fal's queue and what its answers mean. No socket, no clock: providers/fal.py carries.

fal has no failed state: what came to nothing is COMPLETED too, and only its result says so. A receipt is
`owner/app/request id`, all that the addresses of status, result and cancel are made of. The addresses in an answer are
not followed: our key goes to the configured host only.

Sources, read 2026-11-30: Python package fal-client 1.0.3 [SDK], fal.ai/docs (queue, errors, webhooks) [DOC], a report
on the live service (TanStack/ai pull 396) [3P]; [U] not confirmed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from models.contract import Kind
from models.failures import FAILURES
from models.failures import FailureKind as K
from models.lifecycle import (
    Canceled,
    Error,
    Failed,
    Finished,
    Missing,
    Observation,
    Output,
    Unknown,
    Unreadable,
    Working,
)
from providers.fal_models import app_of, model_of
from providers.http import Ask
from providers.inline import Picture, mapping, number, picture
from providers.port import Job, ProviderError
from providers.verdicts import Dialect, VendorError, clean

_START_S = 86_400  # not to be started later than the longest deadline a caller may ask for
_KEPT_S = 86_400  # lifetime of the files: links are public, and the default is whatever the account says [DOC]
_DEPTH = 6  # of an answer that is searched for files
_CANCEL_WORDS = ("ALREADY_COMPLETED", "NOT_FOUND")  # [DOC]
_RESULT_WORDS = frozenset({"images", "image", "video", "videos", "status"})
_UNTYPED = "detail"  # what an error without a type goes by: not every model is migrated [DOC]

CODES: Mapping[str, K] = {"content_policy_violation": K.CONTENT_FILTERED}  # [DOC]
# A job's end that is no fault of its input, though the status may be a 4xx [DOC].
_THEIRS = frozenset({"downstream_service_error", "generation_timeout", "no_media_generated", "client_disconnected"})
# Of the call, or of a machine in front: says nothing about the job.
_OF_THE_CALL = frozenset({401, 402, 403, 408, 409, 425, 429, 499})
_MAYBE_OF_THE_CALL = frozenset({503, 504})  # the queue's own "busy", unless it names a type


def to_wire(job: Job) -> Ask:
    """The submit call of `job`. Raises KeyError for a model that nobody knows."""
    found = model_of(job.model)
    if found is None:
        raise KeyError(job.model)
    name, family = found
    effective = {**job.effective, **{ours: data_uri(given) for ours, given in job.inputs.items()}}
    return Ask(
        operation="submit",
        method="POST",
        path=f"/{name}",
        params={"fal_webhook": job.callback_url} if job.callback_url else {},
        headers={
            "X-Fal-Request-Start-Timeout": str(_START_S),  # limits the wait, not the run [DOC]
            "X-Fal-Object-Lifecycle-Preference": json.dumps({"expiration_duration_seconds": _KEPT_S}),
        },
        body=family.body(effective),
    )


def data_uri(given: Picture) -> str:
    """A reference picture inside the request: every `*_url` input takes one [DOC]."""
    return f"data:{given.media_type};base64,{base64.b64encode(given.content).decode()}"


def receipt_of(model: str, request_id: object) -> str | None:
    """The receipt of a request of `model`; None where either is unusable."""
    found = model_of(model)
    usable = isinstance(request_id, str) and request_id and "/" not in request_id
    return f"{app_of(found[0])}/{request_id}" if found is not None and usable else None


def address(receipt: str, more: str = "") -> str:
    """The path of a request's result, or with `more` of its status and cancel: without the model's own path."""
    app, _, request_id = receipt.rpartition("/")
    where = f"/{quote(app)}" if app else ""
    return f"{where}/requests/{quote(request_id, safe='')}{more}"


def error_of(fields: Mapping[str, object]) -> VendorError | None:
    """The error in an answer: the platform's flat shape, a model's list, a cancel's word; None for a result."""
    word, detail = fields.get("status"), fields.get("detail")
    if word in _CANCEL_WORDS:
        return VendorError(str(word), "")
    if not detail or _RESULT_WORDS & fields.keys():
        return None
    if isinstance(detail, list):
        # Of several, a refused content is the one that no other value can mend.
        parts = [mapping(part) for part in detail]
        first = next((part for part in parts if part.get("type") in CODES), parts[0])
        where = ".".join(str(step) for step in steps) if isinstance(steps := first.get("loc"), list) else ""
        code, words = first.get("type"), first.get("msg")
        message = f"{where}: {words}" if where and isinstance(words, str) else words
    else:
        code, message = fields.get("error_type"), detail
    named = code if isinstance(code, str) and code else _UNTYPED
    return VendorError(named, message if isinstance(message, str) else "")


DIALECT = Dialect(codes=CODES, error_of=error_of)


def from_status(fields: Mapping[str, object]) -> Observation | None:
    """What a status says; None: it has ended, and the result has to be asked. Total."""
    word = fields.get("status")
    if not isinstance(word, str) or not word:
        return Unreadable(error=Error(kind=K.UNREADABLE, message="The answer names no state."))
    if word != "COMPLETED":  # IN_QUEUE, IN_PROGRESS, and whatever they think of next
        return Working(word=clean(word)[:40])
    return Canceled() if fields.get("error_type") == "client_cancelled" else None


def from_result(
    status: Mapping[str, object],
    result: Mapping[str, object] | ProviderError,
    kind: Kind,
    secrets: tuple[str, ...] = (),
) -> Observation:
    """What a request that is COMPLETED came to: by its status, and by its result or the refusal to give it. Total."""
    if isinstance(result, ProviderError):
        seen = _of_refusal(result)
    else:
        seen = _made(result, kind, number(mapping(status.get("metrics")).get("inference_time")))
    said, words = status.get("error_type"), status.get("error")
    if isinstance(seen, Failed) or not (said or words):
        return seen
    if isinstance(seen, Unreadable) and not said:
        return seen  # the result will say why
    code = clean(said, secrets)[:100] or None
    message = clean(words, secrets) or FAILURES[K.PROVIDER_ERROR].message
    return Failed(error=Error(kind=CODES.get(code or "", K.PROVIDER_ERROR), message=message, upstream_code=code))


def _of_refusal(exc: ProviderError) -> Observation:
    """A result that answers 4xx or 5xx in the vendor's words is the job's failure; anything else is no news."""
    status, code = exc.http_status or 0, exc.upstream_code
    if gone(exc):
        return Unknown()
    typed = code is not None and code != _UNTYPED
    of_the_job = code is not None and 400 <= status <= 599 and status not in _OF_THE_CALL
    if not of_the_job or (status in _MAYBE_OF_THE_CALL and not typed):
        return Unreadable(error=exc.error(), retry_after_s=exc.retry_after_s)
    if code == "client_cancelled":
        return Canceled()
    theirs = status >= 500 or code in _THEIRS
    kind = CODES.get(code or "", K.PROVIDER_ERROR if theirs else K.INVALID_PARAMETER)
    return Failed(error=Error(kind=kind, message=str(exc), upstream_code=code, http_status=status))


def gone(exc: ProviderError) -> bool:
    """Whether the vendor says in its own words that it knows no such request: a 404, not one of a machine in front."""
    return exc.http_status == 404 and exc.upstream_code in (_UNTYPED, "NOT_FOUND", "not_found")


def _made(fields: Mapping[str, object], kind: Kind, inference_s: float | None) -> Finished:
    """The files of a result, in the vendor's order. What the safety checker flagged is a black picture, and missing."""
    outputs: list[Output] = []
    missing: list[Missing] = []
    flags, seed = fields.get("has_nsfw_concepts"), number(fields.get("seed"))
    for place, file in enumerate(_files(fields, kind)):
        if isinstance(flags, list) and place < len(flags) and flags[place] is True:
            words = "The provider's safety checker blacked the image out."
            missing.append(Missing(kind=K.CONTENT_FILTERED, message=words, upstream_code="has_nsfw_concepts"))
            continue
        known = int(seed) if place == 0 and seed is not None and seed >= 0 else None
        url, inline = str(file["url"]), picture(file["url"])
        if inline is not None:  # of a model whose `sync_mode` is on
            outputs.append(Output(content=inline.content, place=place, seed=known))
        else:
            outputs.append(Output(url=url, place=place, seed=known))
    usage: dict[str, object] = {} if inference_s is None else {"inference_time": inference_s}
    return Finished(outputs=tuple(outputs), missing=tuple(missing), usage=usage)


def _files(fields: Mapping[str, object], kind: Kind) -> list[Mapping[str, object]]:
    """The files of this kind: under their usual names, else wherever an object has an address."""
    names = ("images", "image") if kind is Kind.IMAGE else ("video", "videos")
    for part in [*(fields.get(name) for name in names), fields]:
        found = [file for file in _walk(part, _DEPTH) if _fits(file, kind)]
        if found:
            return found
    return []


def _walk(value: object, depth: int) -> Iterator[Mapping[str, object]]:
    if depth < 0:
        return
    if isinstance(value, list):
        for part in value:
            yield from _walk(part, depth - 1)
    elif isinstance(value, Mapping):
        if isinstance(value.get("url"), str) and value["url"]:
            yield value
        else:
            for part in value.values():
                yield from _walk(part, depth - 1)


def _fits(file: Mapping[str, object], kind: Kind) -> bool:
    told = file.get("content_type")
    return not isinstance(told, str) or "/" not in told or told.startswith((f"{kind.value}/", "application/octet"))
