"""One GPU: a line, one job at a time, and a short memory of which tasks have ended.

May not know HTTP or pictures. Invariant: turns are taken in the order of arrival, and `interrupt` hits whatever runs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_REMEMBERED = 16
_LOOK_S = 0.05


@dataclass(slots=True, eq=False)
class Turn:
    """One job's place. Times in seconds of `time.monotonic`, 0 until it runs."""

    task_id: str
    steps: int
    began: float = 0.0
    takes_s: float = 0.0
    interrupted: threading.Event = field(default_factory=threading.Event)

    def progress(self) -> float:
        """Share done, 0.01..0.99 once it runs."""
        if not self.began:
            return 0.0
        passed = time.monotonic() - self.began
        return min(0.99, max(0.01, passed / self.takes_s if self.takes_s else 0.99))


class Machine:
    """Safe under threads."""

    def __init__(self, stopping: threading.Event) -> None:
        """Idle. `stopping` ends every wait."""
        self._stopping = stopping
        self._moved = threading.Condition()
        self._line: deque[Turn] = deque()
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)
        self._broken = ""

    @contextmanager
    def turn(self, task_id: str, steps: int) -> Iterator[Turn]:
        """Wait in line and hold the machine. What raises inside leaves the task looking active, as it does there."""
        mine = Turn(task_id, steps)
        with self._moved:
            self._line.append(mine)
            while self._line[0] is not mine and not self._stopping.is_set():
                self._moved.wait(_LOOK_S)
            mine.began, self._broken = time.monotonic(), ""
        whole = False
        try:
            yield mine
            whole = True
        finally:
            with self._moved:
                self._line.remove(mine)
                if whole:
                    self._ended.append(task_id)
                else:
                    self._broken = task_id
                self._moved.notify_all()

    def work(self, mine: Turn, seconds: float) -> None:
        """Take that long, or until interrupted; infinity means never by itself."""
        mine.takes_s = seconds
        while not self._stopping.is_set():
            left = mine.began + seconds - time.monotonic()
            if left <= 0 or mine.interrupted.wait(min(left, _LOOK_S)):
                return

    def interrupt(self) -> None:
        """Stop whatever runs; nothing when idle."""
        running = self.running()
        if running is not None:
            running.interrupted.set()

    def running(self) -> Turn | None:
        """Return the job that runs now."""
        with self._moved:
            return self._line[0] if self._line and self._line[0].began else None

    def waiting(self) -> list[str]:
        """Return the tasks in line, without the one that runs."""
        with self._moved:
            return [turn.task_id for turn in self._line if not turn.began]

    def about(self, task_id: str) -> dict[str, object]:
        """Return what /internal/progress says of a task."""
        running, waiting = self.running(), self.waiting()
        active = task_id == self._broken or (running is not None and running.task_id == task_id)
        share = running.progress() if active and running is not None else None
        text = "Waiting..." if not active else None
        if task_id in waiting:
            text = f"In queue: {waiting.index(task_id) + 1}/{len(waiting)}"
        return {
            "active": active,
            "queued": task_id in waiting,
            "completed": task_id in self._ended,
            "progress": share,
            "eta": None,
            "live_preview": None,
            "id_live_preview": -1,
            "textinfo": text,
        }
