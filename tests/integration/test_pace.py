"""Pace on a real Valkey: the fleet keeps one rate, one pause, one ceiling, and a dead process holds nothing."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from redis import Redis

from providers.breaker import Shared
from providers.pace import (
    _PAUSE,
    _TAKE,
    Bucket,
    Credentials,
    Health,
    Pace,
    Places,
    Rate,
    RetryShare,
    Spread,
    taken,
)

SPAWN = multiprocessing.get_context("spawn")
KEY = "A_KEY"
HOUR_US = 3_600_000_000


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


@pytest.mark.parametrize("seed", range(2))
def test_scripts_follow_the_rule(shared: Shared, seed: int) -> None:
    rate, spread = Rate(per_minute=60_000, burst=5), Spread(for_us=20_000, gap_us=2_000, line_us=30_000)
    chance, bucket = random.Random(seed), Bucket()
    fixed = (rate.gap_us, rate.at_once, spread.for_us, spread.gap_us, spread.line_us, HOUR_US)
    for _ in range(400):
        if chance.random() < 0.03:
            asked = chance.choice([0, 5_000, 20_000])
            found = shared.run(_PAUSE, "weir:pace:x", asked, "", spread.for_us, HOUR_US)
            assert found is not None
        else:
            n, patience = chance.choice([1, 1, 2, 9]), chance.choice([0, 0, 5_000])
            found = shared.run(_TAKE, "weir:pace:x", n, *fixed, patience)
            assert found is not None
            bucket, wait = taken(bucket, found[0], n, rate, spread, patience)
            assert found[1] == wait
        looked = shared.look(["weir:pace:x"])
        assert looked is not None
        kept = {name: int(looked[1][0].get(name, 0)) for name in ("due", "line", "pause")}
        bucket = Bucket(due=bucket.due, line=bucket.line, pause=kept["pause"])
        assert (kept["due"], kept["line"]) == (bucket.due, bucket.line)
        if chance.random() < 0.2:
            time.sleep(chance.uniform(0, 0.01))


def _take_for(url: str, seconds: float) -> list[float]:
    """In a process of its own, four threads take for so long; the moments, by one clock of the machine."""
    with Redis.from_url(url, socket_timeout=2.0) as client:
        pace = Pace(Shared(client), {"wan": Rate(per_minute=12_000, burst=10)})
        client.incr("test:ready")

        def taking(_: int) -> list[float]:
            moments = list[float]()
            until(lambda: client.exists("test:go") == 1, within_s=15)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if pace.take("wan", KEY) == 0:
                    moments.append(time.monotonic())
            return moments

        with ThreadPoolExecutor(4) as pool:
            return sorted(moment for moments in pool.map(taking, range(4)) for moment in moments)


def test_several_processes_together_keep_one_rate(redis_url: str, client: Redis) -> None:
    with SPAWN.Pool(2) as pool:
        asked = pool.starmap_async(_take_for, [(redis_url, 0.5)] * 2, chunksize=1)
        until(lambda: int(client.get("test:ready") or 0) == 2, within_s=15)
        began = time.monotonic()  # before the first can be granted; a busy machine tells the callers of it later
        client.set("test:go", 1, ex=60)
        moments = sorted(moment for taken_ in asked.get(timeout=15) for moment in taken_)
        pool.close()
        pool.join()
    assert 10 < len(moments) <= 10 + 200 * (moments[-1] - began) + 1


def test_patient_callers_fill_the_rate_one_after_another(shared: Shared) -> None:
    pace = Pace(shared, {"wan": Rate(per_minute=6_000, burst=1)})
    with ThreadPoolExecutor(8) as pool:
        waits = sorted(pool.map(lambda _: pace.take("wan", KEY, patience_s=1.0), range(40)))
    assert waits[0] == 0
    assert waits[-1] <= 0.4
    assert max(b - a for a, b in pairwise(waits)) <= 0.011


def test_credentials_and_providers_have_buckets_of_their_own(shared: Shared) -> None:
    pace = Pace(shared, {"wan": Rate(per_minute=1), "ark": Rate(per_minute=1)})
    asked = [("wan", KEY), ("wan", "B_KEY"), ("ark", KEY), ("wan", KEY)]
    waits = [pace.take(*one) for one in asked]
    assert waits[:3] == [0, 0, 0]
    assert 59 < waits[3] <= 60


def test_pause_holds_for_all_and_then_spreads(client: Redis) -> None:
    rates, spread = {"wan": Rate(per_minute=1e7, burst=1000)}, Spread(for_us=400_000, gap_us=20_000)
    fleet = [Pace(Shared(client), rates, spread) for _ in range(4)]
    assert fleet[0].pause("wan", KEY, 0.3, "provider_rate_limited") == 0.3
    began, went = time.monotonic(), list[float]()

    def worker(pace: Pace) -> None:
        while time.monotonic() < began + 0.6:
            if pace.take("wan", KEY) == 0:
                went.append(time.monotonic() - began)
            time.sleep(0.002)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(worker, fleet))
    assert min(went) >= 0.29
    assert 8 <= len(went) <= 0.3 / 0.02 + 3
    until(lambda: all(fleet[0].take("wan", KEY) == 0 for _ in range(10)))


def test_longest_pause_wins_and_none_is_longer_than_an_hour(shared: Shared) -> None:
    pace = Pace(shared)
    assert pace.pause("wan", KEY, 30.0, "provider_rate_limited") == 30.0
    assert 29 < pace.pause("wan", KEY, 2.0, "other") <= 30
    standing = pace.standing("wan", KEY)
    assert 29 < standing.paused_for_s <= 30
    assert standing.why == "provider_rate_limited"
    assert pace.take("wan", KEY) > 29
    assert pace.standing("wan", "B_KEY").paused_for_s == 0
    for odd in (999_999.0, 1e300):
        assert pace.pause("wan", KEY, odd) <= 3_600
    pace.resume("wan", KEY)
    assert pace.take("wan", KEY) == 0


@pytest.mark.parametrize(("odd", "held_s"), [(None, 1.0), (float("nan"), 1.0), (float("inf"), 1.0), (-5.0, 0.0)])
def test_pause_without_a_number_is_short(shared: Shared, odd: float | None, held_s: float) -> None:
    assert Pace(shared).pause("wan", KEY, odd) == held_s


def _hold_and_hang(url: str, places: int) -> None:
    """In a process of its own: take places, say so, never give them back."""
    with Redis.from_url(url, socket_timeout=2.0) as client:
        held = Places(Shared(client), limit=5, lease_s=0.4)
        assert all(held.enter("wan") for _ in range(places))
        client.set("test:holding", 1, ex=60)
        signal.pause()


def test_places_of_a_killed_process_are_given_back(redis_url: str, client: Redis, shared: Shared) -> None:
    places = Places(shared, limit=5, lease_s=60)
    holder = SPAWN.Process(target=_hold_and_hang, args=(redis_url, 5))
    holder.start()
    until(lambda: client.exists("test:holding") == 1, within_s=15)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    holder.close()
    for _ in range(5):
        until(lambda: places.enter("wan") is not None)
    assert places.enter("wan") is None


def test_ceiling_is_never_exceeded(shared: Shared) -> None:
    places, inside, most = Places(shared, limit=5), list[int](), list[int]()

    def worker(_: int) -> int:
        went = 0
        for _ in range(40):
            with places.place("wan") as entered:
                if entered:
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
                    went += 1
        return went

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(worker, range(16))) > 5
    assert max(most) <= 5
    assert sum(places.enter("wan") is not None for _ in range(9)) == 5
    assert places.enter("ark") is not None


def test_place_given_back_twice_frees_one(shared: Shared) -> None:
    places = Places(shared, limit=2)
    first, second = places.enter("wan"), places.enter("wan")
    assert first
    assert second
    assert places.enter("wan") is None
    places.leave("wan", first)
    places.leave("wan", first)
    assert [places.enter("wan") is not None for _ in range(2)] == [True, False]


def test_retries_of_the_fleet_are_a_tenth_and_a_reserve(client: Redis) -> None:
    fleet = [RetryShare(Shared(client), reserve=4) for _ in range(4)]
    assert sum(one.take("wan") for one in fleet * 5) == 4

    def worker(share: RetryShare) -> int:
        retries = 0
        for _ in range(50):
            share.earn("wan")
            retries += share.take("wan")
        return retries

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(worker, fleet)) == 20
    assert fleet[0].take("ark")


def test_first_calls_are_told_in_lots(client: Redis, shared: Shared) -> None:
    share = RetryShare(shared)
    assert share.take("wan")
    for _ in range(9):
        share.earn("wan")
    assert client.get("weir:retries:wan") == b"90"
    share.earn("wan")
    assert client.get("weir:retries:wan") == b"100"


def test_dead_credential_is_out_until_it_is_revived(shared: Shared) -> None:
    credentials, three = Credentials(shared), ["A_KEY", "sk-0123456789", "C_KEY"]
    credentials.kill("wan", "sk-0123456789", "provider_auth")
    assert credentials.alive("wan", three) == ["A_KEY", "C_KEY"]
    assert credentials.dead("wan", three) == {"sk-0123456789": "provider_auth"}
    assert credentials.alive("ark", three) == three
    assert credentials.alive("wan", []) == []
    credentials.revive("wan", "sk-0123456789")
    assert credentials.alive("wan", three) == three


def test_dead_credential_is_tried_by_one_of_the_fleet_an_interval(shared: Shared) -> None:
    credentials = Credentials(shared, trial_every_s=0.1)
    credentials.kill("wan", KEY, "provider_auth")
    assert credentials.trial("wan", [KEY, "B_KEY"]) is None
    until(lambda: credentials.trial("wan", [KEY, "B_KEY"]) == KEY)
    credentials = Credentials(shared, trial_every_s=30)
    until(lambda: credentials.trial("wan", [KEY]) == KEY)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: credentials.trial("wan", [KEY]), range(30))) == {None}


def test_death_of_a_credential_ends_by_itself(shared: Shared) -> None:
    credentials = Credentials(shared, dead_s=0.05)
    credentials.kill("wan", KEY, "provider_quota")
    until(lambda: credentials.alive("wan", [KEY]) == [KEY])


def test_no_key_of_a_vendor_reaches_redis(client: Redis, shared: Shared) -> None:
    key = "sk-0123456789abcdef"
    pace, credentials = Pace(shared), Credentials(shared)
    pace.take("wan", key)
    pace.pause("wan", key, 5.0)
    credentials.kill("wan", key, "provider_auth")
    assert len(list(client.scan_iter("*:wan:h-*"))) == 3
    assert not any(b"0123456789" in name for name in client.scan_iter("*"))


def test_three_misses_in_a_row_put_a_provider_out_and_one_hit_back(shared: Shared) -> None:
    health = Health(shared)
    seen = list[bool]()
    for _ in range(3):
        health.miss("wan", "provider_timeout")
        seen.append(health.conditions(["wan"])["wan"].healthy)
    assert seen == [True, True, False]
    both = health.conditions(["wan", "ark"])
    assert (both["wan"].misses, both["wan"].why, both["ark"].healthy) == (3, "provider_timeout", True)
    assert 0 <= both["wan"].missing_s < 5
    health.hit("wan")
    health.miss("wan")
    assert health.conditions(["wan"])["wan"].healthy


def test_one_of_the_fleet_probes_an_interval(client: Redis) -> None:
    fleet = [Health(Shared(client), every_s=0.2) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda health: health.prober("wan"), fleet * 4)) == 1
    assert fleet[0].prober("ark")
    until(lambda: fleet[1].prober("wan"))


def _use_all(shared: Shared) -> None:
    pace, places = Pace(shared, {"wan": Rate(per_minute=60)}), Places(shared)
    for _ in range(3):
        pace.take("wan", KEY)
    pace.pause("wan", KEY, 5.0)
    pace.take("wan", KEY)
    pace.pause("ark", KEY, 5.0)
    places.enter("wan")
    RetryShare(shared).take("wan")
    Credentials(shared).kill("wan", KEY, "provider_auth")
    Health(shared).miss("wan")
    Health(shared).prober("wan")


def test_every_key_has_a_time_to_live(client: Redis, shared: Shared) -> None:
    _use_all(shared)
    lives = {key: client.pttl(key) for key in client.scan_iter("*")}
    assert len(lives) == 8
    assert all(key.startswith(b"weir:") and 0 < left <= 86_400_000 for key, left in lives.items()), lives


def test_key_outlives_its_pause(client: Redis, shared: Shared) -> None:
    pace = Pace(shared)
    pace.pause("wan", KEY, 3_600.0)
    pace.take("wan", KEY)
    assert client.pttl(f"weir:pace:wan:{KEY}") > 3_600_000


def test_flush_and_forgotten_scripts_are_harmless(client: Redis, shared: Shared) -> None:
    for forget in (client.flushall, client.script_flush, client.flushall):
        _use_all(shared)
        forget()
    places = Places(shared)
    with places.place("wan") as entered:
        client.flushall()
        assert entered
    assert Pace(shared).take("wan", KEY) == 0
    assert Credentials(shared).alive("wan", [KEY]) == [KEY]
