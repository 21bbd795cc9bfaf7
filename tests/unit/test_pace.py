"""The rules of pace without Redis: a bucket never exceeds its rate, a pause holds and spreads, retries stay few."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.breaker import Shared
from providers.pace import (
    Bucket,
    Condition,
    Credentials,
    Health,
    Pace,
    Places,
    Rate,
    RetryShare,
    Spread,
    Standing,
    alias,
    spent,
    taken,
)

T0 = 1_800_000_000_000_000  # us
SECOND = 1_000_000
SPREAD = Spread()
RATES = st.builds(Rate, per_minute=st.floats(1, 100_000), burst=st.integers(0, 50))
# (us since the question before, requests, patience in us)
QUESTIONS = st.lists(
    st.tuples(st.integers(0, 3 * SECOND), st.integers(1, 5), st.sampled_from([0, 0, SECOND])), max_size=150
)


def goes(bucket: Bucket, now: int, rate: Rate, n: int = 1) -> tuple[Bucket, bool]:
    bucket, wait = taken(bucket, now, n, rate, SPREAD, 0)
    return bucket, wait == 0


@given(RATES, QUESTIONS)
def test_no_span_of_time_sees_more_than_the_rate_and_one_burst(
    rate: Rate, questions: list[tuple[int, int, int]]
) -> None:
    bucket, now, gone = Bucket(), T0, list[tuple[int, int]]()
    for step, n, patience in questions:
        now += step
        bucket, wait = taken(bucket, now, n, rate, SPREAD, patience)
        if wait <= patience:
            gone.append((now + wait, n))
    most = max(rate.at_once, 5)
    for i, (start, _) in enumerate(gone):
        total = 0
        for at, n in gone[i:]:
            total += n
            assert total <= most + (at - start) / rate.gap_us


@given(RATES, QUESTIONS)
def test_whoever_is_sent_away_has_taken_nothing(rate: Rate, questions: list[tuple[int, int, int]]) -> None:
    bucket, now = Bucket(), T0
    for step, n, patience in questions:
        now += step
        before = bucket
        bucket, wait = taken(before, now, n, rate, SPREAD, patience)
        assert wait >= 0
        assert (bucket.due > before.due) == (wait <= patience)


@given(RATES, st.integers(1, 40))
def test_those_sent_away_are_told_moments_of_their_own(rate: Rate, crowd: int) -> None:
    bucket, waits = Bucket(), list[int]()
    for _ in range(rate.at_once + crowd):
        bucket, wait = taken(bucket, T0, 1, rate, SPREAD, 0)
        waits.append(wait)
    assert waits[: rate.at_once] == [0] * rate.at_once
    assert max(waits) <= max(SPREAD.line_us, 0) + rate.gap_us
    later = waits[rate.at_once :]
    if max(later) < SPREAD.line_us - rate.gap_us:
        assert [b - a for a, b in pairwise(later)] == [rate.gap_us] * (crowd - 1)


def test_crowd_that_comes_back_as_told_goes_at_the_full_rate() -> None:
    rate, bucket = Rate(per_minute=1_200, burst=1), Bucket()
    told = []
    for _ in range(100):
        bucket, wait = taken(bucket, T0, 1, rate, SPREAD, 0)
        told.append(T0 + wait)
    sent_away = sorted(told)[1:]
    for at in sent_away:
        bucket, went = goes(bucket, at, rate)
        assert went
    assert sent_away[-1] - T0 == 99 * rate.gap_us


def test_patience_of_a_second_fills_the_second() -> None:
    rate, bucket = Rate(per_minute=1_200, burst=1), Bucket()
    waits = []
    for _ in range(40):
        bucket, wait = taken(bucket, T0, 1, rate, SPREAD, SECOND)
        waits.append(wait)
    assert waits[:21] == [n * 50_000 for n in range(21)]
    assert all(wait > SECOND for wait in waits[21:])


def test_request_above_the_burst_waits_for_a_full_bucket_and_leaves_it_in_debt() -> None:
    rate = Rate(per_minute=60, burst=2)
    bucket, went = goes(Bucket(), T0, rate, n=8)
    assert went
    assert not goes(bucket, T0 + 6 * SECOND - 1, rate)[1]
    assert goes(bucket, T0 + 7 * SECOND, rate)[1]


@given(RATES, st.integers(1, 3_600), QUESTIONS)
def test_nothing_goes_while_paused(rate: Rate, pause_s: int, questions: list[tuple[int, int, int]]) -> None:
    bucket, now = Bucket(pause=T0 + pause_s * SECOND), T0
    for step, n, patience in questions:
        now += step
        bucket, wait = taken(bucket, now, n, rate, SPREAD, patience)
        assert now + wait >= T0 + pause_s * SECOND or now >= T0 + pause_s * SECOND


def test_fifty_that_waited_come_back_over_five_seconds() -> None:
    rate, end = Rate(per_minute=10_000_000, burst=1_000), T0 + 30 * SECOND
    bucket, told = Bucket(pause=end), []
    for _ in range(50):
        bucket, wait = taken(bucket, T0, 1, rate, SPREAD, 0)
        told.append(T0 + wait)
    assert (min(told), max(told)) == (end, end + 49 * SPREAD.gap_us)
    for at in told:
        bucket, went = goes(bucket, at, rate)
        assert went


def test_crowd_that_was_never_told_is_spread_too() -> None:
    rate, end = Rate(per_minute=10_000_000, burst=1_000), T0 + 30 * SECOND
    bucket, went = Bucket(pause=end), list[int]()
    for now in range(end, end + 5 * SECOND, 20_000):
        bucket, gone = goes(bucket, now, rate)
        went += [now] * gone
    assert len(went) == 50
    assert min(b - a for a, b in pairwise(went)) == SPREAD.gap_us
    assert goes(bucket, end + 5 * SECOND, rate, n=100)[1]


def test_clock_that_went_back_is_no_pause() -> None:
    bucket = Bucket(due=T0, pause=T0)
    assert goes(bucket, T0 - 3_601 * SECOND, Rate())[1]


@pytest.mark.parametrize("wrong", [{"per_minute": 0}, {"per_minute": float("inf")}, {"burst": -1}])
def test_rate_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        Rate(**wrong)  # type: ignore[arg-type]  # whatever the case gives


def test_burst_is_a_tenth_of_a_second_unless_named() -> None:
    assert [Rate(per_minute=n).at_once for n in (6, 600, 6_000)] == [1, 1, 10]
    assert Rate(burst=7).at_once == 7


@given(st.lists(st.booleans(), max_size=400))
def test_retries_are_a_tenth_of_the_calls_and_a_reserve(retry: list[bool]) -> None:
    left, calls, retries = 100, 0, 0
    for wanted in retry:
        left, met = spent(left, 0 if wanted else 1, 10 if wanted else 0, 100)
        calls += not wanted
        retries += wanted and met
        assert 0 <= left <= 100
        assert retries <= 10 + calls / 10


def test_reserve_is_all_that_a_quiet_time_earns() -> None:
    assert spent(100, 1_000, 0, 100) == (100, True)
    assert spent(9, 0, 10, 100) == (9, False)


@given(st.text(min_size=1, max_size=80))
def test_alias_of_a_key_shows_none_of_it(key: str) -> None:
    named = alias(key)
    assert named == key or (named.startswith("h-") and len(named) == 14)
    assert alias(named) == named


@pytest.mark.parametrize("key", ["sk-0123456789abcdef", "AKIAIOSFODNN7EXAMPLE", "r8_Abcdef", "a" * 40, "A_B" * 40])
def test_keys_become_hashes(key: str) -> None:
    assert alias(key).startswith("h-")


@pytest.mark.parametrize("name", ["DASHSCOPE_API_KEY", "ARK_API_KEY_2", "FAL_KEY"])
def test_names_of_variables_stay(name: str) -> None:
    assert alias(name) == name


def test_without_redis_everything_is_let_through_and_counted() -> None:
    shared = Shared(None)
    pace, places, health, credentials = Pace(shared), Places(shared), Health(shared), Credentials(shared)
    assert (pace.take("wan", "A_KEY"), pace.pause("wan", "A_KEY", 9.0)) == (0.0, 0.0)
    assert pace.standing("wan", "A_KEY") == Standing()
    with places.place("wan") as went:
        assert went
    assert RetryShare(shared).take("wan")
    credentials.kill("wan", "A_KEY", "401")
    credentials.revive("wan", "A_KEY")
    assert (credentials.alive("wan", ["A_KEY"]), credentials.trial("wan", ["A_KEY"])) == (["A_KEY"], None)
    health.miss("wan")
    health.hit("wan")
    assert health.prober("wan")
    assert health.conditions(["wan"]) == {"wan": Condition()}
    assert shared.bypassed == 14
