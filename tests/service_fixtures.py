"""Fixtures over tests.service; a test module asks for them with `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.settings import Settings
from tests.conftest import MakeSettings
from tests.service import TOML, Service, running


@pytest.fixture
def api_settings(make_settings: MakeSettings) -> Settings:
    """Settings with three providers, one of them off, and room for many submits."""
    return make_settings(TOML)


@pytest.fixture
def service(api_settings: Settings) -> Iterator[Service]:
    """The API with keys for ann and bob."""
    yield from running(api_settings)
