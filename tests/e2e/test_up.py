"""`weir up` and the command line beside it, as a person uses them."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from api.ports import free_port, port_is_free
from tests.live import until

_WEIR = str(Path(sys.executable).with_name("weir"))


class Up:
    """One running `weir up`."""

    def __init__(self, data: Path, *options: str) -> None:
        """Started; `ready` waits for its line of JSON."""
        self.data = data
        self.ports = {"--port": free_port(), "--flower-port": free_port(), "--sim-port": free_port()}
        words = [word for option, port in self.ports.items() for word in (option, str(port))]
        self.process = subprocess.Popen(
            [_WEIR, "up", "--json", "--data", str(data), *words, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=data,
        )

    def ready(self) -> dict[str, Any]:
        """What it says once everything runs."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, said = self.process.communicate(timeout=30)
            pytest.fail(f"ended with {self.process.returncode}: {said}")
        told: dict[str, Any] = json.loads(line)
        return told

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str, float]:
        """Ask it to stop: (exit code, what it said, seconds it took)."""
        before = time.monotonic()
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said, time.monotonic() - before

    def child(self, name: str) -> int:
        """The process id of a child, by a word of its command line."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_text().replace("\0", " ")
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if name in words and int(parent) == self.process.pid:
                return int(process.name)
        raise AssertionError(f"no child {name}")


@contextmanager
def _up(data: Path, *options: str) -> Iterator[Up]:
    running = Up(data, *options)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate()


@pytest.fixture(scope="module")
def standing() -> Iterator[tuple[Up, dict[str, Any]]]:
    """One `weir up` for the tests that only look at it."""
    data = Path(tempfile.mkdtemp(prefix="weir-up-"))
    with _up(data) as running:
        told = running.ready()
        yield running, told
        running.end(signal.SIGTERM)
    rmtree(data)


def _weir(standing: tuple[Up, dict[str, Any]], *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a second terminal, in the folder where `weir up` keeps its data."""
    running, _ = standing
    environ = os.environ | {"WEIR_DATA": str(running.data)}
    return subprocess.run([_WEIR, *words], env=environ, capture_output=True, text=True, check=False, timeout=60)


def _lines(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_once_delivers_both_files_and_frees_everything(data_dir: Path) -> None:
    with _up(data_dir, "--once") as running:
        told = running.ready()
        _, said = running.process.communicate(timeout=30)
        assert running.process.returncode == 0, said
        files = {outcome["type"]: Path(outcome["file"]) for outcome in told["demo"]}
        assert files["image"].read_bytes().startswith(b"\x89PNG")
        assert files["video"].read_bytes()[4:8] == b"ftyp"
        assert files["image"].parent == data_dir / "demo"
        state = json.loads((data_dir / "servers.json").read_text())
        for port in (*told["ports"].values(), state["postgres_port"], state["valkey_port"]):
            assert port_is_free(port)


def test_a_second_run_has_the_same_key_and_ctrl_c_stops_it_in_time(data_dir: Path) -> None:
    with _up(data_dir) as first:
        told = first.ready()
        code, said, seconds = first.end()
    assert (code, seconds < 15) == (0, True), said
    assert all(port_is_free(port) for port in told["ports"].values())
    with _up(data_dir) as second:
        again = second.ready()
        assert again["key"] == told["key"]
        assert again["flower"]["password"] == told["flower"]["password"]
        assert second.end(signal.SIGTERM)[0] == 0


def test_a_second_ctrl_c_ends_everything_at_once(data_dir: Path) -> None:
    with _up(data_dir) as running:
        told = running.ready()
        os.kill(running.child("-Q video"), signal.SIGSTOP)  # does not stop when asked
        running.process.send_signal(signal.SIGINT)
        time.sleep(1.3)
        code, _, seconds = running.end()
        assert (code, seconds < 3) == (130, True)
        assert all(port_is_free(port) for port in told["ports"].values())


def test_the_echo_of_a_ctrl_c_does_not_count_as_a_second(data_dir: Path) -> None:
    with _up(data_dir) as running:
        told = running.ready()
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.1)  # `timeout` signals its child, and then the group that the child is in
        code, said, _ = running.end()
        assert code == 0
        assert "killed" not in said
        assert all(port_is_free(port) for port in told["ports"].values())


def test_a_second_start_over_the_same_folder_is_refused_and_stops_nothing(standing: tuple[Up, dict[str, Any]]) -> None:
    with _up(standing[0].data) as second:
        _, said = second.process.communicate(timeout=30)
    assert second.process.returncode == 1
    assert f"is in use by process {standing[0].process.pid}" in said
    assert "Stopped" not in said
    assert _weir(standing, "tasks", "list").returncode == 0


def test_a_process_that_dies_is_named_and_stops_everything(data_dir: Path) -> None:
    with _up(data_dir) as running:
        told = running.ready()
        os.kill(running.child("-Q video"), signal.SIGKILL)
        _, said = running.process.communicate(timeout=30)
        assert running.process.returncode == 1
        assert "worker_video ended by signal 9" in said
        assert all(port_is_free(port) for port in told["ports"].values())


def test_nothing_is_left_when_it_is_killed(data_dir: Path) -> None:
    with _up(data_dir) as running:
        told = running.ready()
        running.process.kill()
        until(lambda: all(port_is_free(port) for port in told["ports"].values()), within_s=15)


