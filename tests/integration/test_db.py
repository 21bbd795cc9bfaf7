"""A database that is frozen, slow or gone: nobody waits for it without end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.embedded import EmbeddedServers
from models.db import TRANSIENT, Database


@pytest.fixture
def own(data_dir: Path) -> Iterator[EmbeddedServers]:
    """A PostgreSQL that a test may freeze; awake again at the end."""
    with EmbeddedServers(data_dir / "own", durable=False, with_valkey=False) as running:
        yield running


def _signal_all(own: EmbeddedServers, number: signal.Signals) -> None:
    """To the server's main process and every one of its children."""
    main = own.postgres.pid
    assert main is not None
    children = Path(f"/proc/{main}/task/{main}/children").read_text(encoding="ascii").split()
    for pid in (main, *map(int, children)):
        os.kill(pid, number)


def test_frozen_server_is_given_up_and_used_again_when_it_wakes(own: EmbeddedServers) -> None:
    with Database(own.database_url, pool=2, statement_s=1.0) as database:
        try:
            with pytest.raises(TRANSIENT), database.unit_of_work() as uow:  # noqa: PT012  frozen in mid-transaction
                uow.execute("select 1")
                _signal_all(own, signal.SIGSTOP)
                began = time.monotonic()
                uow.execute("select 1")
            assert 5.5 < time.monotonic() - began < 9
        finally:
            _signal_all(own, signal.SIGCONT)
        with database.unit_of_work() as uow:
            assert uow.scalar("select 1") == 1


def test_connecting_to_a_frozen_server_is_given_up_sooner(own: EmbeddedServers) -> None:
    _signal_all(own, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with Database(own.database_url) as database, pytest.raises(TRANSIENT), database.unit_of_work():
            pass
        assert time.monotonic() - began < 6
    finally:
        _signal_all(own, signal.SIGCONT)


def test_slow_statement_is_ended_by_the_server_itself(database_url: str) -> None:
    with Database(database_url, statement_s=0.3) as database, database.unit_of_work() as uow:
        began = time.monotonic()
        with pytest.raises(TRANSIENT, match="statement timeout"):
            uow.execute("select pg_sleep(5)")
        assert time.monotonic() - began < 3
