"""Wake-up calls: Celery tasks of a few lines over plain functions. Knows Celery; everything that lasts is in rows.

A message says "look at row X, I was sent for version N" and carries nothing else. Its Celery id is
`<task_id>.<version>`, a wave's `<provider>.<type>.<version>`, so that an operator finds a task in Flower by our id.
"""

import logging
import traceback
from typing import Any

from celery import Celery, Task

from tasks import transport

log = logging.getLogger("weir.tasks")


class StepFailedError(Exception):
    """A Celery task broke off; the sweep finds its row. Says what kind of error it was and nothing it was about."""


class Discreet(Task):  # type: ignore[type-arg]  # generic in the stubs only
    """A Celery task whose errors say where and what kind, never their words.

    Celery logs an exception and Flower shows it, and a database error quotes the statement, prompts and links in it.
    """

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  Celery's own signature
        """Run, and put a discreet error in the place of any other."""
        try:
            return super().__call__(*args, **kwargs)
        except Exception as exc:  # noqa: BLE001  the top of every task
            frames = traceback.extract_tb(exc.__traceback__)[-8:]
            where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
            failed = StepFailedError(f"{type(exc).__name__} in {where}")
        raise failed


transport.install()
app = Celery("weir", task_cls=Discreet)
app.config_from_object("celeryconfig")
