"""Celery's consumer with one hole closed: a worker outlives the loss of its broker while it holds messages.

After a lost connection Celery closes the channel twice. When Redis is gone for good the first closing ends half way,
and the second, which gives back what the worker holds, finds the transport's address taken away: an AttributeError
that nothing catches, and the whole process ends (Celery 5.7.0, kombu 5.7; seen in every second kill of Valkey under
load). What could not be given back is no loss: the rows know, and the sweep rings.
"""

from __future__ import annotations

import logging

from celery.worker.consumer import Consumer as CeleryConsumer

log = logging.getLogger("weir.consumer")


class Consumer(CeleryConsumer):
    """Named by `worker_consumer` in celeryconfig."""

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Clean up after a lost connection; what breaks in that does not end the process. Then Celery connects anew."""
        try:
            super().on_connection_error_after_connected(exc)
        except AttributeError:
            log.warning("the broker went away while messages were held; the sweep rings for them")
