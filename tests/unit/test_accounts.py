"""API keys: their shape tells a typing error from a key, and what is stored tells nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import accounts

bodies = st.text(alphabet=accounts._ALPHABET, min_size=30, max_size=30)


def key_of(body: str) -> str:
    """A well-formed key."""
    return accounts.PREFIX + body + accounts.checksum(body)


def test_the_checksum_of_thirty_zeros_is_the_published_one() -> None:
    assert accounts.checksum("0" * 30) == "2C8GjS"


@given(bodies)
def test_a_key_with_its_checksum_is_well_formed(body: str) -> None:
    assert accounts.well_formed(key_of(body))


@given(bodies, st.integers(0, 35), st.sampled_from(accounts._ALPHABET))
def test_one_wrong_character_is_noticed(body: str, place: int, char: str) -> None:
    good = key_of(body)
    at = len(accounts.PREFIX) + place
    bad = good[:at] + char + good[at + 1 :]
    assert accounts.well_formed(bad) is (bad == good)


@given(st.text(max_size=50))
def test_any_text_is_judged_without_an_error(text: str) -> None:
    assert accounts.well_formed(text) in (True, False)
    assert not accounts.well_formed(accounts.PREFIX + text) or len(text) == 36


@pytest.mark.parametrize(
    "key",
    ["", "wk_", "0" * 39, "sk_" + key_of("0" * 30)[3:], key_of("0" * 30) + "\n", "wk_" + key_of("0" * 30),
     key_of("0" * 30)[:-1], "wk_" + "\u0660" * 36, "WK_" + key_of("0" * 30)[3:]],
)  # fmt: skip
def test_anything_else_is_not_well_formed(key: str) -> None:
    assert not accounts.well_formed(key)


def test_new_keys_are_well_formed_and_differ() -> None:
    keys = {accounts.new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(accounts.well_formed(k) and len(k) == 39 for k in keys)


def test_the_digest_depends_on_key_and_secret_and_shows_neither() -> None:
    key = key_of("a" * 30)
    digests = {accounts.digest("secret-one", key), accounts.digest("secret-two", key)}
    assert len(digests) == 2
    assert {len(d) for d in digests} == {32}
    assert accounts.digest("secret-one", key) == accounts.digest("secret-one", key)
    assert all(key.encode() not in d for d in digests)
    assert accounts.digest("secret-one", key_of("b" * 30)) not in digests


def test_the_default_scopes_do_not_hold_admin() -> None:
    assert "admin" not in accounts.DEFAULT_SCOPES
    assert set(accounts.DEFAULT_SCOPES) < set(accounts.SCOPES)
