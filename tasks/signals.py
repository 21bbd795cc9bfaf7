"""What happens when a worker starts: logging, and one sweep, so that nothing waits for beat after an outage."""

from __future__ import annotations

import logging
import os

from celery.signals import setup_logging, worker_ready

from models.settings import Settings
from tasks import app

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@setup_logging.connect(weak=False)
def _logging(**_: object) -> None:
    """Our format; and Celery's own lines without arguments, so that nothing of a task can leak through them."""
    logging.basicConfig(level=Settings.load(os.environ).env.log_level, format=_FORMAT)
    logging.getLogger("celery.worker.strategy").setLevel(logging.WARNING)


@worker_ready.connect(weak=False)
def _sweep_at_once(**_: object) -> None:
    """A worker that becomes ready runs one sweep: what a dead one left is picked up now, not in 15 s."""
    app.loader.import_default_modules()
    app.tasks["sweep"].apply_async(queue="default", expires=60, retry=False)