def test_a_taken_port_names_who_has_it_and_the_way_out(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, _up(data_dir, "--port", str(taken.getsockname()[1])) as up:
        _, said = up.process.communicate(timeout=30)
    assert up.process.returncode == 1
    assert f"is taken by pytest (process {os.getpid()})" in said or f"(process {os.getpid()})" in said
    assert re.search(r"For example: \S*weir up --json --port \d+ --flower-port \d+ --sim-port \d+ --data \S+", said)
    assert "Stopped" not in said


def test_invalid_settings_end_with_code_2_before_anything_starts(data_dir: Path) -> None:
    result = subprocess.run(
        [_WEIR, "up", "--data", str(data_dir)],
        env=os.environ | {"WEIR_DATABASE": "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "did you mean 'WEIR_DATABASE_URL'" in result.stderr
    assert not (data_dir / "postgres").exists()


def test_flower_asks_for_its_password_on_every_page(standing: tuple[Up, dict[str, Any]]) -> None:
    flower = standing[1]["flower"]
    pages = ("/", "/metrics", "/healthcheck", "/api/workers")
    until(lambda: not port_is_free(standing[1]["ports"]["flower"]))
    for page in pages:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(flower["url"] + page, timeout=10)  # noqa: S310  loopback
        refused.value.close()
        assert refused.value.code == 401, page
    known = base64.b64encode(f"{flower['user']}:{flower['password']}".encode()).decode()
    asked = urllib.request.Request(flower["url"] + "/metrics", headers={"Authorization": f"Basic {known}"})  # noqa: S310
    with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310
        assert answer.status == 200


def test_no_secret_is_in_a_command_line(standing: tuple[Up, dict[str, Any]]) -> None:
    running, told = standing
    secrets = [told["key"], told["flower"]["password"], (running.data / "secret").read_text().strip()]
    secrets += [
        value for value in json.loads((running.data / "servers.json").read_text()).values() if isinstance(value, str)
    ]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_text()
        except OSError:
            continue
        assert not any(secret in words for secret in secrets)


def test_keys_are_made_listed_and_revoked_beside_it(standing: tuple[Up, dict[str, Any]]) -> None:
    (made,) = _lines(_weir(standing, "keys", "create", "--user", "shop", "--name", "till"))
    environ = {"WEIR_KEY": made["key"]}
    os.environ.update(environ)
    try:
        assert _weir(standing, "tasks", "list").returncode == 0
        (listed,) = _lines(_weir(standing, "keys", "list", "--user", "shop"))
        assert (listed["id"], listed["name"], listed["revoked_at"]) == (made["id"], "till", None)
        assert made["key"] not in json.dumps(listed)
        assert _weir(standing, "keys", "revoke", made["id"]).returncode == 0
        refused = _weir(standing, "tasks", "list")
        assert (refused.returncode, "401" in refused.stderr) == (4, True)
    finally:
        del os.environ["WEIR_KEY"]


def test_tasks_are_listed_shown_and_cancelled_with_the_kept_key(standing: tuple[Up, dict[str, Any]]) -> None:
    _, told = standing
    body = json.dumps({"prompt": "a lighthouse"}).encode()
    headers = {"Authorization": f"Bearer {told['key']}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(told["url"] + "/v1/tasks", body, headers)) as answer:  # noqa: S310
        task_id = json.load(answer)["task_id"]
    assert task_id in [task["task_id"] for task in _lines(_weir(standing, "tasks", "list"))]
    (shown,) = _lines(_weir(standing, "tasks", "show", task_id))
    assert shown["history"]["events"][0]["reason"] == "accepted"
    assert _weir(standing, "tasks", "cancel", task_id).returncode in (0, 1)  # 1: it was faster
    unknown = _weir(standing, "tasks", "show", "task_00000000000000000000000000")
    assert (unknown.returncode, "404" in unknown.stderr) == (1, True)


def test_an_unreachable_gateway_is_code_5() -> None:
    result = subprocess.run(
        [_WEIR, "tasks", "list", "--url", f"http://127.0.0.1:{free_port()}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, "cannot be reached" in result.stderr) == (5, True)


def test_doctor_finds_everything_well_beside_it(standing: tuple[Up, dict[str, Any]]) -> None:
    until(lambda: _weir(standing, "doctor").returncode == 0, saying=lambda: _weir(standing, "doctor").stdout)
    found = {line["name"]: line for line in _lines(_weir(standing, "doctor"))}
    assert {"settings", "database", "migrations", "clock", "redis", "eviction", "storage", "workers"} <= set(found)
    assert "every queue has one" in found["workers"]["found"]
    assert "the API answers" in found["port"]["found"]


def test_doctor_names_the_fix_where_nothing_runs(data_dir: Path) -> None:
    environ = os.environ | {
        "WEIR_DATA": str(data_dir),
        "WEIR_DATABASE_URL": f"postgresql://weir@127.0.0.1:{free_port()}/weir",
        "WEIR_REDIS_URL": f"redis://127.0.0.1:{free_port()}/0",
    }
    result = subprocess.run([_WEIR, "doctor"], env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    failed = {line["name"]: line for line in map(json.loads, result.stdout.splitlines()) if line["ok"] is False}
    assert {"secret", "database", "redis", "workers"} <= set(failed)
    assert all(line["fix"] for line in failed.values())


def test_config_show_masks_secrets_and_names_every_setting(standing: tuple[Up, dict[str, Any]]) -> None:
    result = _weir(standing, "config", "show")
    assert result.returncode == 0
    assert "polling.image.max_s = 15.0" in result.stdout
    state = json.loads((standing[0].data / "servers.json").read_text())
    assert state["postgres_password"] not in result.stdout
    assert state["valkey_password"] not in result.stdout
    assert 'env.secret = "***"' in result.stdout


def test_db_current_says_that_nothing_is_missing(standing: tuple[Up, dict[str, Any]]) -> None:
    (line,) = _lines(_weir(standing, "db", "current"))
    assert line["database"] == line["newest"]
    (again,) = _lines(_weir(standing, "db", "upgrade"))
    assert again == line
