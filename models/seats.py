"""PURE  Seats: a provider with one of its credentials, as one word.

A task is bound to the credential that its job was bought with, since another account knows nothing of it. `wan` is the
provider with its first credential, `wan:KEY_B` with the one in the variable KEY_B; that is also what a polling chain is
called. The database makes the same word of a task's `provider` and `credential` (models/tables.py).
"""

from __future__ import annotations


def seat_of(provider: str, credential: str | None) -> str:
    """The word for both; None: the first credential, or none is needed."""
    return provider if credential is None else f"{provider}:{credential}"


def provider_of(seat: str) -> str:
    """The provider's name in it."""
    return seat.partition(":")[0]


def credential_of(seat: str) -> str | None:
    """The credential's name in it; None: the first."""
    return seat.partition(":")[2] or None


def alias(variable: str) -> str:
    """A credential's name: the variable it is in, for a pair of variables the first of them."""
    return variable.partition("+")[0]
