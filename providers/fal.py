"""fal: pictures and clips of the models it hosts, through its queue.

Everything is asynchronous and asked about one by one: the queue has no list. Its state and its result are two calls,
and COMPLETED alone means nothing (see fal_wire). Models are in fal_models, signed callbacks in fal_callbacks.

    cancel   what waits is removed, what runs is only told; so the request is looked at afterwards
    find     no idempotency key and no list: only a callback can name a request whose submit was lost

Sources as in providers/fal_wire.py.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from models.contract import Kind
from models.failures import FailureKind as K
from models.lifecycle import Canceled, Error, Observation, Unknown, Unreadable
from models.settings import Polling, ProviderSettings, Retries
from providers.calls import side_by_side, within
from providers.fal_callbacks import Callbacks
from providers.fal_models import BOUNDS
from providers.fal_wire import DIALECT, address, from_result, from_status, gone, receipt_of, to_wire
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

_NOBODYS = "fal-ai/flux/00000000-0000-4000-8000-000000000000"


class Fal:
    """One key of one queue. See providers.port.Provider."""

    def __init__(self, name: str, settings: ProviderSettings, key: str, *, retries: Retries, polling: Polling) -> None:
        self.name = name
        self.capabilities = Capabilities(
            kinds=frozenset(Kind),
            models=BOUNDS,
            cancel=True,  # of what waits; what runs may go on
            find=False,  # only with an id that a callback lent
            callback=Callbacks(settings).read,
        )
        self._polling, self._secrets = polling, (key,)
        # Not Bearer. A key is `id:secret` [DOC].
        self._http = Http(
            settings, DIALECT, headers={"Authorization": f"Key {key}"}, secrets=self._secrets, retries=retries
        )

    def submit(self, job: Job) -> Outcome:
        """Ask for one upstream job. A bad input is taken too, and refused by its result."""
        try:
            ask = to_wire(job)
        except KeyError:
            message = f"The adapter does not know the model {job.model}."
            return Refused(error=Error(kind=K.INVALID_PARAMETER, message=message))
        try:
            answer = self._http.submit(ask)
        except ProviderError as exc:
            return outcome_of(exc)
        receipt = receipt_of(job.model, answer.fields.get("request_id"))
        if receipt is None:
            return Uncertain(error=Error(kind=K.UNREADABLE, message="The answer names no request."))
        return Accepted(receipt=receipt, request_id=answer.request_id)

    def observe(self, receipts: Sequence[str], kind: Kind) -> Mapping[str, Observation]:
        """What is known of these requests now; when the vendor says "slow down", the rest waits for the next round."""
        slow_down = threading.Event()

        def one(receipt: str) -> Observation | None:
            if slow_down.is_set():
                return None
            try:
                return self._seen(receipt, kind)
            except ProviderError as exc:
                if exc.kind is K.RATE_LIMITED:
                    slow_down.set()
                return Unknown() if gone(exc) else Unreadable(error=exc.error(), retry_after_s=exc.retry_after_s)

        polling = self._polling
        found = side_by_side(one, tuple(dict.fromkeys(receipts)), polling.side_by_side, polling.round_s)
        return {receipt: seen for receipt, seen in found.items() if seen is not None}

    def cancel(self, job: Job) -> CancelAnswer:
        """Ask to stop this request, and see whether it is gone: the answer alone promises nothing."""
        if not job.receipt:
            return CancelAnswer.UNCLEAR
        try:
            path = address(job.receipt, "/cancel")
            self._http.once(Ask(operation="cancel", method="PUT", path=path, receipts=(job.receipt,), bodiless=True))
        except ProviderError as exc:
            return CancelAnswer.REFUSED if exc.upstream_code == "ALREADY_COMPLETED" else CancelAnswer.UNCLEAR
        try:
            stopped = isinstance(from_status(self._status(job.receipt)), Canceled)
        except ProviderError as exc:
            stopped = gone(exc)
        return CancelAnswer.CONFIRMED if stopped else CancelAnswer.UNCLEAR

    def find(self, job: Job) -> str | FindAnswer:
        """The receipt of a lost request, if a callback lent its id as `job.receipt`: the vendor is asked whether it is.

        Nothing else that the queue tells would lead from our reference to a request.
        """
        receipt = receipt_of(job.model, (job.receipt or "").rpartition("/")[2])
        if receipt is None:
            return FindAnswer.UNCLEAR
        try:
            with within(self._polling.round_s):
                known = self._status(receipt, "find").get("request_id") == receipt.rpartition("/")[2]
        except ProviderError:
            return FindAnswer.LATER
        return receipt if known else FindAnswer.UNCLEAR

    def check(self) -> None:
        """Ask about a request that there never was: the queue has no other question that makes nothing."""
        try:
            self._http.once(Ask(operation="check", path=address(_NOBODYS, "/status")))
        except ProviderError as exc:
            if not gone(exc):
                raise

    def result_headers(self) -> Mapping[str, str]:
        """None: result links are public."""
        return {}

    def _status(self, receipt: str, operation: str = "observe") -> Mapping[str, object]:
        """The state of one request. Raises ProviderError."""
        return self._http.read(Ask(operation=operation, path=address(receipt, "/status"), receipts=(receipt,))).fields

    def _seen(self, receipt: str, kind: Kind) -> Observation:
        """State and, where it has ended, result. Raises ProviderError where there is no state."""
        status = self._status(receipt)
        seen = from_status(status)
        if seen is not None:
            return seen
        result: Mapping[str, object] | ProviderError
        try:
            # Not repeated here: a 5xx is most often the model's own last word.
            result = self._http.once(Ask(operation="observe", path=address(receipt), receipts=(receipt,))).fields
        except ProviderError as exc:
            result = exc
        return from_result(status, result, kind, self._secrets)
