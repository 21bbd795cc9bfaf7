"""Stable Diffusion WebUI (A1111 up to 1.10, Forge): pictures, answered inline, one at a time.

The call is held while the server works through its line, so configure `max_in_flight = 1` for each server and a read
time-out of minutes: what waits there cannot be canceled, what waits here can. There is no job afterwards: the bytes
come with the answer or are gone, and a lost answer cannot be looked up (`force_task_id` finds that a task ended, never
what it made). A server of one's own bills nothing: with `resubmit = "safe"` a lost submit is sent again.

Nothing is canceled. `interrupt` takes no id and stops whatever runs at that moment: between the question whose job
that is and the call another client's may have begun. And an interrupted job answers like a finished one, so that half
a picture would be delivered as a whole one. Progress, too, is of whatever runs: none is shown.

Sources in sdwebui_wire and sdwebui_models. Nothing of this was run against a real server.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence

from models.contract import Kind
from models.failures import FailureKind as K
from models.lifecycle import Error, Failed, Observation, Unknown
from models.settings import Polling, ProviderSettings, Retries
from providers.http import Ask, Http
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
from providers.sdwebui_models import BOUNDS, SYNCHRONOUS, Offer, checkpoint_of, offer, sampler_fields
from providers.sdwebui_wire import DIALECT, UnusableError, from_wire, to_wire

ANSWER_MAX_BYTES = 160_000_000  # eight pictures of 2048 x 2048, or two of 4096 x 4096, uncompressed and as base64
_API = "/sdapi/v1"


class SdWebui:
    """One server. See providers.port.Provider."""

    def __init__(self, name: str, settings: ProviderSettings, key: str, *, retries: Retries, polling: Polling) -> None:
        self.name = name
        self.capabilities = Capabilities(
            kinds=frozenset({Kind.IMAGE}),
            models=BOUNDS,
            cancel=False,
            find=False,
            synchronous=SYNCHRONOUS,
        )
        self._polling = polling  # nothing is polled
        # `--api-auth user:password`; the password alone must not show either
        self._secrets = (key, key.partition(":")[2])
        headers = {"Authorization": f"Basic {base64.b64encode(key.encode()).decode()}"} if key else {}
        self._http = Http(
            dataclasses.replace(settings, base_url=settings.base_url.rstrip("/").removesuffix(_API)),
            DIALECT,
            headers=headers,
            secrets=self._secrets,
            retries=retries,
            answer_max_bytes=ANSWER_MAX_BYTES,
        )

    def submit(self, job: Job) -> Outcome:
        """Make the pictures and return them. Asks first which samplers there are, which costs nothing."""
        try:
            sampler = self._sampler(job)
            path, body = to_wire(job.effective, sampler, checkpoint=checkpoint_of(job.model), task_id=job.reference)
        except UnusableError as exc:
            return Refused(error=Error(kind=K.INVALID_PARAMETER, message=str(exc)))
        except ProviderError as exc:
            return _before(exc)
        try:
            answer = self._http.submit(Ask(operation="submit", method="POST", path=path, body=body), synchronous=True)
        except ProviderError as exc:
            return outcome_of(exc)
        if "images" not in answer.fields:  # JSON, but of somebody else: it says nothing about the pictures
            return Uncertain(error=Error(kind=K.UNREADABLE, message="The answer has no list of images."))
        asked = job.effective["image_count"]
        assert isinstance(asked, int)  # the contract's, checked
        seen = from_wire(answer.fields, asked, sampler["sampler_name"], self._secrets)
        if isinstance(seen, Failed):
            return Refused(error=seen.error)
        return Accepted(receipt=job.reference, finished=seen)

    def _sampler(self, job: Job) -> Mapping[str, str]:
        """The fields for the job's sampler on this server. Raises UnusableError, ProviderError."""
        if job.model not in BOUNDS:
            raise UnusableError(f"The adapter does not know the model {job.model}.")
        fields = sampler_fields(str(job.effective["sampler"]), self._offer())
        if fields is None:
            raise UnusableError(f"The server does not have the sampler {job.effective['sampler']}.")
        return fields

    def observe(self, receipts: Sequence[str], kind: Kind) -> Mapping[str, Observation]:  # noqa: ARG002
        """Unknown, without a call: the server keeps nothing of what it answered."""
        return dict.fromkeys(receipts, Unknown())

    def cancel(self, job: Job) -> CancelAnswer:  # noqa: ARG002
        """Never: the server's interrupt hits whatever runs, and what it leaves looks like a result."""
        return CancelAnswer.REFUSED

    def find(self, job: Job) -> str | FindAnswer:  # noqa: ARG002
        """A lost answer cannot be looked up."""
        return FindAnswer.UNCLEAR

    def check(self) -> None:
        """Ask for the samplers; the server answers while it draws."""
        self._http.once(Ask(operation="check", path=f"{_API}/samplers"))

    def result_headers(self) -> Mapping[str, str]:
        """None: results are never links."""
        return {}

    def _offer(self) -> Offer:
        """The server's samplers and schedules now. Raises ProviderError."""
        samplers = self._http.read(Ask(operation="observe", path=f"{_API}/samplers")).items
        try:
            schedulers = self._http.read(Ask(operation="observe", path=f"{_API}/schedulers")).items
        except ProviderError as exc:
            if exc.http_status != 404 or exc.kind is K.UNREADABLE:
                raise
            return offer(samplers, None)  # up to 1.8 there is no such list
        return offer(samplers, schedulers)


def _before(exc: ProviderError) -> Outcome:
    """What a failed question before the submit means: nothing was sent that could be made or paid for."""
    outcome = outcome_of(exc)
    if not isinstance(outcome, Uncertain):
        return outcome
    words = f"The server's list of samplers could not be read ({exc.kind})."
    return NotAccepted(error=Error(kind=K.NOT_SENT, message=words), retry_after_s=exc.retry_after_s)
