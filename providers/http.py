"""The one door to `requests` and `tenacity`.

A call to a vendor's API ends in an Answer or a ProviderError.

What happened is told by the socket, not by the exception: a connection notes when it dialled and
when it handed over the first byte of the request. A reset, a TLS failure or a time-out before that
byte is NOT_SENT; after it, the very same exception is doubt. (requests says ReadTimeout for a TLS
handshake that hangs, and the same ConnectionError for a reset before and after the request.)

    submit   on a connection of its own, repeated only when surely not sent
    read     on pooled connections, repeated within bounds: a question costs nothing
    once     on pooled connections, never repeated

It keeps no state but connections, decides nothing about tasks, and never logs.
"""

from __future__ import annotations

import contextlib
import http.client
import http.cookiejar
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

import requests
import tenacity
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError as Urllib3Error
from urllib3.exceptions import ReadTimeoutError

from models.backoff import retry_delay
from models.failures import FAILURES, FailureKind
from models.settings import ProviderSettings, Retries
from providers.calls import RetryBudget, note, until
from providers.gate import earn_retry, may_retry, passing
from providers.port import Call, ProviderError
from providers.verdicts import RETRY_AFTER_MAX_S, Dialect, clean, kind_of, read_json, retry_after_s
from providers.wire import POOLS, Wire, current

ANSWER_MAX_BYTES = 4_000_000
CHUNK_BYTES = 65_536
USER_AGENT = "weir"
INLINE_WAIT_MAX_S = 5.0  # a Retry-After up to this is waited for inside a read; a longer one is the row's matter
CONCURRENT_MAX = 100  # calls of one process to one provider at one moment
POOL_WIDTH = 16

# Whatever the libraries raise for what a wire or a peer did. ValueError: a header or a host that
# cannot be encoded.
FOREIGN = (requests.RequestException, Urllib3Error, http.client.HTTPException, OSError, ValueError)


class NotingAdapter(HTTPAdapter):
    """A transport that notes what became of each request and repeats nothing by itself."""

    def init_poolmanager(self, *args: object, **kwargs: object) -> None:
        """With pools whose connections note."""
        super().init_poolmanager(*args, **kwargs)  # type: ignore[arg-type]  # passed through
        self.poolmanager.pool_classes_by_scheme = POOLS


def session() -> requests.Session:
    """A session that knows no proxy, .netrc or cookie of this host."""
    made = requests.Session()
    made.trust_env = False
    made.headers.clear()
    made.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    for scheme in ("http://", "https://"):
        made.mount(scheme, NotingAdapter(pool_maxsize=POOL_WIDTH))
    return made


def get_request(url: str, headers: Mapping[str, str]) -> requests.PreparedRequest:
    """A GET of `url` with these headers and no others."""
    return requests.Request("GET", url, headers=dict(headers)).prepare()


@contextlib.contextmanager
def on_wire(at: Wire) -> Iterator[None]:
    """Make `at` the current wire and turn every foreign exception inside into a ProviderError.

    Raises ProviderError. The foreign exception is dropped: its text carries links.
    """
    try:
        with current(at):
            yield
    except FOREIGN as exc:
        raise ProviderError(kind_of_exception(exc, at), _words(exc)) from None


# Raised before a connection is chosen; believed only where no connection says otherwise.
_BEFORE_ANY_BYTE = (
    requests.ConnectTimeout,
    requests.URLRequired,
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidHeader,
    requests.exceptions.ProxyError,
    requests.exceptions.UnrewindableBodyError,
    UnicodeError,
)


def kind_of_exception(exc: BaseException, at: Wire) -> FailureKind:
    """The kind of failure that a foreign exception is. Total.

    NOT_SENT when the connection dialled and never came to sending, or when the exception belongs to
    the time before any connection. Otherwise the request may have arrived.
    """
    if not at.sent and (at.dialled or isinstance(exc, _BEFORE_ANY_BYTE)):
        return FailureKind.NOT_SENT
    inner = exc.args[0] if exc.args else None
    if isinstance(exc, requests.Timeout | TimeoutError) or isinstance(inner, ReadTimeoutError):
        return FailureKind.READ_TIMEOUT
    return FailureKind.UNREADABLE


