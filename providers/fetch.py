"""Bringing a result home: from a vendor's link to checked bytes in a temporary file.

A link is a vendor's word and not believed. Where it may lead:

    the provider's own host (host and port of `base_url`), its `result_hosts`   as they are
    networks listed in `results.allowed_networks`                               http or https
    any other host                                                              https, public only

"Public" is decided about the address that is connected to, by microsoft-antissrf: every address of
the name is checked and the checked one is dialled. At most three redirects are followed, each
judged anew. Our credential goes to the provider's own host only, and only when the adapter asks.

Every failure is a ProviderError: RESULT_UNAVAILABLE (another try may help) or RESULT_INVALID (what
came is no result). One wording for "private", "does not resolve" and "refused", so that nobody can
use us as a port scanner.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from urllib.parse import urljoin, urlsplit

from AntiSSRF._antissrf_agent import (  # type: ignore[import-untyped]  # the library ships no types
    _AntiSSRFAdapter,
)
from AntiSSRF.antissrf_error import AntiSSRFError  # type: ignore[import-untyped]  # same
from AntiSSRF.antissrf_policy import (  # type: ignore[import-untyped]  # same
    AntiSSRFPolicy,
    PolicyConfigOptions,
)

from models.failures import FailureKind
from models.fields import Kind
from models.lifecycle import Output
from models.settings import ProviderSettings, Results
from providers.calls import note, until
from providers.gate import passing
from providers.http import CHUNK_BYTES, USER_AGENT, NotingAdapter, get_request, on_wire, session
from providers.media import Media, inspect
from providers.port import Call, ProviderError
from providers.storage import StorageError
from providers.wire import Wire

if TYPE_CHECKING:
    import requests

REDIRECTS_MAX = 3
URL_MAX = 8192  # signed links with a session token pass 2,048 characters
IDLE_S = 30.0  # longest silence within a download
_LOW_PORTS = frozenset({80, 443})
_HIGH_PORT = 1024
_SCHEMES = {"http": 80, "https": 443}
_REDIRECT = frozenset({301, 302, 303, 307, 308})
_NETLOC = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_EXACT = re.compile(r"[!-~]+")  # printable ASCII: can go out byte for byte
_UNAVAILABLE = "The result could not be fetched from the provider."


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A result on this host.

    `file` is open, at its beginning, and gone when the `with` ends. `sha256` in hex.
    """

    file: BinaryIO
    media: Media
    bytes: int
    sha256: str


class Place(NamedTuple):
    """Where a link leads. `host` in lower case, IPv6 without brackets."""

    scheme: str
    host: str
    port: int


class Downloads:
    """Downloads for one process.

    Thread-safe; temporary files lie in `data_dir`/tmp and have no name.

    They are removed by the kernel when closed, also when the process is killed.
    """

    def __init__(self, results: Results, data_dir: Path) -> None:
        self._results, self._folder = results, data_dir / "tmp"

    @contextlib.contextmanager
    def fetched(
        self,
        provider: ProviderSettings,
        output: Output,
        kind: Kind,
        own_headers: Mapping[str, str] | None = None,
    ) -> Iterator[Fetched]:
        """The bytes of `output`, whole, within the limits of size and time, and really a `kind`.

        `own_headers` (a credential) are sent only to the provider's own host. Memory stays flat.
        Raises ProviderError.
        """
        most = self._results.image_max_bytes if kind is Kind.IMAGE else self._results.video_max_bytes
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            if output.content is not None:
                written = _written(file, iter((output.content,)), most)
            else:
                written = self._downloaded(provider, output.url or "", own_headers or {}, file, most)
            media = inspect(file, kind)
            file.seek(0)
            yield Fetched(file=file, media=media, bytes=written.bytes, sha256=written.sha256)

    def _downloaded(
        self,
        provider: ProviderSettings,
        url: str,
        own_headers: Mapping[str, str],
        file: BinaryIO,
        most: int,
    ) -> _Written:
        """One recorded download, its redirects included."""
        started_at_s, clock = time.time(), time.monotonic()
        end = min(until(), clock + self._results.fetch_s)

        def noted(failure: ProviderError | None) -> None:
            note(
                Call(
                    operation="fetch",
                    started_at_s=started_at_s,
                    ms=round((time.monotonic() - clock) * 1000),
                    verdict=failure.kind.value if failure else "ok",
                    http_status=failure.http_status if failure else 200,
                    error=str(failure) if failure else None,
                )
            )

        try:
            with passing("fetch"):
                written = self._followed(provider, url, own_headers, (file, most, end))
        except ProviderError as exc:
            noted(exc)
            raise
        noted(None)
        return written

    def _followed(
        self,
        provider: ProviderSettings,
        url: str,
        own_headers: Mapping[str, str],
        into: tuple[BinaryIO, int, float],
    ) -> _Written:
        home = place_of(provider.base_url)
        for _ in range(REDIRECTS_MAX + 1):
            place = place_of(url)
            trusted = place[1:] == home[1:] or _listed(place, provider.result_hosts)
            if not trusted and place.port < _HIGH_PORT and place.port not in _LOW_PORTS:
                raise _unavailable()
            headers = dict(own_headers) if place == home else {}
            found = self._one(url, place, headers, provider.connect_s, into, trusted=trusted)
            if isinstance(found, _Written):
                return found
            url = urljoin(url, found)
        raise _unavailable("The result's link redirects too often.")

    def _one(
        self,
        url: str,
        place: Place,
        headers: dict[str, str],
        connect_s: float,
        into: tuple[BinaryIO, int, float],
        *,
        trusted: bool,
    ) -> _Written | str:
        """One hop: the bytes, or where it redirects to."""
        file, most, end = into
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        wire = Wire(
            idle_s=IDLE_S,
            total_s=self._results.fetch_s,
            until=end,
            target=target if _EXACT.fullmatch(target) else None,
        )
        sent = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity", **headers}
        with _as_result(), on_wire(wire):
            request = get_request(url, sent)
            if place_of(request.url or "") != place:
                raise _unavailable()
            with (self._trusting if trusted else self._guarded).send(
                request,
                stream=True,
                timeout=(min(connect_s, wire.left_s()), IDLE_S),
                allow_redirects=False,
            ) as response:
                location = response.headers.get("Location")
                if response.status_code in _REDIRECT and location:
                    return location
                return _saved(response, file, most)

    @cached_property
    def _trusting(self) -> requests.Session:
        return session()

    @cached_property
    def _guarded(self) -> requests.Session:
        made = session()
        allowed = self._results.allowed_networks
        made.mount("https://", _Guard(_policy(allowed, PolicyConfigOptions.EXTERNAL_ONLY_LATEST)))
        made.mount("http://", _Guard(_policy(allowed, PolicyConfigOptions.INTERNAL_ONLY)))
        return made


