"""The embedded servers: what survives a crash, what is left behind, who may read what."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg2
import pytest
from redis import Redis

from api.embedded import EmbeddedServers
from api.embedded_servers import ServerError
from api.ports import free_port, port_is_free

_ROOT = Path(__file__).parents[2]
# Starts the servers in a folder, says so, and waits to be killed.
_HOLDER = """
import sys, time
from pathlib import Path
from api.embedded import EmbeddedServers
with EmbeddedServers(Path(sys.argv[1]), durable=False):
    print("ready", flush=True)
    time.sleep(600)
"""


def _ask(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def _until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_postgres_keeps_its_rows_when_killed_and_restarted(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, with_valkey=False) as servers:
        _ask(servers.database_url, "create table kept as select 7 as seven")
        holding = psycopg2.connect(servers.database_url)  # a backend outlives the postmaster for a moment
        servers.postgres.kill()
        servers.postgres.start()
        assert _ask(servers.database_url, "select seven from kept") == [(7,)]
        holding.close()


def test_valkey_keeps_its_keys_when_killed_and_restarted(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, with_postgres=False) as servers, Redis.from_url(servers.redis_url) as client:
        client.set("kept", "7")
        servers.valkey.kill()
        servers.valkey.start()
        assert client.get("kept") == b"7"
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_second_run_has_the_same_addresses_and_the_same_data(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, durable=False) as first:
        addresses = first.database_url, first.redis_url
        _ask(first.database_url, "create table kept as select 7 as seven")
    with EmbeddedServers(data_dir, durable=False) as second:
        assert (second.database_url, second.redis_url) == addresses
        assert _ask(second.database_url, "select seven from kept") == [(7,)]


def test_a_lost_password_file_is_replaced_and_the_data_stays(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, durable=False, with_valkey=False) as first:
        _ask(first.database_url, "create table kept as select 7 as seven")
    (data_dir / "servers.json").unlink()
    with EmbeddedServers(data_dir, durable=False, with_valkey=False) as second:
        assert second.database_url != first.database_url
        assert _ask(second.database_url, "select seven from kept") == [(7,)]


def test_a_port_taken_by_somebody_else_is_replaced(data_dir: Path, servers: EmbeddedServers) -> None:
    taken = servers.valkey.port
    (data_dir / "servers.json").write_text(
        json.dumps(
            {"postgres_password": "p", "valkey_password": "v", "postgres_port": free_port(), "valkey_port": taken}
        )
    )
    with EmbeddedServers(data_dir, with_postgres=False) as ours:
        assert ours.valkey.port != taken


def test_nothing_is_left_when_the_parent_is_killed(data_dir: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _HOLDER, str(data_dir)], stdout=subprocess.PIPE, cwd=_ROOT)
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == b"ready\n"
    state = json.loads((data_dir / "servers.json").read_text())
    parent.kill()
    parent.wait()
    _until(lambda: port_is_free(state["postgres_port"]) and port_is_free(state["valkey_port"]))
    with EmbeddedServers(data_dir, durable=False) as again:
        assert _ask(again.database_url, "select 1") == [(1,)]


def test_a_folder_in_use_is_refused_by_name_of_its_holder(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, with_postgres=False):
        second = subprocess.run(
            [sys.executable, "-c", _HOLDER, str(data_dir)], capture_output=True, text=True, cwd=_ROOT, check=False
        )
    assert second.returncode == 1
    assert f"in use by process {os.getpid()}" in second.stderr


def test_a_pid_file_that_names_a_stranger_is_survived(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, durable=False, with_valkey=False) as first:
        pid_file = next(iter(data_dir.glob("postgres"))) / "postmaster.pid"
        words = pid_file.read_text()
        first.postgres.kill()
        pid_file.write_text(words.replace(words.splitlines()[0], str(os.getpid()), 1))
        first.postgres.start()
        assert _ask(first.database_url, "select 1") == [(1,)]


def test_secrets_are_in_private_files_and_in_no_command_line(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, durable=False) as servers:
        state_file = data_dir / "servers.json"
        state = json.loads(state_file.read_text())
        assert stat.S_IMODE(state_file.stat().st_mode) == 0o600
        assert not data_dir.stat().st_mode & 0o007
        for server in (servers.postgres, servers.valkey):
            words = Path(f"/proc/{server.pid}/cmdline").read_text()
            assert state[f"{server.name}_password"] not in words
            assert state[f"{server.name}_password"] not in server.log.read_text()


def test_a_wrong_password_is_refused_by_both(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, durable=False) as servers:
        state = json.loads((data_dir / "servers.json").read_text())
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            psycopg2.connect(servers.database_url.replace(state["postgres_password"], "wrong"))
        with Redis(port=servers.valkey.port) as stranger, pytest.raises(Exception, match="authenticated"):
            stranger.ping()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the user")
def test_run_by_root_both_servers_belong_to_an_unprivileged_user(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, durable=False) as servers:
        for server in (servers.postgres, servers.valkey):
            assert Path(f"/proc/{server.pid}").stat().st_uid != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that others may not enter")
def test_run_by_root_below_a_closed_folder_nothing_is_opened_to_others(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = data_dir / "closed"
    closed.mkdir(mode=0o700)
    away = data_dir / "away"
    data_dir.chmod(0o711)
    monkeypatch.setattr("api.embedded._AWAY", away)
    with EmbeddedServers(closed / "data", durable=False) as servers:
        assert _ask(servers.database_url, "select 1") == [(1,)]
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert any(away.glob("*/postgres"))


def test_a_server_that_cannot_start_says_why(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, durable=False, with_valkey=False):
        pass
    (data_dir / "postgres" / "PG_VERSION").write_text("12\n")
    with pytest.raises(ServerError, match="initialized by PostgreSQL version 12"), EmbeddedServers(data_dir):
        pass
    assert port_is_free(json.loads((data_dir / "servers.json").read_text())["valkey_port"])


def test_servers_leave_our_terminal_session(data_dir: Path) -> None:
    with EmbeddedServers(data_dir, durable=False) as servers:
        for server in (servers.postgres, servers.valkey):
            assert server.pid is not None
            assert os.getsid(server.pid) == server.pid != os.getsid(0)
