"""The catalogue: every configured provider, built from its settings."""

from __future__ import annotations

import pytest

from models.settings import (
    Environment,
    ProviderSettings,
    Settings,
    SettingsError,
)
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


def test_catalogue_has_every_configured_provider_by_its_name() -> None:
    found = catalogue(_settings(wan="dashscope", off="dashscope"))
    assert {name: provider.name for name, provider in found.items()} == {"wan": "wan", "off": "off"}


def test_catalogue_names_every_unknown_adapter_with_a_suggestion() -> None:
    with pytest.raises(SettingsError) as caught:
        catalogue(_settings(a="dashscop", b="dashscope", c="nothing"))
    assert str(caught.value).splitlines() == [
        "providers.a.adapter: unknown adapter 'dashscop'; did you mean 'dashscope'?",
        "providers.c.adapter: unknown adapter 'nothing'",
    ]
