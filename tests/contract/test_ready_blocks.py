"""The commented blocks of the shipped file: take the signs away, set one variable, and it works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from models.settings import SHIPPED, Settings
from providers import PROVIDERS, catalogue

_BLOCK = re.compile(r"# \[providers\.(\w+)\]\n(?:#.*\n)+")
_OWN = ("studio", "local", "webui")
BLOCKS = {match[1]: match[0] for match in _BLOCK.finditer(SHIPPED.read_text(encoding="utf-8"))}


def loaded(name: str, tmp_path: Path) -> Settings:
    mine = tmp_path / "mine.toml"
    mine.write_text(re.sub(r"(?m)^# ?", "", BLOCKS[name]), encoding="utf-8")
    return Settings.load({"WEIR_CONFIG": str(mine)})


@pytest.mark.parametrize("name", BLOCKS)
def test_block_names_an_adapter_a_key_and_models_that_it_can_make(name: str, tmp_path: Path) -> None:
    settings = loaded(name, tmp_path)
    provider = catalogue(settings)[name]
    assert bool(settings.providers[name].api_key_env) is (name not in _OWN)  # no login: it must start without a key
    own = [(model, route) for model in settings.models.values() for route in model.providers if route.name == name]
    assert own
    for model, route in own:
        assert provider.capabilities.models[route.model].kind == model.type


@pytest.mark.parametrize("name", ["openai", "local", "webui"])
def test_block_of_a_vendor_that_answers_with_pictures_leaves_it_the_time(name: str, tmp_path: Path) -> None:
    conf = loaded(name, tmp_path).providers[name]
    assert conf.submit_read_s >= 300
    assert conf.adapter in PROVIDERS


def test_server_of_ones_own_gets_one_job_at_a_time_and_may_be_sent_it_again(tmp_path: Path) -> None:
    for name in ("local", "webui"):
        conf = loaded(name, tmp_path).providers[name]
        assert (conf.max_in_flight, conf.resubmit) == (1, "safe")
