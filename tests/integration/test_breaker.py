"""The breaker on a real Valkey: it follows the pure rule, and of a whole fleet exactly one probes."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis

from providers.breaker import (
    _ALLOW,
    _REPORT,
    _SAID,
    OPERATIONS,
    Breaker,
    Circuit,
    Rule,
    Shared,
    Told,
    in_window,
    ms,
    next_state,
    read,
)

SPAWN = multiprocessing.get_context("spawn")
KEY = "weir:breaker:wan:submit"
# An opening of an hour and short ones: no test waits for more than a moment.
LONG = Rule(open_s=3_600, open_max_s=3_600)
SHORT = Rule(open_s=0.05, open_max_s=0.2, lease_s=60, stage_s=0.1)


@pytest.fixture
def client(redis_url: str) -> Iterator[Redis]:
    """A client like the product's: bytes, time-outs, no retries."""
    with Redis.from_url(redis_url, socket_timeout=2.0, socket_connect_timeout=2.0, max_connections=64) as made:
        yield made


@pytest.fixture
def shared(client: Redis) -> Iterator[Shared]:
    """At the end of the test no question may have gone unanswered: a faulty script looks like a Redis that is away."""
    made = Shared(client)
    yield made
    assert made.bypassed == 0


def until(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait for `condition`."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def trip(breaker: Breaker, provider: str = "wan", operation: str = "submit_image") -> None:
    for _ in range(10):
        breaker.report(provider, operation, ok=False, probe=False, kind="provider_server_error")


def probe(breaker: Breaker) -> None:
    """Wait for the probe and take it."""
    until(lambda: breaker.allow("wan", "submit_image").probe)


@pytest.mark.parametrize("seed", range(2))
def test_scripts_follow_the_rule(shared: Shared, seed: int) -> None:
    rule = Rule(
        window_s=0.3, buckets=6, min_calls=4, open_s=0.01, open_max_s=0.04, lease_s=0.015, stage_s=0.02, ramp=(10, 30)
    )
    breaker, chance, circuit, seen = Breaker(shared, rule), random.Random(seed), Circuit(), set[str]()
    # A time to live of a minute: a test that is held up for a moment must not lose the key.
    asking = (*breaker._asking[:3], 60_000, *breaker._asking[4:])
    telling = (*breaker._telling[:-1], 60_000)
    for n in range(3_000):
        if n > 350 and len(seen) == 4:
            return
        if chance.random() < 0.5:
            found = shared.run(_ALLOW, KEY, *asking)
            assert found is not None
            circuit, said = next_state(circuit, None, found[0], rule)
            assert found[1:] == [said.allowed, said.probe, ms(said.retry_after_s)]
        else:
            told = Told(
                ok=chance.choice([True, False, False, None]),
                probe=circuit.name == "half_open" and chance.random() < 0.7,
                kind=chance.choice(["", "provider_timeout", "provider_unreadable"]),
            )
            found = shared.run(_REPORT, KEY, _SAID[told.ok], int(told.probe), told.kind, *telling)
            assert found is not None
            circuit, _ = next_state(circuit, told, found[0], rule)
        looked = shared.look([KEY])
        assert looked is not None
        kept = read(looked[1][0])
        assert in_window(kept, found[0], rule) == in_window(circuit, found[0], rule)
        assert (kept.name, kept.since, kept.ends, kept.span) == (
            circuit.name,
            circuit.since,
            circuit.ends,
            circuit.span,
        )
        assert (kept.ramp, kept.seen, kept.kind) == (circuit.ramp, circuit.seen, circuit.kind)
        seen.add(f"{circuit.name} {'ramping' if circuit.ramp else ''}")
        if chance.random() < 0.2:
            time.sleep(chance.uniform(0, 0.01))
    raise AssertionError(f"it came only to {seen}")


def test_six_of_ten_failing_trips_it_though_successes_come_between(shared: Shared) -> None:
    breaker = Breaker(shared, LONG)
    for ok in (False, True, False, False, True) * 2:
        assert breaker.allow("wan", "submit_image").allowed
        breaker.report("wan", "submit_image", ok=ok, probe=False)
    said = breaker.allow("wan", "submit_image")
    assert not said.allowed
    assert 3_590 < said.retry_after_s <= 3_600


def test_half_of_many_threads_calls_failing_does_not_trip_it_and_one_more_does(shared: Shared) -> None:
    breaker = Breaker(shared, LONG)
    for _ in range(20):
        breaker.report("wan", "submit_image", ok=True, probe=False)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: breaker.report("wan", "submit_image", ok=False, probe=False), range(20)))
    assert breaker.allow("wan", "submit_image").allowed
    breaker.report("wan", "submit_image", ok=False, probe=False)
    assert not breaker.allow("wan", "submit_image").allowed
    assert breaker.states(["wan"])["wan", "submit_image"].calls == 41


