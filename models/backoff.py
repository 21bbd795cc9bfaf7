"""PURE  How long to wait before asking again.

Nothing here sleeps, reads a clock or draws a number: `jitter` is an argument in [0, 1), so that
every bound below can be checked. The growth without jitter is a function of its own (`base`),
rising and capped; jitter is laid over it.

Invariant: a wait is never shorter than its policy's minimum and never longer than its maximum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_LONG = 64  # doublings; more would overflow a float and every cap is reached long before


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Bounds of one kind of wait.

    `min_s` and `max_s` in seconds, 0 < min_s <= max_s; `factor` >= 1 is the growth from one attempt
    to the next. Raises ValueError when the three do not fit together.
    """

    min_s: float
    max_s: float
    factor: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.min_s <= self.max_s < math.inf:
            message = f"min_s {self.min_s} and max_s {self.max_s} must satisfy 0 < min_s <= max_s"
            raise ValueError(message)
        if not 1 <= self.factor < math.inf:
            message = f"factor must be at least 1, is {self.factor}"
            raise ValueError(message)


IMAGE = Policy(min_s=1.0, max_s=15.0)  # polls of an image, until there is history to learn from
VIDEO = Policy(min_s=3.0, max_s=30.0)  # polls of a video, likewise
SUBMIT = Policy(min_s=2.0, max_s=60.0)  # a submit that was surely not accepted: back to PENDING for so long

RETRY_CAP_S = 8.0
RETRY_FIRST_S = 0.5
RETRY_JITTER_S = (0.2, 0.5)

# Standard Webhooks' schedule, tightened at the start: ten attempts over about 62 h. The first is at
# once.
WEBHOOK_DELAYS_S = (0, 5, 30, 300, 1_800, 7_200, 18_000, 36_000, 72_000, 86_400)
WEBHOOK_SPREAD = 0.1  # each delay is moved by up to this share of itself, both ways
WEBHOOK_RETRY_AFTER_MAX_S = 86_400


def base(n: int, policy: Policy) -> float:
    """Longest wait in seconds before attempt `n` (0-based): rising, capped at `policy.max_s`.

    It starts one step above the minimum, since full jitter over an empty span would send a burst of
    tasks that were submitted together to their first poll together.
    """
    grown = policy.min_s * policy.factor ** min(max(n, 0) + 1, _LONG) if policy.factor <= 2**8 else policy.max_s
    return min(policy.max_s, grown)


def countdown(n: int, policy: Policy, jitter: float) -> float:
    """Seconds to wait before poll `n` (0-based), in [policy.min_s, policy.max_s].

    `jitter` in [0, 1). Full jitter: any moment between the minimum and `base(n)` is as likely as
    any other.
    """
    wait = policy.min_s + jitter * (base(n, policy) - policy.min_s)
    return min(policy.max_s, max(policy.min_s, wait))


def submit_delay(n: int, jitter: float, retry_after_s: float | None = None) -> float:
    """Seconds until a submit that was surely not accepted may be tried again.

    `n` counts those before it, 0-based; `jitter` in [0, 1).
    `retry_after_s` is the vendor's own word; it wins where it is longer. Result at least
    SUBMIT.min_s.
    """
    return max(countdown(n, SUBMIT, jitter), retry_after_s or 0.0)


def retry_delay(n: int, jitter: float) -> float:
    """Seconds between two tries of one call, before retry `n` (0-based), in [0.7, 8.5].

    `jitter` in [0, 1).
    """
    low, high = RETRY_JITTER_S
    grown: float = min(RETRY_CAP_S, RETRY_FIRST_S * 2.0 ** min(max(n, 0), _LONG))
    return grown + low + jitter * (high - low)


def whole_seconds(x: float, lo: int = 1, hi: int = 30) -> int:
    """`x` seconds rounded up to a whole number in [lo, hi]: what a header or countdown carries.

    Rounded up, since coming back a moment early costs a call and finds nothing.
    """
    return math.ceil(max(lo, min(hi, x)))


def webhook_delay(n: int, jitter: float, retry_after_s: float | None = None) -> float | None:
    """Seconds before delivery attempt `n` (0-based, the first at once); None when none is left.

    `jitter` in [0, 1) moves the delay by up to 10 % both ways. `retry_after_s`, the receiver's own
    word, counts where it is later, up to 24 h.
    """
    if not 0 <= n < len(WEBHOOK_DELAYS_S):
        return None
    planned = WEBHOOK_DELAYS_S[n] * (1 - WEBHOOK_SPREAD + 2 * WEBHOOK_SPREAD * jitter)
    return max(planned, min(retry_after_s or 0.0, WEBHOOK_RETRY_AFTER_MAX_S))


def webhook_delays(jitter: float) -> tuple[float, ...]:
    """Every delay of one delivery in seconds, in order, all with the same `jitter` in [0, 1)."""
    return tuple(seconds for n in range(len(WEBHOOK_DELAYS_S)) if (seconds := webhook_delay(n, jitter)) is not None)
