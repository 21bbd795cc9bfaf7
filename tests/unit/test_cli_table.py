"""Tables and words for a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cli_table import failure, lines, money, words

_ID = "0197b1c0-7a5e-7c3e-9b8a-0d6f5a1e2c3d"
_KEY: dict[str, Any] = {
    "id": _ID,
    "user": "shop",
    "name": "till",
    "created_at": "2026-11-30T20:30:05.123Z",
    "gone": None,
}
_COLUMNS = ("id", "user", "name", "created_at", "gone")


def test_a_wide_terminal_shows_every_column_and_no_milliseconds() -> None:
    head, row = lines([_KEY], _COLUMNS, width=120, spare=("created_at", "name"))
    assert head.split("  ")[0] == "id"
    assert "created at" in head
    assert row == f"{_ID}  shop  till  2026-11-30 20:30:05Z  -"


def test_a_narrow_terminal_loses_whole_columns_in_the_order_given() -> None:
    assert lines([_KEY], _COLUMNS, width=60, spare=("created_at", "name"))[1] == f"{_ID}  shop  till  -"
    assert lines([_KEY], _COLUMNS, width=50, spare=("created_at", "name"))[1] == f"{_ID}  shop  -"


@given(width=st.integers(1, 200), text=st.text("ab 狐", max_size=80))
def test_an_id_is_whole_at_any_width(width: int, text: str) -> None:
    rows = [{**_KEY, "detail": text}]
    told = lines(rows, (*_COLUMNS, "detail"), width=width, spare=("name", "created_at"), free="detail")
    assert told[1].startswith(_ID)
    assert all(word in " ".join(told) for word in text.split())


def test_free_text_goes_on_below_itself() -> None:
    rows = [{"at": "now", "detail": "the provider is failing, pausing or refusing its credential"}]
    assert lines(rows, ("at", "detail"), width=40, free="detail") == [
        "at   detail",
        "now  the provider is failing, pausing or",
        "     refusing its credential",
    ]


def test_a_chinese_character_takes_two_cells() -> None:
    head, fox, short = lines([{"a": "狐狸", "b": 1}, {"a": "ab", "b": 2}], ("a", "b"), width=80)
    assert (head, fox, short) == ("a     b", "狐狸  1", "ab    2")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "-"),
        ("", "-"),
        ([], "-"),
        (True, "yes"),
        (0, "0"),
        (["a", "b"], "a, b"),
        ({"wait_s": 3.5, "code": None}, "wait s 3.5, code -"),
        ({"why": "first enabled", "provider": "wan"}, "first enabled, provider wan"),
        (datetime(2026, 11, 30, 20, 30, 5, 123, tzinfo=UTC), "2026-11-30 20:30:05Z"),
        ("2026-11-30T20:30:05Z", "2026-11-30 20:30:05Z"),
    ],
)
def test_values_in_words(value: object, said: str) -> None:
    assert words(value) == said


@pytest.mark.parametrize(
    ("micros", "said"), [(20_000, "0.02 USD"), (0, "0.00 USD"), (1_500_000, "1.50 USD"), (12_345, "0.012345 USD")]
)
def test_money(micros: int, said: str) -> None:
    assert money({"micros": micros, "currency": "USD"}) == said


def test_a_failure_says_whether_to_try_again() -> None:
    assert failure(None) == "-"
    error = {"code": "rejected", "message": "No.", "retryable": False, "upstream_name": "wan", "upstream_code": "X1"}
    assert failure(error) == "No. (rejected, wan said X1; trying again does not help)"
    assert failure({"code": "late", "message": None, "retryable": True}) == "late (late; trying again may help)"
