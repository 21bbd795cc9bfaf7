"""What the tests of the store share: a database of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.db import Database


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Connections to a fresh, migrated, empty database; enough of them for two that race."""
    with Database(database_url) as database:
        yield database