def _policy(allowed: tuple[str, ...], config: PolicyConfigOptions) -> AntiSSRFPolicy:
    """Plain http is for listed networks only.

    INTERNAL_ONLY denies every address that is not listed.
    """
    policy = AntiSSRFPolicy(config)
    if allowed:
        policy.add_allowed_addresses(list(allowed))
    policy.allow_plain_text_http = config is PolicyConfigOptions.INTERNAL_ONLY
    policy.add_xff_header = False
    return policy


class _Guard(NotingAdapter, _AntiSSRFAdapter):  # type: ignore[misc]  # the library ships no types
    """Dials checked addresses only.

    1.0.0 sends `Host` without the port, which breaks signatures and virtual hosts on other ports.
    """

    def build_connection_pool_key_attributes(  # type: ignore[no-untyped-def]  # noqa: ANN202  private types
        self,
        request: requests.PreparedRequest,
        verify,  # noqa: ANN001  a type that requests keeps to itself
        cert=None,  # noqa: ANN001  same
    ):
        found = super().build_connection_pool_key_attributes(request, verify, cert)
        request.headers["Host"] = urlsplit(request.url or "").netloc
        return found


@contextlib.contextmanager
def _as_result() -> Iterator[None]:
    """Whatever kept the bytes from coming -> RESULT_UNAVAILABLE, in one wording.

    Verdicts on bytes pass.
    """
    try:
        yield
    except AntiSSRFError:
        raise _unavailable() from None
    except ProviderError as exc:
        if exc.kind in (FailureKind.RESULT_INVALID, FailureKind.RESULT_UNAVAILABLE):
            raise
        slow = exc.kind is FailureKind.READ_TIMEOUT
        raise _unavailable("The result's download took too long." if slow else "") from None


def _unavailable(message: str = "", http_status: int | None = None) -> ProviderError:
    return ProviderError(FailureKind.RESULT_UNAVAILABLE, message or _UNAVAILABLE, http_status=http_status)


def place_of(url: str) -> Place:
    """Where `url` leads.

    Raises ProviderError for all that is not a plain http(s) link to a host and port.

    Names are ASCII, without userinfo, backslash or any sign on which two readers of a URL could
    differ.
    """
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname
        port = parts.port or _SCHEMES.get(scheme, 0)
    except ValueError:
        raise _unavailable() from None
    if scheme not in _SCHEMES or len(url) > URL_MAX or not _NETLOC.fullmatch(parts.netloc) or not host or not port:
        raise _unavailable()
    return Place(scheme, host, port)


def _listed(place: Place, hosts: tuple[str, ...]) -> bool:
    """Whether `hosts` names the place, as `host` (its scheme's own port) or `host:port`."""
    usual = _SCHEMES[place.scheme]
    return any(
        entry.lower() in {f"{place.host}:{place.port}", f"[{place.host}]:{place.port}"}
        or (entry.lower() == place.host and place.port == usual)
        for entry in hosts
    )


@dataclass(frozen=True, kw_only=True)
class _Written:
    bytes: int
    sha256: str


def _saved(response: requests.Response, file: BinaryIO, most: int) -> _Written:
    if response.status_code != 200:
        raise _unavailable(http_status=response.status_code)
    promised = response.headers.get("Content-Length", "")
    if promised.isascii() and promised.isdigit() and int(promised) > most:
        raise _too_large(most)
    return _written(file, response.iter_content(CHUNK_BYTES), most)


def _written(file: BinaryIO, parts: Iterator[bytes], most: int) -> _Written:
    digest, size = hashlib.sha256(), 0
    for part in parts:
        size += len(part)
        if size > most:
            raise _too_large(most)
        digest.update(part)
        _write(file, part)
    return _Written(bytes=size, sha256=digest.hexdigest())


def _write(file: BinaryIO, part: bytes) -> None:
    try:
        file.write(part)
    except OSError as exc:  # a full disk is ours, not the vendor's
        message = f"the temporary folder cannot be written ({exc.strerror})"
        raise StorageError(message) from exc


def _too_large(most: int) -> ProviderError:
    return ProviderError(FailureKind.RESULT_INVALID, f"The result is larger than the allowed {most:,} bytes.")
