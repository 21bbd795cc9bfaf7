"""Settings: the shipped file is complete and true, and every fault is named at once with a way out."""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from pathlib import Path

import pytest

from models.environment import VARIABLES, Environment
from models.presets import Presets
from models.settings import (
    SHIPPED,
    ModelSettings,
    ProviderSettings,
    Route,
    Settings,
    SettingsError,
    Workers,
)

_TABLES = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))
# What a way to a vendor or a model cannot have a default for.
_OWN = {"adapter", "base_url", "api_key_env", "type", "providers", "price_micros", "default", "title", "name", "model"}


def _faults(environ: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ)
    return str(caught.value).splitlines()


def _config(tmp_path: Path, toml: str) -> dict[str, str]:
    path = tmp_path / "mine.toml"
    path.write_text(toml, encoding="utf-8")
    return {"WEIR_CONFIG": str(path)}


def _differences(table: dict[str, object], cls: type, where: str) -> list[str]:
    """Keys that the shipped table lacks, or gives another value than the dataclass."""
    found = []
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if field.name == "env":
            continue
        name = f"{where}{field.name}"
        value = table.get(field.name)
        if value is None:
            found.append(f"{name} is missing")
        elif dataclasses.is_dataclass(hints[field.name]):
            assert isinstance(value, dict)
            default: typing.Any = field.default_factory() if callable(field.default_factory) else field.default
            found += [
                f"{name}.{key} is {value.get(key)!r}, not {expected!r}"
                for key, expected in dataclasses.asdict(default).items()
                if _plain(value.get(key)) != _plain(expected)
            ]
        elif field.name not in _OWN and where:
            usual = field.default_factory() if callable(field.default_factory) else field.default
            if _plain(value) != _plain(usual):
                found.append(f"{name} is {value!r}, not {usual!r}")
    return found


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple | list) else value


def test_shipped_file_names_every_key_with_its_default() -> None:
    assert _differences(_TABLES, Settings, "") == []
    for name, table in _TABLES["providers"].items():
        assert _differences(table, ProviderSettings, f"providers.{name}.") == []
    for name, table in _TABLES["models"].items():
        assert _differences(table, ModelSettings, f"models.{name}.") == []
        for route in table["providers"]:
            assert _differences(route, Route, f"models.{name}.providers.") == []


def test_shipped_file_says_something_about_every_key() -> None:
    # A key of a repeated table ([polling.video], the second model) is explained once, at the first.
    explained: set[str] = set()
    comment_above = False
    for line in SHIPPED.read_text(encoding="utf-8").splitlines():
        key = line.split("=")[0].strip()
        if "=" in line and not line.startswith("#"):
            assert (
                "#" in line
                or comment_above
                or key
                in explained
                | {"doc", "prompt", "force", "ratio", "factor"}
                | {
                    "negative_prompt",
                    "resolution",
                }
            ), f"{key} is not explained"
            explained.add(key)
        comment_above = line.startswith("#")


def test_shipped_file_has_two_models_at_the_simulator() -> None:
    settings = Settings.load({})
    assert {model.type for model in settings.models.values() if model.default} == {"image", "video"}
    assert {provider.base_url for provider in settings.providers.values()} == {"http://127.0.0.1:9100/dashscope"}


def test_shipped_presets_are_valid() -> None:
    presets = Presets.from_tables(Settings.load({}).presets)
    assert {"anime", "photo", "watercolor"} <= set(presets.styles)
    assert presets.styles["anime"].max_side == 1024
    assert presets.styles["anime"].forced["negative_prompt"]
    assert presets.modes["fast"].values == {"steps": 15}
    assert presets.modes["quality"].values == {"steps": 40}


@pytest.mark.parametrize(("slots", "shares"), [(16, (12, 3, 1)), (3, (1, 1, 1)), (4, (2, 1, 1)), (100, (75, 24, 1))])
def test_slots_are_shared_three_quarters_to_images_with_one_spare(slots: int, shares: tuple[int, int, int]) -> None:
    assert Workers(slots=slots).shares() == shares
    assert sum(shares) == slots


