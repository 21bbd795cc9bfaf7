"""The wheel holds everything and owns its names: built, unpacked into a fresh environment, used from elsewhere.

Top-level names such as `tasks` are generic. Another distribution with the same name would silently overwrite ours, so
the environment is Weir's own and this test looks who owns what.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import OUTSIDE, SECRET

_ROOT = Path(__file__).parents[2]
_NAMES = ["api", "celeryconfig", "models", "providers", "tasks", "wsgi"]

_OWNERS = """
import importlib.metadata, json, sys
owners = importlib.metadata.packages_distributions()
print(json.dumps({name: owners.get(name) for name in sys.argv[1:]}))
"""
_LOOK = """
import json, pathlib
import api, models.migrations, tasks
from models.settings import Settings
tasks.app.loader.import_default_modules()
print(json.dumps({
    "home": str(pathlib.Path(api.__file__).parents[1]),
    "celery_tasks": sorted(name for name in tasks.app.tasks if not name.startswith("celery.")),
    "sql": sum(1 for _ in pathlib.Path(models.migrations.__file__).parent.glob("versions/*.sql")),
    "models": sorted(Settings.load({}).models),
    "procfile": (pathlib.Path(api.__file__).parents[1] / "Procfile").exists(),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the build backend that pyproject.toml names."""
    target = tmp_path_factory.mktemp("wheel")
    words = ["wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(_ROOT)]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], check=True, env=OUTSIDE)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel in it; what it depends on is lent by ours."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)], check=True, env=OUTSIDE)
    own = next(home.glob("lib/python*/site-packages"))
    # After its own folder on the path: our modules come from the wheel, the libraries from here. The checkout itself is
    # reached through a .pth file, which is not followed from there.
    (own / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _run(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"WEIR_SECRET": SECRET, "WEIR_DATABASE_URL": "postgresql://u@127.0.0.1:1/d"}
    return subprocess.run(
        [python, *words], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=100
    )


def test_wheel_holds_code_data_and_licence_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"api", "models", "providers", "tasks", "celeryconfig.py", "wsgi.py", "Procfile"}
    assert "models/weir.toml" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_nobody_else_owns_our_names(installed: Path, tmp_path: Path) -> None:
    # Only what is installed here counts: the lent libraries are an environment of their own, with our checkout in it.
    home = next(installed.parents[1].glob("lib/python*/site-packages"))
    lent = home / "lent.pth"
    text = lent.read_text()
    lent.unlink()
    try:
        owners = json.loads(_run(installed, tmp_path, "-c", _OWNERS, *_NAMES).stdout)
    finally:
        lent.write_text(text)
    assert owners == {name: ["weir-gateway"] for name in _NAMES}
    here = json.loads(_run(Path(sys.executable), tmp_path, "-c", _OWNERS, *_NAMES).stdout)
    # An editable install may list no modules at all; a stranger would be listed.
    assert all(owner in (None, ["weir-gateway"]) for owner in here.values()), here


def test_installed_from_elsewhere_everything_is_found(installed: Path, tmp_path: Path) -> None:
    result = _run(installed, tmp_path, "-c", _LOOK)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert Path(found["home"]).is_relative_to(installed.parents[1])
    assert {"image.submit", "image.poll", "image.fetch", "video.submit", "video.poll", "sweep"} <= set(
        found["celery_tasks"]
    )
    assert found["sql"] >= 1
    assert found["models"] == ["sim-image", "sim-video"]
    assert found["procfile"]


def test_the_installed_application_has_its_routes(installed: Path, tmp_path: Path) -> None:
    result = _run(installed, tmp_path, "-m", "flask", "--app", "wsgi", "routes")
    assert result.returncode == 0, result.stderr
    for route in ("/v1/tasks", "/v1/models", "/livez", "/readyz", "/openapi.json"):
        assert route in result.stdout


def test_the_installed_command_explains_itself(installed: Path, tmp_path: Path) -> None:
    result = _run(installed, tmp_path, str(installed.with_name("weir")), "--help")
    assert result.returncode == 0, result.stderr
    for verb in ("up", "sim", "keys", "db", "tasks", "doctor", "config"):
        assert verb in result.stdout
