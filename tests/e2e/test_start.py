"""What is refused before it starts, and what it says then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.ports import free_port

_REAL = """
[models]
[providers.wan]
adapter = "dashscope"
base_url = "https://vendor.example"
api_key_env = "DASHSCOPE_API_KEY"
"""


def _run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name(words[0]))
    return subprocess.run(
        [program, *words[1:]], env=os.environ | environ, capture_output=True, text=True, check=False, timeout=60
    )


def test_up_without_a_vendors_key_ends_with_code_2_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "weir.toml").write_text(_REAL, encoding="utf-8")
    result = _run("weir", "up", "--data", str(tmp_path / "data"), WEIR_CONFIG=str(tmp_path / "weir.toml"))
    assert result.returncode == 2
    assert "DASHSCOPE_API_KEY is not set: the provider wan needs it" in result.stderr
    assert "Stopped" not in result.stdout + result.stderr
    assert not (tmp_path / "data" / "postgres").exists()


@pytest.mark.parametrize("command", ["worker", "beat"])
def test_no_worker_starts_without_an_address(command: str) -> None:
    result = _run("celery", "-A", "tasks", command)
    assert result.returncode == 1
    assert "WEIR_DATABASE_URL is not set" in result.stderr
    assert "weir config env" in result.stderr


def test_no_worker_starts_without_a_vendors_key() -> None:
    port = free_port()
    addresses = {
        "WEIR_DATABASE_URL": f"postgresql://weir@127.0.0.1:{port}/weir",
        "WEIR_REDIS_URL": f"redis://127.0.0.1:{port}/0",
    }
    result = _run("celery", "-A", "tasks", "worker", **addresses)
    assert result.returncode == 1
    assert "DASHSCOPE_API_KEY is not set: the provider wan needs it" in result.stderr


def test_doctor_names_the_way_out_where_nothing_was_ever_started(tmp_path: Path) -> None:
    result = _run("weir", "doctor", WEIR_DATA=str(tmp_path))
    found = {line["name"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert result.returncode == 1
    assert "weir up" in found["secret"]["fix"]
    (tmp_path / "secret").write_text("s" * 40, encoding="utf-8")
    again = _run("weir", "doctor", WEIR_DATA=str(tmp_path))
    assert f"{tmp_path}/secret" in json.loads(again.stdout.splitlines()[1])["fix"]
