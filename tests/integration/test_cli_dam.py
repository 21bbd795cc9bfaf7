"""What an operator changes while everything runs: users' limits, circuits, credentials; and a test of a vendor."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from werkzeug.serving import make_server

from api.cli_providers import _state
from models import accounts
from models.db import Database
from providers.breaker import Shared
from providers.gate import Dam
from providers.kv import Kv
from providers.sim import Simulator
from tests.conftest import MakeSettings
from tests.service import TOML, Service, running
from tests.shell import MakeShell, Shell

pytest_plugins = ("tests.service_fixtures",)

KEY = "DASHSCOPE_API_KEY"


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """A vendor of this test's own."""
    with Simulator() as vendor:
        yield vendor


@pytest.fixture
def shell(make_shell: MakeShell, sim: Simulator) -> Shell:
    """A terminal where `wan` is the simulator and `spare` is away."""
    return make_shell(TOML.replace("http://127.0.0.1:9", sim.dashscope, 1))


@pytest.fixture
def dam(shell: Shell) -> Iterator[Dam]:
    """The fleet's state, as another process sees it."""
    kv = Kv(shell.settings.env.redis_url)
    yield Dam.build(Shared(kv.client), shell.settings)
    kv.close()


# --- users ---


@pytest.fixture
def ann(db: Database) -> Database:
    """A database with one user."""
    with db.unit_of_work() as uow:
        accounts.ensure_user(uow, "ann")
    return db


@pytest.mark.usefixtures("ann")
def test_limits_are_shown_as_they_are_in_force(shell: Shell) -> None:
    (row,) = shell.weir("users", "list")
    assert (row["user"], row["running_limit"], row["active_limit"], row["submits_per_minute"]) == ("ann", 3, 20, 1000)
    assert (row["running"], row["active"], row["own"]) == (0, 0, [])
    assert shell.weir("users", "show", "ann") == [row]


@pytest.mark.usefixtures("ann")
def test_a_limit_of_ones_own_is_set_and_given_back(shell: Shell) -> None:
    (row,) = shell.weir("users", "set", "ann", "--active", "50", "--running", "7")
    assert (row["active_limit"], row["running_limit"], row["submits_per_minute"]) == (50, 7, 1000)
    assert row["own"] == ["running_limit", "active_limit"]
    (row,) = shell.weir("users", "set", "ann", "--active", "default", "--per-minute", "5")
    assert (row["active_limit"], row["running_limit"], row["submits_per_minute"]) == (20, 7, 5)
    assert row["own"] == ["running_limit", "submits_per_minute"]


@pytest.mark.usefixtures("ann")
def test_what_cannot_be_set_is_refused_and_nothing_changes(shell: Shell) -> None:
    before = shell.weir("users", "list")
    assert "did you mean 'ann'?" in shell.refused("users", "set", "anne", "--active", "5")
    assert "did you mean 'ann'?" in shell.refused("users", "show", "an")
    assert "say what to set" in shell.refused("users", "set", "ann", code=2)
    for bad in ("0", "-1", "1.5", "many", "1000001", "9999999999"):
        shell.refused("users", "set", "ann", "--active", bad, code=2)
    assert shell.weir("users", "list") == before


def test_a_new_limit_holds_for_the_next_request(service: Service, make_shell: MakeShell) -> None:
    shell = make_shell(TOML)
    service.made()
    shell.weir("users", "set", "ann", "--active", "1", "--per-minute", "9")
    refused = service.post()
    assert (refused.status_code, refused.json["limit"]) == (429, 1)
    assert '"create";q=9;w=60' in refused.headers["RateLimit-Policy"]
    shell.weir("users", "set", "ann", "--active", "2")
    assert service.post().status_code == 202


# --- circuits and credentials ---


def trip(dam: Dam, operation: str) -> None:
    """Ten failures."""
    for _ in range(10):
        dam.breaker.report("wan", operation, ok=False, probe=False, kind="provider_server_error")


def test_a_circuit_is_closed_by_hand(shell: Shell, dam: Dam) -> None:
    for operation in ("submit_image", "observe"):
        trip(dam, operation)
    assert shell.weir("breaker", "reset", "wan", "--operation", "observe") == [
        {"provider": "wan", "closed": ["observe"]}
    ]
    assert not dam.breaker.allow("wan", "submit_image").allowed
    assert shell.weir("breaker", "reset", "wan") == [{"provider": "wan", "closed": ["submit_image"]}]
    assert dam.breaker.allow("wan", "submit_image").allowed
    assert shell.weir("breaker", "reset", "wan") == [{"provider": "wan", "closed": []}]


