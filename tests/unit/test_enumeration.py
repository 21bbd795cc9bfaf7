"""Everything that can happen to one task, searched: the promises hold, and without one rule the search finds the fault.

tests/protocol.py is the model. A search is breadth first, so the first fault it meets has the fewest steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import pytest

from models.lifecycle import FINAL, LIVE, Stage, Status
from tests.protocol import Model
from tests.protocol_rows import (
    ANSWERED,
    CALL,
    DONE,
    IDLE,
    NOBODY,
    POLL,
    ROWS,
    START,
    WORKING,
    Rules,
    State,
    Violation,
)


def examine(s: State, rules: Rules) -> None:
    """What must hold at every moment."""
    first, second = s.workers
    if first.chain_current + second.chain_current + bool(s.net & POLL) > 1:
        raise Violation("two live wake-ups of one chain")
    if all(w.task_current and w.at in (CALL, ANSWERED) for w in s.workers):
        raise Violation("two wake-ups of one version acted")
    row = ROWS[s.row]
    if row.certain and row.status in FINAL and s.jobs[row.attempt] in (WORKING, DONE):
        raise Violation("called certain although the vendor has a job")
    idle = first.at == IDLE and second.at == IDLE
    if rules.faultless and idle and row.stage is Stage.GENERATING and not s.net & POLL:
        raise Violation("a receipt that nobody polls")


@dataclass(frozen=True)
class Found:
    """What a search ended with: every state, or the steps to a broken promise."""

    states: Iterable[State]
    fault: str
    steps: tuple[str, ...]


Parents = dict[State, tuple[State, str] | None]


@cache
def search(rules: Rules) -> Found:
    """Everything that can follow from a task that was just accepted."""
    return explore([START], rules, Model(rules).after)


def explore(starts: Iterable[State], rules: Rules, after: Callable[..., Iterable[tuple[str, State]]]) -> Found:
    """Breadth first from `starts`, with the steps that `after` gives."""
    came_from: Parents = dict.fromkeys(starts)
    level = list(came_from)
    while level:
        coming: list[State] = []
        for s in level:
            try:
                examine(s, rules)
                for step, then in after(s):
                    if then not in came_from:
                        came_from[then] = (s, step)
                        coming.append(then)
            except Violation as fault:
                return Found((), str(fault), trace(came_from, s))
        level = coming
    return Found(came_from.keys(), "", ())


def trace(came_from: Parents, s: State) -> tuple[str, ...]:
    """The names of the steps that led to `s`."""
    steps: list[str] = []
    while (link := came_from[s]) is not None:
        s, step = link
        steps.append(step)
    return tuple(reversed(steps))


def test_no_interleaving_breaks_a_promise() -> None:
    found = search(Rules())
    assert found.fault == "", f"{found.fault} after {' > '.join(found.steps)}"
    assert len(list(found.states)) == 118_722, "the protocol changed: see that the number still makes sense"


def test_no_interleaving_breaks_a_promise_when_the_vendor_honours_our_reference() -> None:
    found = search(Rules(honours_reference=True, restarts=False))
    assert found.fault == "", f"{found.fault} after {' > '.join(found.steps)}"
    assert len(list(found.states)) > 60_000


def test_every_final_state_is_reached() -> None:
    ended = {ROWS[s.row].status for s in search(Rules()).states}
    assert ended == set(Status)


def cold(states: Iterable[State]) -> set[State]:
    """The same moments after everything died: no worker, no message, only the rows and the vendor."""
    return {s._replace(net=0, workers=(NOBODY, NOBODY)) for s in states}


def test_the_sweep_alone_ends_every_live_task() -> None:
    model = Model(Rules())
    live = [s for s in cold(search(Rules()).states) if ROWS[s.row].status in LIVE]
    assert live
    for s in live:
        ends = [then for step, then in model.sweep(s) if step == "deadline"]
        assert ends, ROWS[s.row]
        assert {ROWS[then.row].status for then in ends} == {Status.TIMEOUT}


_UNHELPFUL = ("deadline", "die", "lose", "cancel", "ask to cancel")


def test_whatever_died_a_live_task_still_comes_to_an_end_before_its_deadline() -> None:
    rules = Rules()
    model = Model(rules)

    def without_deadline(s: State) -> list[tuple[str, State]]:
        return [(step, then) for step, then in model.after(s) if step not in _UNHELPFUL]

    for s in cold(search(rules).states):
        if ROWS[s.row].status in LIVE:
            assert comes_to(s, FINAL - {Status.TIMEOUT}, without_deadline), ROWS[s.row]


def comes_to(start: State, wanted: frozenset[Status], after: Callable[[State], list[tuple[str, State]]]) -> bool:
    """Whether one of the wanted states can follow."""
    seen, left = {start}, [start]
    while left:
        s = left.pop()
        if ROWS[s.row].status in wanted:
            return True
        fresh = {then for _, then in after(s)} - seen
        seen |= fresh
        left.extend(fresh)
    return False


def test_without_faults_no_receipt_is_left_unpolled() -> None:
    found = search(Rules(faultless=True))
    assert found.fault == "", f"{found.fault} after {' > '.join(found.steps)}"


MUTATIONS = {
    "no fence on the task": (Rules(task_fence=False), "an attempt was ended by what was seen of another", 7),
    "no fence on the chain": (Rules(chain_fence=False), "two live wake-ups of one chain", 5),
    "call before the claim": (Rules(claim_before_call=False), "two wake-ups of one version acted", 2),
    "no second look": (Rules(recheck=False, faultless=True), "a receipt that nobody polls", 15),
    "blind repeat": (Rules(resubmit=True), "one attempt was accepted twice", 6),
    "doubt is certain": (Rules(doubt_is_certain=True), "bought again although the first job may be running", 2),
    "doubt is forgotten": (
        Rules(honours_reference=True, doubt_forgotten=True),
        "bought again although the first job may be running",
        6,
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_without_one_rule_the_search_finds_the_fault(name: str) -> None:
    rules, fault, steps = MUTATIONS[name]
    found = search(rules)
    assert found.fault == fault, found.steps
    assert len(found.steps) <= steps, found.steps


def test_a_search_that_finds_a_fault_names_the_steps_to_it() -> None:
    assert search(Rules(resubmit=True)).steps[:3] == ("claim", "call accepted", "ask")
