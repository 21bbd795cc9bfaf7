"""The clients of a run: post with a key, click twice, retry with the same key, look, change their minds, try again.

Sixteen threads serve one heap of things to do, so that three hundred clients cost no three hundred threads.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import requests

from tests.chaos.plan import Wish

_THREADS = 16
_TIMEOUT_S = (1.0, 4.0)
FINAL = ("SUCCESS", "FAILED", "TIMEOUT", "CANCELED")


@dataclass
class Memory:
    """What one client knows of its wish."""

    wish: Wish
    task_ids: set[str] = field(default_factory=set)
    status: str = ""
    repeats: int = 0
    cancels: bool = False  # its change of mind is under way, or has come to its end

    @property
    def task_id(self) -> str | None:
        """The task; None while nobody has said so."""
        return next(iter(self.task_ids), None)


@dataclass(frozen=True)
class _Answer:
    """An HTTP answer; status 0: there was none."""

    status: int
    body: Mapping[str, Any]
    retry_after_s: float


class Crowd:
    """Every client of a run. `done` counts what they did, `odd` lists what no client should ever see."""

    def __init__(self, url: str, keys: Mapping[str, str], wishes: Sequence[Wish], seed: int) -> None:
        """`keys` has an API key for each user."""
        self.memories = {wish.number: Memory(wish) for wish in wishes}
        self.done: Counter[str] = Counter()
        self.odd: list[str] = []
        self._url, self._keys = url, keys
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._wakes = threading.Condition()
        self._dice = {wish.number: random.Random(f"{seed}/{wish.number}") for wish in wishes}
        self._calm = self._closed = False
        self._local = threading.local()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(_THREADS)]

    def __enter__(self) -> Self:
        """Begin."""
        for memory in self.memories.values():
            wish = memory.wish
            self._later(wish.at_s, lambda m=memory: self._post(m, "post"))  # type: ignore[misc]  # binds the loop's name
            if wish.doubled_s is not None:
                self._later(wish.at_s + wish.doubled_s, lambda m=memory: self._post(m, "second click"))  # type: ignore[misc]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, whatever is left to do."""
        with self._wakes:
            self._closed = True
            self._wakes.notify_all()
        for thread in self._threads:
            thread.join(10)

    def calm(self) -> None:
        """Begin nothing anew from here on: no failure is repeated any more, no mind is changed."""
        self._calm = True

    def homeless(self) -> list[int]:
        """The wishes that have no task yet."""
        return [number for number, memory in self.memories.items() if not memory.task_ids]

    def repeat(self, numbers: Sequence[int]) -> None:
        """Repeat the keys of these, once and for all."""
        for number in numbers:
            self._later(0, lambda m=self.memories[number]: self._post(m, "repeat"))  # type: ignore[misc]

    # --- the heap ---

    def _later(self, wait_s: float, act: Callable[[], None]) -> None:
        with self._wakes:
            heapq.heappush(self._heap, (time.monotonic() + wait_s, next(self._serial), act))
            self._wakes.notify()

    def _next(self) -> Callable[[], None] | None:
        with self._wakes:
            while not self._closed:
                wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._heap)[2]
                self._wakes.wait(wait_s)
        return None

    def _serve(self) -> None:
        while (act := self._next()) is not None:
            try:
                act()
            except Exception as exc:  # noqa: BLE001  a client that breaks must show in the report, not vanish
                self.odd.append(f"the client itself: {exc!r}")

    # --- what a client does ---

    def _ask(self, memory: Memory, method: str, path: str, **more: Any) -> _Answer:  # noqa: ANN401  requests' own
        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
            self._local.session.trust_env = False
        key = self._keys[memory.wish.user]
        headers = {"Authorization": f"Bearer {key}", **more.pop("headers", {})}
        try:
            got = self._local.session.request(method, f"{self._url}{path}", timeout=_TIMEOUT_S, headers=headers, **more)
            body = got.json() if got.content else {}
        except (requests.RequestException, ValueError):
            return _Answer(0, {}, 0.3)
        wait_s = 0.5
        with contextlib.suppress(ValueError):
            wait_s = min(2.0, float(got.headers.get("Retry-After", "0.5")))
        return _Answer(got.status_code, body, wait_s)

    def _post(self, memory: Memory, what: str) -> None:
        headers = {"Idempotency-Key": memory.wish.key}
        answer = self._ask(memory, "POST", "/v1/tasks", json=dict(memory.wish.body), headers=headers)
        self.done[f"{what}: {answer.status or 'no answer'}"] += 1
        if answer.status in (200, 202):
            memory.task_ids.add(str(answer.body["task_id"]))
            memory.status = str(answer.body["status"])
            self._accepted(memory)
        elif self._again(answer, f"{what} of {memory.wish.number}"):
            self._later(answer.retry_after_s + self._draw(memory, 0.5), lambda: self._post(memory, "retry"))

    def _again(self, answer: _Answer, what: str) -> bool:
        """Whether to try the same once more. What is neither an answer nor "later" is odd."""
        if answer.status in (0, 409, 429, 503):
            return True
        self.odd.append(f"{what}: HTTP {answer.status} {answer.body.get('detail', '')}")
        return False

    def _draw(self, memory: Memory, most_s: float) -> float:
        return self._dice[memory.wish.number].uniform(0.1, most_s)

    def _accepted(self, memory: Memory) -> None:
        wish = memory.wish
        if wish.cancel_s is not None and not memory.cancels and not self._calm:
            memory.cancels = True
            self._later(wish.cancel_s, lambda: self._cancel(memory, 4))
        if wish.looks:
            self._later(self._draw(memory, 2.0), lambda: self._look(memory))

    def _look(self, memory: Memory) -> None:
        answer = self._ask(memory, "GET", f"/v1/tasks/{memory.task_id}")
        self.done[f"look: {answer.status or 'no answer'}"] += 1
        if answer.status == 200:
            memory.status = str(answer.body["status"])
            if memory.status in FINAL:
                self._ended(memory)
                return
        elif not self._again(answer, f"look at {memory.wish.number}"):
            return
        if not self._calm:
            self._later(self._draw(memory, 2.0), lambda: self._look(memory))

    def _ended(self, memory: Memory) -> None:
        """A failure is tried again with the same key, as the documentation says a client should."""
        if memory.status == "SUCCESS" or self._calm or memory.repeats >= memory.wish.repeats:
            return
        memory.repeats += 1
        self._later(self._draw(memory, 2.0), lambda: self._post(memory, "repeat"))

    def _cancel(self, memory: Memory, tries: int) -> None:
        answer = self._ask(memory, "DELETE", f"/v1/tasks/{memory.task_id}")
        self.done[f"cancel: {answer.status or 'no answer'}"] += 1
        if answer.status in (200, 202, 409):
            return
        if self._again(answer, f"cancel of {memory.wish.number}") and tries and not self._calm:
            self._later(answer.retry_after_s, lambda: self._cancel(memory, tries - 1))
