"""Fixtures for every tier: real servers once per session, a database per test, nothing from outside.

The environment is scrubbed of our variables, vendors' keys and proxies before anything of ours is imported, and
sockets reach loopback only. Tests in tests/unit may use none of the servers; asking for one there is an error.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import hypothesis
import pytest

# The unit tier has ten seconds for everything; `--hypothesis-profile thorough` searches as long as anybody likes.
hypothesis.settings.register_profile("quick", max_examples=40, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=3000, deadline=None)
hypothesis.settings.load_profile("quick")

if TYPE_CHECKING:
    from api.embedded import EmbeddedServers
    from models.settings import Settings
    from tests.rabbit import Rabbit

TIERS = ("unit", "contract", "integration", "e2e", "chaos")
SECRET = "for-tests-only-" + "0" * 32
_VENDORS = ("DASHSCOPE_", "ARK_", "VOLC", "JIMENG_", "OPENAI_", "REPLICATE_", "FAL_", "COMFY", "SDWEBUI_", "AWS_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_LOOPBACK = ("127.", "::1", "localhost")

# What the environment was, for the few tests that call pip.
OUTSIDE: dict[str, str] = dict(os.environ)


class MakeSettings(Protocol):
    """Settings over the test's servers, with a TOML text laid over the shipped file and more variables."""

    def __call__(self, toml: str = "", **environ: str) -> Settings:
        """Raises SettingsError as Settings.load does."""
        ...


def pytest_configure(config: pytest.Config) -> None:
    """Close the doors before the first test module is imported."""
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: set by the folder of the test")
    for name in list(os.environ):
        if name.startswith(("WEIR_", *_VENDORS)) or name.lower() in _PROXIES:
            del os.environ[name]
    _only_loopback()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test by its folder; keep the unit tier free of servers."""
    here = Path(__file__).parent
    for item in items:
        tier = item.path.relative_to(here).parts[0]
        if tier in TIERS:
            item.add_marker(tier)
        if tier == "unit" and "servers" in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(f"{item.nodeid}: a unit test may not use the servers")


def _only_loopback() -> None:
    """Refuse connections and look-ups that leave this machine. libpq is out of reach, and only ever gets our URLs."""
    connect, connect_ex, lookup = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def checked(address: object) -> None:
        if isinstance(address, tuple) and not str(address[0]).startswith(_LOOPBACK):
            raise OSError(f"tests may not connect to {address[0]!r}")

    def guarded_connect(self: socket.socket, address: object) -> None:
        checked(address)
        connect(self, address)  # type: ignore[arg-type]  # whatever the caller gave

    def guarded_connect_ex(self: socket.socket, address: object) -> int:
        checked(address)
        return connect_ex(self, address)  # type: ignore[arg-type]  # same

    def guarded_lookup(host: object, *args: object, **kwargs: object) -> object:
        numeric = host is None or str(host).replace(".", "").isdigit() or ":" in str(host)
        if not numeric and str(host) not in ("localhost", socket.gethostname()):
            raise socket.gaierror(socket.EAI_NONAME, f"tests may not look up {host!r}")
        return lookup(host, *args, **kwargs)  # type: ignore[arg-type]  # same

    socket.socket.connect = guarded_connect  # type: ignore[method-assign,assignment]  # that is the point
    socket.socket.connect_ex = guarded_connect_ex  # type: ignore[method-assign,assignment]
    socket.getaddrinfo = guarded_lookup  # type: ignore[assignment]


@pytest.fixture(scope="session")
def needs() -> Callable[[str], str]:
    """`needs("chromium")` gives the program's path; without it the test is skipped, in CI it fails."""

    def path_of(program: str) -> str:
        path = shutil.which(program)
        if path is None:
            said = f"{program} is not installed"
            if os.environ.get("CI"):
                pytest.fail(f"{said}, and CI skips nothing", pytrace=False)
            pytest.skip(f"SKIPPED, NOT TESTED: {said}")
        return path

    return path_of


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A folder that other users may be let into; pytest's own `tmp_path` is closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="weir-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[EmbeddedServers]:
    """One PostgreSQL (fsync off) and one Valkey for the session."""
    from api.embedded import EmbeddedServers  # noqa: PLC0415  the unit tier never gets here

    folder = Path(tempfile.mkdtemp(prefix="weir-servers-"))
    with EmbeddedServers(folder, durable=False) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


def _administer(servers: EmbeddedServers, statement: str) -> None:
    import psycopg2  # noqa: PLC0415  same

    connection = psycopg2.connect(servers.database_url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
    finally:
        connection.close()


def _named(url: str, database: str) -> str:
    return urlsplit(url)._replace(path=f"/{database}").geturl()


@pytest.fixture(scope="session")
def rabbit(needs: Callable[[str], str]) -> Iterator[Rabbit]:
    """One RabbitMQ for the session, running whenever a test is handed it."""
    needs("rabbitmq-server")
    from tests.rabbit import Rabbit  # noqa: PLC0415  same

    folder = Path(tempfile.mkdtemp(prefix="weir-rabbit-"))
    with Rabbit(folder) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def template(servers: EmbeddedServers) -> str:
    """The name of a migrated database that each test's own is a copy of."""
    from models import migrations  # noqa: PLC0415  same

    _administer(servers, "CREATE DATABASE template_weir")
    migrations.upgrade(_named(servers.database_url, "template_weir"))
    return "template_weir"


@pytest.fixture
def empty_database_url(servers: EmbeddedServers) -> Iterator[str]:
    """A fresh database without any table."""
    yield from _database(servers, "template0")


@pytest.fixture
def database_url(servers: EmbeddedServers, template: str) -> Iterator[str]:
    """A fresh, migrated, empty database of the test's own; dropped at its end whoever is connected."""
    yield from _database(servers, template)


_made = iter(range(1_000_000))


def _database(servers: EmbeddedServers, template: str) -> Iterator[str]:
    name = f"test_{next(_made)}"
    _administer(servers, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
    yield _named(servers.database_url, name)
    _administer(servers, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def redis_url(servers: EmbeddedServers) -> str:
    """The session's Valkey, emptied."""
    from redis import Redis  # noqa: PLC0415  same

    with Redis.from_url(servers.redis_url) as client:
        client.flushall()
    return servers.redis_url


@pytest.fixture
def make_settings(database_url: str, redis_url: str, data_dir: Path) -> MakeSettings:
    """A factory of Settings over this test's database, Valkey and data folder."""
    from models.settings import Settings  # noqa: PLC0415  same

    def make(toml: str = "", **environ: str) -> Settings:
        known = {
            "WEIR_DATABASE_URL": database_url,
            "WEIR_REDIS_URL": redis_url,
            "WEIR_SECRET": SECRET,
            "WEIR_DATA": str(data_dir),
            "DASHSCOPE_API_KEY": "sk-for-tests",
        }
        if toml:
            path = data_dir / "weir.toml"
            path.write_text(toml, encoding="utf-8")
            known["WEIR_CONFIG"] = str(path)
        return Settings.load(known | environ)

    return make


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    """The shipped settings over this test's servers."""
    return make_settings()
