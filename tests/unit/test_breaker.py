"""The breaker's rule without Redis: when it trips, who probes, how it recovers; and what happens when Redis is away."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis
from redis.exceptions import ConnectionError as RedisGone

from models.failures import FAILURES, FailureKind
from providers.breaker import (
    Breaker,
    Circuit,
    Rule,
    Shared,
    Told,
    Verdict,
    admits_percent,
    describe,
    in_window,
    ms,
    next_state,
    totals,
    verdict,
)

RULE = Rule()
T0 = 1_800_000_000_000  # ms
WELL, FAILED, NOTHING = Told(ok=True), Told(ok=False, kind="provider_server_error"), Told(ok=None)
PROBE_WELL, PROBE_FAILED, PROBE_NOTHING = (replace(told, probe=True) for told in (WELL, FAILED, NOTHING))


def after(circuit: Circuit, now: int, *events: Told) -> Circuit:
    for event in events:
        circuit, _ = next_state(circuit, event, now, RULE)
    return circuit


def ask(circuit: Circuit, now: int) -> tuple[Circuit, Verdict]:
    return next_state(circuit, None, now, RULE)


def opened(now: int = T0) -> Circuit:
    return after(Circuit(), now, *[FAILED] * 10)


def probing(now: int = T0) -> Circuit:
    return ask(opened(now), now + 10_000)[0]


def recovered(now: int = T0) -> Circuit:
    return after(probing(now - 10_000), now, PROBE_WELL)


@pytest.mark.parametrize("kind", FailureKind)
def test_only_the_vendors_own_failures_count(kind: FailureKind) -> None:
    assert verdict(kind) is (False if FAILURES[kind].breaker else None)


def test_call_without_failure_counts_as_well() -> None:
    assert verdict(None) is True


def test_new_circuit_lets_every_call_through() -> None:
    assert ask(Circuit(), T0) == (Circuit(), Verdict())


# Told in any order, all within one step of the window.
OUTCOMES = st.lists(st.booleans(), max_size=40)


@given(OUTCOMES)
def test_trips_exactly_when_more_than_half_of_ten_or_more_failed(outcomes: list[bool]) -> None:
    circuit = Circuit()
    for n, ok in enumerate(outcomes, 1):
        circuit = after(circuit, T0, WELL if ok else FAILED)
        failures = outcomes[:n].count(False)
        assert (circuit.name == "open") == (n >= 10 and failures > n / 2)
        if circuit.name == "open":
            return


def test_single_successes_do_not_hide_that_most_fail() -> None:
    assert after(Circuit(), T0, *[FAILED, WELL, FAILED, FAILED, WELL] * 2).name == "open"


def test_half_of_the_calls_failing_is_not_more_than_half() -> None:
    assert after(Circuit(), T0, *[WELL, FAILED] * 20).name == "closed"


def test_failures_older_than_the_window_are_forgotten() -> None:
    circuit = after(Circuit(), T0, *[FAILED] * 9)
    assert after(circuit, T0 + 61_000, FAILED).name == "closed"
    assert after(circuit, T0 + 54_000, FAILED).name == "open"


@given(st.lists(st.sampled_from([NOTHING, WELL]), max_size=30))
def test_refusals_count_neither_way(events: list[Told]) -> None:
    circuit = after(Circuit(), T0, *events)
    assert sum(circuit.counts.values()) == events.count(WELL)


def test_crowd_of_refusals_does_not_hide_that_everything_else_fails() -> None:
    assert after(Circuit(), T0, *[NOTHING, NOTHING, NOTHING, FAILED] * 10).name == "open"


def test_open_circuit_names_the_moment_of_its_probe() -> None:
    circuit, said = ask(opened(), T0 + 4_000)
    assert (said.allowed, said.probe, said.retry_after_s) == (False, False, 6.0)
    assert ask(circuit, T0 + 10_000)[1] == Verdict(probe=True)


def test_only_one_probe_goes_until_its_lease_is_over() -> None:
    circuit = probing()
    start = T0 + 10_000
    for later in (0, 1, 30_000, 59_999):
        circuit, said = ask(circuit, start + later)
        assert not said.allowed
        assert 0 < said.retry_after_s <= 10
    assert ask(circuit, start + 60_000)[1] == Verdict(probe=True)


def test_failed_probes_double_the_opening_up_to_two_minutes() -> None:
    circuit, now, spans = opened(), T0, []
    for _ in range(6):
        spans.append(circuit.span)
        now = circuit.ends
        circuit = after(ask(circuit, now)[0], now, PROBE_FAILED)
        assert circuit.name == "open"
    assert spans == [10_000, 20_000, 40_000, 80_000, 120_000, 120_000]


def test_probe_that_says_nothing_gives_its_place_to_the_next_call() -> None:
    circuit = after(probing(), T0 + 10_500, PROBE_NOTHING)
    assert circuit.name == "half_open"
    assert ask(circuit, T0 + 10_500)[1] == Verdict(probe=True)


def test_stragglers_do_not_end_a_half_open_circuit() -> None:
    circuit = after(probing(), T0 + 10_500, *[FAILED] * 20, *[WELL] * 50)
    assert (circuit.name, circuit.ends) == ("half_open", T0 + 70_000)


def test_late_probe_does_not_close_a_circuit_that_opened_again() -> None:
    assert after(probing(), T0 + 11_000, PROBE_FAILED, PROBE_WELL).name == "open"


def test_recovery_starts_with_an_empty_window() -> None:
    circuit = recovered()
    assert (circuit.name, circuit.counts) == ("closed", {})
    assert after(circuit, T0, *[FAILED] * 9).name == "closed"


@given(st.sampled_from([(0, 10), (2_000, 30), (4_000, 60), (6_000, 100)]), st.integers(1, 300))
def test_ramp_admits_its_share_rounded_up(stage: tuple[int, int], n: int) -> None:
    offset, percent = stage
    circuit, admitted = recovered(), 0
    for _ in range(n):
        circuit, said = ask(circuit, T0 + offset)
        admitted += said.allowed
        assert not said.probe
        assert said.allowed or said.retry_after_s == 2.0
    assert admitted == -(-n * percent // 100)
    assert admits_percent(circuit, T0 + offset, RULE) == percent


def test_trip_while_ramping_up_opens_for_twice_as_long() -> None:
    assert after(recovered(), T0 + 5_999, *[FAILED] * 10).span == 20_000
    assert after(recovered(), T0 + 6_000, *[FAILED] * 10).span == 10_000


def test_clock_that_went_back_ends_what_was_waited_for() -> None:
    assert ask(opened(), T0 - 3_600_000)[1].probe
    assert ask(probing(), T0 - 3_600_000)[1].probe
    assert ask(recovered(), T0 - 3_600_000)[1] == Verdict()


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 30_000),
        st.sampled_from([None, None, WELL, FAILED, FAILED, NOTHING, PROBE_WELL, PROBE_FAILED, PROBE_NOTHING]),
    ),
    max_size=120,
)


@given(EVENTS)
def test_every_walk_keeps_the_bounds(events: list[tuple[int, Told | None]]) -> None:
    circuit, now = opened(), T0
    for step, event in events:
        now += step
        before = circuit
        circuit, said = next_state(circuit, event, now, RULE)
        assert in_window(circuit, now, RULE).items() <= circuit.counts.items()
        if said.probe:
            assert before.name != "closed"
            assert now >= before.ends
        if event is None and before.name != "closed":
            assert said.allowed == said.probe
        assert (said.retry_after_s > 0) == (not said.allowed)
        if circuit.name == "open":
            assert 10_000 <= circuit.span <= 120_000
            assert circuit.ends == circuit.since + circuit.span
        if before.name == "open" and circuit.name != "open":
            assert said.probe
        if event is not None and not event.probe and before.name != "closed":
            assert circuit.name == before.name


@given(EVENTS)
def test_every_walk_ends_closed_once_the_vendor_is_well(events: list[tuple[int, Told | None]]) -> None:
    circuit, now = opened(), T0
    for step, event in events:
        now += step
        circuit, _ = next_state(circuit, event, now, RULE)
    for _ in range(2):
        now += 120_000
        circuit, said = ask(circuit, now)
        assert said.allowed
        circuit = after(circuit, now, replace(WELL, probe=said.probe))
    assert circuit.name == "closed"
    assert ask(circuit, now + 6_000)[1] == Verdict()


def test_state_shows_what_an_operator_asks() -> None:
    seen = describe(after(Circuit(), T0, *[WELL] * 4, *[FAILED] * 6), T0 + 2_000, RULE)
    assert (seen.name, seen.failure_rate, seen.calls, seen.next_probe_s) == ("open", 0.6, 10, 8.0)
    assert (seen.last_error, seen.admits_percent) == ("provider_server_error", 0)
    assert seen.since_at is not None
    assert seen.since_at.timestamp() == T0 / 1000
    assert describe(opened(), T0 + 15_000, RULE).next_probe_s == 0
    assert describe(Circuit(), T0, RULE).since_at is None
    assert describe(recovered(), T0 + 2_000, RULE).admits_percent == 30


def test_totals_count_calls_and_failures() -> None:
    assert totals({"well:1": 2, "failed:1": 3, "well:2": 1}) == (6, 3)
    assert ms(0.0015) == 2


@pytest.mark.parametrize(
    "wrong", [{"open_s": 0}, {"open_max_s": 5}, {"buckets": 0}, {"trip_above": 1.0}, {"ramp": (0,)}, {"min_calls": 0}]
)
def test_numbers_that_do_not_fit_together_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Rule(**wrong)  # type: ignore[arg-type]  # whatever the case gives


def test_unknown_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="submit_image, submit_video, observe, fetch"):
        Breaker(Shared(None)).allow("wan", "dance")


class GoneRedis(Redis):
    """A client whose server is away, and that counts how often it was asked."""

    asked = 0

    def delete(self, *names: object) -> int:
        """Never answers."""
        self.asked += 1
        raise RedisGone(f"away: {names}")


def test_without_redis_every_call_goes_and_is_counted() -> None:
    shared = Shared(None)
    breaker = Breaker(shared)
    assert breaker.allow("wan", "submit_image") == Verdict()
    breaker.report("wan", "submit_image", ok=False, probe=True)
    assert breaker.states(["wan"]) == {}
    assert not breaker.reset("wan")
    assert shared.bypassed == 4


def test_outage_is_said_once_and_not_asked_about_at_every_call(caplog: pytest.LogCaptureFixture) -> None:
    client = GoneRedis()
    shared = Shared(client, quiet_s=60)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert not Breaker(shared).reset("wan")
    assert (client.asked, shared.bypassed, len(caplog.records)) == (1, 5, 1)
    assert "wan" not in caplog.text


def test_outage_is_asked_about_again_after_the_quiet_time(caplog: pytest.LogCaptureFixture) -> None:
    client = GoneRedis()
    shared = Shared(client, quiet_s=0)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            Breaker(shared).reset("wan")
    assert (client.asked, shared.bypassed, len(caplog.records)) == (5, 5, 1)
