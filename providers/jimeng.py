"""Jimeng (Volcengine's visual service): pictures and clips, each a task that is asked about by itself.

`to_wire` is pure, as are providers/jimeng_wire.py, which reads the answers, and providers/jimeng_signing.py. There is
one address for everything; the action is in its query. A query must name the `req_key` of the submit, so a receipt is
both: `jimeng_t2i_v40:7392616336519610409`.

    credential  two parts in one string, ACCESS:SECRET; without the colon every call ends before the wire
    cancel      none: CVCancelTask is in the SDK, but no page says that it knows these tasks
    find        none: no key against repeats, no list; a submit whose answer was lost cannot be looked up

Sources as in providers/jimeng_models.py and providers/jimeng_wire.py, and the official Python SDK volcengine 1.0.229.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit

from models.contract import Kind
from models.failures import FailureKind as K
from models.lifecycle import Error, Failed, Finished, Observation, Unknown, Unreadable
from models.settings import Polling, ProviderSettings, Retries
from providers.calls import side_by_side, within
from providers.http import Answer, Ask, Http
from providers.inline import picture
from providers.jimeng_models import MODELS
from providers.jimeng_signing import Call, Credential, signed_headers
from providers.jimeng_wire import CODES, DIALECT, NOT_THIS_TASK, from_wire, task_id
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

_SUBMIT, _QUERY, _VERSION = "CVSync2AsyncSubmitTask", "CVSync2AsyncGetResult", "2022-08-31"
_SOME_MODEL, _NOBODYS = "jimeng_t2i_v40", "7000000000000000000"  # a task's id in form
_LINKS = json.dumps({"return_url": True})
_ANSWER_MAX_BYTES = 100_000_000  # pictures as base64, where no link comes: a 4K PNG has about 25 MB


def to_wire(job: Job) -> dict[str, object]:
    """The body of the submit of `job`. Raises KeyError for a model that is not in `MODELS`."""
    model = MODELS[job.model]
    return {"req_key": job.model, **model.shape(job.effective), **_references(job)}


def _references(job: Job) -> dict[str, object]:
    """The pictures that come along: all as base64, without a `data:` head, or all as links.

    Bytes go before links, since the vendor's own fetch is one more thing to fail. Pictures 4 are documented for links
    only, so there a link stays one; what has no link goes as base64 all the same [unconfirmed].
    """
    model = MODELS[job.model]
    given = [(name, job.effective[name]) for name in model.references if job.effective.get(name)]
    if not given:
        return {}
    linked = all(isinstance(one, str) and one.startswith(("https://", "http://")) for _, one in given)
    held = [job.inputs.get(name) or picture(one) for name, one in given]
    bytes_of = [one.content for one in held if one is not None]
    if len(bytes_of) == len(given) and (model.takes_bytes or not linked):
        return {"binary_data_base64": [base64.b64encode(one).decode() for one in bytes_of]}
    return {"image_urls": [one for _, one in given]}


class Jimeng:
    """One account of the visual service. See providers.port.Provider."""

    def __init__(self, name: str, settings: ProviderSettings, key: str, *, retries: Retries, polling: Polling) -> None:
        self.name = name
        self.capabilities = Capabilities(
            kinds=frozenset(Kind),
            models={model: entry.bounds for model, entry in MODELS.items()},
            cancel=False,
            find=False,
        )
        self._polling, self._credential = polling, Credential.read(key)
        parts = urlsplit(settings.base_url)
        usual = {"http": 80, "https": 443}.get(parts.scheme)
        named = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        # As the header is signed: with the port, unless it is the usual one [SDK].
        self._host = named if parts.port in (None, usual) else f"{named}:{parts.port}"
        self._path = parts.path.rstrip("/") + "/"
        self._http = Http(
            dataclasses.replace(settings, base_url=settings.base_url.rstrip("/")),
            DIALECT,
            secrets=tuple(part for part in key.split(":") if part),
            retries=retries,
            answer_max_bytes=_ANSWER_MAX_BYTES,
        )

    def submit(self, job: Job) -> Outcome:
        """Ask for one upstream job. Never repeated: the vendor has no key against that."""
        if job.model not in MODELS:
            message = f"The adapter does not know the model {job.model}."
            return Refused(error=Error(kind=K.INVALID_PARAMETER, message=message))
        try:
            answer = self._http.submit(self._ask("submit", _SUBMIT, to_wire(job)))
        except ProviderError as exc:
            return outcome_of(exc)
        found = task_id(answer.fields)
        if found:
            return Accepted(receipt=f"{job.model}:{found}", request_id=answer.request_id)
        return Uncertain(error=Error(kind=K.UNREADABLE, message="The answer names no task id."))

    def observe(self, receipts: Sequence[str], kind: Kind) -> Mapping[str, Observation]:
        """What is known of these jobs now, one query each; after a "slow down" the rest waits for the next round."""
        slow_down, polling = threading.Event(), self._polling

        def one(receipt: str) -> Observation | None:
            if slow_down.is_set():
                return None
            try:
                return self._seen(receipt)
            except ProviderError as exc:
                if exc.kind is K.RATE_LIMITED:
                    slow_down.set()
                return _from_error(exc, kind)

        with within(polling.round_s):
            found = side_by_side(one, tuple(dict.fromkeys(receipts)), polling.side_by_side, polling.round_s)
        return {receipt: seen for receipt, seen in found.items() if seen is not None}

    def cancel(self, job: Job) -> CancelAnswer:
        """Nothing can be stopped: the task goes on."""
        del job
        return CancelAnswer.REFUSED

    def find(self, job: Job) -> FindAnswer:
        """Nothing can be looked up: the vendor neither keeps our reference nor lists tasks."""
        del job
        return FindAnswer.UNCLEAR

    def check(self) -> None:
        """Ask about a task that there never was: whether it is refused says all about the credential."""
        try:
            self._http.once(self._ask("check", _QUERY, {"req_key": _SOME_MODEL, "task_id": _NOBODYS}))
        except ProviderError as exc:
            if exc.upstream_code != NOT_THIS_TASK:
                raise

    def result_headers(self) -> Mapping[str, str]:
        """None: result links are signed."""
        return {}

    def _ask(self, operation: str, action: str, body: Mapping[str, object], receipts: tuple[str, ...] = ()) -> Ask:
        """A call, signed now. Raises ProviderError PROVIDER_AUTH when the key has no two parts."""
        if self._credential is None:
            message = "The key of this provider must be ACCESS:SECRET, an access key and its secret."
            raise ProviderError(K.PROVIDER_AUTH, message)
        query, sent = {"Action": action, "Version": _VERSION}, json.dumps(body, allow_nan=False).encode()
        call = Call(host=self._host, path=self._path, query=query, body=sent)
        headers = signed_headers(call, self._credential, datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"))
        return Ask(
            operation=operation, method="POST", path="/", params=query, headers=headers, body=sent, receipts=receipts
        )

    def _seen(self, receipt: str) -> Observation:
        """One task as it stands. Raises ProviderError."""
        seen = from_wire(self._query(receipt, {"req_json": _LINKS}).fields)
        if isinstance(seen, Finished) and not seen.outputs:
            # "Done" and no link: whoever asks without wanting links may be given the bytes [docs].
            try:
                again = from_wire(self._query(receipt, {}).fields)
            except ProviderError as exc:
                return Unreadable(error=exc.error(), retry_after_s=exc.retry_after_s)
            return again if isinstance(again, Finished) else seen
        return seen

    def _query(self, receipt: str, more: Mapping[str, object]) -> Answer:
        model, _, task = receipt.rpartition(":")
        body = {"req_key": model or _SOME_MODEL, "task_id": task, **more}
        return self._http.read(self._ask("observe", _QUERY, body, (receipt,)))


def _from_error(exc: ProviderError, kind: Kind) -> Observation:
    """What an error in answer to a query says of its task: nothing, unless it has a code of the service's own."""
    code = exc.upstream_code or ""
    no_news = Unreadable(error=exc.error(), retry_after_s=exc.retry_after_s)
    if not code.isdecimal():  # the gateway, a page, the socket
        return no_news
    if code == NOT_THIS_TASK:
        return Unknown()
    if exc.kind in (K.RATE_LIMITED, K.MODEL_DENIED):  # of the account
        return no_news
    # An end on the pages of pictures, "try again" on those of clips [docs]; it was asked several times by now.
    if exc.kind is K.SERVER_ERROR and (kind is Kind.VIDEO or code not in CODES):
        return no_news
    # Any other number is the end of the task, and makes nothing [docs]: of the content, else of the vendor.
    # An error of the service's own may be the query's and not the task's: an end, and not a certain one.
    reason = exc.kind if exc.kind in (K.CONTENT_FILTERED, K.SERVER_ERROR) else K.PROVIDER_ERROR
    return Failed(error=dataclasses.replace(exc.error(), kind=reason))
