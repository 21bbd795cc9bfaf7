"""Volcengine Ark (Doubao), and BytePlus ModelArk: Seedream pictures and Seedance clips.

`to_wire` is pure, as is providers/ark_wire.py, which reads the answers; the class below only carries. Pictures are
synchronous: the submit's answer is the result, and nothing can be asked afterwards. Clips give a task id, which is
asked about by itself, or by the hundred with the list call's filter of ids.

    cancel   DELETE cancels what is queued, is refused for what runs, and **removes the record of what has ended**:
             so the task is looked at first
    find     no idempotency key exists; the safety identifier that a create carries is told back with the task

Sources as in providers/ark_models.py, and volcengine.com/docs/82379, pages 1521309 (query), 1521675 (list), 1521720
(cancel or delete), 1299023 (errors) [docs].
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote, urlencode

from models.contract import Kind
from models.failures import FAILURES
from models.failures import FailureKind as K
from models.lifecycle import Canceled, Error, Failed, Finished, Observation, Unknown, Unreadable, Working
from models.settings import Polling, ProviderSettings, Retries
from providers.ark_models import MODELS, SYNCHRONOUS, TASKS
from providers.ark_wire import DIALECT, from_images, from_wire, mapping
from providers.calls import side_by_side, within
from providers.http import Answer, Ask, Http
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

_API = "/api/v3"


def to_wire(job: Job) -> Ask:
    """The submit call of `job`. Raises KeyError for a model that is not in `MODELS`."""
    model = MODELS[job.model]
    body = {"model": job.model, **model.shape(job.effective)}
    if model.path == TASKS:
        if job.reference:  # at most 64 characters, told back with the task [SDK][docs]: `find` looks for it
            body["safety_identifier"] = job.reference
        if job.callback_url:
            body["callback_url"] = job.callback_url
    return Ask(operation="submit", method="POST", path=_API + model.path, body=body)


_CREATE_S = 36.0  # a create only notes the task; the time-out for submits is set for pictures, which take minutes
_ASKED_AT_ONCE = 100  # ids in one list call: the vendor takes 500 [docs], a query line of 8 kB does not
_PAGE = 500
_PAGES_MAX = 10
_NOBODYS = "cgt-20240101000000-aaaaa"  # a task's id in form
_CLOCKS_S = 60.0  # what their clock and ours may differ by
_WAITING = frozenset({"queued", "pending"})
_NOT_THE_TASK = ("InvalidEndpointOrModel", "ModelNotOpen", "UnsupportedModel")


class Ark:
    """One Ark account. See providers.port.Provider."""

    def __init__(self, name: str, settings: ProviderSettings, key: str, *, retries: Retries, polling: Polling) -> None:
        self.name = name
        self.capabilities = Capabilities(
            kinds=frozenset(Kind),
            models={model: entry.bounds for model, entry in MODELS.items()},
            cancel=True,  # of a clip that is still queued
            find=True,  # of a clip, and never ABSENT: that the list tells the identifier back is the SDK's word alone
            list_call=settings.list_call,
            synchronous=SYNCHRONOUS,
            callback=_called_back,  # of clips
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
        """Ask for one upstream job; a picture comes with the answer."""
        if job.model not in MODELS:
            message = f"The adapter does not know the model {job.model}."
            return Refused(error=Error(kind=K.INVALID_PARAMETER, message=message))
        try:
            if job.model in SYNCHRONOUS:
                return self._made(job, self._http.submit(to_wire(job), synchronous=True))
            with within(_CREATE_S):
                answer = self._http.submit(to_wire(job))
        except ProviderError as exc:
            return outcome_of(_read_again(exc) if job.model in SYNCHRONOUS else exc)
        receipt = answer.fields.get("id")
        if isinstance(receipt, str) and receipt:
            return Accepted(receipt=receipt, request_id=answer.request_id)
        return Uncertain(error=Error(kind=K.UNREADABLE, message="The answer names no task id."))

    def _made(self, job: Job, answer: Answer) -> Outcome:
        count = job.effective.get("image_count", 1)
        finished = from_images(answer.fields, count if isinstance(count, int) else 1, self._secrets)
        if finished.outputs:
            receipt = job.reference or f"{job.task_id}.{job.attempt}"  # a picture has no id of the vendor's
            return Accepted(receipt=receipt, finished=finished, request_id=answer.request_id)
        if not finished.missing:
            return Uncertain(error=Error(kind=K.RESULT_MISSING, message="The answer names no image and no reason."))
        why = finished.missing[0]
        return outcome_of(ProviderError(why.kind, why.message, upstream_code=why.upstream_code, http_status=200))

    def observe(self, receipts: Sequence[str], kind: Kind) -> Mapping[str, Observation]:
        """What is known of these jobs now. Of a picture the vendor keeps no record."""
        asked = tuple(dict.fromkeys(receipts))
        if kind is Kind.IMAGE:
            return dict.fromkeys(asked, Unknown())
        polling, seen = self._polling, dict[str, Observation]()
        with within(polling.round_s):
            if self.capabilities.list_call and len(asked) > 1:
                parts = [asked[n : n + _ASKED_AT_ONCE] for n in range(0, len(asked), _ASKED_AT_ONCE)]
                for listed in side_by_side(self._listed, parts, polling.side_by_side, polling.round_s).values():
                    seen |= listed
            # Not in the list says nothing: it may be too young for it, or older than its seven days.
            return seen | self._singly([receipt for receipt in asked if receipt not in seen])

    def cancel(self, job: Job) -> CancelAnswer:
        """Ask to stop this clip; the vendor does so only while it waits."""
        if not job.receipt or job.kind is Kind.IMAGE:
            return CancelAnswer.UNCLEAR
        before = self._word(job.receipt)
        if before is None or before.startswith("cancel"):
            return CancelAnswer.UNCLEAR
        if before not in _WAITING:
            return CancelAnswer.REFUSED
        try:
            self._http.once(
                Ask(
                    operation="cancel", method="DELETE", path=_task(job.receipt), receipts=(job.receipt,), bodiless=True
                )
            )
        except ProviderError as exc:
            if exc.http_status == 409 and exc.upstream_code:
                return CancelAnswer.REFUSED  # it began to run in between
            # What a success looks like is documented nowhere: the state that the task is in now is the verdict.
            confirmed = (self._word(job.receipt) or "").startswith("cancel")
            return CancelAnswer.CONFIRMED if confirmed else CancelAnswer.UNCLEAR
        return CancelAnswer.CONFIRMED

    def find(self, job: Job) -> str | FindAnswer:
        """The receipt of a lost clip: the task that carries our reference.

        `job.receipt`, where it is set, is an id that a callback lent: it is looked at alone.
        """
        if job.kind is Kind.IMAGE or not job.reference:
            return FindAnswer.UNCLEAR
        try:
            with within(self._polling.round_s):
                tasks = iter([self._task(job.receipt, "find")]) if job.receipt else self._all_tasks()
                return next((str(task["id"]) for task in tasks if _is_of(task, job)), FindAnswer.LATER)
        except ProviderError:
            return FindAnswer.LATER

    def check(self) -> None:
        """Ask for the newest clip of the account, or where lists are not to be asked for, about one there never was."""
        listed = self.capabilities.list_call
        path = _list([("page_num", "1"), ("page_size", "1")]) if listed else _task(_NOBODYS)
        try:
            self._http.once(Ask(operation="check", path=path))
        except ProviderError as exc:
            if listed or not isinstance(_lost(exc), Unknown):
                raise

    def result_headers(self) -> Mapping[str, str]:
        """None: result links are signed."""
        return {}

    def _task(self, receipt: str, operation: str = "observe") -> Mapping[str, object]:
        """One task as it stands. Raises ProviderError."""
        return self._http.read(Ask(operation=operation, path=_task(receipt), receipts=(receipt,))).fields

    def _word(self, receipt: str) -> str | None:
        try:
            word = self._task(receipt).get("status")
        except ProviderError:
            return None
        return word if isinstance(word, str) else None

    def _listed(self, asked: tuple[str, ...]) -> dict[str, Observation]:
        """What the list says of `asked`, where it says all; of none where the list cannot be had at all."""
        pairs = [("page_num", "1"), ("page_size", str(len(asked))), *(("filter.task_ids", one) for one in asked)]
        try:
            found = _items(self._http.read(Ask(operation="observe", path=_list(pairs), receipts=asked)).fields)
        except ProviderError as exc:
            facts = FAILURES[exc.kind]
            forbidden = facts.certain and not facts.repeat and not facts.waits
            return {} if forbidden else dict.fromkeys(asked, _unreadable(exc))
        listed = {str(item.get("id")): from_wire(item, self._secrets) for item in found}
        return {one: listed[one] for one in asked if one in listed and _says_all(listed[one])}

    def _all_tasks(self) -> Iterator[Mapping[str, object]]:
        """Every task of the account, of the last seven days and within bounds. Raises ProviderError."""
        for page in range(1, _PAGES_MAX + 1):
            pairs = [("page_num", str(page)), ("page_size", str(_PAGE))]
            items = _items(self._http.read(Ask(operation="find", path=_list(pairs))).fields)
            yield from items
            if len(items) < _PAGE:
                return

    def _singly(self, receipts: Sequence[str]) -> dict[str, Observation]:
        """One query each; when the vendor says "slow down", the rest waits for the next round."""
        slow_down = threading.Event()

        def one(receipt: str) -> Observation | None:
            if slow_down.is_set():
                return None
            try:
                return from_wire(self._task(receipt), self._secrets)
            except ProviderError as exc:
                if exc.kind is K.RATE_LIMITED:
                    slow_down.set()
                return _lost(exc)

        polling = self._polling
        found = side_by_side(one, receipts, polling.side_by_side, polling.round_s)
        return {receipt: seen for receipt, seen in found.items() if seen is not None}


def _task(receipt: str) -> str:
    return f"{_API}{TASKS}/{quote(receipt, safe='')}"


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    return f"{_API}{TASKS}?{urlencode(pairs)}"  # ids as one parameter repeated, not joined by commas [SDK-run]


def _items(fields: Mapping[str, object]) -> list[Mapping[str, object]]:
    items = fields.get("items")
    return [mapping(item) for item in items] if isinstance(items, list) else []


def _read_again(exc: ProviderError) -> ProviderError:
    """A synchronous call that ended in 200 and an error has ended: nothing was made, only what is made is billed."""
    if exc.http_status != 200 or not exc.upstream_code or FAILURES[exc.kind].certain:
        return exc
    return ProviderError(K.PROVIDER_ERROR, str(exc), upstream_code=exc.upstream_code, http_status=200)


def _says_all(seen: Observation) -> bool:
    """Whether a line of the list can stand for a query: one that has ended must bring its link or its reason."""
    match seen:
        case Working() | Canceled():
            return True
        case Finished():
            return bool(seen.outputs)
        case Failed():
            return seen.error.upstream_code is not None
        case _:
            return False


def _is_of(task: Mapping[str, object], job: Job) -> bool:
    """Whether a task of the vendor's is this job: it tells our reference back.

    An id that a callback lent came with this job's own token; there a task without any reference will do, if it is
    not older than the claim.
    """
    told, created = task.get("safety_identifier"), task.get("created_at")
    if not task.get("id") or told:
        return bool(task.get("id")) and told == job.reference
    return bool(job.receipt) and isinstance(created, int | float) and created >= job.claimed_at_s - _CLOCKS_S


def _called_back(_headers: Mapping[str, str], body: bytes) -> str | None:
    """The task's id in a callback, whose body is the task as a query shows it. Unsigned: the address's token is all."""
    try:
        told = mapping(json.loads(body)).get("id")
    except ValueError:
        return None
    return told if isinstance(told, str) and told else None


def _lost(exc: ProviderError) -> Observation:
    """A 404 in the vendor's own words is "no such task"; any other machine's is no news."""
    code = exc.upstream_code or ""
    if exc.http_status == 404 and code and not code.startswith(_NOT_THE_TASK):
        return Unknown()
    return _unreadable(exc)


def _unreadable(exc: ProviderError) -> Unreadable:
    return Unreadable(error=exc.error(), retry_after_s=exc.retry_after_s)
