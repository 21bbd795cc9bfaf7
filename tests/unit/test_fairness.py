"""Who is next: room below every cap, class before load before age, and nobody starves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.fairness import AGEING_S, Caps, Room, Waiting, choose, effective_priority, room_of

FEW = settings(max_examples=40)
ROOMY = Room(total=0, total_cap=10, of_type=0, type_cap=10, of_provider=0, provider_cap=10, of_user=0, user_cap=10)
users = st.sampled_from("abcd")
waitings = st.lists(
    st.builds(
        Waiting,
        key=st.integers(),
        priority=st.integers(0, 2),
        waited_s=st.floats(0, 4 * AGEING_S),
        user=users,
        user_cap=st.just(0),
        line=st.just(("wan", "image")),
    ),
    max_size=12,
    unique_by=lambda w: w.key,
)
loads = st.dictionaries(users, st.integers(0, 4))
counts = st.integers(0, 30)


def waiting(key: int, user: str = "a", priority: int = 1, waited_s: float = 0) -> Waiting:
    """One who waits."""
    return Waiting(key=key, user=user, priority=priority, waited_s=waited_s, user_cap=0, line=("wan", "image"))


def order(line: list[Waiting], running: dict[str, int], user_cap: int, room: int) -> list[Waiting]:
    """Who starts of a single line with so much room."""
    caps = Caps(total=room, types={"image": room}, providers={"wan": room})
    chosen = choose([replace(w, user_cap=user_cap) for w in line], {}, running, caps)
    return [next(w for w in line if w.key == one.key) for one in chosen]


@FEW
@given(counts, counts, counts, counts, counts, counts)
def test_room_is_what_is_left_below_the_tightest_cap(a: int, b: int, c: int, d: int, e: int, f: int) -> None:
    room = Room(total=a, total_cap=b, of_type=c, type_cap=d, of_provider=e, provider_cap=f)
    assert room.left() == max(0, min(b - a, d - c, f - e))
    assert room.admits() is (room.left() > 0)


@pytest.mark.parametrize("cap", ["total", "of_type", "of_provider", "of_user"])
def test_each_cap_alone_closes_the_door(cap: str) -> None:
    assert ROOMY.admits()
    assert replace(ROOMY, **{cap: 9}).admits()
    assert not replace(ROOMY, **{cap: 10}).admits()
    assert not replace(ROOMY, **{cap: 11}).admits()


@FEW
@given(st.integers(0, 2), st.floats(0, 1e6), st.floats(0, 1e6))
def test_waiting_never_lowers_a_task(priority: int, waited_s: float, more_s: float) -> None:
    before, after = effective_priority(priority, waited_s), effective_priority(priority, waited_s + more_s)
    assert 0 <= after <= before <= priority


def test_low_counts_as_high_after_two_spans() -> None:
    steps = [effective_priority(2, s) for s in (0, AGEING_S - 1, AGEING_S, 2 * AGEING_S, 3 * AGEING_S)]
    assert steps == [2, 2, 1, 0, 0]


@FEW
@given(waitings, loads, st.integers(0, 5), st.integers(0, 15))
def test_order_chooses_each_once_within_room_and_caps(
    line: list[Waiting], running: dict[str, int], user_cap: int, room: int
) -> None:
    chosen = order(line, running, user_cap, room)
    assert len(chosen) <= room
    assert len({w.key for w in chosen}) == len(chosen)
    assert set(chosen) <= set(line)
    for user in "abcd":
        started = sum(w.user == user for w in chosen)
        assert started == 0 or running.get(user, 0) + started <= user_cap


@FEW
@given(waitings, loads, st.integers(0, 5), st.integers(0, 15))
def test_order_leaves_no_slot_empty_that_somebody_may_take(
    line: list[Waiting], running: dict[str, int], user_cap: int, room: int
) -> None:
    chosen = order(line, running, user_cap, room)
    if len(chosen) < room:
        for w in set(line) - set(chosen):
            assert running.get(w.user, 0) + sum(c.user == w.user for c in chosen) >= user_cap


@FEW
@given(waitings, loads, st.integers(0, 5), st.integers(0, 15), st.randoms(use_true_random=False))
def test_order_does_not_depend_on_how_the_line_is_listed(
    line: list[Waiting], running: dict[str, int], user_cap: int, room: int, chance: object
) -> None:
    shuffled = list(line)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random
    assert order(shuffled, running, user_cap, room) == order(line, running, user_cap, room)


@FEW
@given(waitings, loads, st.integers(0, 5), st.integers(0, 14))
def test_more_room_only_adds_at_the_end(line: list[Waiting], running: dict[str, int], user_cap: int, room: int) -> None:
    assert order(line, running, user_cap, room + 1)[:room] == order(line, running, user_cap, room)


def test_class_goes_before_load_and_load_before_age() -> None:
    line = [waiting(1, "a"), waiting(2, "a"), waiting(3, "b"), waiting(4, "a", priority=0)]
    assert [w.key for w in order(line, {}, 9, 9)] == [4, 3, 1, 2]


def test_a_user_with_many_waiting_takes_turns_with_the_others() -> None:
    line = [waiting(n, "a") for n in range(3)] + [waiting(10, "b"), waiting(11, "b")]
    assert [w.user for w in order(line, {}, 9, 9)] == ["a", "b", "a", "b", "a"]


def test_a_user_at_the_cap_is_passed_over() -> None:
    assert [w.key for w in order([waiting(1, "a"), waiting(2, "b")], {"a": 3}, 3, 9)] == [2]


LINES = [("wan", "image"), ("wan", "video"), ("ark", "image")]
MIXED = st.lists(
    st.builds(
        Waiting,
        key=st.integers(),
        priority=st.integers(0, 2),
        waited_s=st.floats(0, 4 * AGEING_S),
        user=users,
        user_cap=st.integers(0, 4),
        line=st.sampled_from(LINES),
    ),
    max_size=14,
    unique_by=lambda w: w.key,
)
CAPS = st.builds(
    Caps,
    total=st.integers(0, 8),
    types=st.fixed_dictionaries({"image": st.integers(0, 6), "video": st.integers(0, 6)}),
    providers=st.fixed_dictionaries({"wan": st.integers(0, 6), "ark": st.integers(0, 6)}),
)


@FEW
@given(MIXED, st.dictionaries(st.sampled_from(LINES), st.integers(0, 4)), CAPS)
def test_lines_that_share_a_cap_never_pass_it_together(
    waiting_: list[Waiting], running: dict[tuple[str, str], int], caps: Caps
) -> None:
    chosen = choose(waiting_, running, {}, caps)
    after = Counter(running) + Counter(w.line for w in chosen)
    if chosen:
        assert sum(after.values()) <= caps.total
    for line in {w.line for w in chosen}:
        assert room_of(line, after, caps) >= 0
        assert sum(n for (p, _), n in after.items() if p == line[0]) <= caps.providers[line[0]]
        assert sum(n for (_, t), n in after.items() if t == line[1]) <= caps.types[line[1]]


def test_old_task_of_another_line_goes_before_new_ones_of_this() -> None:
    old = Waiting(key=1, priority=0, waited_s=1200, user="v", user_cap=3, line=("wan", "video"))
    many = [Waiting(key=n, priority=1, waited_s=1, user="i", user_cap=9, line=("wan", "image")) for n in range(2, 40)]
    caps = Caps(total=9, types={"image": 9, "video": 9}, providers={"wan": 1})
    assert [w.key for w in choose([*many, old], {}, {}, caps)] == [1]


def test_unknown_provider_has_no_room() -> None:
    assert room_of(("gone", "image"), {}, Caps(total=9, types={"image": 9}, providers={})) == 0
