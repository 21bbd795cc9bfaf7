"""Identifiers: one spelling per UUID, sorted like it, and nothing else is understood."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import ids

prefixes = st.sampled_from(["task", "file", "evt", "whd"])
LARGEST = UUID(int=2**128 - 1)


@given(prefixes, st.uuids())
def test_an_id_reads_back_as_the_uuid_it_was_made_of(prefix: str, value: UUID) -> None:
    text = ids.encode(prefix, value)
    assert len(text) == len(prefix) + 27
    assert ids.decode(prefix, text) == value


@given(st.uuids(), st.uuids())
def test_ids_sort_like_their_uuids(one: UUID, two: UUID) -> None:
    assert (ids.encode("task", one) < ids.encode("task", two)) is (one < two)


@given(st.text(max_size=40))
def test_what_is_understood_is_exactly_what_would_be_written(text: str) -> None:
    for candidate in (text, f"task_{text}"):
        value = ids.decode("task", candidate)
        assert value is None or ids.encode("task", value) == candidate


@given(st.text(alphabet=ids._ALPHABET, min_size=26, max_size=26))
def test_a_well_spelled_body_is_one_uuid_or_too_large(body: str) -> None:
    value = ids.decode("task", f"task_{body}")
    assert (value is None) is (body[0] > "7")
    assert value is None or ids.encode("task", value) == f"task_{body}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "task",
        "task_",
        "_" + "0" * 26,
        "task_" + "0" * 25,
        "task_" + "0" * 27,
        "file_" + "0" * 26,
        "x_task_" + "0" * 26,
        "task__" + "0" * 26,
        "TASK_" + "0" * 26,
        "task_" + "0" * 25 + "Z",
        "task_" + "0" * 25 + "u",
        "task_" + "0" * 25 + "\u0663",
        "task_" + "0" * 25 + "\n",
        "task_8" + "0" * 25,
        "task_z" + "z" * 25,
        " task_" + "0" * 26,
    ],
)
def test_anything_else_is_no_id(text: str) -> None:
    assert ids.decode("task", text) is None


def test_the_ends_of_the_range_are_known_strings() -> None:
    assert ids.encode("task", UUID(int=0)) == "task_" + "0" * 26
    assert ids.encode("task", LARGEST) == "task_7" + "z" * 25
