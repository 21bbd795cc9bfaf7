"""Users and keys in the database: found by digest alone, and only while they are good."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID, uuid4

import pytest

from models import accounts
from models.db import Database
from tests.factories import SECRET, add_user


def test_a_key_finds_its_owner_with_scopes_and_limits(db: Database) -> None:
    with db.unit_of_work() as uow:
        user_id = add_user(uow, "ann", running_limit=7, active_limit=8, submits_per_minute=9)
        key_id, key = accounts.create_key(uow, SECRET, user="ann", scopes=("tasks:read",))
        caller = accounts.find_caller(uow, SECRET, key)
    assert caller == accounts.Caller(
        user_id=user_id,
        user="ann",
        key_id=key_id,
        scopes=frozenset({"tasks:read"}),
        running_limit=7,
        active_limit=8,
        submits_per_minute=9,
    )


def test_the_key_itself_is_stored_nowhere(db: Database) -> None:
    with db.unit_of_work() as uow:
        _, key = accounts.create_key(uow, SECRET, user="ann", name="laptop")
        image = uow.scalar("select k::text || u::text from api_keys k join users u on u.id = k.user_id")
        shown = uow.scalar("select prefix from api_keys")
    assert key[7:] not in image
    assert key.encode().hex() not in image
    assert shown == key[:7]


def test_a_key_is_unknown_under_another_secret(db: Database) -> None:
    with db.unit_of_work() as uow:
        _, key = accounts.create_key(uow, SECRET, user="ann")
        assert accounts.find_caller(uow, SECRET + "x", key) is None


@pytest.mark.parametrize("text", ["", "wk_", "wk_" + "0" * 30 + "2C8GjS", "wk_" + "0" * 36, "\x00"])
def test_what_was_never_issued_finds_nobody(db: Database, text: str) -> None:
    with db.unit_of_work() as uow:
        accounts.create_key(uow, SECRET, user="ann")
        assert accounts.find_caller(uow, SECRET, text) is None


@pytest.mark.parametrize(("expires_in_s", "good"), [(None, True), (60, True), (0, False), (-60, False)])
def test_a_key_is_good_until_it_expires(db: Database, expires_in_s: int | None, *, good: bool) -> None:
    with db.unit_of_work() as uow:
        _, key = accounts.create_key(uow, SECRET, user="ann", expires_in_s=expires_in_s)
        assert (accounts.find_caller(uow, SECRET, key) is not None) is good


def test_a_revoked_key_finds_nobody_and_stays_revoked_since_then(db: Database) -> None:
    with db.unit_of_work() as uow:
        key_id, key = accounts.create_key(uow, SECRET, user="ann")
        assert accounts.revoke_key(uow, key_id)
        uow.execute("update api_keys set revoked_at = revoked_at - interval '1 day'")
        first = uow.scalar("select revoked_at from api_keys")
        assert accounts.revoke_key(uow, key_id)
        assert uow.scalar("select revoked_at from api_keys") == first
        assert accounts.find_caller(uow, SECRET, key) is None


def test_revoking_an_unknown_key_says_so(db: Database) -> None:
    with db.unit_of_work() as uow:
        assert not accounts.revoke_key(uow, uuid4())


def test_a_use_is_noted_once_a_minute(db: Database) -> None:
    with db.unit_of_work() as uow:
        _, key = accounts.create_key(uow, SECRET, user="ann")
        accounts.find_caller(uow, SECRET, key)
        assert uow.scalar("select last_used_at = now() from api_keys")
        for ago_s, noted in ((59, False), (61, True)):
            uow.execute("update api_keys set last_used_at = now() - make_interval(secs => :ago_s)", ago_s=ago_s)
            accounts.find_caller(uow, SECRET, key)
            assert uow.scalar("select last_used_at = now() from api_keys") is noted


def test_a_given_key_is_stored_once_and_keeps_its_id(db: Database) -> None:
    key = accounts.new_key()
    with db.unit_of_work() as uow:
        first, stored = accounts.create_key(uow, SECRET, user="ann", name="one", key=key)
        second, _ = accounts.create_key(uow, SECRET, user="ann", name="two", key=key)
        assert stored == key
        assert first == second
        assert [row["name"] for row in accounts.list_keys(uow)] == ["one"]


def test_storing_a_revoked_key_again_does_not_revive_it(db: Database) -> None:
    with db.unit_of_work() as uow:
        key_id, key = accounts.create_key(uow, SECRET, user="ann")
        accounts.revoke_key(uow, key_id)
        accounts.create_key(uow, SECRET, user="ann", key=key)
        assert accounts.find_caller(uow, SECRET, key) is None


def test_an_unknown_scope_is_refused_by_name(db: Database) -> None:
    with db.unit_of_work() as uow:
        with pytest.raises(ValueError, match="tasks:delete"):
            accounts.create_key(uow, SECRET, user="ann", scopes=("tasks:delete",))
        assert accounts.list_keys(uow) == []


def test_a_key_that_is_not_well_formed_is_not_stored(db: Database) -> None:
    with db.unit_of_work() as uow:
        with pytest.raises(ValueError, match="well formed"):
            accounts.create_key(uow, SECRET, user="ann", key="wk_short")
        assert accounts.list_keys(uow) == []


def test_keys_are_listed_newest_first_without_anything_secret(db: Database) -> None:
    with db.unit_of_work() as uow:
        made = [accounts.create_key(uow, SECRET, user=user)[0] for user in ("ann", "bob", "ann")]
        rows = accounts.list_keys(uow)
        assert [row["id"] for row in rows] == made[::-1]
        assert [row["id"] for row in accounts.list_keys(uow, "bob")] == [made[1]]
        assert "digest" not in rows[0]


def test_two_at_once_make_one_user(db: Database) -> None:
    barrier = Barrier(2)

    def make(name: str) -> UUID:
        with db.unit_of_work() as uow:
            barrier.wait(10)
            return accounts.ensure_user(uow, name)

    with ThreadPoolExecutor(2) as pool:
        for n in range(20):
            assert len(set(pool.map(make, [f"user-{n}"] * 2))) == 1
