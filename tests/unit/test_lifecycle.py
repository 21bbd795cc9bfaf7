"""The state machine as data: what is legal, what is reachable, and that nobody can add a word and forget the table."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import pytest

from models import lifecycle, store
from models.failures import FailureKind
from models.lifecycle import FINAL, LIVE, TRANSITIONS, Error, Guard, Output, Reason, Stage, Status

P, RUN, OK, F, T, C = "PENDING", "RUNNING", "SUCCESS", "FAILED", "TIMEOUT", "CANCELED"

# The table of the design, written down a second time by hand: (from, reason) -> to.
DESIGN: dict[tuple[str | None, str], set[str]] = {
    (None, "accepted"): {P},
    (P, "deferred"): {P},
    (P, "claimed"): {RUN},
    (RUN, "not_accepted"): {P},
    (RUN, "observed"): {RUN},
    (P, "rewoken"): {P},
    (RUN, "rewoken"): {RUN},
    (RUN, "finished"): {OK},
    (P, "refused"): {F},
    (RUN, "refused"): {F},
    (P, "deadline"): {T},
    (RUN, "deadline"): {T},
    (RUN, "stuck"): {T},
    (P, "cancelled"): {C},
    (RUN, "cancelled"): {C},
    (T, "reconciled"): {OK, F},
    (F, "reconciled"): {OK, F},
    (F, "restarted"): {P},
    (C, "restarted"): {P},
    (T, "restarted"): {P},
}
GUARDED = {
    "not_accepted": Guard.NO_RECEIPT,
    "reconciled": Guard.DOUBTFUL,
    "restarted": Guard.CERTAIN,
}


@pytest.mark.parametrize("start", [None, *Status])
@pytest.mark.parametrize("reason", list(Reason))
def test_a_transition_is_legal_exactly_where_the_design_says(start: Status | None, reason: Reason) -> None:
    legal = {str(t.to) for t in TRANSITIONS if t.start is start and t.reason is reason}
    assert legal == DESIGN.get((start, reason), set())


def test_no_transition_stands_twice() -> None:
    triples = [(t.start, t.reason, t.to) for t in TRANSITIONS]
    assert len(triples) == len(set(triples))


@pytest.mark.parametrize("reason", list(Reason))
def test_a_reason_has_one_guard_wherever_it_stands(reason: Reason) -> None:
    assert {t.guard for t in TRANSITIONS if t.reason is reason} == {GUARDED.get(reason, Guard.NONE)}


def test_every_reason_has_a_transition_and_every_transition_a_known_reason() -> None:
    assert {t.reason for t in TRANSITIONS} == set(Reason)


def test_every_status_is_reached_from_acceptance() -> None:
    reached: set[Status | None] = {None}
    while fresh := {t.to for t in TRANSITIONS if t.start in reached} - reached:
        reached |= fresh
    assert reached == {None, *Status}


@pytest.mark.parametrize("status", sorted(LIVE))
def test_a_live_status_has_a_way_to_every_final_one(status: Status) -> None:
    reached = {status}
    while fresh := {t.to for t in TRANSITIONS if t.start in reached and t.to not in reached}:
        reached |= fresh
    assert reached >= FINAL


@pytest.mark.parametrize("status", sorted(FINAL))
def test_a_final_status_has_only_the_two_exits(status: Status) -> None:
    exits = {t.reason for t in TRANSITIONS if t.start is status}
    assert exits <= {Reason.RECONCILED, Reason.RESTARTED}
    assert bool(exits) is (status is not Status.SUCCESS)


@pytest.mark.parametrize("status", sorted(LIVE))
def test_a_live_status_ends_by_its_deadline_without_a_guard(status: Status) -> None:
    ends = [t for t in TRANSITIONS if t.start is status and t.reason is Reason.DEADLINE]
    assert [(t.to, t.guard) for t in ends] == [(Status.TIMEOUT, Guard.NONE)]


def test_live_and_final_share_out_every_status() -> None:
    assert set(Status) == LIVE | FINAL
    assert not LIVE & FINAL


def test_only_a_claim_leads_into_running() -> None:
    ways = {t.reason for t in TRANSITIONS if t.to is Status.RUNNING and t.start is not Status.RUNNING}
    assert ways == {Reason.CLAIMED}


def test_every_guard_has_its_sql() -> None:
    assert set(store._GUARDS) == set(Guard)


@pytest.mark.parametrize("guard", list(Guard))
def test_every_guard_is_used_or_plain(guard: Guard) -> None:
    used = {t.guard for t in TRANSITIONS} | {Guard.RECEIPT}  # RECEIPT is the other side of NO_RECEIPT
    assert guard in used


def _written(name: str) -> dict[str, str]:
    """The members of an enum as the source has them, whatever was done to the class afterwards."""
    tree = ast.parse(Path(lifecycle.__file__).read_text(encoding="utf-8"))
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    return {
        node.targets[0].id: node.value.value
        for node in body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _in_table(letter: str) -> set[str]:
    """The members of `letter`. that the source of TRANSITIONS names."""
    tree = ast.parse(Path(lifecycle.__file__).read_text(encoding="utf-8"))
    table = next(
        n.value
        for n in tree.body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name) and n.target.id == "TRANSITIONS"
    )
    assert table is not None
    return {
        n.attr
        for n in ast.walk(table)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == letter
    }


@pytest.mark.parametrize(("name", "letter"), [("Status", "S"), ("Reason", "R")])
def test_the_source_names_every_word_of_the_enum_in_the_table(name: str, letter: str) -> None:
    written = _written(name)
    assert set(written) == _in_table(letter), f"a {name} without a line in TRANSITIONS can never happen"
    assert set(written.values()) == {str(x) for x in getattr(lifecycle, name)}


def test_the_source_writes_each_status_as_the_wire_shows_it() -> None:
    assert all(name == value for name, value in _written("Status").items())


def test_every_status_and_reason_is_drawn_in_the_docstring() -> None:
    assert lifecycle.__doc__ is not None
    missing = {str(s) for s in Status if s not in lifecycle.__doc__}
    assert not missing


def test_nothing_but_reconciling_and_restarting_leaves_a_final_status() -> None:
    triples = {(t.start, t.reason, t.to) for t in TRANSITIONS}
    for status, reason, to in product(FINAL, Reason, Status):
        if (status, reason, to) in triples:
            assert reason in (Reason.RECONCILED, Reason.RESTARTED)
            assert (to is Status.PENDING) is (reason is Reason.RESTARTED)


def test_stages_are_the_three_of_the_contract() -> None:
    assert [str(s) for s in Stage] == ["submitting", "generating", "fetching"]


def test_an_output_keeps_its_bytes_out_of_its_repr() -> None:
    assert "secret" not in repr(Output(content=b"secret bytes"))


def test_an_error_needs_no_more_than_its_kind() -> None:
    error = Error(kind=FailureKind.STUCK)
    assert (error.message, error.upstream_code, error.http_status) == ("", None, None)
