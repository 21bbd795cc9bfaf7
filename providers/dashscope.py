"""Alibaba Cloud Model Studio (DashScope): Wan and qwen-image pictures, Wan clips.

`to_wire` and `from_wire` are pure; the class below them only carries. Every model is asynchronous:
a submit gives a task id, a task is asked about by id, or many at once by the listing of unfinished
work.

What is always sent, because the vendor's own default costs money or changes what was asked: `n` (4
on Wan), `size` (1080P on clips), `duration`, `seed`, `prompt_extend: false` (a rewritten prompt),
`watermark: false`.

Sources: the official Python SDK dashscope 2.0.2 [SDK], help.aliyun.com/zh/model-studio, pages
text-to-image-v2-api- reference, qwen-image-api, text-to-video-api-reference,
manage-asynchronous-tasks and error-code [docs], other public adapters [3p]; all read 2026-11-30.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
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
from models.settings import Polling, ProviderSettings, Retries
from providers.calls import side_by_side, within
from providers.dashscope_models import MODELS
from providers.http import Ask, Http
from providers.port import (
    Accepted,
    CancelAnswer,
    Capabilities,
    FindAnswer,
    Job,
    Outcome,
    ProviderError,
    Refused,
    Uncertain,
    outcome_of,
)
from providers.verdicts import Dialect, VendorError, clean, code_kind

_API = "/api/v1"


def to_wire(job: Job) -> Ask:
    """The submit call of `job`. Raises KeyError for a model that is not in `MODELS`."""
    model = MODELS[job.model]
    given, parameters = model.shape(job.effective)
    return Ask(
        operation="submit",
        method="POST",
        path=_API + model.path,
        headers={"X-DashScope-Async": "enable"},  # without it 403 AccessDenied on these models [docs]
        body={"model": job.model, "input": given, "parameters": parameters},
    )


# [docs] error-code; dotted codes that are not listed are read without their last part.
CODES: Mapping[str, K] = {
    **dict.fromkeys(
        ("InvalidParameter", "BadRequest", "InvalidURL", "InvalidImage", "InvalidImageResolution"),
        # InvalidParameter.DataInspection too: the media could not be loaded, no policy hit
        K.INVALID_PARAMETER,
    ),
    **dict.fromkeys(
        (
            "InvalidImageFormat",
            "UnsupportedOperation",
            "ModelNotFound",
            "Model",
            "WorkSpaceNotFound",
            "NotFound",
        ),
        K.INVALID_PARAMETER,
    ),
    **dict.fromkeys(
        (
            "DataInspectionFailed",
            "data_inspection_failed",
            "IPInfringementSuspect",
            "CustomRoleBlocked",
            "FaqRuleBlocked",
        ),
        K.CONTENT_FILTERED,
    ),
    # about one model, not about the credential: the others go on
    **dict.fromkeys(("Model.AccessDenied", "AccessDenied.Unpurchased"), K.MODEL_DENIED),
    **dict.fromkeys(
        (
            "InvalidApiKey",
            "NOT AUTHORIZED",
            "AccessDenied",
            "Workspace",
            "BailianGateway",
        ),
        K.PROVIDER_AUTH,
    ),
    **dict.fromkeys(
        (
            "Arrearage",
            "AllocationQuota",
            "CommodityNotPurchased",
            "PrepaidBillOverdue",
            "PostpaidBillOverdue",
        ),
        K.PROVIDER_QUOTA,
    ),
    **dict.fromkeys(("Throttling", "insufficient_quota"), K.RATE_LIMITED),
    **dict.fromkeys(("ModelServingError", "ModelUnavailable", "ServiceUnavailable"), K.OVERLOADED),
    **dict.fromkeys(
        (
            "InternalError",
            "SystemError",
            "ModelServiceFailed",
            "RequestTimeOut",
            "ResponseTimeout",
            "GatewayTimeout",
        ),
        K.SERVER_ERROR,
    ),
}
_OF_THE_JOB = frozenset({K.INVALID_PARAMETER, K.CONTENT_FILTERED, K.PROVIDER_AUTH, K.PROVIDER_QUOTA})


def error_of(fields: Mapping[str, object]) -> VendorError | None:
    """The error in an answer.

    A top-level `code` and no task. With a task it is the task's own reason instead.
    """
    if _mapping(fields.get("output")):
        return None
    inner = _mapping(fields.get("error"))  # the shape of the OpenAI-compatible paths
    code = fields.get("code") or inner.get("code")
    message = fields.get("message") or inner.get("message")
    if not code and not message:
        return None
    return VendorError(str(code) if code else None, message if isinstance(message, str) else "")


DIALECT = Dialect(codes=CODES, error_of=error_of)


def from_wire(fields: Mapping[str, object], secrets: tuple[str, ...] = ()) -> Observation:
    """What a query's JSON says of its task. Total: an answer without a task is Unreadable."""
    output = _mapping(fields.get("output"))
    word = output.get("task_status")
    if not isinstance(word, str) or not word:
        return Unreadable(error=Error(kind=K.UNREADABLE, message="The answer names no state."))
    match word:
        case "SUCCEEDED":
            return _finished(output, fields, secrets)
        case "FAILED":
            code = output.get("code") or fields.get("code")
            message = output.get("message") or fields.get("message")
            return Failed(error=_reason(code, message, secrets))
        case "CANCELED":
            return Canceled()
        case "UNKNOWN":  # an id that is unknown, older than 24 h or of another region, with HTTP 200
            return Unknown()
        case _:  # PENDING, RUNNING, SUSPENDED, and whatever they think of next
            return Working(word=clean(word)[:40])


