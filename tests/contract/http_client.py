"""A client with short limits over a scripted server, shared by the tests of providers/http.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from models.failures import FAILURES, FailureKind
from models.settings import ProviderSettings, Retries
from providers.http import Answer, Ask, Http
from providers.port import ProviderError
from providers.verdicts import (
    Dialect,
    VendorError,
)
from tests.contract.raw_server import Conn, Script

K = FailureKind
KEY = "sk-1234567890abcdefghij"
ERROR = b'{"code": "InvalidParameter", "message": "size"}'
DOUBT = {kind for kind, facts in FAILURES.items() if not facts.certain}


def _error_of(fields: object) -> VendorError | None:
    if isinstance(fields, dict) and fields.get("code"):
        return VendorError(str(fields["code"]), str(fields.get("message", "")))
    return None


DIALECT = Dialect(
    codes={
        "InvalidParameter": K.INVALID_PARAMETER,
        "Busy": K.OVERLOADED,
        "Throttling": K.RATE_LIMITED,
    },
    error_of=_error_of,
)


def make(url: str, *, reads: int = 0, async_submit: int = 0, **changes: object) -> Http:
    given_settings = {
        "adapter": "test",
        "base_url": url,
        "connect_s": 1.0,
        "submit_read_s": 0.4,
        "query_read_s": 0.4,
        **changes,
    }
    return Http(
        ProviderSettings(**given_settings),  # type: ignore[arg-type]  # a test's own keywords
        DIALECT,
        headers={"Authorization": f"Bearer {KEY}"},
        secrets=(KEY,),
        retries=Retries(reads=reads, async_submit=async_submit),
    )


SUBMIT = Ask(operation="submit", method="POST", path="/jobs", body={"prompt": "x"})
READ = Ask(operation="observe", path="/jobs/1", receipts=("1",))
CALLS: dict[str, Callable[[Http], Answer]] = {
    "submit": lambda http: http.submit(SUBMIT),
    "read": lambda http: http.read(READ),
}
both = pytest.mark.parametrize("call", CALLS)


def fails(http: Http, call: str) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        CALLS[call](http)
    return caught.value


def answered(status: str, body: bytes, headers: str = "") -> Script:
    """A whole JSON answer to one request."""

    def script(conn: Conn) -> None:
        conn.request()
        conn.answer(body, status, "Content-Type: application/json\r\n" + headers)

    return script