def test_every_share_has_a_slot_whatever_the_number() -> None:
    for slots in range(3, 200):
        shares = Workers(slots=slots).shares()
        assert min(shares) >= 1
        assert sum(shares) == slots


def test_unknown_key_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    faults = _faults(_config(tmp_path, "[deadlines]\nimage_seconds = 3\n[servre]\nport = 1\n"))
    assert faults == [
        "deadlines.image_seconds: unknown key; did you mean 'image_s'?",
        "servre: unknown key; did you mean 'server'?",
    ]


def test_unknown_variable_with_our_prefix_is_refused_with_a_suggestion() -> None:
    assert _faults({"WEIR_DATABASE": "x"}) == ["WEIR_DATABASE: unknown variable; did you mean 'WEIR_DATABASE_URL'?"]


def test_other_variables_are_nobodys_business() -> None:
    assert Settings.load({"PATH": "/bin", "WEIRD": "1", "DASHSCOPE_OTHER": "x"}) == Settings.load({})


def test_a_providers_own_key_variable_may_carry_our_prefix(tmp_path: Path) -> None:
    toml = '[providers.x]\nadapter = "dashscope"\nbase_url = "http://h"\napi_key_env = "WEIR_OWN_KEY"\n[models]\n'
    settings = Settings.load({"WEIR_OWN_KEY": "sk-1"} | _config(tmp_path, toml))
    assert settings.env.vendor_keys == {"WEIR_OWN_KEY": "sk-1"}


def test_every_fault_of_file_and_environment_is_reported_at_once(tmp_path: Path) -> None:
    toml = '[server]\nport = 70000\nhost = 3\n[users]\nrunning = "3"\n[caps]\ntotal = 0\n[polling]\nround_s = true\n'
    environ = _config(tmp_path, toml) | {"WEIR_SECRET": "short", "WEIR_LOG_LEVEL": "loud", "WEIR_X": "1"}
    faults = "\n".join(_faults(environ))
    for part in (
        "server.port: must be between 1 and 65,535, is 70000",
        "server.host: must be str, is 3",
        "users.running: must be int, is '3'",
        "caps.total: must be between 1 and 1,000,000, is 0",
        "polling.round_s: must be float, is True",
        "WEIR_SECRET: must be 32 characters or more, is 5",
        "WEIR_LOG_LEVEL: must be DEBUG, INFO, WARNING or ERROR, is 'loud'",
        "WEIR_X: unknown variable",
    ):
        assert part in faults


@pytest.mark.parametrize(
    ("toml", "fault"),
    [
        ("caps = 3", "caps: must be a table, is 3"),
        ("providers = []", "providers: must be a table, is []"),
        ("[providers]\nx = 1", "providers.x: must be a table, is 1"),
        ("[results]\nallowed_networks = 'all'", "results.allowed_networks: must be a list, is 'all'"),
        ("[results]\nallowed_networks = [1]", "results.allowed_networks[0]: must be str, is 1"),
        ("[workers]\nslots = 1.0", "workers.slots: must be int, is 1.0"),
        ("[providers.wan]\nbase_url = 'http://h'\nresubmit = 'yes'", "must be one of never, safe, is 'yes'"),
        ("[providers.wan]\nadapter = 'dashscope'", "providers.wan.base_url: is empty"),
        ("[models.x]\ntype = 'image'", "models.x.providers: names no provider"),
        ("[models.x]\nproviders = [{ name = 'wam' }]", "unknown provider 'wam'; did you mean 'wan'?"),
        (
            "[models]\na = { default = true, providers = [{ name = 'wan' }] }\nb = { default = true, providers = [] }",
            "models: more than one default for image: a, b",
        ),
        ("[caps", "not valid TOML"),
    ],
)
def test_a_wrong_value_is_refused_by_key_value_and_range(tmp_path: Path, toml: str, fault: str) -> None:
    assert any(fault in line for line in _faults(_config(tmp_path, toml)))


def test_a_missing_file_is_named() -> None:
    assert _faults({"WEIR_CONFIG": "/nowhere/weir.toml"}) == [
        "WEIR_CONFIG: cannot read '/nowhere/weir.toml': No such file or directory"
    ]


