"""Replicate: pictures and clips of the models it hosts, official, by version or by deployment.

Everything is asynchronous. A prediction is asked about by its id, or many of them with the list of the newest ones.
Models are in replicate_models, signed callbacks in replicate_callbacks. `Prefer: wait` is never sent: it answers with
outputs whose state has not ended.

    inputs   a reference picture goes inside the request while it is small, else it is uploaded first
    cancel   stops what waits and what runs; the state that it is answered with is the verdict
    find     no idempotency key, and nothing of ours is told back: only a callback can name a lost prediction

Sources as in providers/replicate_wire.py.
"""

from __future__ import annotations

import base64
import dataclasses
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from urllib.parse import parse_qsl, quote, urlsplit

from models.contract import Kind
from models.failures import FAILURES
from models.failures import FailureKind as K
from models.lifecycle import Canceled, Error, Failed, Finished, Observation, Unknown, Unreadable, Working
from models.settings import Polling, ProviderSettings, Retries
from providers.calls import side_by_side, within
from providers.http import Ask, Http
from providers.inline import Picture, form, mapping
from providers.port import (
    Accepted,
    CancelAnswer,
    Capabilities,
    FindAnswer,
    Job,
    NotAccepted,
    Outcome,
    ProviderError,
    Refused,
    Uncertain,
    outcome_of,
)
from providers.replicate_callbacks import Callbacks
from providers.replicate_models import BOUNDS, model_of
from providers.replicate_wire import API, DIALECT, from_wire, to_wire

_INLINE_MAX_BYTES = 256 * 1024  # of a picture; above it the vendor advises an upload [DOC]
_LIST_FROM = 5  # receipts; fewer are asked about singly
_PAGES_MAX = 5  # of a hundred predictions each, of everybody who has the account's token
_CLOCKS_S = 60.0  # what their clock and ours may differ by
_NOBODYS = "00000000000000000000000000"  # an id in form
_PREDICTIONS = f"{API}/predictions"


class Replicate:
    """One account's token. See providers.port.Provider."""

    def __init__(self, name: str, settings: ProviderSettings, key: str, *, retries: Retries, polling: Polling) -> None:
        self.name = name
        self._polling, self._secrets = polling, (key,)
        self._http = Http(
            dataclasses.replace(settings, base_url=settings.base_url.rstrip("/").removesuffix(API)),
            DIALECT,
            headers={"Authorization": f"Bearer {key}"},
            secrets=self._secrets,
            retries=retries,
        )
        self.capabilities = Capabilities(
            kinds=frozenset(Kind),
            models=BOUNDS,
            cancel=True,
            find=False,  # only with an id that a callback lent
            list_call=settings.list_call,
            list_from=_LIST_FROM,
            callback=Callbacks(self._http).read,
        )

    def submit(self, job: Job) -> Outcome:
        """Ask for one upstream job; large reference pictures are uploaded before, which makes and costs nothing."""
        if model_of(job.model) is None:
            message = f"The adapter does not know the model {job.model}."
            return Refused(error=Error(kind=K.INVALID_PARAMETER, message=message))
        try:
            links = {ours: self._link(given) for ours, given in job.inputs.items()}
        except ProviderError as exc:
            return _not_handed_over(exc)
        try:
            answer = self._http.submit(to_wire(job, links))
        except ProviderError as exc:
            return outcome_of(exc)
        receipt = answer.fields.get("id")
        if isinstance(receipt, str) and receipt:
            return Accepted(receipt=receipt, request_id=answer.request_id)
        return Uncertain(error=Error(kind=K.UNREADABLE, message="The answer names no prediction."))

    def observe(self, receipts: Sequence[str], kind: Kind) -> Mapping[str, Observation]:
        """What is known of these predictions now."""
        asked = tuple(dict.fromkeys(receipts))
        seen: dict[str, Observation] = {}
        with within(self._polling.round_s):
            if self.capabilities.list_call and len(asked) >= _LIST_FROM:
                try:
                    self._listed(asked, kind, seen)
                except ProviderError as exc:
                    # A list that cannot be read may be too long: it holds the inputs of strangers' predictions too.
                    facts = FAILURES[exc.kind]
                    if exc.kind is not K.UNREADABLE and (facts.repeat or facts.waits or not facts.certain):
                        return dict.fromkeys(asked, _unreadable(exc)) | seen
            # Not in the list says nothing: it may be older than the pages that were turned.
            return seen | self._singly([receipt for receipt in asked if receipt not in seen], kind)

    def cancel(self, job: Job) -> CancelAnswer:
        """Ask to stop this prediction, if it has not ended: a cancel is answered with 200 then, too [U]."""
        if not job.receipt:
            return CancelAnswer.UNCLEAR
        path, receipts = _prediction(job.receipt) + "/cancel", (job.receipt,)
        try:
            before = from_wire(self._prediction(job.receipt, "cancel"), job.kind)
            if not isinstance(before, Working):
                return CancelAnswer.UNCLEAR if isinstance(before, Canceled | Unreadable) else CancelAnswer.REFUSED
            ask = Ask(operation="cancel", method="POST", path=path, receipts=receipts, bodiless=True)
            after = from_wire(self._http.once(ask).fields, job.kind)
            if isinstance(after, Working | Unreadable):  # it may take its time
                after = from_wire(self._prediction(job.receipt, "cancel"), job.kind)
        except ProviderError:
            return CancelAnswer.UNCLEAR
        if isinstance(after, Canceled):
            return CancelAnswer.CONFIRMED
        return CancelAnswer.REFUSED if isinstance(after, Finished | Failed) else CancelAnswer.UNCLEAR

    def find(self, job: Job) -> str | FindAnswer:
        """The receipt of a lost prediction, if a callback lent its id as `job.receipt`: the vendor is asked for it.

        A list is of no use: two tasks of one prompt and seed look the same in it, and the webhook is not told back.
        """
        if not job.receipt:
            return FindAnswer.UNCLEAR
        try:
            with within(self._polling.round_s):
                told = self._prediction(job.receipt, "find")
        except ProviderError:
            return FindAnswer.LATER
        return job.receipt if _is_of(told, job) else FindAnswer.UNCLEAR

    def check(self) -> None:
        """Ask about a prediction that there never was: a list may be megabytes."""
        try:
            self._http.once(Ask(operation="check", path=_prediction(_NOBODYS)))
        except ProviderError as exc:
            if not _gone(exc):
                raise

    def result_headers(self) -> Mapping[str, str]:
        """None: links at replicate.delivery are public, and our token is for the API's host alone."""
        return {}

    def _prediction(self, receipt: str, operation: str = "observe") -> Mapping[str, object]:
        """One prediction as it stands. Raises ProviderError."""
        return self._http.read(Ask(operation=operation, path=_prediction(receipt), receipts=(receipt,))).fields

    def _link(self, given: Picture) -> str:
        """What a reference picture goes as. Raises ProviderError where it had to be uploaded and was not."""
        if len(given.content) <= _INLINE_MAX_BYTES:
            return f"data:{given.media_type};base64,{base64.b64encode(given.content).decode()}"
        sent = form({}, [("content", given)])
        headers = {"Content-Type": sent.content_type}
        ask = Ask(operation="upload", method="POST", path=f"{API}/files", headers=headers, body=sent.body)
        link = mapping(self._http.once(ask).fields.get("urls")).get("get")
        if not isinstance(link, str) or not link:
            raise ProviderError(K.UNREADABLE, "The answer names no address.", http_status=200)
        return link

    def _listed(self, asked: tuple[str, ...], kind: Kind, seen: dict[str, Observation]) -> None:
        """Put those of `asked` that the list of the newest tells all of into `seen`.

        Pages are turned while that takes fewer calls than asking the rest one by one. Raises ProviderError, with what
        was found until then in `seen`.
        """
        wanted, params = set(asked), dict[str, str]()
        for page in range(_PAGES_MAX):
            if len(wanted) - len(seen) <= page:
                return
            ask = Ask(operation="observe", path=_PREDICTIONS, params=params, receipts=asked)
            fields = self._http.read(ask).fields
            listed = fields.get("results")
            for record in map(mapping, listed if isinstance(listed, list) else []):
                receipt, one = record.get("id"), from_wire(record, kind, self._secrets)
                if isinstance(receipt, str) and receipt in wanted and _says_all(one):
                    seen[receipt] = one
            params = _query_of(fields.get("next"))
            if not params:
                return

    def _singly(self, receipts: Sequence[str], kind: Kind) -> dict[str, Observation]:
        """One query each; when the vendor says "slow down", the rest waits for the next round."""
        slow_down = threading.Event()

        def one(receipt: str) -> Observation | None:
            if slow_down.is_set():
                return None
            try:
                return from_wire(self._prediction(receipt), kind, self._secrets)
            except ProviderError as exc:
                if exc.kind is K.RATE_LIMITED:
                    slow_down.set()
                return Unknown() if _gone(exc) else _unreadable(exc)

        polling = self._polling
        found = side_by_side(one, receipts, polling.side_by_side, polling.round_s)
        return {receipt: seen for receipt, seen in found.items() if seen is not None}


