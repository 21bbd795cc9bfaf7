"""What the integration tests share: a database of their own, and a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from models.db import Database
from tests.conftest import SECRET, MakeSettings
from tests.shell import MakeShell, Shell


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Connections to a fresh, migrated, empty database; enough of them for two that race."""
    with Database(database_url) as database:
        yield database


@pytest.fixture
def make_shell(
    make_settings: MakeSettings, database_url: str, redis_url: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> MakeShell:
    """A factory of terminals whose environment names this test's servers, as make_settings does."""

    def make(toml: str = "", **environ: str) -> Shell:
        settings = make_settings(toml, **environ)
        known = {
            "WEIR_DATABASE_URL": database_url,
            "WEIR_REDIS_URL": redis_url,
            "WEIR_SECRET": SECRET,
            "WEIR_DATA": str(data_dir),
            "DASHSCOPE_API_KEY": "sk-for-tests",
            **({"WEIR_CONFIG": str(data_dir / "weir.toml")} if toml else {}),
        }
        for name, value in (known | environ).items():
            monkeypatch.setenv(name, value)
        return Shell(settings=settings)

    return make
