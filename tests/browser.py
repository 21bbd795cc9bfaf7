"""A real Chromium, the distribution's own; a test module asks for it with `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

# It asks nobody outside for updates, and runs as root in containers.
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip


@pytest.fixture
def browser(needs: Callable[[str], str]) -> Iterator[Browser]:
    """Started for the test; skipped loudly where Chromium is not installed, failed in CI."""
    path = needs("chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield running
        running.close()