def _prediction(receipt: str) -> str:
    return f"{_PREDICTIONS}/{quote(receipt, safe='')}"


def _query_of(link: object) -> dict[str, str]:
    """The query of a whole address, whose host is not followed: our token goes to the configured one only."""
    try:
        return dict(parse_qsl(urlsplit(link).query)) if isinstance(link, str) else {}
    except ValueError:
        return {}


def _says_all(seen: Observation) -> bool:
    """Whether a line of the list can stand for a query: one that has ended must bring its result or its reason."""
    match seen:
        case Working() | Canceled() | Failed():
            return True
        case Finished():
            return bool(seen.outputs)
        case _:
            return False


def _is_of(told: Mapping[str, object], job: Job) -> bool:
    """Whether a prediction is this job: with the id that was asked for, our prompt, not older than the claim.

    That a callback with this job's own token named it is the proof; this guards against a late one of an older attempt.
    """
    prompt = mapping(told.get("input")).get("prompt")
    same = told.get("id") == job.receipt and (not isinstance(prompt, str) or prompt == job.effective.get("prompt"))
    try:
        created_s = datetime.fromisoformat(str(told.get("created_at"))).timestamp()
    except ValueError:
        return False
    return same and created_s >= job.claimed_at_s - _CLOCKS_S


def _gone(exc: ProviderError) -> bool:
    """Whether the vendor says in its own words that it knows no such prediction: not a 404 of a machine in front."""
    return exc.http_status == 404 and exc.upstream_code is not None


def _not_handed_over(exc: ProviderError) -> Outcome:
    """A picture that was not uploaded: no prediction was asked for, whatever became of the upload."""
    facts = FAILURES[exc.kind]
    if facts.certain:
        return outcome_of(exc)
    message = f"A reference picture could not be uploaded. {exc}"
    error = Error(kind=K.NOT_SENT, message=message[:200], upstream_code=exc.upstream_code, http_status=exc.http_status)
    return NotAccepted(error=error, retry_after_s=exc.retry_after_s)


def _unreadable(exc: ProviderError) -> Unreadable:
    return Unreadable(error=exc.error(), retry_after_s=exc.retry_after_s)