def test_whole_numbers_stand_for_fractions(tmp_path: Path) -> None:
    assert Settings.load(_config(tmp_path, "[polling]\nround_s = 5")).polling.round_s == 5


def test_own_file_is_laid_over_the_shipped_one_value_by_value(tmp_path: Path) -> None:
    settings = Settings.load(_config(tmp_path, "[caps]\nvideo = 7\n[polling.video]\nmax_s = 60.0\n"))
    assert (settings.caps.video, settings.caps.image) == (7, 15)
    assert (settings.polling.video.min_s, settings.polling.video.max_s) == (3.0, 60.0)
    assert "sim-image" in settings.models


def test_own_providers_models_and_kinds_of_presets_replace_the_shipped_ones_whole(tmp_path: Path) -> None:
    toml = (
        '[providers.mine]\nadapter = "dashscope"\nbase_url = "https://h"\n'
        '[models.m]\nproviders = [{ name = "mine", model = "x" }]\n'
        "[presets.modes.slow]\nsteps = 50\n"
    )
    settings = Settings.load(_config(tmp_path, toml))
    assert set(settings.providers) == {"mine"}
    assert settings.providers["mine"].max_in_flight == 5
    assert set(settings.models) == {"m"}
    assert settings.presets["modes"] == {"slow": {"steps": 50}}
    assert settings.presets["styles"] == _TABLES["presets"]["styles"]


def test_models_of_the_shipped_file_without_its_providers_are_named(tmp_path: Path) -> None:
    faults = _faults(_config(tmp_path, '[providers.mine]\nadapter = "dashscope"\nbase_url = "https://h"\n'))
    assert faults == [
        "models.sim-image.providers: unknown provider 'wan'",
        "models.sim-video.providers: unknown provider 'wan'",
    ]


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 32 + "\n")
    (tmp_path / "key").write_text("sk-1\n")
    environ = {"WEIR_SECRET_FILE": str(tmp_path / "secret"), "DASHSCOPE_API_KEY_FILE": str(tmp_path / "key")}
    settings = Settings.load(environ)
    assert settings.env.secret == "s" * 32
    assert settings.env.vendor_keys == {"DASHSCOPE_API_KEY": "sk-1"}


def test_a_secret_file_that_cannot_be_read_is_named() -> None:
    (fault,) = _faults({"WEIR_SECRET_FILE": "/nowhere/secret"})
    assert fault.startswith("WEIR_SECRET_FILE: cannot read '/nowhere/secret'")


def test_the_variable_wins_over_its_file(tmp_path: Path) -> None:
    environ = {"WEIR_SECRET": "v" * 32, "WEIR_SECRET_FILE": str(tmp_path / "absent")}
    assert Settings.load(environ).env.secret == "v" * 32


def test_broker_defaults_to_redis_and_may_differ() -> None:
    assert Settings.load({"WEIR_REDIS_URL": "redis://h/0"}).env.broker_url == "redis://h/0"
    both = {"WEIR_REDIS_URL": "redis://h/0", "WEIR_BROKER_URL": "amqp://h"}
    assert Settings.load(both).env.broker_url == "amqp://h"


def test_repr_shows_no_secret() -> None:
    environ = {
        "WEIR_DATABASE_URL": "postgresql://u:hidden-1@h/d",
        "WEIR_REDIS_URL": "redis://:hidden-2@h/0",
        "WEIR_BROKER_URL": "redis://:hidden-3@h/1",
        "WEIR_SECRET": "hidden-4" * 4,
        "DASHSCOPE_API_KEY": "hidden-5",
    }
    assert "hidden" not in repr(Settings.load(environ))
    assert "data_dir" in repr(Environment())


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings.load({}).server.port = 1  # type: ignore[misc]  # that is the point


def test_every_variable_is_described() -> None:
    assert all(VARIABLES.values())


def test_every_setting_has_a_unit_or_a_reason() -> None:
    for section in dataclasses.fields(Settings):
        kind = typing.get_type_hints(Settings)[section.name]
        if dataclasses.is_dataclass(kind) and kind is not Environment:
            assert isinstance(kind, type)
            assert all(f.metadata.get("doc") for f in dataclasses.fields(kind) if f.name not in ("image", "video")), (
                kind
            )
