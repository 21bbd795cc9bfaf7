"""What happened, counted for Prometheus. What merely is, as a queue's length, is read from the database at scrape.

Every name, label and bucket stands here. Labels come from the configuration, our routes or closed sets of words, never
from a request: no id, no prompt, no address.

`share(folder)` lets all processes of a host count into one folder, which any of them can show. Each holds the first
free place there by a file lock and goes on from the counts of whoever had it before: a restart loses no count, and
there are never more files than processes at one moment. Not shared, a process counts for itself.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, values
from prometheus_client.multiprocess import MultiProcessCollector

REGISTRY = CollectorRegistry()

_HTTP_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CALL_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_TASK_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 1800.0, 3600.0)


def _counter(name: str, doc: str, *labels: str) -> Counter:
    return Counter(f"weir_{name}", doc, labels, registry=REGISTRY)


def _histogram(name: str, doc: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(f"weir_{name}", doc, labels, buckets=buckets, registry=REGISTRY)


HTTP_REQUESTS = _counter("http_requests", "Requests answered", "method", "route", "code")
HTTP_SECONDS = _histogram("http_request_duration_seconds", "Time to answer", _HTTP_S, "method", "route")
TASKS_FINISHED = _counter("tasks_finished", "Endings of tasks", "type", "model", "provider", "status")
TASK_SECONDS = _histogram("task_duration_seconds", "From acceptance to the end", _TASK_S, "type", "provider")
UPSTREAM_CALLS = _counter("upstream_requests", "Calls to vendors", "provider", "operation", "outcome")
UPSTREAM_SECONDS = _histogram(
    "upstream_request_duration_seconds", "Time of a call to a vendor", _CALL_S, "provider", "operation"
)
POLL_ROUNDS = _counter(
    "poll_rounds", "Rounds of polling that asked; `idle`: nothing ended in it", "provider", "type", "outcome"
)
SWEEP_ACTIONS = _counter("sweep_actions", "What sweeps did", "action")
REPLAYS = _counter("idempotent_replays", "Submits answered with the task of an earlier one", "type")


class _Place:
    """One process's place in the folder: its number, held by a lock that ends with the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid, self._number, self._handle = 0, 0, -1

    def number(self) -> int:
        """The same for the life of a process; a forked child takes one of its own."""
        if self._pid != os.getpid():
            self._number, self._handle = self._taken()
            self._pid = os.getpid()
        return self._number

    def _taken(self) -> tuple[int, int]:
        number = 0
        while True:
            handle = os.open(self._folder / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                number += 1
            else:
                return number, handle


def share(folder: Path) -> None:
    """Count into `folder`, made if missing, with other processes of this host. Before anything is counted.

    The caller has named the same folder in PROMETHEUS_MULTIPROC_DIR, where the library looks for it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    values.ValueClass = values.MultiProcessValue(_Place(folder).number)  # type: ignore[no-untyped-call]


def counted(folder: str | None) -> CollectorRegistry:
    """Every count: of all processes that share `folder`, or of this one alone where it is None."""
    if folder is None:
        return REGISTRY
    all_of_host = CollectorRegistry()
    MultiProcessCollector(all_of_host, path=folder)  # type: ignore[no-untyped-call]
    return all_of_host