def _reason(code: object, message: object, secrets: tuple[str, ...]) -> Error:
    named = code if isinstance(code, str) else None
    kind = code_kind(named, CODES)
    kind = kind if kind in _OF_THE_JOB else K.PROVIDER_ERROR
    return Error(
        kind=kind or K.PROVIDER_ERROR,
        message=clean(message, secrets) or FAILURES[kind or K.PROVIDER_ERROR].message,
        upstream_code=clean(named, secrets)[:100] or None,
    )


def _finished(output: Mapping[str, object], fields: Mapping[str, object], secrets: tuple[str, ...]) -> Finished:
    """Links and reasons, in the vendor's order.

    "Done" with neither gives no outputs and nothing missing.
    """
    outputs, missing, bare = [], [], 0
    for place, part in enumerate(_parts(output)):
        url = next((part[name] for name in ("url", "image", "video_url") if part.get(name)), None)
        if isinstance(url, str):
            outputs.append(Output(url=url, place=place))
        elif part.get("code"):
            error = _reason(part["code"], part.get("message"), secrets)
            missing.append(Missing(kind=error.kind, message=error.message, upstream_code=error.upstream_code))
        else:
            bare += 1
    counted = _number(_mapping(output.get("task_metrics")).get("FAILED")) or 0
    silent = max(bare, int(counted) - len(missing))
    if outputs and silent > 0:
        missing += [Missing(kind=K.RESULT_MISSING, message=FAILURES[K.RESULT_MISSING].message)] * silent
    return Finished(outputs=tuple(outputs), missing=tuple(missing), usage=_usage(fields))


