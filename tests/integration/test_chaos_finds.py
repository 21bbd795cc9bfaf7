"""What the chaos run found, each made small and certain."""

from __future__ import annotations

from typing import Any

import pytest
from celery.worker.consumer import Consumer as CeleryConsumer

from celeryconfig import worker_consumer
from tasks import app
from tasks.consumer import Consumer
from tests.faults import Proxy


def _waits_for_more(channel: Any) -> None:  # noqa: ANN401  kombu's channel has no types
    channel.client.connection = channel.client.connection_pool.get_connection()
    channel.client.connection.send_command("BRPOP", "empty", 5)
    channel._in_poll = channel.client.connection


def _after_a_loss(kind: type[Any], redis_url: str) -> Any:  # noqa: ANN401  Celery's consumer has no types
    """A consumer after its clean-up: it held a message and waited for more when the broker went away for good."""
    consumer: Any = object.__new__(type("Started", (kind,), {"max_prefetch_count": 1}))
    with Proxy.before(redis_url) as proxy:
        connection = app.connection_for_read(url=proxy.url)
        channels: list[Any] = [connection.default_channel, connection.channel()]
        place = {"exchange": "", "routing_key": "default"}
        message = channels[0].prepare_message("", properties={"delivery_info": place, "delivery_tag": "one"})
        channels[0]._put("default", message)
        assert channels[0].basic_get("default") is not None, "held: received and not acknowledged"
        for channel in channels:
            _waits_for_more(channel)
        proxy.refuse()
        consumer.app, consumer.connection, consumer.qos_global = app, connection, False
        try:
            consumer.on_connection_error_after_connected(ConnectionResetError())
        finally:
            channels[0].qos._delivered.clear()  # or it tries to give it back when the test run ends
    return consumer


def test_worker_outlives_a_broker_that_goes_while_messages_are_held(redis_url: str) -> None:
    assert worker_consumer == f"{Consumer.__module__}:{Consumer.__name__}"
    assert _after_a_loss(Consumer, redis_url).connection is None


def test_celerys_own_consumer_does_not_outlive_it(redis_url: str) -> None:
    # When this fails, Celery or kombu has closed the hole, and tasks/consumer.py can go.
    with pytest.raises(AttributeError, match="hostname"):
        _after_a_loss(CeleryConsumer, redis_url)
