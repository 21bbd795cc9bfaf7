"""RabbitMQ as the broker: everything a message needs on its way is there before the first one is sent.

A countdown waits in the broker, in a ladder of queues that Celery lays out. Until somebody has laid it, a delayed
message is refused; and while a queue is not bound to its end, what is meant for that queue is confirmed and silently
lost, as it happens where only workers of one type have ever been started (Celery 5.7.0). So each process, before its
first message and again after trouble, declares all of it: every queue, the ladder, every binding. It can be repeated;
on Redis, which needs no declaration, nothing is done.
"""

from __future__ import annotations

from typing import Any

from celery.signals import before_task_publish
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    declare_native_delayed_delivery_exchanges_and_queues,
)

from tasks import app

_declared_at = ""  # the broker that this process has prepared


def doubt() -> None:
    """Something went wrong at the broker: it may have lost what was declared."""
    global _declared_at  # noqa: PLW0603  one per process, as its connections are
    _declared_at = ""


def declare() -> None:
    """Declare queues, ladder and bindings at the broker of `app`. Raises what the transport raises."""
    with app.connection_for_write() as connection:
        if connection.transport.driver_type != "amqp":
            return
        channel = connection.default_channel
        for queue in app.amqp.queues.values():
            queue(channel).declare()
        declare_native_delayed_delivery_exchanges_and_queues(connection, app.conf.task_default_queue_type)
        for queue in app.amqp.queues.values():
            bind_queue_to_native_delayed_delivery_exchange(connection, queue)


@before_task_publish.connect(weak=False)
def _prepare(**_: Any) -> None:  # noqa: ANN401  Celery's own
    """Before the first message of this process. Trouble is not hidden by it: the message itself meets the same."""
    global _declared_at  # noqa: PLW0603  same
    address = str(app.conf.broker_url)
    if _declared_at != address:
        declare()
        _declared_at = address