def _parts(output: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Every place a result may stand in.

    `results` (pictures), `choices` (message models), `video_url` (clips).
    """
    results = output.get("results")
    found = list(results) if isinstance(results, list) else [results]
    choices = output.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        content = _mapping(_mapping(choice).get("message")).get("content")
        found += [p for p in (content if isinstance(content, list) else []) if not _mapping(p).get("text")]
    if output.get("video_url"):
        found.append({"video_url": output["video_url"]})
    return [_mapping(part) for part in found if part is not None]


def _usage(fields: Mapping[str, object]) -> dict[str, object]:
    """The usage block with numbers as numbers.

    `SR` is 720 on one page and "720" in a sample of another.
    """
    found: dict[str, object] = {}
    for name, value in _mapping(fields.get("usage")).items():
        number = _number(value)
        if number is not None:
            found[name] = number
        elif isinstance(value, str):
            found[name] = clean(value)[:40]
    return found


def _number(value: object) -> float | None:
    """A finite number, also from text; whole ones as int."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return (int(number) if number.is_integer() else number) if math.isfinite(number) else None


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


_LIST_FROM = 5  # receipts; fewer are asked one by one, which says more for the same number of calls
_PAGE = 100
_PAGES_MAX = 50
_NOBODYS = "00000000-0000-0000-0000-000000000000"  # a task's id in form; the answer is 200 with UNKNOWN


class DashScope:
    """One DashScope account. See providers.port.Provider."""

    def __init__(self, name: str, settings: ProviderSettings, key: str, *, retries: Retries, polling: Polling) -> None:
        self.name = name
        self.capabilities = Capabilities(
            kinds=frozenset(Kind),
            models={model: entry.bounds for model, entry in MODELS.items()},
            cancel=True,  # of what is still PENDING there
            find=False,  # no caller's tag is in the list [docs]
            list_call=settings.list_call,
            list_from=_LIST_FROM,
        )
        self._polling, self._secrets = polling, (key,)
        base_url = settings.base_url.rstrip("/").removesuffix(_API)
        self._http = Http(
            dataclasses.replace(settings, base_url=base_url),
            DIALECT,
            headers={"Authorization": f"Bearer {key}"},
            secrets=self._secrets,
            retries=retries,
        )

    def submit(self, job: Job) -> Outcome:
        """Ask for one upstream job."""
        if job.model not in MODELS:
            message = f"The adapter does not know the model {job.model}."
            return Refused(error=Error(kind=K.INVALID_PARAMETER, message=message))
        try:
            answer = self._http.submit(to_wire(job))
        except ProviderError as exc:
            return outcome_of(exc)
        receipt = _mapping(answer.fields.get("output")).get("task_id")
        if isinstance(receipt, str) and receipt:
            return Accepted(receipt=receipt, request_id=answer.request_id)
        return Uncertain(error=Error(kind=K.UNREADABLE, message="The answer names no task id."))

    def observe(self, receipts: Sequence[str], kind: Kind) -> Mapping[str, Observation]:  # noqa: ARG002
        """What is known of these jobs now."""
        asked = tuple(dict.fromkeys(receipts))
        with within(self._polling.round_s):
            seen: dict[str, Observation] = {}
            if self.capabilities.list_call and len(asked) >= _LIST_FROM:
                try:
                    self._unfinished(asked, seen)
                except ProviderError as exc:
                    if not FAILURES[exc.kind].certain or FAILURES[exc.kind].repeat:
                        return dict.fromkeys(asked, _unreadable(exc)) | seen
            # Not in the listing says nothing: it may have ended, be older than the page, or younger
            # than the list.
            return seen | self._singly([receipt for receipt in asked if receipt not in seen])

    def cancel(self, job: Job) -> CancelAnswer:
        """Ask to stop this job; the vendor does so only while it waits."""
        if not job.receipt:
            return CancelAnswer.UNCLEAR
        path = f"{_API}/tasks/{quote(job.receipt, safe='')}/cancel"
        ask = Ask(operation="cancel", method="POST", path=path, receipts=(job.receipt,))
        try:
            self._http.once(ask)
        except ProviderError as exc:
            refused = exc.upstream_code == "UnsupportedOperation"
            return CancelAnswer.REFUSED if refused else CancelAnswer.UNCLEAR
        return CancelAnswer.CONFIRMED

    def find(self, job: Job) -> str | FindAnswer:  # noqa: ARG002
        """A lost submit cannot be looked up: neither call nor list carries a tag of ours."""
        return FindAnswer.UNCLEAR

    def check(self) -> None:
        """Ask for the newest task of the account, or where lists are not to be asked for, about one there never was."""
        listed = {"page_no": "1", "page_size": "1"} if self.capabilities.list_call else {}
        path = f"{_API}/tasks" if listed else f"{_API}/tasks/{_NOBODYS}"
        self._http.once(Ask(operation="check", path=path, params=listed))

    def result_headers(self) -> Mapping[str, str]:
        """None: result links are signed."""
        return {}

    def _singly(self, receipts: Sequence[str]) -> dict[str, Observation]:
        """One query each; when the vendor says "slow down", the rest waits for the next round."""
        slow_down = threading.Event()

        def one(receipt: str) -> Observation | None:
            if slow_down.is_set():
                return None
            path = f"{_API}/tasks/{quote(receipt, safe='')}"
            try:
                answer = self._http.read(Ask(operation="observe", path=path, receipts=(receipt,)))
            except ProviderError as exc:
                if exc.kind is K.RATE_LIMITED:
                    slow_down.set()
                return _unreadable(exc)
            return from_wire(answer.fields, self._secrets)

        polling = self._polling
        found = side_by_side(one, receipts, polling.side_by_side, polling.round_s)
        return {receipt: seen for receipt, seen in found.items() if seen is not None}

    def _unfinished(self, asked: tuple[str, ...], seen: dict[str, Observation]) -> None:
        """Put those of `asked` that the vendor lists as at work into `seen`.

        Pages are turned while that takes fewer calls than asking the rest one by one. Raises
        ProviderError, with what was found until then in `seen`.
        """
        wanted = set(asked)
        for status in ("RUNNING", "PENDING"):
            page, pages = 1, 1.0
            while page <= min(pages, _PAGES_MAX) and len(wanted) - len(seen) > pages - page:
                fields = self._page(status, page, asked)
                listed = fields.get("data") or fields.get("tasks")  # docs and SDK 2.x differ
                for item in listed if isinstance(listed, list) else []:
                    receipt = str(_mapping(item).get("task_id"))
                    if receipt in wanted:
                        seen[receipt] = Working(word=status)
                page, pages = page + 1, _number(fields.get("total_page")) or 1

    def _page(self, status: str, page: int, asked: tuple[str, ...]) -> Mapping[str, object]:
        params = {"status": status, "page_no": str(page), "page_size": str(_PAGE)}
        ask = Ask(operation="observe", path=f"{_API}/tasks", params=params, receipts=asked)
        return self._http.read(ask).fields


def _unreadable(exc: ProviderError) -> Unreadable:
    return Unreadable(error=exc.error(), retry_after_s=exc.retry_after_s)
