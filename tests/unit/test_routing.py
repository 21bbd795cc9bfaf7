"""The order of a model's routes: places, weights, prices."""

from __future__ import annotations

import random
from collections import Counter

from models.settings import ModelSettings, Route
from tasks import routing


def model(*routes: Route, prefer: str = "weight") -> ModelSettings:
    return ModelSettings(type="image", providers=routes, price_micros=100, prefer=prefer)


def names(found: list[tuple[int, Route]]) -> list[str]:
    return [route.name for _, route in found]


def test_without_a_word_the_order_is_the_lists() -> None:
    routes = [Route(name=name, model="m", weight=weight) for name, weight in (("a", 1), ("b", 1000), ("c", 5))]
    assert routing.in_order(model(*routes)) == list(enumerate(routes, 1))


def test_a_named_place_wins_over_the_lists() -> None:
    routes = Route(name="a", model="m", order=9), Route(name="b", model="m"), Route(name="c", model="m", order=1)
    assert names(routing.in_order(model(*routes))) == ["c", "b", "a"]


def test_routes_of_one_place_share_by_their_weights() -> None:
    routes = (
        Route(name="a", model="m", order=1, weight=3),
        Route(name="b", model="m", order=1, weight=1),
        Route(name="c", model="m"),
    )
    chance = random.Random(7)
    firsts = Counter(names(routing.in_order(model(*routes), chance.random))[0] for _ in range(4000))
    assert 2850 < firsts["a"] < 3150
    assert firsts["a"] + firsts["b"] == 4000


def test_where_the_price_is_preferred_the_cheapest_of_a_place_comes_first() -> None:
    routes = (
        Route(name="dear", model="m", order=1, weight=1000),
        Route(name="cheap", model="m", order=1, price_micros=50),
        Route(name="cheapest", model="m", price_micros=1),
    )
    for _ in range(20):
        assert names(routing.in_order(model(*routes, prefer="price"))) == ["cheap", "dear", "cheapest"]
    assert [model().price_of(route) for route in routes] == [100, 50, 1]


def test_who_has_no_room_is_passed_over_and_taken_when_nobody_has() -> None:
    full, free = (
        routing.Candidate(route=Route(name=name, model="m"), place=place, busy=busy)
        for name, place, busy in (("full", 1, "it is full"), ("free", 2, ""))
    )
    off = routing.Candidate(route=Route(name="off", model="m"), place=3, off=True)
    assert routing.pick([full, free, off]) is free
    assert routing.pick([full, off]) is full
    assert routing.pick([off]) is None
    assert routing.why([full, free, off], free, pinned=False) == "next in order; not full, since it is full"
    told = routing.told(model(), [full, off], full)
    assert [row["reason"] for row in told] == ["chosen, since nobody has room; it is full", "it is switched off"]
