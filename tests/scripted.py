"""A provider that does as a test says and counts what reached it. Passes for a vendor wherever the port is enough."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import BytesIO

from PIL import Image

from models.fields import Kind
from models.lifecycle import Finished, Observation, Output, Working
from providers.port import Accepted, CancelAnswer, Capabilities, FindAnswer, Job, Outcome


def png(width: int = 8, height: int = 8) -> bytes:
    """A real, small PNG."""
    file = BytesIO()
    Image.new("RGB", (width, height), "teal").save(file, "PNG")
    return file.getvalue()


def done(count: int = 1) -> Finished:
    """A result whose bytes come with it."""
    return Finished(outputs=tuple(Output(content=png(), seed=n) for n in range(count)))


class Scripted:
    """Accepts everything and never finishes, until told otherwise by setting one of its answers."""

    def __init__(self, name: str = "wan") -> None:
        self.name = name
        self.capabilities = Capabilities(kinds=frozenset(Kind), models={}, cancel=True, find=False)
        self.on_submit: Callable[[Job], Outcome] = lambda job: Accepted(receipt=f"r-{job.reference}")
        self.on_observe: Callable[[str], Observation | None] = lambda _receipt: Working()
        self.on_cancel: Callable[[Job], CancelAnswer] = lambda _job: CancelAnswer.CONFIRMED
        self.on_find: Callable[[Job], str | FindAnswer] = lambda _job: FindAnswer.UNCLEAR
        self.on_check: Callable[[], None] = lambda: None
        self.submits: list[str] = []
        self.asked: list[str] = []
        self.cancels: list[str] = []
        self._lock = threading.Lock()

    def can(self, **changes: object) -> None:
        """Change single capabilities."""
        self.capabilities = replace(self.capabilities, **changes)  # type: ignore[arg-type]  # a test knows the names

    def submit(self, job: Job) -> Outcome:
        """Count, then answer."""
        with self._lock:
            self.submits.append(job.reference)
        return self.on_submit(job)

    def observe(self, receipts: Sequence[str], _kind: Kind) -> Mapping[str, Observation]:
        """Count, then answer each; None leaves a receipt out."""
        with self._lock:
            self.asked.extend(receipts)
        answers = {receipt: self.on_observe(receipt) for receipt in receipts}
        return {receipt: answer for receipt, answer in answers.items() if answer is not None}

    def cancel(self, job: Job) -> CancelAnswer:
        """Count, then answer."""
        with self._lock:
            self.cancels.append(job.receipt or "")
        return self.on_cancel(job)

    def check(self) -> None:
        """Answer."""
        self.on_check()

    def result_headers(self) -> Mapping[str, str]:
        """None are needed: results come with the answer."""
        return {}

    def find(self, job: Job) -> str | FindAnswer:
        """Answer."""
        return self.on_find(job)
