"""decide(): total, pure, bounded, and patient exactly as long as it says."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import lifecycle
from models.backoff import Policy, countdown
from models.failures import FailureKind
from models.lifecycle import (
    PATIENCE,
    TRANSITIONS,
    Canceled,
    Decision,
    End,
    Error,
    Failed,
    Fetch,
    Finished,
    Guard,
    Ignore,
    Missing,
    Observation,
    Output,
    Reason,
    Stage,
    Status,
    Unknown,
    Unreadable,
    View,
    Wait,
    Working,
)


def decide(view: View, seen: Observation, now: datetime, policy: Policy, jitter: float) -> Decision:
    """As lifecycle's, with the plan that holds until there is history."""
    return lifecycle.decide(view, seen, now, countdown(view.poll_count, policy, jitter))


FEW = settings(max_examples=40)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy(min_s=1.0, max_s=15.0)
anything = st.floats(allow_nan=True, allow_infinity=True)
errors = st.builds(Error, kind=st.sampled_from(FailureKind), message=st.text(max_size=5))
outputs = st.lists(st.builds(Output, url=st.just("https://a.example/1.png")), max_size=3).map(tuple)
missing = st.lists(st.builds(Missing, kind=st.sampled_from(FailureKind)), max_size=3).map(tuple)
progresses = st.none() | st.floats(0, 1)
working = st.builds(Working, progress=st.none() | anything, word=st.text(max_size=5))
unreadable = st.builds(Unreadable, error=errors, retry_after_s=st.none() | anything)
observations: st.SearchStrategy[Observation] = st.one_of(
    working,
    st.builds(Finished, outputs=outputs, missing=missing),
    st.builds(Failed, error=errors),
    st.just(Canceled()),
    st.just(Unknown()),
    unreadable,
)
lefts = st.floats(-100_000, 100_000)
counts = st.integers(0, 10_000)
views = st.builds(
    View,
    status=st.sampled_from(Status),
    stage=st.none() | st.sampled_from(Stage),
    deadline_at=lefts.map(lambda s: NOW + timedelta(seconds=s)),
    progress=progresses,
    poll_count=counts,
    lost_polls=st.integers(0, 5),
    empty_polls=st.integers(0, 5),
    failed_polls=counts,
    cancel_requested=st.booleans(),
)
generating = views.map(lambda v: replace(v, status=Status.RUNNING, stage=Stage.GENERATING))
in_time = generating.filter(lambda v: v.deadline_at > NOW)
policies = st.builds(
    lambda lo, more, factor: Policy(min_s=lo, max_s=lo + more, factor=factor),
    st.floats(0.1, 60),
    st.floats(0, 600),
    st.floats(1, 10),
)
jitters = st.floats(0, 1, exclude_max=True)


def left_s(view: View) -> float:
    """Seconds to the deadline."""
    return (view.deadline_at - NOW).total_seconds()


def fresh(**over: object) -> View:
    """A generating row ten minutes before its deadline."""
    view = View(status=Status.RUNNING, stage=Stage.GENERATING, deadline_at=NOW + timedelta(minutes=10))
    return replace(view, **over)  # type: ignore[arg-type]  # fields of View


def told(view: View, *seen: Observation, jitter: float = 0.5) -> Decision:
    """The decision about the last of `seen`, each Wait carried over into the row as a poll does."""
    decision: Decision = Ignore()
    for observation in seen:
        decision = decide(view, observation, NOW, POLICY, jitter)
        if isinstance(decision, Wait):
            view = replace(
                view,
                progress=decision.progress,
                lost_polls=decision.lost_polls,
                empty_polls=decision.empty_polls,
                failed_polls=decision.failed_polls,
                poll_count=view.poll_count + 1,
            )
    return decision


@FEW
@given(views, observations, policies, jitters)
def test_decide_answers_everything_with_a_legal_decision(
    view: View, seen: Observation, policy: Policy, jitter: float
) -> None:
    decision = decide(view, seen, NOW, policy, jitter)
    assert isinstance(decision, Wait | Fetch | End | Ignore)
    if isinstance(decision, End):
        legal = {(t.reason, t.to) for t in TRANSITIONS if t.start is view.status and t.guard is Guard.NONE}
        assert (decision.reason, decision.status) in legal
        assert (decision.error is None) is (decision.status is Status.CANCELED)