def _words(exc: BaseException) -> str:
    """What went wrong, by the name of its cause; the text may hold a link."""
    inner = exc.args[0] if exc.args else None
    cause = getattr(inner, "reason", inner)
    return f"The connection failed: {type(cause if isinstance(cause, Exception) else exc).__name__}."


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One call to make.

    `body`: JSON to be, or bytes that go out as they are. `receipts`: whom it asks about. `bodiless`: a 2xx without a
    body is an answer too; never for a submit.
    """

    operation: str  # submit, observe, cancel, find, check
    path: str
    method: str = "GET"
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, object] | bytes | None = field(default=None, repr=False)
    receipts: tuple[str, ...] = ()
    bodiless: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A readable answer that is no failure.

    `fields` is its JSON object, empty for a list (see `items`).
    """

    status: int
    fields: Mapping[str, object] = field(default_factory=dict)
    items: tuple[object, ...] = ()
    request_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class _Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def request_id(self) -> str | None:
        found = read_json(self.body)
        named = found.get("request_id") if isinstance(found, Mapping) else None
        return clean(named or self.headers.get("x-request-id")) or None


class Http:
    """Calls to one provider's API.

    Thread-safe; connections are opened on first use, after the fork.

    `headers` carry the credential and go to `settings.base_url` only, since no redirect is
    followed. `secrets` are masked in every message. `answer_max_bytes` bounds one answer.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        dialect: Dialect,
        *,
        headers: Mapping[str, str] | None = None,
        secrets: tuple[str, ...] = (),
        retries: Retries | None = None,
        answer_max_bytes: int = ANSWER_MAX_BYTES,
    ) -> None:
        self._settings, self._dialect, self._secrets = settings, dialect, secrets
        self._headers = {"User-Agent": USER_AGENT, "Accept": "application/json", **(headers or {})}
        self._retries = retries or Retries()
        self._max_bytes = answer_max_bytes
        self._pooled = session()
        self._budget = RetryBudget()
        self._places = threading.BoundedSemaphore(CONCURRENT_MAX)

    def submit(self, ask: Ask, *, synchronous: bool = False) -> Answer:
        """Send a paid request. Raises ProviderError.

        On a connection of its own: a pooled one may be one that the server is just closing, which
        turns a sure "not sent" into doubt. Repeated `retries.async_submit` (or `sync_submit`)
        times, only when surely not sent.
        """
        repeats = self._retries.sync_submit if synchronous else self._retries.async_submit

        def attempt() -> Answer:
            with session() as fresh:
                return self._attempt(ask, fresh, submit=True)

        return self._repeated(attempt, repeats, lambda exc: exc.kind is FailureKind.NOT_SENT)

    def read(self, ask: Ask) -> Answer:
        """Ask a question, again up to `retries.reads` times where there was no definite answer.

        Raises ProviderError.
        """
        return self._repeated(lambda: self.once(ask), self._retries.reads, _worth_asking_again)

    def once(self, ask: Ask) -> Answer:
        """Make a call that is not paid for, once. Raises ProviderError."""
        return self._attempt(ask, self._pooled, submit=False)

    def _repeated(self, attempt: Callable[[], Answer], repeats: int, worth: Callable[[ProviderError], bool]) -> Answer:
        def enough(state: tenacity.RetryCallState) -> bool:
            late = time.monotonic() + state.upcoming_sleep >= until()
            spent = not (self._budget.take() and may_retry())
            return state.attempt_number > repeats or late or spent

        self._budget.earn()
        earn_retry()
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda exc: isinstance(exc, ProviderError) and worth(exc)),
            wait=_pause_s,
            stop=enough,
            reraise=True,
        )
        return again(attempt)

    def _attempt(self, ask: Ask, on: requests.Session, *, submit: bool) -> Answer:
        """One wire call through the gate, recorded; one that is held is none."""
        with passing(ask.operation):
            return self._recorded(ask, on, submit=submit)

    def _recorded(self, ask: Ask, on: requests.Session, *, submit: bool) -> Answer:
        started_at_s, clock = time.time(), time.monotonic()

        def noted(answer: Answer | None, failure: ProviderError | None) -> None:
            status = answer.status if answer else failure.http_status if failure else None
            note(
                Call(
                    operation=ask.operation,
                    started_at_s=started_at_s,
                    ms=round((time.monotonic() - clock) * 1000),
                    verdict=failure.kind.value if failure else "ok",
                    http_status=status,
                    receipts=ask.receipts,
                    error=str(failure) if failure else None,
                    request_id=answer.request_id if answer else None,
                )
            )

        try:
            answer = self._judged(self._exchange(ask, on, submit=submit), submit=submit, bodiless=ask.bodiless)
        except ProviderError as exc:
            noted(None, exc)
            raise
        noted(answer, None)
        return answer

    def _exchange(self, ask: Ask, on: requests.Session, *, submit: bool) -> _Reply:
        read_s = self._settings.submit_read_s if submit else self._settings.query_read_s
        at = Wire(idle_s=read_s, total_s=read_s, until=until())
        sent = ask.body
        if isinstance(sent, Mapping):
            sent = json.dumps(sent, allow_nan=False).encode()
        if not self._places.acquire(blocking=False):
            raise ProviderError(FailureKind.HELD, "Too many calls to the provider at once.", retry_after_s=1.0)
        try:
            with on_wire(at):
                prepared = self._prepared(ask, sent)
                timeout = (min(self._settings.connect_s, at.left_s()), read_s)
                with on.send(prepared, stream=True, timeout=timeout, allow_redirects=False) as response:
                    body = limited(response, self._max_bytes)
                    return _Reply(response.status_code, response.headers, body)
        finally:
            self._places.release()

    def _prepared(self, ask: Ask, body: bytes | None) -> requests.PreparedRequest:
        url = self._settings.base_url.rstrip("/") + ask.path
        query = f"?{urlencode(ask.params)}" if ask.params else ""
        headers = {**self._headers, **ask.headers}
        if isinstance(ask.body, Mapping):
            headers["Content-Type"] = "application/json"
        if ask.operation == "submit":
            headers["Connection"] = "close"
        return requests.Request(ask.method, url + query, headers=headers, data=body).prepare()

    def _judged(self, reply: _Reply, *, submit: bool, bodiless: bool = False) -> Answer:
        silent = bodiless and not reply.body and 200 <= reply.status < 300
        found = {} if silent else read_json(reply.body)
        fields = found if isinstance(found, Mapping) else {}
        error = self._dialect.error_of(fields)
        kind = kind_of(reply.status, error, self._dialect.codes, readable=found is not None, submit=submit)
        if kind is not None:
            media_type = clean(reply.headers.get("content-type", "no content type").partition(";")[0])
            words = clean(error.message, self._secrets) if error else ""
            wait_s = retry_after_s(reply.headers, time.time())
            if wait_s is None and error and error.retry_after_s is not None:
                wait_s = min(RETRY_AFTER_MAX_S, max(0.0, error.retry_after_s))
            raise ProviderError(
                kind,
                words or f"The provider answered HTTP {reply.status}, {media_type}.",
                upstream_code=clean(error.code, self._secrets)[:100] or None if error else None,
                http_status=reply.status,
                retry_after_s=wait_s,
            )
        items = tuple(found) if isinstance(found, list) else ()
        return Answer(
            status=reply.status,
            fields=fields,
            items=items,
            request_id=reply.request_id(),
            headers=reply.headers,
        )


def limited(response: requests.Response, max_bytes: int) -> bytes:
    """The body, decoded. Raises ProviderError UNREADABLE when it is above `max_bytes`."""
    parts, size = [], 0
    for part in response.iter_content(CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            message = f"The provider's answer is larger than {max_bytes:,} bytes."
            raise ProviderError(FailureKind.UNREADABLE, message, http_status=response.status_code)
    return b"".join(parts)


def _worth_asking_again(exc: ProviderError) -> bool:
    facts = FAILURES[exc.kind]
    if exc.kind is FailureKind.HELD:
        return False
    return (facts.repeat or not facts.certain) and (exc.retry_after_s or 0) <= INLINE_WAIT_MAX_S


def _pause_s(state: tenacity.RetryCallState) -> float:
    """Seconds before the next try: the vendor's word and a little, else our own growing delay."""
    exc = state.outcome.exception() if state.outcome else None
    jitter = random.random()  # noqa: S311  spreads load, guards nothing
    asked_s = exc.retry_after_s if isinstance(exc, ProviderError) else None
    return retry_delay(state.attempt_number - 1, jitter) if asked_s is None else asked_s + jitter / 2