def test_a_mended_credential_is_taken_back(shell: Shell, dam: Dam) -> None:
    dam.credentials.kill("wan", KEY, "provider_auth")
    assert shell.weir("providers", "revive", "wan") == [
        {"provider": "wan", "credential": KEY, "was_out": "provider_auth"}
    ]
    assert dam.credentials.dead("wan", [KEY]) == {}
    assert shell.weir("providers", "revive", "wan")[0]["was_out"] is None


def test_a_provider_nobody_knows_is_refused_with_a_suggestion(shell: Shell) -> None:
    for words in (("breaker", "reset"), ("providers", "revive"), ("providers", "test")):
        assert "did you mean 'wan'?" in shell.refused(*words, "wann", code=2)


def test_without_redis_nothing_is_claimed(make_shell: MakeShell) -> None:
    shell = make_shell(TOML, WEIR_REDIS_URL="redis://127.0.0.1:9/0")
    assert "nothing was changed" in shell.refused("breaker", "reset", "wan")
    assert "nothing was changed" in shell.refused("providers", "revive", "wan")


# --- a test of a vendor ---


def test_a_vendor_that_answers_is_well(shell: Shell, sim: Simulator) -> None:
    (row,) = shell.weir("providers", "test", "wan")
    assert (row["ok"], row["kind"], row["found"], row["fix"], row["note"]) == (True, None, "it answers", "", "")
    assert sim.world.ledger.totals()["dashscope"]["submit"] == 0


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ({"status": 401, "code": "InvalidApiKey"}, "provider_auth", ["refuses the credential", KEY]),
        ({"status": 400, "code": "Arrearage"}, "provider_quota", ["nothing left", "top it up"]),
        ({"status": 429}, "provider_rate_limited", ["slow down", "requests_per_minute"]),
        ({"status": 502, "html": True}, "provider_server_error", ["trouble of its own", "status page"]),
        ({"status": 404, "html": True}, "provider_unreadable", ["not the vendor's API", "base_url"]),
    ],
)
def test_what_is_wrong_is_said_with_what_mends_it(
    shell: Shell, sim: Simulator, dam: Dam, fault: dict[str, object], kind: str, said: list[str]
) -> None:
    sim.world.faults.add([{"on": "list", "do": fault}])
    (row,) = shell.weir("providers", "test", "wan", code=1)
    assert (row["ok"], row["kind"]) == (False, kind)
    assert (said[0] in row["found"], said[1] in row["fix"]) == (True, True), row
    assert "sk-for-tests" not in str(row)
    assert dam.credentials.dead("wan", [KEY]) == {}, "this shell may have another key than the workers"


def test_a_vendor_that_is_away_is_said_to_be(shell: Shell) -> None:
    (row,) = shell.weir("providers", "test", "spare", code=1)
    assert (row["kind"], "127.0.0.1:9" in row["fix"]) == ("provider_unreachable", True)


def test_a_test_that_succeeds_says_when_the_fleet_does_not_know_yet(shell: Shell, dam: Dam) -> None:
    dam.credentials.kill("wan", KEY, "provider_auth")
    (row,) = shell.weir("providers", "test", "wan")
    assert row["note"] == "its credential still counts as refused: weir providers revive wan"


def test_a_key_that_this_shell_lacks_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY)
    assert shell.weir("providers", "test", "spare", code=1)[0]["note"] == f"{KEY} is not set in this shell"


# --- the list, over the API ---


@contextmanager
def served(service: Service) -> Iterator[str]:
    """The address of an API over a socket."""
    server = make_server("127.0.0.1", 0, service.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_list_says_in_a_word_how_each_stands(
    make_settings: MakeSettings, make_shell: MakeShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = make_shell(TOML)
    for service in running(make_settings(TOML)):
        trip(service.parts.dam, "submit_image")
        service.parts.dam.credentials.kill("spare", KEY, "provider_quota")
        with served(service) as url:
            monkeypatch.setenv("WEIR_URL", url)
            monkeypatch.setenv("WEIR_KEY", service.ann)
            rows = {row["provider"]: row for row in shell.weir("providers", "list")}
    assert rows["wan"]["breaker"]["submit_image"]["state"] == "open"
    assert rows["spare"]["credential"]["state"] == "out"
    assert (rows["off"]["enabled"], set(rows)) == (False, {"wan", "spare", "off"})
    assert {name: _state(row)[0] for name, row in rows.items()} == {"wan": "failing", "spare": "refused", "off": "off"}
    assert _state(rows["wan"])[1] == "submit_image (provider_server_error)"
