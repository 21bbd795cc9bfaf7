"""The short run, part of every test run: a fixed seed, sixty tasks, some twenty seconds of breaking, all invariants."""

from __future__ import annotations

import pytest

from tests.chaos.run import run

SEED, TASKS = 20, 60


@pytest.mark.timeout(180)
def test_what_is_promised_holds_while_everything_breaks() -> None:
    report = run(SEED, TASKS)
    print(report.text())  # noqa: T201  pytest shows it with a failure
    assert [f"{finding.name}: {finding.broken[0]}" for finding in report.findings if not finding.held] == []
    assert report.endings["SUCCESS"] > TASKS / 4, "a run in which hardly anything succeeds proves little"
