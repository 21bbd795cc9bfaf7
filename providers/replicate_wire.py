"""What goes to Replicate and what its answers mean. No socket, no clock: providers/replicate.py carries.

A prediction that failed, or was refused for its content, is an answer 200 whose only reason is a sentence; codes, where
there are any, stand inside it as "(E005)". Refusals of a call are problem details (RFC 9457), a throttling has only
`detail`, which says when to come back.

Sources: the provider sheet of 2026-11-30: the OpenAPI file [SPEC], Python package replicate 1.0.7 [SDK1],
replicate.com/docs [DOC], reports on the live service [3P]; [U] not confirmed.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from models.contract import Kind
from models.failures import FAILURES
from models.failures import FailureKind as K
from models.lifecycle import Canceled, Error, Failed, Finished, Missing, Observation, Output, Unreadable, Working
from providers.http import Ask
from providers.inline import mapping, number, picture
from providers.port import Job
from providers.replicate_models import model_of
from providers.verdicts import Dialect, VendorError, clean

API = "/v1"
_DEPTH = 6  # of an output that is searched for files
_NSFW = "nsfw"
_FORBIDDEN = "forbidden"
_UNTITLED = "detail"
CODES: Mapping[str, K] = {
    "E005": K.CONTENT_FILTERED,  # "The input or output was flagged as sensitive." [3P]
    _NSFW: K.CONTENT_FILTERED,
    _FORBIDDEN: K.MODEL_DENIED,  # of one model or version; a bad token is a 401 [SPEC]
}
_CODE = re.compile(r"\((E\d{3,4})\)|\b(E\d{3,4}):")
_CONTENT = re.compile(r"(?i)\bNSFW\b|flagged as sensitive")
_WAIT = re.compile(r"resets? in ~?(\d{1,6}(?:\.\d{1,3})?) ?s")  # "Your rate limit resets in ~30s." [DOC]


def to_wire(job: Job, links: Mapping[str, str]) -> Ask:
    """The submit call of `job`. `links`: parameter -> the address its reference picture goes as.

    Raises KeyError for a model that nobody knows.
    """
    found = model_of(job.model)
    if found is None:
        raise KeyError(job.model)
    target, family = found
    body: dict[str, object] = {"input": family.input({**job.effective, **links})}
    if target.version:
        body["version"] = target.version
    if job.callback_url:  # other keys than these are refused [SPEC]
        body |= {"webhook": job.callback_url, "webhook_events_filter": ["completed"]}
    return Ask(operation="submit", method="POST", path=API + target.path, body=body)


def error_of(fields: Mapping[str, object]) -> VendorError | None:
    """The problem in an answer; None for a prediction, whose `error` is its own."""
    title, detail = fields.get("title"), fields.get("detail")
    if "id" in fields or not (title or detail):
        return None
    words = detail if isinstance(detail, str) else title if isinstance(title, str) else ""
    wait = _WAIT.search(words)
    code = _code_in(words) or (_FORBIDDEN if fields.get("status") == 403 else title)
    return VendorError(
        code if isinstance(code, str) else _UNTITLED, " ".join(words.split()), float(wait[1]) if wait else None
    )


DIALECT = Dialect(codes=CODES, error_of=error_of)


def from_wire(fields: Mapping[str, object], kind: Kind, secrets: tuple[str, ...] = ()) -> Observation:
    """What a prediction says of itself. Total: an answer without a state is Unreadable.

    An output that is there before the state has ended may still grow: it says nothing.
    """
    word = fields.get("status")
    if not isinstance(word, str) or not word:
        return Unreadable(error=Error(kind=K.UNREADABLE, message="The answer names no state."))
    match word:
        case "succeeded":
            return _made(fields, kind)
        case "failed":
            return Failed(error=_reason(fields.get("error"), secrets))
        case "canceled":
            return Canceled()
        case "aborted":  # a deadline passed before it began; not billed [DOC]
            message = "The provider gave up before it began."
            return Failed(error=Error(kind=K.PROVIDER_ERROR, message=message, upstream_code=word))
        case _:  # starting, processing, and whatever they think of next
            return Working(word=clean(word)[:40])


def _reason(error: object, secrets: tuple[str, ...]) -> Error:
    """Why a prediction failed. The sentence is all there is, and often it is the model's own."""
    words = error if isinstance(error, str) else ""
    code = _code_in(words) or "failed"
    kind = CODES.get(code, K.PROVIDER_ERROR)
    return Error(kind=kind, message=clean(words, secrets) or FAILURES[kind].message, upstream_code=code)


def _code_in(words: str) -> str | None:
    match = _CODE.search(words)
    if match:
        return match[1] or match[2]
    return _NSFW if _CONTENT.search(words) else None


def _made(fields: Mapping[str, object], kind: Kind) -> Finished | Failed:
    """The files of an output, in the vendor's order. Fewer than the input asked for: the checker took the others."""
    found = [link for link in _links(fields.get("output"), _DEPTH) if _fits(link, kind)]
    if not found and fields.get("data_removed") is True:
        message = "The provider has removed the result."  # an hour after the end [DOC]
        return Failed(error=Error(kind=K.RESULT_UNAVAILABLE, message=message, upstream_code="data_removed"))
    outputs = tuple(_output(link, place) for place, link in enumerate(found))
    asked, logs = number(mapping(fields.get("input")).get("num_outputs")), fields.get("logs")
    code = _code_in(logs) if isinstance(logs, str) else None
    known = CODES.get(code or "", K.RESULT_MISSING)
    words = "The provider's safety checker took the image out." if known is K.CONTENT_FILTERED else ""
    missing = Missing(kind=known, message=words or "The provider made fewer images.", upstream_code=clean(code) or None)
    short = int(asked) - len(outputs) if asked and kind is Kind.IMAGE and (outputs or words) else 0
    usage = {
        name: value for name, told in mapping(fields.get("metrics")).items() if (value := number(told)) is not None
    }
    return Finished(outputs=outputs, missing=(missing,) * max(0, min(short, 100)), usage=usage)


def _output(link: str, place: int) -> Output:
    inline = picture(link)
    return Output(content=inline.content, place=place) if inline else Output(url=link, place=place)


def _links(value: object, depth: int) -> Iterator[str]:
    """Every address in an output, which is a text, a list or an object as the model likes it."""
    if depth < 0:
        return
    if isinstance(value, str) and value.lower().startswith(("https://", "http://", "data:")):
        yield value
    elif isinstance(value, list | Mapping):
        for part in value if isinstance(value, list) else value.values():
            yield from _links(part, depth - 1)


def _fits(link: str, kind: Kind) -> bool:
    """Whether an address may be of this kind: not if its ending says another, such as a clip's thumbnail."""
    try:
        told = (
            link[5:].partition(";")[0] if link[:5].lower() == "data:" else mimetypes.guess_type(urlsplit(link).path)[0]
        )
    except ValueError:
        return False
    return not told or told.startswith((f"{kind.value}/", "application/octet"))
