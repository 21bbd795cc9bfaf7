"""Who asks: an API key -> Caller (conventions 13). No cache: one look-up by an indexed digest, revocation is immediate.

The key is read from `Authorization: Bearer` or `X-Api-Key`, never from the address. A malformed one is refused before a
connection is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flask import request

from api.errors import Problem, unauthenticated
from api.parts import parts
from models import accounts
from models.accounts import Caller
from models.db import UnitOfWork


@contextmanager
def signed_in(scope: str | None) -> Iterator[tuple[UnitOfWork, Caller]]:
    """A unit of work and the caller, who has `scope` (None: any valid key will do).

    Never read a body or ask anything over the network inside: the caller's pace must not hold a connection.

    Raises Problem unauthenticated or forbidden.
    """
    key = _presented()
    if key is None or not accounts.well_formed(key):
        raise unauthenticated()
    with parts().db.unit_of_work() as uow:
        caller = accounts.find_caller(uow, parts().settings.env.secret, key)
        if caller is None:
            raise unauthenticated()
        if scope is not None and not caller.scopes & {scope, "admin"}:
            raise Problem("forbidden", f"This key lacks the scope {scope}.", required_scope=scope)
        yield uow, caller


def caller(scope: str | None) -> Caller:
    """Only the caller, for a view that reads a body before it needs the database. Raises as `signed_in`."""
    with signed_in(scope) as (_, found):
        return found


def _presented() -> str | None:
    """The key as sent; None if none was."""
    header = request.headers.get("Authorization", "")
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    return request.headers.get("X-Api-Key")
