"""Downloads with settings of a test's own, shared by the tests of providers/fetch.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from models.contract import Kind
from models.lifecycle import Output
from models.settings import ProviderSettings, Results
from providers.fetch import Downloads, Fetched
from providers.port import ProviderError
from tests.contract.raw_server import Conn, Script
from tests.contract.test_storage import picture

PNG = picture("PNG")
NOWHERE = "http://127.0.0.1:1"
HIDDEN = "The result could not be fetched from the provider."


def served(body: bytes = PNG, status: str = "200 OK", headers: str = "") -> Script:
    def script(conn: Conn) -> None:
        conn.request()
        conn.answer(body, status, headers)

    return script


class Puller:
    """Downloads with settings of a test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pull(  # noqa: PLR0913  what a test may vary
        self,
        url: str,
        kind: Kind = Kind.IMAGE,
        *,
        home: str = NOWHERE,
        hosts: tuple[str, ...] = (),
        allowed: tuple[str, ...] = (),
        headers: dict[str, str] | None = None,
        look: Callable[[Fetched], object] = lambda _: None,
        **limits: object,
    ) -> Fetched:
        provider = ProviderSettings(base_url=home, result_hosts=hosts, connect_s=1.0)
        results = Results(allowed_networks=allowed, **limits)  # type: ignore[arg-type]  # a test's own keywords
        with Downloads(results, self.folder).fetched(provider, Output(url=url), kind, headers) as got:
            look(got)
            return got

    def fails(self, url: str, kind: Kind = Kind.IMAGE, **how: object) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            self.pull(url, kind, **how)  # type: ignore[arg-type]  # same
        return caught.value