@FEW
@given(views, observations, policies, jitters)
def test_decide_says_the_same_twice(view: View, seen: Observation, policy: Policy, jitter: float) -> None:
    assert repr(decide(view, seen, NOW, policy, jitter)) == repr(decide(view, seen, NOW, policy, jitter))


@FEW
@given(views, observations, jitters)
def test_a_row_that_is_not_generating_ignores_everything(view: View, seen: Observation, jitter: float) -> None:
    ignored = isinstance(decide(view, seen, NOW, POLICY, jitter), Ignore)
    assert ignored is not (view.status is Status.RUNNING and view.stage is Stage.GENERATING)


@FEW
@given(generating, observations, policies, jitters)
def test_a_wait_lies_between_the_policy_and_the_deadline(
    view: View, seen: Observation, policy: Policy, jitter: float
) -> None:
    decision = decide(view, seen, NOW, policy, jitter)
    if isinstance(decision, Wait):
        assert 0 < decision.wait_s <= left_s(view)
        assert decision.wait_s >= min(policy.min_s, left_s(view))
        own_word = isinstance(seen, Unreadable) and seen.retry_after_s is not None
        assert own_word or decision.wait_s <= policy.max_s


@FEW
@given(generating, observations, jitters)
def test_nothing_waits_at_or_past_the_deadline(view: View, seen: Observation, jitter: float) -> None:
    late = replace(view, deadline_at=min(view.deadline_at, NOW))
    assert not isinstance(decide(late, seen, NOW, POLICY, jitter), Wait)


@FEW
@given(generating, working | unreadable, jitters)
def test_no_news_past_the_deadline_is_a_timeout(view: View, seen: Observation, jitter: float) -> None:
    decision = decide(replace(view, deadline_at=min(view.deadline_at, NOW)), seen, NOW, POLICY, jitter)
    assert isinstance(decision, End)
    assert (decision.status, decision.reason) == (Status.TIMEOUT, Reason.DEADLINE)
    assert decision.error is not None
    assert decision.error.kind is FailureKind.DEADLINE


@FEW
@given(in_time, unreadable, jitters)
def test_an_unreadable_answer_never_ends_a_task_before_its_deadline(
    view: View, seen: Unreadable, jitter: float
) -> None:
    decision = decide(view, seen, NOW, POLICY, jitter)
    assert isinstance(decision, Wait)
    assert not decision.news
    assert decision.failed_polls == view.failed_polls + 1
    assert decision.error == seen.error


@FEW
@given(in_time, st.floats(0, 1_000_000), jitters)
def test_the_vendors_retry_after_wins_over_a_shorter_plan(view: View, retry_after_s: float, jitter: float) -> None:
    seen = Unreadable(error=Error(kind=FailureKind.RATE_LIMITED), retry_after_s=retry_after_s)
    decision = decide(view, seen, NOW, POLICY, jitter)
    assert isinstance(decision, Wait)
    assert decision.wait_s >= min(retry_after_s, left_s(view))


@pytest.mark.parametrize("retry_after_s", [math.nan, -5.0, -math.inf, None, 0.0])
def test_a_senseless_retry_after_is_no_word_at_all(retry_after_s: float | None) -> None:
    seen = Unreadable(error=Error(kind=FailureKind.RATE_LIMITED), retry_after_s=retry_after_s)
    decision = told(fresh(), seen)
    assert isinstance(decision, Wait)
    assert POLICY.min_s <= decision.wait_s <= POLICY.max_s


@FEW
@given(in_time, st.lists(working, min_size=1, max_size=6))
def test_progress_never_falls_and_stays_within_bounds(view: View, seen: list[Working]) -> None:
    progress = view.progress
    for observation in seen:
        decision = decide(replace(view, progress=progress), observation, NOW, POLICY, 0.5)
        assert isinstance(decision, Wait)
        if progress is not None:
            assert decision.progress is not None
            assert decision.progress >= progress
        if decision.progress is not None:
            assert 0 <= decision.progress <= 1
        assert decision.news is (decision.progress != progress)
        progress = decision.progress


