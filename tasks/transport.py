"""kombu's Redis transport with one hole closed: a process outlives the loss of its broker while it holds messages.

After a lost connection Celery takes the broker's address away from the transport. What then still acknowledges or
gives back a message over the old channel meets an AttributeError that nothing catches, and the whole worker ends
(Celery 5.7.0, kombu 5.7; seen in every second kill of Valkey under load, by two different ways). Told as the
connection error that it is, Celery handles it and connects anew. What could not be given back is no loss: the rows
know, and the sweep rings.

Nothing happens here but `install`.
"""

from __future__ import annotations

import logging
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel as KombuChannel
from kombu.transport.redis import Transport as KombuTransport

log = logging.getLogger("weir.transport")


class Channel(KombuChannel):
    """A channel that says so when its connection is gone."""

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002  kombu's signature
        if self.connection.client is None:
            raise ConnectionResetError("the connection to the broker was given up")
        params: dict[str, Any] = super()._connparams(asynchronous=asynchronous)  # type: ignore[misc]  # kombu's stubs do not know it
        return params

    def _brpop_read(self, **options: Any) -> bool | None:  # noqa: ANN401  kombu's signature
        """One message. What is no message of ours (not JSON, not an envelope) is dropped: it would end the worker."""
        try:
            read: bool | None = super()._brpop_read(**options)  # type: ignore[misc]  # same
        except (ValueError, TypeError, KeyError) as exc:
            log.error("something that is no message lay in a queue and was dropped (%s)", type(exc).__name__)  # noqa: TRY400  its text may quote it
            raise Empty from None
        return read


class Transport(KombuTransport):
    """What `redis://` means to kombu in our processes."""

    Channel = Channel


def install() -> None:
    """Take the place of kombu's own."""
    TRANSPORT_ALIASES["redis"] = f"{__name__}:{Transport.__name__}"
