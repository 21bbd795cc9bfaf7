"""`weir` as an operator types it, over this test's own servers and configuration."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner, Result

from api.cli import main
from models.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Shell:
    """One terminal. `settings` are what its commands find."""

    settings: Settings

    def weir(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """The rows that a command prints as JSON; it must exit with `code`."""
        result = self.run(*words, "--json")
        assert result.exit_code == code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    def refused(self, *words: str, code: int = 1) -> str:
        """What a command says that exits with `code`."""
        result = self.run(*words)
        assert result.exit_code == code, result.output
        return result.stderr

    def run(self, *words: str) -> Result:
        """Whatever comes of it, but no exception."""
        result = CliRunner().invoke(main, words)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        return result


MakeShell = Callable[..., Shell]
