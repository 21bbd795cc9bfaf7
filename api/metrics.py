"""/metrics: what all processes of this host counted, and how the installation stands now.

How it stands is asked of the database at most every five seconds, in two bounded queries. Without the database the
counts are shown all the same, and `weir_database_up` is 0. Answered to this host only: it names models and volumes.
"""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from collections.abc import Iterable, Iterator

from flask import Blueprint, Response, request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.errors import not_found
from api.parts import Parts, parts
from models import marks, metrics, reads
from models.db import TRANSIENT, Row

blp = Blueprint("metrics", __name__)

_FRESH_S = 5.0
_STATES = {"closed": 0, "half_open": 1, "open": 2}
_lock = threading.Lock()
_known: list[tuple[Parts, float, list[Metric]]] = []  # one, of the settings now in force


@blp.get("/metrics")
def show() -> Response:
    """The text that Prometheus reads."""
    if not ipaddress.ip_address(request.remote_addr or "0.0.0.0").is_loopback:  # noqa: S104  nobody's address
        raise not_found()
    standing = CollectorRegistry()
    standing.register(_Standing(_now(parts())))
    counts = metrics.counted(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))
    text = generate_latest(counts) + generate_latest(standing)
    return Response(text, content_type=CONTENT_TYPE_LATEST, headers={"Cache-Control": "no-store"})


class _Standing(Collector):
    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def _now(of: Parts) -> list[Metric]:
    with _lock:
        for known, until, found in _known:
            if known is of and time.monotonic() < until:
                return found
        fresh = [*_database(of), *_breakers(of)]
        _known[:] = [(of, time.monotonic() + _FRESH_S, fresh)]
        return fresh


def _gauge(name: str, doc: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"weir_{name}", doc, labels=labels)


def _database(of: Parts) -> Iterator[Metric]:
    up = _gauge("database_up", "1 if the database answered")
    try:
        with of.db.unit_of_work() as uow:
            lines, sweep_age_s = reads.lines(uow), marks.age_s(uow, "sweep")
    except TRANSIENT:
        up.add_metric((), 0)
        yield up
        return
    up.add_metric((), 1)
    yield up
    yield from _tasks(of, lines)
    if sweep_age_s is not None:
        age = _gauge("sweep_age_seconds", "Since the last sweep began")
        age.add_metric((), sweep_age_s)
        yield age


def _tasks(of: Parts, lines: Iterable[Row]) -> Iterator[Metric]:
    open_ = _gauge("tasks_open", "Tasks that have not ended", "type", "provider", "status")
    oldest = _gauge("queue_oldest_seconds", "How long the longest has waited", "type", "provider")
    for row in lines:
        open_.add_metric((row["type"], row["provider"], "PENDING"), row["waiting"])
        open_.add_metric((row["type"], row["provider"], "RUNNING"), row["running"])
        oldest.add_metric((row["type"], row["provider"]), row["oldest_s"] or 0.0)
    cap = _gauge("running_cap", "Most tasks RUNNING at one moment", "provider")
    for name, one in of.settings.providers.items():
        cap.add_metric((name,), one.max_in_flight)
    yield from (open_, oldest, cap)


def _breakers(of: Parts) -> Iterator[Metric]:
    state = _gauge("breaker_state", "0 closed, 1 half open, 2 open", "provider", "operation")
    for (provider, operation), one in of.dam.breaker.states(list(of.settings.providers)).items():
        state.add_metric((provider, operation), _STATES.get(one.name, 1))
    yield state
