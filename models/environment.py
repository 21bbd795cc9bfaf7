"""What the environment gives: addresses and secrets, each variable or the file that NAME_FILE names.

An unknown variable with our prefix is a fault with a suggestion. Only models/settings.py calls this.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models.checked import suggest


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What the environment gives: addresses and secrets. Its repr shows none of them."""

    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    broker_url: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    flower_auth: str = field(default="", repr=False)
    data_dir: Path = Path("data")
    log_level: str = "INFO"
    vendor_keys: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def metrics_dir(self) -> Path:
        """Where the processes of this host count; a host of its own each, as file locks do not reach further."""
        return self.data_dir.absolute() / "metrics" / platform.node()


# Variables with our prefix. The last four belong to the command line and the Procfile, which read them through here.
VARIABLES: Mapping[str, str] = {
    "WEIR_CONFIG": "path of a weir.toml laid over the shipped default",
    "WEIR_DATABASE_URL": "postgresql://user:password@host:port/database",
    "WEIR_REDIS_URL": "redis://:password@host:port/0, for breaker, rates and counters",
    "WEIR_BROKER_URL": "Celery's broker; default: WEIR_REDIS_URL",
    "WEIR_SECRET": "32 or more random characters; signs links and cursors, keys the digests of API keys",
    "WEIR_DATA": "folder for results and, with `weir up`, the embedded servers' data; default: data",
    "WEIR_LOG_LEVEL": "DEBUG, INFO, WARNING or ERROR; default: INFO",
    "WEIR_URL": "where the command line finds the API",
    "WEIR_KEY": "the command line's API key",
    "WEIR_FLOWER_AUTH": "user:password of the Flower dashboard",
    "WEIR_UP": "data folder of the `weir up` that `weir config env` told this shell about; set by that command only",
}
_SECRETS = ("WEIR_DATABASE_URL", "WEIR_REDIS_URL", "WEIR_BROKER_URL", "WEIR_SECRET", "WEIR_KEY", "WEIR_FLOWER_AUTH")
_MIN_SECRET = 32


def read(environ: Mapping[str, str], credentials: Collection[str], errors: list[str]) -> Environment:
    """What `environ` gives; faults are added to `errors`. `credentials`: the vendors' keys that are asked for."""
    known = set(VARIABLES) | {f"{name}_FILE" for name in _SECRETS} | {v for c in credentials for v in c.split("+")}
    strange = [name for name in sorted(environ) if name.startswith("WEIR_") and name not in known]
    errors += [f"{name}: unknown variable{suggest(name, known)}" for name in strange]
    values = {name: _secret(environ, name, errors) for name in _SECRETS}
    if values["WEIR_SECRET"] and len(values["WEIR_SECRET"]) < _MIN_SECRET:
        errors.append(f"WEIR_SECRET: must be {_MIN_SECRET} characters or more, is {len(values['WEIR_SECRET'])}")
    level = environ.get("WEIR_LOG_LEVEL", "INFO")
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        errors.append(f"WEIR_LOG_LEVEL: must be DEBUG, INFO, WARNING or ERROR, is {level!r}")
    keys = {name: _credential(environ, name, errors) for name in sorted(credentials)}
    return Environment(
        database_url=values["WEIR_DATABASE_URL"],
        redis_url=values["WEIR_REDIS_URL"],
        broker_url=values["WEIR_BROKER_URL"] or values["WEIR_REDIS_URL"],
        secret=values["WEIR_SECRET"],
        flower_auth=values["WEIR_FLOWER_AUTH"],
        data_dir=Path(environ.get("WEIR_DATA", "data")),
        log_level=level,
        vendor_keys={name: key for name, key in keys.items() if key},
    )


def _credential(environ: Mapping[str, str], name: str, errors: list[str]) -> str:
    """The key in a variable, or in two as FIRST:SECOND; empty when one of them is missing."""
    parts = [_secret(environ, variable, errors) for variable in name.split("+")]
    return ":".join(parts) if all(parts) else ""


def _secret(environ: Mapping[str, str], name: str, errors: list[str]) -> str:
    """The variable, or the content of the file that NAME_FILE names, without its final newline."""
    if environ.get(name):
        return environ[name]
    path = environ.get(f"{name}_FILE", "")
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as exc:
        errors.append(f"{name}_FILE: cannot read {path!r}: {exc}")
        return ""
