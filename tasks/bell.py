"""Sending wake-ups. Never inside a transaction, never trusted: a lost one is found by the sweep.

`ring` and `ring_wave` never raise. Whole seconds only: quorum queues refuse a countdown between 0 and 1.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any
from uuid import UUID

from models import ids
from tasks import app, broker

log = logging.getLogger("weir.bell")

MAX_COUNTDOWN_S = 30  # a longer wait stands in the row, and the sweep rings
# Redis serves 0 first. Work under way goes before work that is to begin.
_ONGOING = 0
_BY_PRIORITY = {0: 3, 1: 6, 2: 9}  # high, normal, low


_QUIET_S = 1.0  # after a failure an impatient process does not try again for so long: one caller a second waits
_quiet_until: float | None = None  # None: this process is patient


def impatient() -> None:
    """Give up quickly on a broker that does not answer; for processes that must answer people. Call before any ring."""
    global _quiet_until  # noqa: PLW0603  a mood of the process, set once at its start
    _quiet_until = 0.0
    at_once = {"max_retries": 0, "interval_start": 0, "interval_step": 0, "interval_max": 0}
    redis = {"socket_timeout": 2, "socket_connect_timeout": 2}
    amqp = {"connect_timeout": 2, "read_timeout": 2, "write_timeout": 2}
    limits = redis if app.conf.broker_url.startswith("redis") else amqp
    app.conf.broker_transport_options = {**app.conf.broker_transport_options, **at_once, **limits}


def ring(kind: str, step: str, id_: UUID, version: int, countdown_s: float = 0, priority: int = 1) -> None:
    """Wake a worker for row `id_` at `version`. `step`: submit, fetch, cancel or reconcile.

    `priority` 0 high, 1 normal, 2 low, of submits only. A countdown over MAX_COUNTDOWN_S is not sent at all.
    """
    task_id = ids.encode("task", id_)
    name = f"{task_id}.{version}" if step != "cancel" else f"{task_id}.{version}.cancel"
    urgency = _BY_PRIORITY[priority] if step == "submit" else _ONGOING
    _send(f"{kind}.{step}", (task_id, version), name, countdown_s, urgency)


def wave_options(seat: str, kind: str, version: int, countdown_s: int) -> dict[str, Any]:
    """How a chain sends its own next wake-up. A broker that is away is waited for: that is what the retries do."""
    return {
        "task_id": f"{seat}.{kind}.{version}",
        "countdown": countdown_s,
        "priority": _ONGOING,
    }


def ring_wave(seat: str, kind: str, version: int, countdown_s: float = 0) -> None:
    """Wake the polling chain of one seat and type, fenced by `version`."""
    _send(f"{kind}.poll", (seat, version), f"{seat}.{kind}.{version}", countdown_s, _ONGOING)


def _send(name: str, args: tuple[str, int], message_id: str, countdown_s: float, urgency: int) -> None:
    countdown = math.ceil(countdown_s) if countdown_s > 0 else 0
    if countdown > MAX_COUNTDOWN_S:
        return
    if name not in app.tasks:
        app.loader.import_default_modules()
    if _quiet_until is not None and time.monotonic() < _quiet_until:
        log.debug("wake-up not sent: %s (the broker is away)", message_id)
        return
    delay: dict[str, Any] = {"countdown": countdown} if countdown else {}
    try:
        # No `expires`: the receiver's clock would decide. A stale message finds another version and does nothing.
        app.tasks[name].apply_async(args, task_id=message_id, priority=urgency, retry=False, **delay)
    except Exception as exc:  # noqa: BLE001  the row is there; whatever the broker did, the sweep will ring
        log.warning("wake-up not sent: %s (%s)", message_id, type(exc).__name__)
        broker.doubt()
        _be_quiet()


def _be_quiet() -> None:
    global _quiet_until  # noqa: PLW0603  same
    if _quiet_until is not None:
        _quiet_until = time.monotonic() + _QUIET_S
