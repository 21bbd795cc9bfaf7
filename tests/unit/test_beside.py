"""What `weir up` leaves for other terminals, and what a terminal that kept it must not give back."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from api import beside
from api.up_demo import why_skip
from api.up_setup import InvalidSettingsError, Options, command_line, plan
from models.settings import Settings

_OWN = {
    "WEIR_DATABASE_URL": "postgresql://weir:embedded-1@127.0.0.1:5001/weir",
    "WEIR_REDIS_URL": "redis://:embedded-2@127.0.0.1:5002/0",
    "WEIR_SECRET": "s" * 40,
    "WEIR_FLOWER_AUTH": "weir:word",
    "DASHSCOPE_API_KEY": beside.SIMULATOR_KEY,
}
_THEIRS = {
    "WEIR_DATABASE_URL": "postgresql://weir:theirs@db.example/weir",
    "WEIR_REDIS_URL": "redis://cache.example/0",
    "WEIR_SECRET": "t" * 40,
    "WEIR_FLOWER_AUTH": "ann:word",
    "DASHSCOPE_API_KEY": "sk-real",
    "WEIR_CONFIG": "weir.toml",
}
_REAL = """
[models]
[providers.wan]
adapter = "dashscope"
base_url = "https://vendor.example"
api_key_env = "DASHSCOPE_API_KEY"
[models."wan-image"]
type = "image"
providers = [{ name = "wan", model = "wan2.2-t2i-flash" }]
default = true
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder in which an `up` has kept its secrets."""
    kept = {"postgres_password": "embedded-1", "valkey_password": "embedded-2", "postgres_port": 5001}
    (tmp_path / "servers.json").write_text(json.dumps(kept), encoding="utf-8")
    (tmp_path / "secret").write_text(_OWN["WEIR_SECRET"] + "\n", encoding="utf-8")
    (tmp_path / "flower").write_text(_OWN["WEIR_FLOWER_AUTH"] + "\n", encoding="utf-8")
    return tmp_path


def _real(folder: Path) -> dict[str, str]:
    config = folder / "real.toml"
    config.write_text(_REAL, encoding="utf-8")
    return {"WEIR_CONFIG": str(config), "WEIR_DATA": str(folder / "data")}


def test_what_up_made_itself_does_not_outlive_it_in_a_shell(data: Path) -> None:
    shell = {**_OWN, "WEIR_CONFIG": str(beside.moved_config(data, 9200)), "WEIR_UP": str(data), "HOME": "/"}
    assert beside.unmarked(shell) == {"HOME": "/"}


def test_what_is_somebodys_own_stays(data: Path) -> None:
    assert beside.unmarked({**_THEIRS, "WEIR_UP": str(data)}) == _THEIRS


def test_without_the_mark_nothing_goes() -> None:
    assert beside.unmarked(_OWN) == _OWN


@pytest.mark.parametrize("url", ["", "no url", "postgresql://[", "redis://:@127.0.0.1/0"])
def test_an_odd_address_is_left_to_whoever_reads_it(tmp_path: Path, url: str) -> None:
    shell = {"WEIR_DATABASE_URL": url, "WEIR_UP": str(tmp_path / "gone")}
    assert beside.unmarked(shell) == {"WEIR_DATABASE_URL": url}


def test_a_running_up_fills_in_what_nobody_said(data: Path) -> None:
    beside.note(data, {**_OWN, "WEIR_URL": "http://127.0.0.1:8001"})
    assert stat.S_IMODE((data / "up.json").stat().st_mode) == 0o600
    found = beside.beside_up({"WEIR_DATA": str(data), "WEIR_SECRET_FILE": "mine", "DASHSCOPE_API_KEY": "sk-real"})
    assert found["WEIR_DATABASE_URL"] == _OWN["WEIR_DATABASE_URL"]
    assert found["DASHSCOPE_API_KEY"] == "sk-real"
    assert "WEIR_SECRET" not in found
    assert Settings.load(found | {"WEIR_SECRET_FILE": str(data / "secret")}).env.secret == _OWN["WEIR_SECRET"]
    beside.forget(data)
    assert beside.beside_up({"WEIR_DATA": str(data)}) == {"WEIR_DATA": str(data)}


def test_a_shell_that_kept_the_old_addresses_finds_the_new(data: Path) -> None:
    moved = _OWN | {"WEIR_DATABASE_URL": _OWN["WEIR_DATABASE_URL"].replace("5001", "6001")}
    beside.note(data, moved)
    found = beside.beside_up({**_OWN, "WEIR_UP": str(data), "WEIR_DATA": str(data)})
    assert found["WEIR_DATABASE_URL"] == moved["WEIR_DATABASE_URL"]


def test_up_names_a_missing_key_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match="DASHSCOPE_API_KEY is not set: the provider wan") as refused:
        plan(Options(), _real(tmp_path))
    assert refused.value.exit_code == 2


def test_up_tells_other_terminals_the_keys_that_came_from_its_shell(tmp_path: Path) -> None:
    made = plan(Options(), _real(tmp_path) | {"DASHSCOPE_API_KEY": "sk-real", "WEIR_KEY": "weir_key", "HOME": "/"})
    made.note()
    told = json.loads((tmp_path / "data" / "up.json").read_text(encoding="utf-8"))
    assert told["DASHSCOPE_API_KEY"] == "sk-real"
    assert told["WEIR_UP"] == told["WEIR_DATA"] == str(tmp_path / "data")
    assert told["WEIR_CONFIG"].endswith("real.toml")
    assert not {"WEIR_KEY", "HOME", "PATH"} & set(told)


def test_up_does_not_take_the_simulators_key_to_a_real_vendor(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match="DASHSCOPE_API_KEY"):
        plan(Options(), {**_OWN, **_real(tmp_path), "WEIR_UP": str(data)})


def test_the_demo_buys_nothing_without_a_word(tmp_path: Path) -> None:
    real = Settings.load(_real(tmp_path))
    assert "wan would be paid" in why_skip("image", real, frozenset(), may_buy=False)
    assert why_skip("image", real, frozenset(), may_buy=True) == ""
    assert why_skip("image", real, frozenset({"wan"}), may_buy=False) == ""
    assert "no default model for video" in why_skip("video", real, frozenset({"wan"}), may_buy=True)


def test_the_command_for_other_ports_is_whole(tmp_path: Path) -> None:
    options = Options(demo=True, port=8000, sim_port=9200, data=tmp_path / "a b")
    said = command_line(options, {"port": 8001}, program=".venv/bin/weir", config="my weir.toml")
    folder = f"'{tmp_path}/a b'"
    assert said == f"WEIR_CONFIG='my weir.toml' .venv/bin/weir up --demo --port 8001 --sim-port 9200 --data {folder}"
    once = Options(once=True, demo=True, as_json=True, may_buy=True)
    assert command_line(once, {"flower_port": 5556}, program="weir", config="").endswith(
        " up --once --yes --json --flower-port 5556"
    )
