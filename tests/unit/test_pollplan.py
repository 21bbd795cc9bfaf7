"""The poll plan: bounds whatever was learned, the promised cost on what was learned, and what happens when it changes.

Expectations are sums over evenly spaced quantiles of a distribution and evenly spaced jitters, not draws.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, count, islice
from statistics import NormalDist, fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import backoff, pollplan
from models.pollplan import BINS, EMPTY, ENOUGH, FULL, IMAGE, VIDEO, Histogram, Plan

GOLDEN = (math.sqrt(5) - 1) / 2


def taught(durations: Iterable[float], hist: Histogram = EMPTY) -> Histogram:
    for duration in durations:
        hist = pollplan.observe(hist, duration)
    return hist


JITTER = st.floats(0, 1, exclude_max=True)
AGE = st.floats(0, 20_000)
DURATION = st.floats(0, 20_000)
PLANS = st.sampled_from([IMAGE, VIDEO, Plan(policy=backoff.Policy(min_s=0.5, max_s=0.5), queries=3, lag_s=1)])
COUNTS = st.lists(st.integers(0, 40), min_size=BINS, max_size=BINS)
HISTOGRAMS = st.one_of(
    COUNTS.map(pollplan.load),
    st.lists(DURATION, max_size=80).map(taught),
    st.builds(lambda place, n: pollplan.load([n * (i == place) for i in range(BINS)]), st.integers(0, 63), st.just(60)),
)
LEARNED = HISTOGRAMS.filter(lambda hist: pollplan.total(hist) >= ENOUGH)


def lognormal(n: int, mid_s: float, spread: float) -> list[float]:
    """`n` evenly spaced quantiles, in an order that has no trend."""
    quantiles = [mid_s * math.exp(spread * NormalDist().inv_cdf((i + 0.5) / n)) for i in range(n)]
    return sorted(quantiles, key=lambda duration: (quantiles.index(duration) * GOLDEN) % 1)


def even(n: int, low_s: float, high_s: float) -> list[float]:
    return [low_s + (high_s - low_s) * ((i * GOLDEN) % 1) for i in range(n)]


def asked_at(hist: Histogram, plan: Plan, until_s: float, phase: float) -> list[float]:
    """Ages of the queries about a task that is never done, to the first past `until_s`."""
    ages = [0.0]
    while ages[-1] <= until_s:
        jitter = (phase + len(ages) * GOLDEN) % 1
        ages.append(ages[-1] + pollplan.next_wait_s(hist, ages[-1], plan, poll_count=len(ages) - 1, jitter=jitter))
    return ages[1:]


def cost(hist: Histogram, plan: Plan, durations: Sequence[float]) -> tuple[float, list[float]]:
    """(queries per task, every delay in seconds)."""
    queries, lags = [], []
    for phase in range(10):
        ages = asked_at(hist, plan, max(durations), phase / 10)
        for duration in durations:
            found = bisect_left(ages, duration)
            queries.append(found + 1)
            lags.append(ages[found] - duration)
    return fmean(queries), lags


VIDEOS = lognormal(300, 180, 0.35)


# --- the histogram ---


@given(HISTOGRAMS)
def test_histogram_survives_being_stored(hist: Histogram) -> None:
    assert pollplan.load(json.loads(json.dumps(pollplan.dump(hist)))) == hist


@pytest.mark.parametrize(
    "stored", [None, [], [1] * (BINS - 1), [1] * (BINS + 1), [-1] * BINS, [0.5] * BINS, ["1"] * BINS, [True] * BINS]
)
def test_strange_row_is_learned_anew(stored: list[object] | None) -> None:
    assert pollplan.load(stored) == EMPTY


@given(HISTOGRAMS, st.floats(allow_nan=True, allow_infinity=True))
def test_observation_counts_once_or_not_at_all(hist: Histogram, duration: float) -> None:
    after = pollplan.observe(hist, duration)
    if not 0 <= duration < math.inf:
        assert after == hist
    elif pollplan.total(hist) < FULL:
        assert pollplan.total(after) == pollplan.total(hist) + 1
    assert pollplan.total(after) <= FULL


@given(st.lists(DURATION, min_size=1, max_size=60))
def test_order_of_observations_does_not_matter_before_the_first_halving(durations: list[float]) -> None:
    assert taught(durations) == taught(reversed(durations))


@given(COUNTS, COUNTS)
def test_decay_keeps_the_shape(one: list[int], other: list[int]) -> None:
    merged = pollplan.merge(tuple(one), tuple(other))
    whole = list(accumulate(a + b for a, b in zip(one, other, strict=True)))
    halvings = next(n for n in count() if whole[-1] >> n <= FULL)
    assert all(abs(kept - n / 2**halvings) < 1 for kept, n in zip(accumulate(merged), whole, strict=True))
    assert merged == pollplan.merge(tuple(other), tuple(one))


def test_hundreds_of_halvings_leave_the_quantiles_where_they_were() -> None:
    hist = taught(lognormal(300, 180, 0.35) * 200)
    assert FULL / 2 <= pollplan.total(hist) <= FULL
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        true = 180 * math.exp(0.35 * NormalDist().inv_cdf(share))
        assert pollplan.quantile_s(hist, share) == pytest.approx(true, rel=0.1)


@given(HISTOGRAMS, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_rise(hist: Histogram, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= pollplan.quantile_s(hist, low) <= pollplan.quantile_s(hist, high)


def test_mean_is_the_mean() -> None:
    assert pollplan.mean_s(EMPTY) is None
    assert pollplan.mean_s(taught(VIDEOS)) == pytest.approx(fmean(VIDEOS), rel=0.02)


@pytest.mark.parametrize(
    ("name", "pixels", "length_s"),
    [("v:m", None, None), ("v:m:p20", 1024 * 1024, None), ("v:m:p19:5s", 1280 * 720, 5.0), ("v:m:1s", 0, 0.2)],
)
def test_bucket_names_what_is_alike(name: str, pixels: int | None, length_s: float | None) -> None:
    assert pollplan.bucket("v", "m", pixels=pixels, length_s=length_s) == name


# --- what is left ---


@given(HISTOGRAMS, AGE, AGE)
def test_eta_never_moves_the_end_forward_in_time(hist: Histogram, one: float, other: float) -> None:
    early, late = sorted((one, other))
    before, after = pollplan.eta_s(hist, early), pollplan.eta_s(hist, late)
    if after is not None:
        assert before is not None
        assert after >= 0
        assert early + before <= late + after + 1e-6


def test_eta_needs_ten_observations() -> None:
    assert pollplan.eta_s(taught([20.0] * 9), 0) is None
    assert pollplan.eta_s(taught([20.0] * 10), 0) == pytest.approx(20, rel=0.1)


def test_eta_is_the_median_of_those_still_at_work() -> None:
    left = median(duration - 200 for duration in VIDEOS if duration > 200)
    assert pollplan.eta_s(taught(VIDEOS), 200) == pytest.approx(left, rel=0.1)


def test_eta_is_unknown_for_a_task_older_than_any() -> None:
    assert pollplan.eta_s(taught(VIDEOS), 2000) is None


# --- the next query: bounds whatever was learned ---


@given(HISTOGRAMS, AGE, PLANS, st.integers(0, 1000), JITTER)
def test_wait_stays_within_its_bounds(hist: Histogram, age: float, plan: Plan, n: int, jitter: float) -> None:
    wait = pollplan.next_wait_s(hist, age, plan, poll_count=n, jitter=jitter)
    known = pollplan.total(hist) >= ENOUGH
    quiet = known and age < pollplan.quantile_s(hist, 0.01)
    assert plan.policy.min_s <= wait <= plan.policy.max_s * (4 if quiet else 1) + 1e-9


@given(HISTOGRAMS, AGE, PLANS, JITTER, st.floats(-100, 5000))
def test_wait_never_passes_the_deadline(hist: Histogram, age: float, plan: Plan, jitter: float, left: float) -> None:
    wait = pollplan.next_wait_s(hist, age, plan, poll_count=3, jitter=jitter, left_s=left)
    assert 0 <= wait <= max(0.0, left)


@given(HISTOGRAMS.filter(lambda hist: pollplan.total(hist) < ENOUGH), AGE, PLANS, st.integers(0, 50), JITTER)
def test_without_history_it_is_full_jitter(hist: Histogram, age: float, plan: Plan, n: int, jitter: float) -> None:
    wait = pollplan.next_wait_s(hist, age, plan, poll_count=n, jitter=jitter)
    assert wait == backoff.countdown(n, plan.policy, jitter)


@given(LEARNED, AGE, AGE, PLANS, JITTER)
def test_later_age_never_gives_an_earlier_query(
    hist: Histogram, one: float, other: float, plan: Plan, jitter: float
) -> None:
    early, late = sorted((one, other))
    due = [age + pollplan.next_wait_s(hist, age, plan, poll_count=0, jitter=jitter) for age in (early, late)]
    assert due[0] <= due[1] + 1e-6


@given(LEARNED, AGE, PLANS, JITTER, JITTER)
def test_wait_rises_with_the_jitter(hist: Histogram, age: float, plan: Plan, one: float, other: float) -> None:
    low, high = (pollplan.next_wait_s(hist, age, plan, poll_count=0, jitter=j) for j in sorted((one, other)))
    assert low <= high + 1e-9


@given(LEARNED, st.floats(0, 1800), st.sampled_from([IMAGE, VIDEO]), JITTER)
def test_any_task_is_noticed_soon_at_bounded_cost(hist: Histogram, duration: float, plan: Plan, phase: float) -> None:
    ages = asked_at(hist, plan, duration, phase)
    assert ages[-1] - duration <= 4 * plan.policy.max_s + 1e-6
    assert len(ages) <= 2 + duration / plan.policy.min_s


@pytest.mark.parametrize("wrong", [{"queries": 1}, {"queries": math.nan}, {"lag_s": 0}, {"lag_s": math.inf}], ids=str)
def test_plan_refuses_what_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be above"):
        Plan(**{"policy": backoff.VIDEO, "queries": 12.0, "lag_s": 4.0} | wrong)  # type: ignore[arg-type]


# --- the next query: the promised cost on what was learned ---


@pytest.mark.parametrize("seen", [ENOUGH, 300])
def test_three_minute_video_costs_twelve_queries_and_five_seconds(seen: int) -> None:
    queries, lags = cost(taught(lognormal(seen, 180, 0.35)), VIDEO, VIDEOS)
    assert queries <= 12.2 if seen == ENOUGH else queries <= 12
    assert fmean(lags) <= 5


@pytest.mark.parametrize(
    ("plan", "durations"),
    [(VIDEO, VIDEOS), (VIDEO, even(300, 60, 240)), (IMAGE, even(300, 10, 30)), (IMAGE, lognormal(300, 15, 0.35))],
    ids=["video", "video even", "image even", "image"],
)
def test_queries_stay_near_the_budget_and_the_forecast_is_right(plan: Plan, durations: list[float]) -> None:
    hist = taught(durations)
    queries, lags = cost(hist, plan, durations)
    forecast = pollplan.expected(hist, plan)
    assert 0.85 * plan.queries <= queries <= 1.02 * plan.queries
    assert queries == pytest.approx(forecast[0], rel=0.1)
    assert fmean(lags) == pytest.approx(forecast[1], rel=0.1)


def test_steady_durations_spend_less_than_the_budget() -> None:
    durations = even(100, 179, 181)
    queries, lags = cost(taught(durations), VIDEO, durations)
    assert queries <= 0.6 * VIDEO.queries
    assert fmean(lags) <= 5


def test_nobody_asks_while_nothing_can_have_ended() -> None:
    assert pollplan.next_wait_s(taught(VIDEOS), 0, VIDEO, poll_count=0, jitter=0.0) >= 60


def test_burst_does_not_ask_as_one() -> None:
    hist = taught(VIDEOS)
    firsts = sorted(pollplan.next_wait_s(hist, 0, VIDEO, poll_count=0, jitter=i / 200) for i in range(200))
    assert max(bisect_left(firsts, at + 1) - place for place, at in enumerate(firsts)) <= 20


# --- when the vendor's pace changes ---


@pytest.mark.parametrize("spread", [0.01, 0.15, 0.35])
@pytest.mark.parametrize("factor", [0.5, 2, 4])
def test_changed_pace_stays_within_a_factor_of_full_jitter(spread: float, factor: float) -> None:
    learned, now = lognormal(300, 180, spread), [factor * duration for duration in lognormal(100, 180, spread)]
    queries, lags = cost(taught(learned), VIDEO, now)
    jittered_queries, jittered_lags = cost(EMPTY, VIDEO, now)
    assert queries <= 1.75 * jittered_queries
    assert fmean(lags) <= (3.1 if factor < 1 else 1.05) * fmean(jittered_lags)
    assert max(lags) <= 4 * VIDEO.policy.max_s


def test_six_shorter_tasks_in_512_end_the_quiet_time() -> None:
    hist = taught([30.0] * 6, taught(VIDEOS))
    assert pollplan.next_wait_s(hist, 35, VIDEO, poll_count=1, jitter=0.5) <= VIDEO.policy.max_s


@pytest.mark.parametrize("factor", [0.1, 0.5, 2, 5])
def test_six_hundred_tasks_later_the_old_pace_is_forgotten(factor: float) -> None:
    now = [factor * duration for duration in VIDEOS]
    hist = taught([*now, *now], taught(VIDEOS))
    assert pollplan.quantile_s(hist, 0.5) == pytest.approx(factor * 180, rel=0.35)


# --- the tick ---


def tick(in_flight: int, mean: float | None, jitter: float, page: int = 100, extra: int = 0) -> int:
    return pollplan.tick_s(in_flight, mean, page_size=page, queries_per_s=20, jitter=jitter, extra_calls=extra)


@given(st.integers(0, 20_000), st.none() | st.floats(0.01, 5000), st.integers(1, 500), JITTER, st.integers(0, 3))
def test_tick_never_empties_the_bucket(
    in_flight: int, mean: float | None, page: int, jitter: float, extra: int
) -> None:
    ticked = tick(in_flight, mean, jitter, page, extra)
    assert 1 <= ticked <= 30
    ended = in_flight / max(mean, 0.5) if mean else 0
    passes = max(1, math.ceil(in_flight / page)) + extra
    assert ticked == 30 or passes / ticked + ended <= 20 * 0.9 + 1e-6


@given(jitter=JITTER, one=st.integers(0, 5000), other=st.integers(0, 5000))
def test_tick_without_ends_rises_with_the_load(jitter: float, one: int, other: int) -> None:
    low, high = (tick(n, None, jitter) for n in sorted((one, other)))
    assert low <= high


def test_tick_carries_1600_videos_within_20_calls_a_second() -> None:
    assert {tick(1600, 191, i / 10) for i in range(10)} == {2}


@pytest.mark.parametrize("extra", [0, 1])
def test_tick_of_200_videos_is_thrifty_and_soon(extra: int) -> None:
    ticks = [tick(200, 191, i / 100, extra=extra) for i in range(100)]
    calls = 1 + (2 + extra) * 191 / (200 * fmean(ticks))
    assert calls <= 2.5
    assert sum(t * t for t in ticks) / (2 * sum(ticks)) <= 1.0


def test_tick_of_images_is_one_second() -> None:
    assert {tick(200, 20, i / 10) for i in range(10)} == {1}


# --- the backstop of callbacks ---


@given(HISTOGRAMS, AGE, PLANS, JITTER, st.floats(-10, 5000))
def test_callback_wait_stays_within_its_bounds(
    hist: Histogram, age: float, plan: Plan, jitter: float, left: float
) -> None:
    wait = pollplan.callback_wait_s(hist, age, plan, jitter=jitter, left_s=left)
    assert min(plan.policy.min_s, max(left, 0)) <= wait <= max(left, 0)


@pytest.mark.parametrize("hist", [EMPTY, taught(VIDEOS)], ids=["no history", "learned"])
def test_called_back_video_is_asked_about_less_than_once_in_ten(hist: Histogram) -> None:
    ages = [0.0]
    while ages[-1] < 1800:
        wait = pollplan.callback_wait_s(hist, ages[-1], VIDEO, jitter=0.5, left_s=1800 - ages[-1])
        ages.append(ages[-1] + wait)
    before = fmean(bisect_left(ages[1:], duration) for duration in VIDEOS)
    assert 0.98 * before + 0.02 * (before + 1) <= 0.1
    assert len(ages) <= 8


@given(HISTOGRAMS, st.floats(0, 1), JITTER)
def test_lost_callback_is_found_before_the_deadline(hist: Histogram, share: float, jitter: float) -> None:
    deadline = 900.0
    ended, age = share * 0.74 * deadline, 0.0
    for _ in islice(count(), 40):
        age += pollplan.callback_wait_s(hist, age, IMAGE, jitter=jitter, left_s=deadline - age)
        if age >= ended:
            break
    assert ended <= age < deadline
