"""Fixtures over tests.cases; a test module asks for them with `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from providers.sim import Simulator
from tests.cases import Case, playing
from tests.conftest import MakeSettings


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """All vendors, of this test's own; whatever it makes takes no time."""
    with Simulator(image_s=(0, 0), video_s=(0, 0)) as running:
        yield running


@pytest.fixture
def case(make_settings: MakeSettings, sim: Simulator) -> Iterator[Case]:
    """A gateway over them."""
    with playing(make_settings, sim) as made:
        yield made
