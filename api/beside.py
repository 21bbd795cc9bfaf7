"""What a running `weir up` leaves for other terminals: `up.json` (mode 0600) in its data folder, while it runs.

`weir` commands read it by themselves (`beside_up`); other programs get it with `weir config env`, which adds WEIR_UP,
the folder, as the mark of where all this came from. A shell keeps such variables when that `up` has stopped:
`unmarked` takes away what they were copied from, so that they never pass for somebody's own servers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from api.embedded import write_private

MARK = "WEIR_UP"
SIMULATOR_KEY = "sk-simulator"  # what a provider at the simulator gets for a key
_RUNNING = "up.json"
_PASSWORDS = {
    "WEIR_DATABASE_URL": "postgres_password",
    "WEIR_REDIS_URL": "valkey_password",
    "WEIR_BROKER_URL": "valkey_password",
}
_FILES = {"WEIR_SECRET": "secret", "WEIR_FLOWER_AUTH": "flower"}


def moved_config(data: Path, port: int) -> Path:
    """Where an `up` over this folder keeps the configuration with its simulator at `port`."""
    return data / f"up-{port}.toml"


def note(data: Path, told: Mapping[str, str]) -> None:
    """Keep, while it runs, what other terminals need."""
    write_private(data / _RUNNING, json.dumps({**told, MARK: str(data)}) + "\n")


def forget(data: Path) -> None:
    """It does not run any more."""
    (data / _RUNNING).unlink(missing_ok=True)


def beside_up(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with what a `weir up` over the same data folder uses, where nothing else is said.

    So `weir keys create` in a second terminal finds the embedded servers, and `weir tasks list` the API.
    """
    said = unmarked(environ)
    data = Path(said.get("WEIR_DATA") or "data").absolute()
    found = _json(data / _RUNNING)
    names = {name.removesuffix("_FILE") for name, value in said.items() if value}
    return said | {name: value for name, value in found.items() if name not in names}


def unmarked(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what `weir config env` copied from an `up` that had made it itself.

    Real servers, secrets and keys stay: only what equals the marked folder's own passwords and files goes, with the
    simulator's key. Without the mark nothing goes.
    """
    mark = environ.get(MARK)
    if not mark:
        return dict(environ)
    data = Path(mark)
    passwords = _json(data / "servers.json")
    stale = {MARK} | {name for name, value in environ.items() if value == SIMULATOR_KEY}
    stale |= {name for name, key in _PASSWORDS.items() if _same(_password(environ.get(name, "")), passwords.get(key))}
    stale |= {name for name, file in _FILES.items() if _same(environ.get(name), _text(data / file).strip())}
    config = Path(environ.get("WEIR_CONFIG", ""))
    if config.parent == data and config.match("up-*.toml"):
        stale.add("WEIR_CONFIG")
    return {name: value for name, value in environ.items() if name not in stale}


def _same(here: str | None, kept: str | None) -> bool:
    return bool(kept) and here == kept


def _password(url: str) -> str | None:
    try:
        return urlsplit(url).password
    except ValueError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _json(path: Path) -> dict[str, str]:
    try:
        found = json.loads(_text(path))
    except ValueError:
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
