"""The catalogue: every configured provider, built from its settings."""

from __future__ import annotations

import pytest

from models.environment import Environment
from models.settings import ProviderSettings, Settings, SettingsError
from providers import catalogue
from tests.contract.vendors import KEY


def _settings(**providers: str) -> Settings:
    return Settings(
        providers={
            name: ProviderSettings(adapter=adapter, base_url="http://h", api_key_env="K", enabled=name != "off")
            for name, adapter in providers.items()
        },
        env=Environment(vendor_keys={"K": KEY}),
    )


def test_catalogue_has_every_configured_provider_by_its_seats() -> None:
    found = catalogue(_settings(wan="dashscope", off="dashscope"))
    by_seat = {"wan": "wan", "wan:K": "wan", "off": "off", "off:K": "off"}
    assert {seat: provider.name for seat, provider in found.items()} == by_seat


def test_catalogue_names_every_unknown_adapter_with_a_suggestion() -> None:
    with pytest.raises(SettingsError) as caught:
        catalogue(_settings(a="dashscop", b="dashscope", c="nothing"))
    assert str(caught.value).splitlines() == [
        "providers.a.adapter: unknown adapter 'dashscop'; did you mean 'dashscope'?",
        "providers.c.adapter: unknown adapter 'nothing'",
    ]
