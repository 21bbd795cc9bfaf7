"""The failure table: complete, without contradictions, and safe to show."""

from __future__ import annotations

import re

import pytest

from models.failures import FAILURES, FailureKind

K = FailureKind
# Kinds that leave it open whether a vendor has the job or was paid; none may let a key start again.
OPEN = {
    K.UNREADABLE, K.READ_TIMEOUT, K.SERVER_ERROR, K.SUBMIT_UNCONFIRMED, K.UPSTREAM_LOST, K.RESULT_MISSING,
    K.RESULT_UNAVAILABLE, K.RESULT_INVALID, K.DEADLINE, K.STUCK, K.CREDENTIALS_GONE, K.PROVIDER_GONE, K.INTERNAL,
    K.STORAGE,
}  # fmt: skip


def test_every_kind_has_one_row() -> None:
    assert set(FAILURES) == set(FailureKind)


@pytest.mark.parametrize("kind", list(FailureKind))
def test_a_kind_is_certain_unless_something_may_be_left_at_the_vendor(kind: FailureKind) -> None:
    assert FAILURES[kind].certain is (kind not in OPEN)


@pytest.mark.parametrize("kind", list(FailureKind))
def test_a_call_is_repeated_only_when_it_was_surely_not_taken(kind: FailureKind) -> None:
    assert FAILURES[kind].repeat is (kind in {K.NOT_SENT, K.RATE_LIMITED, K.OVERLOADED, K.HELD})


@pytest.mark.parametrize("kind", list(FailureKind))
def test_what_may_be_repeated_is_certain_and_worth_another_try(kind: FailureKind) -> None:
    facts = FAILURES[kind]
    if facts.repeat:
        assert facts.certain
        assert facts.retryable


@pytest.mark.parametrize("kind", list(FailureKind))
def test_what_waits_is_certain_worth_another_try_and_no_failure_of_the_provider(kind: FailureKind) -> None:
    facts = FAILURES[kind]
    assert facts.waits is (kind in {K.RATE_LIMITED, K.HELD, K.PROVIDER_AUTH, K.PROVIDER_QUOTA, K.STORAGE})
    if facts.waits:
        assert (facts.certain, facts.retryable, facts.breaker) == (kind is not K.STORAGE, True, False)


@pytest.mark.parametrize("kind", [K.INVALID_PARAMETER, K.CONTENT_FILTERED, K.PROVIDER_AUTH, K.PROVIDER_QUOTA])
def test_a_refusal_of_the_request_does_not_count_against_the_breaker(kind: FailureKind) -> None:
    assert not FAILURES[kind].breaker


@pytest.mark.parametrize("kind", [K.DEADLINE, K.STUCK, K.CREDENTIALS_GONE, K.PROVIDER_GONE, K.INTERNAL])
def test_a_failure_of_ours_does_not_count_against_the_breaker(kind: FailureKind) -> None:
    assert not FAILURES[kind].breaker


@pytest.mark.parametrize("kind", list(FailureKind))
def test_a_code_is_one_lower_case_word_and_its_message_a_sentence(kind: FailureKind) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind)
    assert re.fullmatch(r"[A-Z].+\.", FAILURES[kind].message)
