"""OpenAI: pictures (synchronous), clips (asynchronous), and every server that speaks the same shape.

A picture's submit holds the connection until the picture is made and answers with its bytes: the receipt is our own
reference, and there is nothing to ask afterwards. A clip's submit gives an id; clips are asked about by the listing,
whose items say all that a query says, or one by one; their bytes come from the API itself and need our key. Nothing
can be canceled: a picture's connection may be closed, but the vendor goes on and bills [3P]; of clips only ended ones
can be deleted [SPEC]. A lost submit cannot be looked up: no list carries a tag of ours.

Models are in openai_models, what is said and understood in openai_wire, with the sources and their marks.
"""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Mapping, Sequence

from models.contract import Kind
from models.failures import FAILURES
from models.failures import FailureKind as K
from models.lifecycle import Error, Failed, Observation, Unknown, Unreadable
from models.settings import Polling, ProviderSettings, Retries
from providers.calls import side_by_side, within
from providers.http import Answer, Ask, Http
from providers.inline import mapping
from providers.openai_models import BOUNDS, SYNCHRONOUS
from providers.openai_wire import (
    DIALECT,
    UnusableError,
    clip_from_wire,
    clip_path,
    pictures_from_wire,
    to_wire,
)
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

ANSWER_MAX_BYTES = 160_000_000  # ten pictures of 2560 x 1440, or two of 3840 x 2160, uncompressed and as base64
_LIST_FROM = 3  # receipts; fewer are asked one by one for no more calls
_PAGE = 100  # records [U]: the largest that is known to be taken
_PAGES_MAX = 20
_VERSIONED = re.compile(r"/v\d+(alpha|beta)?\d*$")


