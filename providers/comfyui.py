"""ComfyUI: pictures and clips by workflows of the operator's own server.

A graph is filled and submitted under an id of ours, made of task and attempt, so that a job whose answer was lost is
found by it. The server runs one job at a time, keeps queue and history in memory and asks no money. What follows:

- one GET /queue tells of every job that waits or runs; only one that has left it is looked up in the history, and in
  this order: a job goes from queue to history in one step, the other order can miss it in both
- nowhere means canceled while it waited, a restart, a cleared history: the server does not tell these apart
- absence is never proof that a submit did not arrive: `find` says found or unclear. An operator who does not mind the
  electricity sets `resubmit = "safe"`; the same graph under the same id is then answered from the server's cache
- there is no progress over HTTP

What is always sent: `client_id` (without one, versions up to 0.27 report no files of a cached run), a file prefix that
no other job has (a cached run reports the files of the first one), never a `number` (a doubled one is queued and
answered 500).

Source: the sheet of 2026-11-30, seen on a real 0.33.0 and 0.3.64.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from enum import Enum
from urllib.parse import quote

from models.contract import Kind
from models.failures import FailureKind as K
from models.lifecycle import Canceled, Error, Observation, Unknown, Unreadable, Working
from models.settings import Polling, ProviderSettings, Retries
from providers.calls import side_by_side, within
from providers.comfyui_answers import DIALECT, Asked, from_wire, node_faults
from providers.comfyui_workflows import Workflow, workflows
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
from providers.verdicts import clean

CLIENT_ID = "weir"
_IDS = uuid.UUID("5b0f3b1e-7f0c-5e0a-9a53-6f1d3a7c2e41")  # ours alone: the namespace of job ids
_ANSWER_MAX_BYTES = 64_000_000  # /queue holds the whole graph of every job, other people's too
_TARGETED_SINCE = (0, 3, 64)  # first version seen to heed the id in POST /interrupt (PR 9607, autumn 2025)


class _Place(Enum):
    WAITING = "pending"
    RUNNING = "running"


def prompt_id(job: Job) -> str:
    """Our id of this attempt towards the server, a UUID in its only accepted spelling (0.25.0 and later)."""
    return str(uuid.uuid5(_IDS, job.reference or f"{job.task_id}.{job.attempt}"))


def to_wire(job: Job, workflow: Workflow) -> Ask:
    """The submit call of `job`."""
    ours = prompt_id(job)
    count, seed = job.effective.get("image_count", 1), job.effective.get("seed")
    asked = Asked(
        images=count if isinstance(count, int) else 1,
        seed=seed if isinstance(seed, int) else None,
        output=workflow.output,
    )
    return Ask(
        operation="submit",
        method="POST",
        path="/prompt",
        body={
            "prompt": workflow.filled_for(job.effective, f"weir/{ours}"),
            "prompt_id": ours,
            "client_id": CLIENT_ID,
            "extra_data": asked.echo(),
        },
    )


class ComfyUI:
    """One ComfyUI server. See providers.port.Provider. Raises SettingsError for a workflow that does not fit its graph.

    A key is only for a proxy in front of it.
    """

    def __init__(self, name: str, settings: ProviderSettings, key: str, *, retries: Retries, polling: Polling) -> None:
        self.name = name
        found = workflows(name, settings.workflows)
        self._workflows = {model: workflow for model, workflow in found.items() if workflow.offered}
        self.capabilities = Capabilities(
            kinds=frozenset(workflow.kind for workflow in self._workflows.values()),
            models={model: workflow.bounds for model, workflow in self._workflows.items()},
            cancel=True,
            find=True,
            list_call=settings.list_call,  # GET /queue is asked either way; this is about the tick
        )
        self._polling = polling
        self._secrets = (key,) if key else ()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._view = settings.base_url.rstrip("/") + "/view"
        self._http = Http(
            settings,
            DIALECT,
            headers=self._headers,
            secrets=self._secrets,
            retries=retries,
            answer_max_bytes=_ANSWER_MAX_BYTES,
        )

    def submit(self, job: Job) -> Outcome:
        """Ask for one upstream job."""
        workflow = self._workflows.get(job.model)
        if workflow is None:
            return _refused(f"The adapter does not know the workflow {job.model}.")
        try:
            answer = self._http.submit(to_wire(job, workflow))
        except ProviderError as exc:
            if exc.http_status == 413:  # whoever says so did not take the body, be it the server or a proxy
                return _refused("The workflow is larger than the server accepts.", http_status=413)
            return outcome_of(exc)
        receipt = answer.fields.get("prompt_id")
        if not isinstance(receipt, str) or not receipt:
            return Uncertain(error=Error(kind=K.UNREADABLE, message="The answer names no prompt id."))
        faults = node_faults(answer.fields.get("node_errors"))
        if faults and self._stopped(receipt) is CancelAnswer.CONFIRMED:
            return _refused(clean("; ".join(faults), self._secrets), "prompt_outputs_failed_validation")
        return Accepted(receipt=receipt)

    def observe(self, receipts: Sequence[str], kind: Kind) -> Mapping[str, Observation]:
        """What is known of these jobs now."""
        asked = tuple(dict.fromkeys(receipts))
        if not asked:
            return {}
        with within(self._polling.round_s):
            try:
                places = self._places("observe", asked)
            except ProviderError as exc:
                return dict.fromkeys(asked, _unreadable(exc))
            seen: dict[str, Observation] = {
                receipt: Working(word=places[receipt].value) for receipt in asked if receipt in places
            }
            return seen | self._ended([receipt for receipt in asked if receipt not in seen], kind)

    def cancel(self, job: Job) -> CancelAnswer:
        """Ask to stop this job and no other: out of the queue, or an interrupt that names it."""
        return self._stopped(job.receipt) if job.receipt else CancelAnswer.UNCLEAR

    def find(self, job: Job) -> str | FindAnswer:
        """The job under our id, if the server has it in its queue or still in its history."""
        ours = prompt_id(job)
        try:
            there = ours in self._places("find", (ours,)) or self._entry("find", ours) is not None
        except ProviderError:
            return FindAnswer.LATER
        return ours if there else FindAnswer.UNCLEAR

    def check(self) -> None:
        """Ask the server about itself."""
        self._http.once(Ask(operation="check", path="/system_stats"))

    def result_headers(self) -> Mapping[str, str]:
        """What a proxy in front asks for."""
        return self._headers

    def _ended(self, receipts: Sequence[str], kind: Kind) -> dict[str, Observation]:
        """One look into the history each; when the server says "slow down", the rest waits for the next round."""
        slow_down = threading.Event()

        def one(receipt: str) -> Observation | None:
            if slow_down.is_set():
                return None
            try:
                entry = self._entry("observe", receipt)
            except ProviderError as exc:
                if exc.kind is K.RATE_LIMITED:
                    slow_down.set()
                return _unreadable(exc)
            return Unknown() if entry is None else from_wire(entry, kind, self._view, self._secrets)

        polling = self._polling
        found = side_by_side(one, receipts, polling.side_by_side, polling.round_s) if receipts else {}
        return {receipt: seen for receipt, seen in found.items() if seen is not None}

    def _places(self, operation: str, receipts: tuple[str, ...]) -> dict[str, _Place]:
        """Where every job of the queue is, of anybody. Raises ProviderError."""
        fields = self._http.read(Ask(operation=operation, path="/queue", receipts=receipts)).fields
        found: dict[str, _Place] = {}
        for key, place in (("queue_pending", _Place.WAITING), ("queue_running", _Place.RUNNING)):
            listed = fields.get(key)
            if not isinstance(listed, list):  # it must not look like an empty queue
                raise ProviderError(K.UNREADABLE, "The answer holds no queue.", http_status=200)
            ids = [item[1] for item in listed if isinstance(item, list) and len(item) > 1]
            found |= {one: place for one in ids if isinstance(one, str)}
        return found

    def _entry(self, operation: str, receipt: str) -> object | None:
        """The history entry of a job; None when the server has none. Raises ProviderError."""
        path = f"/history/{quote(receipt, safe='')}"
        fields = self._http.read(Ask(operation=operation, path=path, receipts=(receipt,))).fields
        if fields and receipt not in fields:
            raise ProviderError(K.UNREADABLE, "The answer is about another job.", http_status=200)
        return fields.get(receipt)

    def _stopped(self, receipt: str) -> CancelAnswer:
        try:
            return self._stop(receipt)
        except ProviderError:
            return CancelAnswer.UNCLEAR

    def _stop(self, receipt: str) -> CancelAnswer:
        """Look, act, look again: the server answers 200 to everything. Raises ProviderError."""
        place = self._places("cancel", (receipt,)).get(receipt)
        if place is _Place.WAITING:
            self._tell("/queue", {"delete": [receipt]}, receipt)
            place = self._places("cancel", (receipt,)).get(receipt)
            if place is None and self._entry("cancel", receipt) is None:
                return CancelAnswer.CONFIRMED  # it leaves no trace
        if place is _Place.RUNNING:
            if not self._interrupts_by_id(receipt):
                return CancelAnswer.REFUSED  # an old server would stop whatever runs by then, maybe a stranger's job
            self._tell("/interrupt", {"prompt_id": receipt}, receipt)
        entry = self._entry("cancel", receipt)
        if entry is None:
            return CancelAnswer.UNCLEAR  # it stops at its next step, or was not there: the next observation tells
        seen = from_wire(entry, Kind.IMAGE, self._view)
        return CancelAnswer.CONFIRMED if isinstance(seen, Canceled) else CancelAnswer.REFUSED

    def _tell(self, path: str, body: Mapping[str, object], receipt: str) -> None:
        ask = Ask(operation="cancel", method="POST", path=path, body=body, receipts=(receipt,), bodiless=True)
        self._http.once(ask)

    def _interrupts_by_id(self, receipt: str) -> bool:
        """Whether the server heeds the id of an interrupt; a version that cannot be read does not count."""
        fields = self._http.read(Ask(operation="cancel", path="/system_stats", receipts=(receipt,))).fields
        system = fields.get("system")
        version = system.get("comfyui_version") if isinstance(system, Mapping) else None
        parts = version.split(".")[:3] if isinstance(version, str) else []
        numbers = tuple(int(part) for part in parts if part.isascii() and part.isdigit())
        return len(numbers) == len(parts) > 0 and numbers >= _TARGETED_SINCE


def _refused(message: str, code: str | None = None, *, http_status: int | None = None) -> Refused:
    return Refused(error=Error(kind=K.INVALID_PARAMETER, message=message, upstream_code=code, http_status=http_status))


def _unreadable(exc: ProviderError) -> Unreadable:
    return Unreadable(error=exc.error(), retry_after_s=exc.retry_after_s)
