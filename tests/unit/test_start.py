"""What a process looks at before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.settings import Settings
from tasks.signals import faults

_ADDRESSES = {"WEIR_DATABASE_URL": "postgresql://u@127.0.0.1:1/d", "WEIR_REDIS_URL": "redis://127.0.0.1:1/0"}
_TWO = """
[models]
[providers.wan]
adapter = "dashscope"
base_url = "https://vendor.example"
api_key_env = "DASHSCOPE_API_KEY"
[providers.off]
adapter = "openai"
base_url = "https://vendor.example"
api_key_env = "OPENAI_API_KEY"
enabled = false
[providers.own]
adapter = "sdwebui"
base_url = "http://127.0.0.1:7860"
"""


def _settings(tmp_path: Path, **environ: str) -> Settings:
    config = tmp_path / "weir.toml"
    config.write_text(_TWO, encoding="utf-8")
    return Settings.load({"WEIR_CONFIG": str(config), **environ})


def test_a_missing_vendor_key_names_variable_and_provider_of_those_switched_on(tmp_path: Path) -> None:
    (said,) = _settings(tmp_path).missing_keys()
    assert "DASHSCOPE_API_KEY" in said
    assert "wan" in said
    assert _settings(tmp_path, DASHSCOPE_API_KEY="sk-1").missing_keys() == []


def test_a_key_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-1\n", encoding="utf-8")
    assert _settings(tmp_path, DASHSCOPE_API_KEY_FILE=str(tmp_path / "key")).missing_keys() == []


@pytest.mark.parametrize("missing", sorted(_ADDRESSES))
def test_a_worker_names_the_address_it_lacks(tmp_path: Path, missing: str) -> None:
    given = {name: value for name, value in _ADDRESSES.items() if name != missing}
    assert faults(_settings(tmp_path, DASHSCOPE_API_KEY="sk-1", **given), vendors=True) == [f"{missing} is not set"]


def test_a_worker_needs_the_keys_and_beat_does_not(tmp_path: Path) -> None:
    settings = _settings(tmp_path, **_ADDRESSES)
    assert faults(settings, vendors=True) == settings.missing_keys()
    assert faults(settings, vendors=False) == []
