"""A changed file changes the next task without a restart, and nothing else; a broken one changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api import create_app
from api.parts import parts
from models import accounts
from models.fields import Kind
from models.reload import Live
from models.settings import Settings
from tasks import runtime
from tests.conftest import SECRET
from tests.service import FOX, TOML, Service, uuid_of
from tests.shell import MakeShell

PRESETS = """
[presets.styles.anime]
prompt = "{prompt}, anime"
[presets.sizes.square]
ratio = "1:1"
"""


@dataclass
class Fleet:
    """An API and a worker, as their processes have them, over one file."""

    file: Path
    environ: Mapping[str, str]
    service: Service
    worker: Live[runtime.Runtime]

    def write(self, text: str) -> None:
        """Change the file; a look is due at once."""
        self.file.write_text(text, encoding="utf-8")
        with self.service.app.app_context():
            live_of(self.service).hurry()
        self.worker.hurry()


def live_of(service: Service) -> Live[Any]:
    found: Live[Any] = service.app.extensions["weir"]
    return found


@pytest.fixture
def fleet(database_url: str, redis_url: str, data_dir: Path) -> Iterator[Fleet]:
    from tasks import app as celery  # noqa: PLC0415  its configuration reads the environment

    file = data_dir / "weir.toml"
    file.write_text(TOML + PRESETS, encoding="utf-8")
    environ = {
        "WEIR_DATABASE_URL": database_url, "WEIR_REDIS_URL": redis_url, "WEIR_SECRET": SECRET,
        "WEIR_DATA": str(data_dir), "DASHSCOPE_API_KEY": "sk-for-tests", "WEIR_CONFIG": str(file),
    }  # fmt: skip
    celery.conf.update(broker_url=redis_url)
    app = create_app(environ=environ)
    with app.app_context():
        made = parts()
    with made.db.unit_of_work() as uow:
        keys = [accounts.create_key(uow, SECRET, user=user)[1] for user in ("ann", "bob")]
    worker = Live(runtime.renewed, environ)
    yield Fleet(file, environ, Service(app=app, parts=made, ann=keys[0], bob=keys[1]), worker)
    worker.current().db.close()
    made.close()


def test_a_changed_preset_changes_the_next_task_and_nothing_else(fleet: Fleet) -> None:
    ask = {**FOX, "style": "anime", "seed": 1}
    before = fleet.service.post(ask).json
    models, other = fleet.service.get("/v1/models").json, fleet.service.post({**FOX, "seed": 1}).json
    fleet.write(TOML + PRESETS.replace(", anime", ", woodcut"))
    after = fleet.service.post(ask).json
    assert before["effective"]["prompt"] == "a red fox in snow, anime"
    assert after["effective"] == {**before["effective"], "prompt": "a red fox in snow, woodcut"}
    assert fleet.service.get(f"/v1/tasks/{before['task_id']}").json["effective"] == before["effective"]
    assert fleet.service.post({**FOX, "seed": 1}).json["effective"] == other["effective"]
    assert fleet.service.get("/v1/models").json == models


def test_the_documents_say_what_holds_now(fleet: Fleet) -> None:
    fleet.write(TOML + PRESETS + '[presets.styles.etching]\nprompt = "{prompt}, etching"\n')
    assert set(fleet.service.get("/v1/presets").json["styles"]) == {"anime", "etching"}
    document = fleet.service.bare("/openapi.json").json
    assert document["components"]["schemas"]["TaskRequest"]["properties"]["style"]["enum"] == ["anime", "etching", None]


def test_a_task_keeps_its_price_and_the_next_one_has_the_new(fleet: Fleet) -> None:
    old = fleet.service.made()
    fleet.write(TOML.replace("price_micros = 100\n", "price_micros = 700\n", 1) + PRESETS)
    new = fleet.service.made()
    prices = {
        row["id"]: row["price_micros"] for row in fleet.service.sql("select id, price_micros from tasks order by id")
    }
    assert (prices[uuid_of(old)], prices[uuid_of(new)]) == (100, 700)


def test_a_broken_file_leaves_api_and_worker_with_what_they_had(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    loaded = fleet.service.get("/v1/status").json["settings"]
    worker = fleet.worker.current()
    wrong = TOML.replace("wan2.5-t2v-preview", "nothing") + PRESETS.replace("{prompt}, anime", "anime")
    with caplog.at_level(logging.ERROR):
        for text in (wrong, TOML + "[caps]\ntotal = 'many'\nimagee = 1\n", "[[["):
            fleet.write(text)
            assert fleet.service.post({**FOX, "style": "anime", "seed": 1}).status_code == 202
            assert fleet.worker.current() is worker
    assert "caps.total: must be int" in caplog.text
    assert "caps.imagee: unknown key" in caplog.text
    told = fleet.service.get("/v1/status").json["settings"]
    assert (told["loaded_at"], loaded["refused_at"]) == (loaded["loaded_at"], None)
    assert told["refused_at"] > told["loaded_at"]


def test_a_worker_goes_on_with_new_providers_gates_and_caps_over_the_old_connections(fleet: Fleet) -> None:
    old = fleet.worker.current()
    more = '[providers.third]\nadapter = "comfyui"\nbase_url = "http://127.0.0.1:9"\n[caps]\ntotal = 77\n'
    fleet.write(TOML + more)
    new = fleet.worker.current()
    assert (old.settings.caps.total, new.settings.caps.total) == (20, 77)
    assert set(new.providers) == set(new.gates) == {*old.providers, "third"}
    assert (new.db, new.storage, new.shared) == (old.db, old.storage, old.shared)
    assert old.providers["wan"].capabilities.kinds == {Kind.IMAGE, Kind.VIDEO}  # a call in progress has it still


def test_a_worker_takes_no_provider_whose_key_is_not_set(fleet: Fleet) -> None:
    old = fleet.worker.current()
    more = '[providers.third]\nadapter = "ark"\nbase_url = "http://127.0.0.1:9"\napi_key_env = "ARK_API_KEY"\n'
    fleet.write(TOML + more)
    assert fleet.worker.current() is old


def test_one_request_sees_one_tree(fleet: Fleet) -> None:
    with fleet.service.app.test_request_context("/v1/models"):
        first = parts()
        fleet.write(TOML + "[caps]\ntotal = 77\n")
        assert parts() is first
    with fleet.service.app.test_request_context("/v1/models"):
        assert parts().settings.caps.total == 77


def test_the_file_itself_is_noticed_without_a_signal(fleet: Fleet) -> None:
    live = Live(lambda settings, _: settings, fleet.environ, every_s=0.0)
    assert isinstance(live.current(), Settings)
    fleet.file.replace(fleet.file.with_suffix(".old"))
    fleet.file.write_text(TOML + "[caps]\ntotal = 78\n")
    assert live.current().caps.total == 78


def test_a_file_can_be_checked_before_it_is_put_there(make_shell: MakeShell, data_dir: Path) -> None:
    shell = make_shell(TOML)
    assert shell.run("config", "check").output == "valid\n"
    other = data_dir / "other.toml"
    for text, fault in (
        (TOML.replace("wan2.5-t2v-preview", "nothing"), "wan has no model 'nothing'"),
        (TOML.replace('adapter = "dashscope"', 'adapter = "dashscop"', 1), "did you mean 'dashscope'"),
        (TOML + "[presets.styles.a]\nprompt = 5\n", "presets.styles.a.prompt"),
        (TOML + "[caps]\ntotl = 5\n", "did you mean 'total'"),
    ):
        other.write_text(text, encoding="utf-8")
        assert fault in shell.refused("config", "check", str(other), code=2)