def test_refusals_never_trip_it(shared: Shared) -> None:
    breaker = Breaker(shared, LONG)
    for _ in range(40):
        breaker.report("wan", "submit_image", ok=None, probe=False)
    assert breaker.allow("wan", "submit_image").allowed


def test_operations_and_providers_trip_apart(shared: Shared) -> None:
    breaker = Breaker(shared, LONG)
    trip(breaker)
    asked = [("wan", "observe"), ("wan", "fetch"), ("ark", "submit_image"), ("wan", "submit_image")]
    assert [breaker.allow(*pair).allowed for pair in asked] == [True, True, True, False]


def test_of_many_threads_one_probes(shared: Shared) -> None:
    breaker = Breaker(shared, SHORT)
    trip(breaker)
    until(lambda: breaker.states(["wan"])["wan", "submit_image"].next_probe_s == 0)
    with ThreadPoolExecutor(32) as pool:
        said = list(pool.map(lambda _: breaker.allow("wan", "submit_image"), range(300)))
    assert [(one.allowed, one.probe) for one in said if one.allowed] == [(True, True)]


def _ask_for(url: str, seconds: float) -> tuple[int, int]:
    """In a process of its own, four threads ask for so long: (probes, other calls let through)."""
    with Redis.from_url(url, socket_timeout=2.0) as client:
        breaker = Breaker(Shared(client), SHORT)
        client.incr("test:ready")

        def asking(_: int) -> tuple[int, int]:
            probes = others = 0
            until(lambda: client.exists("test:go") == 1, within_s=15)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                said = breaker.allow("wan", "submit_image")
                probes, others = probes + said.probe, others + (said.allowed and not said.probe)
            return probes, others

        with ThreadPoolExecutor(4) as pool:
            counted = list(pool.map(asking, range(4)))
    return sum(probes for probes, _ in counted), sum(others for _, others in counted)


def test_of_several_processes_one_probes(redis_url: str, client: Redis, shared: Shared) -> None:
    with SPAWN.Pool(3) as pool:
        asked = pool.starmap_async(_ask_for, [(redis_url, 0.3)] * 3, chunksize=1)
        until(lambda: int(client.get("test:ready") or 0) == 3, within_s=15)
        trip(Breaker(shared, SHORT))
        client.set("test:go", 1, ex=60)
        counted = asked.get(timeout=15)
        pool.close()
        pool.join()
    client.delete("test:ready")
    assert sum(probes for probes, _ in counted) == 1
    assert sum(others for _, others in counted) == 0


def _probe_and_hang(url: str) -> None:
    """In a process of its own: take the probe, say so, never come back."""
    with Redis.from_url(url, socket_timeout=2.0) as client:
        breaker = Breaker(Shared(client), Rule(open_s=0.05, lease_s=0.3))
        until(lambda: breaker.allow("wan", "submit_image").probe)
        client.set("test:probing", 1, ex=60)
        signal.pause()


def test_place_of_a_killed_prober_is_given_on_after_its_lease(redis_url: str, client: Redis, shared: Shared) -> None:
    breaker = Breaker(shared, Rule(open_s=0.05, lease_s=0.3))
    trip(breaker)
    prober = SPAWN.Process(target=_probe_and_hang, args=(redis_url,))
    prober.start()
    until(lambda: client.exists("test:probing") == 1, within_s=15)
    assert prober.pid is not None
    os.kill(prober.pid, signal.SIGKILL)
    prober.join()
    prober.close()
    probe(breaker)
    breaker.report("wan", "submit_image", ok=True, probe=True)
    assert breaker.states(["wan"])["wan", "submit_image"].name == "closed"


def test_probe_that_fails_opens_it_again_for_longer(shared: Shared) -> None:
    breaker = Breaker(shared, SHORT)
    trip(breaker)
    probe(breaker)
    breaker.report("wan", "submit_image", ok=False, probe=True, kind="provider_timeout")
    state = breaker.states(["wan"])["wan", "submit_image"]
    assert (state.name, state.last_error) == ("open", "provider_timeout")
    assert state.next_probe_s is not None
    assert 0.05 < state.next_probe_s <= 0.1


