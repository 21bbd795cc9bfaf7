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
    key = presented()
    with parts().db.unit_of_work() as uow:
        caller = accounts.find_caller(uow, parts().settings.env.secret, key)
        if caller is None:
            raise unauthenticated()
        if scope is not None and not caller.scopes & {scope, "admin"}:
            raise Problem("forbidden", f"This key lacks the scope {scope}.", required_scope=scope)
        yield uow, caller


def caller(scope: str | None) -> Caller:
    """Only the caller, for a view that needs no more of the database, or later. Raises as `signed_in`."""
    with signed_in(scope) as (_, found):
        return found


def presented() -> str:
    """The key as sent, if it could be one. Raises Problem unauthenticated, without asking the database."""
    scheme, _, rest = request.headers.get("Authorization", "").partition(" ")
    key = rest.strip() if scheme.lower() == "bearer" else request.headers.get("X-Api-Key", "")
    if not accounts.well_formed(key):
        raise unauthenticated()
    return key
