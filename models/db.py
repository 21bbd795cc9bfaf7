"""The engine and the unit of work: the only place that commits.

A unit of work is one short transaction. It never spans a network call: whoever needs the vendor leaves the `with`
first. What must happen only if the transaction is durable (a wake-up) is given to `after_commit`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from select import POLLIN, POLLOUT, poll
from time import monotonic
from types import TracebackType
from typing import Any, Self, cast

from psycopg2 import OperationalError, extensions
from sqlalchemy import Engine, TextClause, create_engine, exc, text
from sqlalchemy.engine import Connection, CursorResult, make_url
from sqlalchemy.exc import IntegrityError

__all__ = ["TRANSIENT", "Database", "IntegrityError", "Row", "UnitOfWork", "as_json"]

Row = Mapping[str, Any]

# The database is away or busy, not wrong: the same transaction may be tried again from its start.
TRANSIENT = (exc.OperationalError, exc.InterfaceError, exc.TimeoutError)


# The server's statement_timeout does not help when the network swallows the answer: then only the socket notices.
_ALIVE = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3}
_CONNECT_S = 4.0


class _Impatient(extensions.connection):
    """A connection on which nothing is waited for without end.

    A server that is frozen, and not dead, keeps acknowledging packets: neither its own statement_timeout nor the
    kernel ever ends a wait for it, and each such wait would hold a thread.
    """

    patience_s = 20.0  # seconds for any answer once it is connected; Database sets its own

    def most_s(self) -> float:
        """How long the wait that begins now may take, seconds."""
        return _CONNECT_S if self.status == extensions.STATUS_SETUP else self.patience_s


def _wait(connection: extensions.connection) -> None:
    """What psycopg2 does in C, with an end: until the server has answered, or OperationalError."""
    ends = monotonic() + connection.most_s() if isinstance(connection, _Impatient) else None
    while (state := connection.poll()) != extensions.POLL_OK:
        left = None if ends is None else ends - monotonic()
        if left is not None and left <= 0:
            raise OperationalError("the database does not answer")
        waiting = poll()
        waiting.register(connection.fileno(), POLLIN if state == extensions.POLL_READ else POLLOUT)
        waiting.poll(None if left is None else left * 1000)


extensions.set_wait_callback(_wait)


@lru_cache(maxsize=512)
def _parsed(sql: str) -> TextClause:
    return text(sql)


def as_json(value: object) -> str:
    """`value` as JSON that PostgreSQL takes: NUL and lone surrogates, which it refuses, are taken out of every text.

    A vendor's text must never keep a verdict from being written.
    """
    return json.dumps(_storable(value), allow_nan=False)


def _storable(value: object) -> object:
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {str(_storable(str(key))): _storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(inner) for inner in value]
    return value


class UnitOfWork:
    """One open transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._after: list[Callable[[], None]] = []

    def execute(self, sql: str, /, **values: object) -> CursorResult[Any]:
        """Run one statement; `values` are bound, never pasted in."""
        return self._connection.execute(_parsed(sql), values)

    def executemany(self, sql: str, values: Sequence[Mapping[str, object]]) -> None:
        """Run one statement for many rows in one round trip where the driver can."""
        self._connection.execute(_parsed(sql), list(values))

    def one(self, sql: str, /, **values: object) -> Row | None:
        """The first row as a mapping, or None."""
        return cast("Row | None", self.execute(sql, **values).mappings().first())

    def all(self, sql: str, /, **values: object) -> Sequence[Row]:
        """Every row as a mapping."""
        return cast("Sequence[Row]", self.execute(sql, **values).mappings().all())

    def scalar(self, sql: str, /, **values: object) -> Any:  # noqa: ANN401  whatever the column holds
        """The first column of the first row, or None."""
        return self.execute(sql, **values).scalar()

    def after_commit(self, act: Callable[[], None]) -> None:
        """Run `act` once the transaction is durable; never if it is not. In the order given."""
        self._after.append(act)

    def committed(self) -> None:
        """Called by Database, once."""
        for act in self._after:
            act()


class Database:
    """Connections to PostgreSQL. Make it after the fork; threads share it.

    `pool` is the most connections at one moment, `wait_s` how long a caller waits for one before
    sqlalchemy.exc.TimeoutError; `statement_s` bounds a single statement on the server, and five seconds more the wait
    for its answer.
    """

    def __init__(self, url: str, *, pool: int = 8, wait_s: float = 2.0, statement_s: float = 15.0) -> None:
        options = f"-c statement_timeout={int(statement_s * 1000)} -c timezone=UTC"
        self.engine: Engine = create_engine(
            make_url(url).set(drivername="postgresql+psycopg2"),
            pool_size=pool,
            max_overflow=0,
            pool_timeout=wait_s,
            hide_parameters=True,  # an error's text must not quote a prompt
            pool_pre_ping=True,  # a connection the server closed is replaced before its first use (case O-63)
            connect_args={
                **_ALIVE,
                "connection_factory": type("Connection", (_Impatient,), {"patience_s": statement_s + 5.0}),
                "tcp_user_timeout": int(statement_s * 1000) + 5000,
                "connect_timeout": int(_CONNECT_S),
                "options": options,
                "application_name": "weir",
            },
        )

    @contextmanager
    def unit_of_work(self) -> Iterator[UnitOfWork]:
        """One transaction: committed at the end of the `with`, rolled back by any exception."""
        with self.engine.connect() as connection:
            uow = UnitOfWork(connection)
            try:
                yield uow
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
        uow.committed()  # after the connection is back in the pool: what follows may take its time

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