def test_recovery_ramps_up(shared: Shared) -> None:
    breaker = Breaker(shared, Rule(open_s=0.05, stage_s=0.25))
    trip(breaker)
    probe(breaker)
    breaker.report("wan", "submit_image", ok=True, probe=True)
    shares = list[tuple[int, float]]()
    for percent in (10, 30, 60, 100):
        until(lambda: breaker.states(["wan"])["wan", "submit_image"].admits_percent == percent)  # noqa: B023  used at once
        said = [breaker.allow("wan", "submit_image") for _ in range(50)]
        assert all(0 < one.retry_after_s <= 0.25 for one in said if not one.allowed)
        shares.append((percent, sum(one.allowed for one in said)))
    assert all(abs(percent / 2 - admitted) <= 1 for percent, admitted in shares), shares


def test_every_key_has_a_time_to_live(client: Redis, shared: Shared) -> None:
    breaker = Breaker(shared, SHORT)
    for provider in ("tripped", "wan"):
        breaker.report(provider, "observe", ok=False, probe=False, kind="x")
        trip(breaker, provider)
    breaker.report("closed", "fetch", ok=None, probe=True)
    breaker.report("closed", "submit_image", ok=True, probe=False)
    probe(breaker)
    breaker.report("wan", "submit_image", ok=True, probe=True)
    breaker.allow("wan", "submit_image")
    lives = {key: client.pttl(key) for key in client.scan_iter("*")}
    assert len(lives) == 5
    assert all(key.startswith(b"weir:") and 0 < left <= 1_000_000 for key, left in lives.items()), lives


def test_flush_at_any_moment_is_harmless(client: Redis, shared: Shared) -> None:
    breaker = Breaker(shared, SHORT)

    def hammer(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            said = breaker.allow("wan", "submit_image")
            if said.allowed:
                breaker.report("wan", "submit_image", ok=chance.random() < 0.3, probe=said.probe)
            if chance.random() < 0.1:
                client.flushall()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(hammer, range(4)))
    trip(breaker)
    client.flushall()
    assert breaker.allow("wan", "submit_image").allowed
    breaker.report("wan", "submit_image", ok=True, probe=True)
    assert breaker.states(["wan"])["wan", "submit_image"].name == "closed"


def test_scripts_that_the_server_forgot_are_sent_again(client: Redis, shared: Shared) -> None:
    breaker = Breaker(shared, LONG)
    for _ in range(10):
        client.script_flush()
        breaker.report("wan", "submit_image", ok=False, probe=False)
        client.script_flush()
        last = breaker.allow("wan", "submit_image")
    assert not last.allowed


def test_reset_closes_one_circuit_or_all(shared: Shared) -> None:
    breaker = Breaker(shared, LONG)
    for operation in OPERATIONS:
        trip(breaker, "wan", operation)
    assert breaker.reset("wan", "fetch")
    assert [state.name for state in breaker.states(["wan"]).values()] == ["open", "open", "open", "closed"]
    assert breaker.reset("wan")
    assert {state.name for state in breaker.states(["wan"]).values()} == {"closed"}
    assert breaker.allow("wan", "submit_image").allowed


def test_states_take_no_probe(shared: Shared) -> None:
    breaker = Breaker(shared, SHORT)
    trip(breaker)
    until(lambda: breaker.states(["wan"])["wan", "submit_image"].next_probe_s == 0)
    assert breaker.states(["wan"])["wan", "submit_image"].name == "open"
    assert breaker.allow("wan", "submit_image").probe


def test_redis_that_is_gone_lets_through_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with Redis.from_url(f"redis://127.0.0.1:{port}", socket_timeout=0.2, socket_connect_timeout=0.2) as client:
        shared = Shared(client)
        breaker, began = Breaker(shared), time.monotonic()
        assert all(breaker.allow("wan", "submit_image").allowed for _ in range(200))
        assert time.monotonic() - began < 0.5
        assert shared.bypassed == 200


def test_redis_that_never_answers_costs_one_time_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with Redis.from_url(url, socket_timeout=0.2, socket_connect_timeout=0.2) as client:
            breaker, began = Breaker(Shared(client)), time.monotonic()
            assert all(breaker.allow("wan", "submit_image").allowed for _ in range(200))
            assert 0.2 <= time.monotonic() - began < 0.6


def test_redis_that_comes_back_is_asked_again(client: Redis) -> None:
    shared = Shared(client, quiet_s=0.05)
    breaker = Breaker(shared, LONG)
    there = client.connection_pool.connection_kwargs["port"]
    client.connection_pool.connection_kwargs["port"] = 1  # nobody listens there
    client.connection_pool.disconnect()
    trip(breaker)
    assert breaker.allow("wan", "submit_image").allowed
    client.connection_pool.connection_kwargs["port"] = there
    client.connection_pool.reset()
    until(lambda: bool(breaker.states(["wan"])))
    trip(breaker)
    assert not breaker.allow("wan", "submit_image").allowed
