"""PURE  What Jimeng's answers mean: two shapes of errors, the state of a task, what it made.

The outer `code` decides between success and failure, `data.status` only says how far it is: a "done" beside another
code than 10000 is a failure. An error of the service has a number for a code, one of the gateway before it has a word
and says nothing of any task.

Sources: volcengine.com/docs/85621/1777001 (query, states), 6444/69728 (codes of the service), 6369/68677 (codes of the
gateway) [docs]; other public adapters [3p]; all read 2026-11-30.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.failures import FailureKind as K
from models.lifecycle import Error, Failed, Finished, Observation, Output, Unknown, Unreadable, Working
from providers.inline import decoded, mapping
from providers.verdicts import Dialect, VendorError, clean

SUCCESS = 10000
NOT_THIS_TASK = "50215"  # on a query: a wrong, stale or rounded id, or another req_key than that of the submit [docs]

CODES: Mapping[str, K] = {
    # The service. Content: 504xx and 50513, 50514, 50518 before the work, 505xx after it, hours late if need be.
    **dict.fromkeys(
        ("50411", "50412", "50413", "50511", "50512", "50513", "50514", "50516", "50517", "50518", "50519"),
        K.CONTENT_FILTERED,
    ),
    **dict.fromkeys(("50520", "50521", "50522"), K.PROVIDER_ERROR),  # the review broke: no word about the content
    **dict.fromkeys(("50429", "50430"), K.RATE_LIMITED),  # calls a second; tasks at one moment
    **dict.fromkeys(("50500", "50501"), K.SERVER_ERROR),
    NOT_THIS_TASK: K.INVALID_PARAMETER,
    "50400": K.MODEL_DENIED,  # the service is not opened for the account
    # The gateway, by its words. All but the last row are said before the service sees anything: surely not taken.
    **dict.fromkeys(("MissingParameter", "MissingRequestInfo"), K.INVALID_PARAMETER),
    **dict.fromkeys(("ServiceNotFound", "InvalidActionOrVersion"), K.INVALID_PARAMETER),
    **dict.fromkeys(("InvalidAccessKey", "SignatureDoesNotMatch", "AccessDenied"), K.PROVIDER_AUTH),
    # A clock that is off, ours most likely: no call passes until it is right, so all wait, and nothing is bought.
    "InvalidTimestamp": K.PROVIDER_AUTH,
    "FlowLimitExceeded": K.RATE_LIMITED,  # [3p]
    **dict.fromkeys(("InternalError", "InternalServiceError", "InternalServiceTimeout"), K.SERVER_ERROR),
}


def error_of(fields: Mapping[str, object]) -> VendorError | None:
    """The error in an answer of either shape, at any status; None for a success, and where there is no code at all."""
    gateway = mapping(mapping(fields.get("ResponseMetadata")).get("Error"))
    if gateway:
        code, words = _word(gateway.get("Code")), _text(gateway.get("Message"))
        hint = " Is the clock of this host right?" if code == "InvalidTimestamp" else ""
        return VendorError(code or None, words + hint)
    code = _word(fields.get("code"))
    if not code or code == str(SUCCESS):
        return None
    return VendorError(code, _text(fields.get("message")))


DIALECT = Dialect(codes=CODES, error_of=error_of)


def task_id(fields: Mapping[str, object]) -> str:
    """The id in the answer to a submit, '' for none. Text: 20 digits do not fit 64 bits."""
    return _word(mapping(fields.get("data")).get("task_id"))


def from_wire(fields: Mapping[str, object]) -> Observation:
    """What the answer to a query says of its task. Total: one without a state is Unreadable."""
    data = mapping(fields.get("data"))
    word = data.get("status")
    if not isinstance(word, str) or not word:
        return Unreadable(error=Error(kind=K.UNREADABLE, message="The answer names no state."))
    match word:
        case "done":
            return Finished(outputs=_outputs(data))
        case "not_found":  # or older than 12 hours
            return Unknown()
        case "expired":  # what became of it is not said: it may have been made, and billed
            late = Error(kind=K.UPSTREAM_LOST, message="The provider let the task expire.", upstream_code=word)
            return Failed(error=late)
        case _:  # in_queue, generating, and whatever they think of next
            return Working(word=clean(word)[:40])


def _outputs(data: Mapping[str, object]) -> tuple[Output, ...]:
    """Links before bytes: where both are filled they are the same pictures. Every field may be null or absent."""
    links = [*_texts(data.get("video_url")), *_texts(data.get("image_urls"))]
    if links:
        return tuple(Output(url=link, place=place) for place, link in enumerate(links))
    made = _texts(data.get("binary_data_base64"))
    # What is no base64 is judged with the other bytes: a page is no picture.
    return tuple(Output(content=decoded(one) or one.encode("utf-8", "replace"), place=n) for n, one in enumerate(made))


def _texts(value: object) -> list[str]:
    """The texts in a list, or the text itself: the type of these fields varies."""
    found = value if isinstance(value, list) else [value]
    return [one for one in found if isinstance(one, str) and one]


def _word(value: object) -> str:
    """A code or an id, which come as numbers or as text."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if whole else value if isinstance(value, str) else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
