"""Users and API keys (conventions 13): `wk_` + 30 random base62 + their CRC32 as 6 base62 digits, shown once.

Only the HMAC-SHA256 of a key under WEIR_SECRET is stored, and looked up by: constant work, no scan. 178 random bits
need no slow hash. A wrong checksum is refused without asking the database.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from uuid_utils.compat import uuid7

from models.db import Row, UnitOfWork

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM, _CHECK = 30, 6
PREFIX = "wk_"
SCOPES = ("tasks:write", "tasks:read", "webhooks:write", "usage:read", "admin")
LIMITS = ("running_limit", "active_limit", "submits_per_minute")
DEFAULT_SCOPES = ("tasks:write", "tasks:read", "webhooks:write", "usage:read")


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who asks: the user, the key and what it may do."""

    user_id: UUID
    user: str
    key_id: UUID
    scopes: frozenset[str]
    running_limit: int | None
    active_limit: int | None
    submits_per_minute: int | None
    models: frozenset[str] | None = None  # the only ones the key may ask for; None: all


def checksum(body: str) -> str:
    """CRC32 of the 30 characters as 6 base62 digits: thirty `0` give `2C8GjS`."""
    number = zlib.crc32(body.encode("ascii"))
    digits = ""
    for _ in range(_CHECK):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def new_key() -> str:
    """A fresh key of 39 characters."""
    body = "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    return PREFIX + body + checksum(body)


def well_formed(key: str) -> bool:
    """Whether prefix, length, alphabet and checksum are right."""
    body = key.removeprefix(PREFIX)
    if body == key or len(body) != _RANDOM + _CHECK or not set(body) <= set(_ALPHABET):
        return False
    return hmac.compare_digest(checksum(body[:_RANDOM]), body[_RANDOM:])


def digest(secret: str, key: str) -> bytes:
    """What is stored instead of the key."""
    return hmac.digest(secret.encode(), key.encode(), hashlib.sha256)


def ensure_user(uow: UnitOfWork, name: str) -> UUID:
    """The id of the user with this name, made if needed. Safe to call twice at once."""
    uow.execute("insert into users (id, name) values (:id, :name) on conflict (name) do nothing", id=uuid7(), name=name)
    found: UUID = uow.scalar("select id from users where name = :name", name=name)
    return found


def create_key(  # noqa: PLR0913  a key has this many properties
    uow: UnitOfWork,
    secret: str,
    *,
    user: str,
    name: str = "",
    scopes: Sequence[str] = DEFAULT_SCOPES,
    expires_in_s: int | None = None,
    models: Sequence[str] = (),
    key: str | None = None,
) -> tuple[UUID, str]:
    """Make a key for a user (made too if new) and give (its id, the key). The key is never seen again.

    `models`: the only ones it may ask for; none named: all. `key` stores a given well-formed key instead of a new one;
    one that is stored already stays as it is.
    Raises ValueError for an unknown scope or a bad key.
    """
    strange = sorted(set(scopes) - set(SCOPES))
    if strange:
        raise ValueError(f"unknown scope {', '.join(strange)}; known: {', '.join(SCOPES)}")
    if key is not None and not well_formed(key):
        raise ValueError("the key is not well formed")
    text = key or new_key()
    id_: UUID = uow.scalar(
        """insert into api_keys (id, user_id, name, prefix, digest, scopes, models, expires_at)
           values (:id, :user_id, :name, :prefix, :digest, :scopes, :models,
                   now() + make_interval(secs => :expires_in_s))
           on conflict (digest) do update set digest = excluded.digest returning id""",
        id=uuid7(),
        user_id=ensure_user(uow, user),
        name=name,
        prefix=text[: len(PREFIX) + 4],
        digest=digest(secret, text),
        scopes=list(scopes),
        models=list(models) or None,
        expires_in_s=expires_in_s,
    )
    return id_, text


def find_caller(uow: UnitOfWork, secret: str, key: str) -> Caller | None:
    """Who owns this key; None if it is malformed, unknown, revoked or expired. Notes its use once a minute."""
    if not well_formed(key):
        return None
    row = uow.one(
        """select k.id as key_id, k.scopes, k.models, u.id as user_id, u.name, u.running_limit, u.active_limit,
                  u.submits_per_minute,
                  coalesce(k.last_used_at < now() - interval '1 minute', true) as stale
             from api_keys k join users u on u.id = k.user_id
            where k.digest = :digest and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())""",
        digest=digest(secret, key),
    )
    if row is None:
        return None
    if row["stale"]:
        uow.execute("update api_keys set last_used_at = now() where id = :id", id=row["key_id"])
    return Caller(
        user_id=row["user_id"],
        user=row["name"],
        key_id=row["key_id"],
        scopes=frozenset(row["scopes"]),
        running_limit=row["running_limit"],
        active_limit=row["active_limit"],
        submits_per_minute=row["submits_per_minute"],
        models=None if row["models"] is None else frozenset(row["models"]),
    )


def list_keys(uow: UnitOfWork, user: str | None = None) -> Sequence[Row]:
    """Every key with its user, newest first, never the key itself."""
    return uow.all(
        """select k.id, u.name as user, k.name, k.prefix, k.scopes, k.models, k.created_at, k.expires_at, k.revoked_at,
                  k.last_used_at
             from api_keys k join users u on u.id = k.user_id
            where cast(:user as text) is null or u.name = :user order by k.id desc""",
        user=user,
    )


def revoke_key(uow: UnitOfWork, key_id: UUID) -> bool:
    """Revoke a key now; True also if it was revoked before, False if there is none."""
    sql = "update api_keys set revoked_at = coalesce(revoked_at, now()) where id = :id returning id"
    return uow.scalar(sql, id=key_id) is not None


def list_users(uow: UnitOfWork, name: str | None = None) -> Sequence[Row]:
    """Users by name, or the one called `name`: limits of their own (null: the configuration's) and live tasks now."""
    return uow.all(
        """select u.id, u.name as user, u.running_limit, u.active_limit, u.submits_per_minute, u.created_at,
                  count(t.id) filter (where t.status = 'RUNNING') as running, count(t.id) as active
             from users u left join tasks t on t.user_id = u.id and t.status in ('PENDING', 'RUNNING')
            where cast(:name as text) is null or u.name = :name group by u.id order by u.name""",
        name=name,
    )


def set_limits(uow: UnitOfWork, name: str, limits: Mapping[str, int | None]) -> bool:
    """Give a user limits of its own from now on, by column; None: the configuration's again. False: no such user.

    Raises ValueError for a column that is no limit.
    """
    strange = sorted(limits.keys() - set(LIMITS))
    if strange or not limits:
        raise ValueError(f"limits are {', '.join(LIMITS)}; not {', '.join(strange) or 'none'}")
    sets = ", ".join(f"{column} = :{column}" for column in sorted(limits))
    return uow.scalar(f"update users set {sets} where name = :name returning id", name=name, **limits) is not None  # noqa: S608  columns of LIMITS
