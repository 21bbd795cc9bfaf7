"""What happens when a worker or beat starts: a look at what it was given, logging, a first sweep, a note for others."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from typing import Any

from celery.exceptions import SecurityWarning
from celery.signals import beat_init, setup_logging, worker_init, worker_ready, worker_shutting_down

from models import metrics
from models.settings import Settings
from providers.breaker import Shared
from providers.kv import connect
from providers.presence import NOTE_EVERY_S, Presence, Worker
from tasks import app
from tasks.runtime import hurry

log = logging.getLogger("weir.signals")

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_HINT = """Beside a running `weir up` this shell learns everything by: eval "$(weir config env)"
Anywhere else set what is missing for every process; `weir doctor` looks at it."""

# Celery warns whoever runs a worker as root, since a pickled message could run any code. None is accepted here.
warnings.filterwarnings("ignore", category=SecurityWarning, message="You're running the worker with superuser")


def faults(settings: Settings, *, vendors: bool) -> list[str]:
    """What keeps a process from working, a sentence each; `vendors` True where it calls them."""
    addresses = {"WEIR_DATABASE_URL": settings.env.database_url, "WEIR_REDIS_URL": settings.env.broker_url}
    needs = [f"{name} is not set" for name, value in addresses.items() if not value]
    return needs + (settings.missing_keys() if vendors else [])


def _refuse(found: list[str]) -> None:
    """End here, rather than ask an empty address for ever or have a vendor refuse every task for want of a key.

    SystemExit, since Celery logs what else a receiver raises and starts all the same.
    """
    if found:
        raise SystemExit("\n".join(["Not started:", *(f"  {fault}" for fault in found), _HINT]))


@worker_init.connect(weak=False)
def _check_worker(**_: object) -> None:
    _refuse(faults(Settings.load(os.environ), vendors=True))


@worker_init.connect(weak=False)
def _count_together(**_: object) -> None:
    """Before the pool starts: what workers count, their children included, the web process of this host shows."""
    folder = Settings.load(os.environ).env.metrics_dir
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)  # where the library looks
    metrics.share(folder)


@beat_init.connect(weak=False)
def _check_beat(**_: object) -> None:
    _refuse(faults(Settings.load(os.environ), vendors=False))


@beat_init.connect(weak=False)
def _say_on_hangup(**_: object) -> None:
    """SIGHUP would end beat."""
    signal.signal(signal.SIGHUP, lambda *_: log.warning("beat reads its settings at its start only: sweep.every_s"))


@worker_ready.connect(weak=False)
def _reload_on_hangup(**_: object) -> None:
    """SIGHUP has the settings read anew; Celery's own way starts the worker anew, and may not come back."""
    signal.signal(signal.SIGHUP, lambda *_: hurry())


@setup_logging.connect(weak=False)
def _logging(**_: object) -> None:
    """Our format; and Celery's own lines without arguments, so that nothing of a task can leak through them."""
    logging.basicConfig(level=Settings.load(os.environ).env.log_level, format=_FORMAT)
    logging.getLogger("celery.worker.strategy").setLevel(logging.WARNING)


@worker_ready.connect(weak=False)
def _sweep_at_once(**_: object) -> None:
    """A worker that becomes ready runs one sweep: what a dead one left is picked up now, not in 15 s."""
    app.loader.import_default_modules()
    app.tasks["sweep"].apply_async(queue="default", retry=False)


_leaving = threading.Event()


@worker_ready.connect(weak=False)
def _note_presence(sender: Any, **_: object) -> None:  # noqa: ANN401  Celery's consumer
    """A worker says every ten seconds that it is there, for /v1/status.

    A thread of its own: the consumer's timer is emptied whenever the broker is lost.
    """
    queues = [queue.name for queue in sender.task_consumer.queues]
    worker = Worker(name=sender.hostname, queues=queues, slots=sender.controller.concurrency)
    presence = Presence(Shared(connect(Settings.load(os.environ).env.redis_url)))
    threading.Thread(target=_keep_noting, args=(presence, worker), name="presence", daemon=True).start()


def _keep_noting(presence: Presence, worker: Worker) -> None:
    presence.note(worker)
    while not _leaving.wait(NOTE_EVERY_S):
        presence.note(worker)
    presence.gone(worker)


@worker_shutting_down.connect(weak=False)
def _leave(**_: object) -> None:
    """From here on it takes nothing new."""
    _leaving.set()