class OpenAI:
    """One key of one server. See providers.port.Provider."""

    def __init__(self, name: str, settings: ProviderSettings, key: str, *, retries: Retries, polling: Polling) -> None:
        self.name = name
        self.capabilities = Capabilities(
            kinds=frozenset(Kind),
            models=BOUNDS,
            cancel=False,
            find=False,
            list_call=settings.list_call,
            list_from=_LIST_FROM,
            synchronous=SYNCHRONOUS,
        )
        self._polling, self._secrets = polling, (key,)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._base_url = versioned(settings.base_url)
        self._http = Http(
            dataclasses.replace(settings, base_url=self._base_url),
            DIALECT,
            headers=self._headers,
            secrets=self._secrets,
            retries=retries,
            answer_max_bytes=ANSWER_MAX_BYTES,
        )

    def submit(self, job: Job) -> Outcome:
        """Ask for one upstream job; a picture's comes back finished."""
        try:
            ask = to_wire(job)
        except KeyError:
            return _refused(f"The adapter does not know the model {job.model}.")
        except UnusableError as exc:
            return _refused(str(exc))
        try:
            answer = self._http.submit(ask, synchronous=job.kind is Kind.IMAGE)
        except ProviderError as exc:
            return outcome_of(exc)
        if job.kind is Kind.IMAGE:
            return self._made(job, answer)
        receipt = answer.fields.get("id")
        if isinstance(receipt, str) and receipt:
            return Accepted(receipt=receipt, request_id=answer.request_id)
        return Uncertain(error=Error(kind=K.UNREADABLE, message="The answer names no clip."))

    def _made(self, job: Job, answer: Answer) -> Outcome:
        if "data" not in answer.fields:  # JSON, but of somebody else: it says nothing about the picture
            return Uncertain(error=Error(kind=K.UNREADABLE, message="The answer has no list of images."))
        asked = job.effective["image_count"]
        assert isinstance(asked, int)  # the contract's, checked
        seen = pictures_from_wire(answer.fields, asked, self._secrets)
        if isinstance(seen, Failed):
            return Refused(error=seen.error)
        return Accepted(receipt=job.reference, finished=seen, request_id=answer.request_id)

    def observe(self, receipts: Sequence[str], kind: Kind) -> Mapping[str, Observation]:
        """What is known of these clips now. Of a picture nothing is ever kept there: Unknown, without a call."""
        asked = tuple(dict.fromkeys(receipts))
        if kind is Kind.IMAGE:
            return dict.fromkeys(asked, Unknown())
        seen: dict[str, Observation] = {}
        with within(self._polling.round_s):
            if self.capabilities.list_call and len(asked) >= _LIST_FROM:
                try:
                    self._listed(asked, seen)
                except ProviderError as exc:
                    if not FAILURES[exc.kind].certain or FAILURES[exc.kind].repeat:
                        return dict.fromkeys(asked, _unreadable(exc)) | seen
            # Not in the listing says nothing: it may be older than the pages that were turned.
            return seen | self._singly([receipt for receipt in asked if receipt not in seen])

    def cancel(self, job: Job) -> CancelAnswer:  # noqa: ARG002
        """Never: there is no such call."""
        return CancelAnswer.REFUSED

    def find(self, job: Job) -> str | FindAnswer:  # noqa: ARG002
        """A lost submit cannot be looked up."""
        return FindAnswer.UNCLEAR

    def check(self) -> None:
        """List the models. A server that copies this shape without them has answered, too."""
        try:
            self._http.once(Ask(operation="check", path="/models"))
        except ProviderError as exc:
            if exc.http_status not in (404, 405):
                raise

    def result_headers(self) -> Mapping[str, str]:
        """Our key, which a clip's content asks for."""
        return dict(self._headers)

    def _listed(self, asked: tuple[str, ...], seen: dict[str, Observation]) -> None:
        """Put those of `asked` that the listing has, newest first, into `seen`.

        Pages are turned while that takes fewer calls than asking the rest one by one. Raises ProviderError, with what
        was found until then in `seen`.
        """
        wanted, params = set(asked), {"limit": str(_PAGE), "order": "desc"}
        for page in range(_PAGES_MAX):
            if len(wanted) - len(seen) <= page:
                return
            answer = self._http.read(Ask(operation="observe", path="/videos", params=params, receipts=asked))
            listed = answer.fields.get("data")
            records = [mapping(record) for record in listed] if isinstance(listed, list) else []
            for record in records:
                receipt = record.get("id")
                if isinstance(receipt, str) and receipt in wanted:
                    seen[receipt] = clip_from_wire(record, self._base_url, self._secrets)
            last = answer.fields.get("last_id") or (records[-1].get("id") if records else None)
            if answer.fields.get("has_more") is not True or not isinstance(last, str) or params.get("after") == last:
                return
            params = {**params, "after": last}

    def _singly(self, receipts: Sequence[str]) -> dict[str, Observation]:
        """One query each; when the vendor says "slow down", the rest waits for the next round."""
        slow_down = threading.Event()

        def one(receipt: str) -> Observation | None:
            if slow_down.is_set():
                return None
            try:
                answer = self._http.read(Ask(operation="observe", path=clip_path(receipt), receipts=(receipt,)))
            except ProviderError as exc:
                if exc.kind is K.RATE_LIMITED:
                    slow_down.set()
                # JSON of the API itself, not of a router or a proxy on the way
                gone = exc.http_status == 404 and exc.kind is K.INVALID_PARAMETER
                return Unknown() if gone else _unreadable(exc)
            return clip_from_wire(answer.fields, self._base_url, self._secrets)

        polling = self._polling
        found = side_by_side(one, receipts, polling.side_by_side, polling.round_s)
        return {receipt: seen for receipt, seen in found.items() if seen is not None}


def versioned(base_url: str) -> str:
    """The base with its version: /v1 where none is written, whatever is written where one is."""
    plain = base_url.rstrip("/")
    return plain if _VERSIONED.search(plain) else f"{plain}/v1"


def _refused(message: str) -> Refused:
    return Refused(error=Error(kind=K.INVALID_PARAMETER, message=message))


def _unreadable(exc: ProviderError) -> Unreadable:
    return Unreadable(error=exc.error(), retry_after_s=exc.retry_after_s)
