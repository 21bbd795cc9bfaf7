"""Waits: bounds, growth, caps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import backoff
from models.backoff import IMAGE, VIDEO, Policy

JITTER = st.floats(0, 1, exclude_max=True)
ATTEMPT = st.integers(0, 10**6)
POLICIES = st.builds(
    lambda low, more, factor: Policy(min_s=low, max_s=low + more, factor=factor),
    st.floats(0.01, 1000),
    st.floats(0, 10_000),
    st.floats(1, 1000),
)


@given(ATTEMPT, POLICIES, JITTER)
def test_countdown_stays_within_its_policy(n: int, policy: Policy, jitter: float) -> None:
    assert policy.min_s <= backoff.countdown(n, policy, jitter) <= policy.max_s


@given(ATTEMPT, POLICIES)
def test_base_rises_up_to_the_cap(n: int, policy: Policy) -> None:
    assert policy.min_s <= backoff.base(n, policy) <= backoff.base(n + 1, policy) <= policy.max_s


@given(ATTEMPT, POLICIES, JITTER, JITTER)
def test_countdown_rises_with_the_jitter(n: int, policy: Policy, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert backoff.countdown(n, policy, low) <= backoff.countdown(n, policy, high)


@pytest.mark.parametrize(("policy", "steps"), [(IMAGE, [2, 4, 8, 15, 15]), (VIDEO, [6, 12, 24, 30, 30])], ids=str)
def test_base_doubles(policy: Policy, steps: list[float]) -> None:
    assert [backoff.base(n, policy) for n in range(5)] == steps


def test_first_wait_is_spread_too() -> None:
    assert backoff.countdown(0, VIDEO, 0.0) < backoff.countdown(0, VIDEO, 0.9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_s": 0, "max_s": 1},
        {"min_s": 2, "max_s": 1},
        {"min_s": 1, "max_s": math.inf},
        {"min_s": math.nan, "max_s": 1},
        {"min_s": 1, "max_s": 2, "factor": 0.5},
        {"min_s": 1, "max_s": 2, "factor": math.inf},
    ],
    ids=str,
)
def test_policy_that_does_not_hold_together_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Policy(**wrong)


@given(ATTEMPT, JITTER)
def test_retry_of_a_call_waits_its_share_of_eight_seconds_and_some_chance(n: int, jitter: float) -> None:
    base = min(8.0, 0.5 * 2.0 ** min(n, 50))
    assert base + 0.2 <= backoff.retry_delay(n, jitter) <= base + 0.5


@given(st.floats(allow_nan=True, allow_infinity=True), st.integers(0, 10), st.integers(10, 100))
def test_whole_seconds_stay_in_range(x: float, lo: int, hi: int) -> None:
    found = backoff.whole_seconds(x, lo, hi)
    assert isinstance(found, int)
    assert lo <= found <= hi


@pytest.mark.parametrize(("x", "whole"), [(0, 1), (1.0, 1), (1.01, 2), (29.5, 30), (99, 30)])
def test_whole_seconds_are_rounded_up(x: float, whole: int) -> None:
    assert backoff.whole_seconds(x) == whole


@given(st.integers(0, 20), JITTER, st.none() | st.floats(0, 10**6))
def test_vendors_own_word_wins_where_it_is_longer(n: int, jitter: float, word: float | None) -> None:
    delay = backoff.submit_delay(n, jitter, word)
    assert delay >= max(backoff.SUBMIT.min_s, word or 0)
    assert word is not None or delay <= backoff.SUBMIT.max_s


@given(JITTER)
def test_webhook_has_ten_attempts_each_moved_by_a_tenth_at_most(jitter: float) -> None:
    planned = [0, 5, 30, 300, 1800, 7200, 18_000, 36_000, 72_000, 86_400]
    delays = backoff.webhook_delays(jitter)
    assert len(delays) == 10
    assert all(0.9 * plan <= delay <= 1.1 * plan for plan, delay in zip(planned, delays, strict=True))


def test_webhook_gives_up_after_about_62_hours() -> None:
    assert sum(backoff.webhook_delays(0.5)) / 3600 == pytest.approx(61.6, abs=0.1)
    assert backoff.webhook_delay(10, 0.5) is None
    assert backoff.webhook_delay(-1, 0.5) is None


@pytest.mark.parametrize(("word", "delay"), [(None, 5), (1, 5), (60, 60), (10**9, 86_400)])
def test_receivers_own_word_counts_if_later_up_to_a_day(word: float | None, delay: float) -> None:
    assert backoff.webhook_delay(1, 0.5, word) == pytest.approx(delay)
