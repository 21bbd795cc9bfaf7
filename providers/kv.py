"""The one Redis client, and the rate limit on top of it. Bytes in, bytes out; every key has a time to live.

Redis holds only what may be lost. When it is away nothing here raises: `ping` says False, and the rate limit lets
through, counts that in `bypassed`, and asks again only after a pause, so that an outage does not slow every request
down by a time-out.

May not: hold anything whose loss would cost money. Caps and idempotency live in PostgreSQL.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from limits import RateLimitItemPerMinute
from limits.storage import RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from redis import Redis
from redis.exceptions import RedisError

__all__ = ["Allowance", "Kv", "Redis", "RedisError", "connect"]

log = logging.getLogger("weir.kv")

_TIMEOUT_S = 0.5  # connect, and each answer: more than a healthy server ever takes, less than a caller notices
_PAUSE_S = 1.0  # after a failure, how long nobody asks
_COMPLAIN_S = 60.0  # between two log lines about the same outage
_PREFIX = "weir:rate"


def connect(url: str) -> Redis | None:
    """A client in bytes mode with short time-outs and no retries; opens nothing yet. None for an empty `url`."""
    if not url:
        return None
    return Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, max_connections=64)


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What is left of a rate: `remaining` requests now, more in `reset_s` whole seconds.

    `admitted` False: this request is one too many. `known` False: Redis is away, nothing was counted.
    """

    limit: int
    admitted: bool = True
    remaining: int = 0
    reset_s: int = 0
    known: bool = True


class Kv:
    """One client per process, made after the fork; threads share it. Connects at its first use, never here.

    `url` is redis://, rediss:// or unix://; empty: there is no Redis, which is the same as one that is away.
    """

    def __init__(self, url: str) -> None:
        self.bypassed = 0  # requests that no rate was counted for
        self._quiet_until = 0.0
        self._complained = -math.inf
        self._client: Redis | None = None
        self._limiter: SlidingWindowCounterRateLimiter | None = None
        client = connect(url)
        if client is not None:
            self._client = client
            storage = RedisStorage(url, connection_pool=client.connection_pool, key_prefix=_PREFIX)
            self._limiter = SlidingWindowCounterRateLimiter(storage)

    @property
    def client(self) -> Redis | None:
        """The one client, for what else is shared through it; None: there is no Redis."""
        return self._client

    def ping(self) -> bool:
        """Whether Redis answers, asked now."""
        try:
            return self._client is not None and bool(self._client.ping())
        except (RedisError, OSError):
            return False

    def spend(self, policy: str, who: str, per_minute: int) -> Allowance:
        """Count one request of `who` under `policy` and say what is left of `per_minute`."""
        item = RateLimitItemPerMinute(per_minute)

        def count(limiter: SlidingWindowCounterRateLimiter) -> Allowance:
            admitted = limiter.hit(item, policy, who)
            return _left(limiter, item, policy, who, admitted=admitted)

        return self._ask(count, per_minute)

    def look(self, policy: str, who: str, per_minute: int) -> Allowance:
        """What is left of `per_minute`, counting nothing."""
        item = RateLimitItemPerMinute(per_minute)
        return self._ask(lambda limiter: _left(limiter, item, policy, who, admitted=True), per_minute)

    def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            self._client.close()

    def _ask(self, question: Callable[[SlidingWindowCounterRateLimiter], Allowance], per_minute: int) -> Allowance:
        if self._limiter is not None and time.monotonic() >= self._quiet_until:
            try:
                return question(self._limiter)
            except (RedisError, OSError) as exc:
                self._quiet_until = time.monotonic() + _PAUSE_S
                self._complain(exc)
        self.bypassed += 1
        return Allowance(limit=per_minute, remaining=per_minute, known=False)

    def _complain(self, exc: Exception) -> None:
        if time.monotonic() - self._complained >= _COMPLAIN_S:
            self._complained = time.monotonic()
            log.warning("Redis is away (%s): rates are not limited until it is back", type(exc).__name__)


def _left(
    limiter: SlidingWindowCounterRateLimiter, item: RateLimitItemPerMinute, policy: str, who: str, *, admitted: bool
) -> Allowance:
    stats = limiter.get_window_stats(item, policy, who)
    return Allowance(
        limit=item.amount,
        admitted=admitted,
        remaining=max(0, stats.remaining),
        reset_s=max(0, math.ceil(stats.reset_time - time.time())),
    )