@FEW
@given(in_time, observations, jitters)
def test_progress_is_kept_when_the_answer_says_nothing_of_it(view: View, seen: Observation, jitter: float) -> None:
    decision = decide(view, seen, NOW, POLICY, jitter)
    if isinstance(decision, Wait) and not isinstance(seen, Working):
        assert decision.progress == view.progress
        assert not decision.news


STRANGE: list[tuple[Observation, FailureKind]] = [
    (Unknown(), FailureKind.UPSTREAM_LOST),
    (Finished(outputs=()), FailureKind.RESULT_MISSING),
]


@pytest.mark.parametrize(("seen", "kind"), STRANGE)
def test_a_strange_verdict_is_believed_the_third_time_in_a_row(seen: Observation, kind: FailureKind) -> None:
    for times in range(1, PATIENCE):
        assert isinstance(told(fresh(), *[seen] * times), Wait)
    decision = told(fresh(), *[seen] * PATIENCE)
    assert isinstance(decision, End)
    assert (decision.status, decision.reason) == (Status.FAILED, Reason.REFUSED)
    assert decision.error == Error(kind=kind)


@pytest.mark.parametrize(("seen", "_kind"), STRANGE)
def test_a_readable_answer_in_between_starts_the_count_anew(seen: Observation, _kind: FailureKind) -> None:
    assert isinstance(told(fresh(), seen, seen, Working(), seen, seen), Wait)


@pytest.mark.parametrize(("seen", "_kind"), STRANGE)
def test_an_unreadable_answer_in_between_does_not_break_the_row(seen: Observation, _kind: FailureKind) -> None:
    noise = Unreadable(error=Error(kind=FailureKind.SERVER_ERROR))
    assert isinstance(told(fresh(), seen, noise, seen, noise, seen), End)


def test_two_kinds_of_strange_verdicts_do_not_add_up() -> None:
    lost, empty = STRANGE[0][0], STRANGE[1][0]
    assert isinstance(told(fresh(), lost, lost, empty, empty), Wait)


def test_a_failed_poll_is_counted_until_a_readable_answer() -> None:
    noise = Unreadable(error=Error(kind=FailureKind.READ_TIMEOUT))
    after_noise, after_word = told(fresh(), noise, noise), told(fresh(), noise, noise, Working())
    assert isinstance(after_noise, Wait)
    assert isinstance(after_word, Wait)
    assert (after_noise.failed_polls, after_word.failed_polls) == (2, 0)


@FEW
@given(generating, outputs.filter(bool), missing)
def test_a_finished_job_is_fetched_even_past_the_deadline(
    view: View, some: tuple[Output, ...], gone: tuple[Missing, ...]
) -> None:
    seen = Finished(outputs=some, missing=gone)
    assert decide(view, seen, NOW, POLICY, 0.0) == Fetch(finished=seen)


@FEW
@given(generating, missing.filter(bool))
def test_a_finished_job_without_any_output_fails_with_the_first_reason(view: View, gone: tuple[Missing, ...]) -> None:
    decision = decide(view, Finished(outputs=(), missing=gone), NOW, POLICY, 0.0)
    assert isinstance(decision, End)
    assert decision.status is Status.FAILED
    assert decision.error is not None
    assert decision.error.kind is gone[0].kind


@FEW
@given(generating, errors)
def test_a_failed_job_fails_the_task_with_the_vendors_words(view: View, error: Error) -> None:
    end = End(status=Status.FAILED, reason=Reason.REFUSED, error=error)
    assert decide(view, Failed(error=error), NOW, POLICY, 0.0) == end


@FEW
@given(generating)
def test_a_cancel_is_the_callers_only_if_the_caller_asked(view: View) -> None:
    decision = decide(view, Canceled(), NOW, POLICY, 0.0)
    assert isinstance(decision, End)
    if view.cancel_requested:
        assert decision == End(status=Status.CANCELED, reason=Reason.CANCELLED, error=None)
    else:
        assert decision.status is Status.FAILED
        assert decision.error == Error(kind=FailureKind.UPSTREAM_CANCELED)
