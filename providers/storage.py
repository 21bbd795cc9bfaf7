"""Our storage of result bytes: one small class over obstore, for a local folder, S3, GCS or Azure.

Keys are made by us (`result_folder`), so that no vendor and no caller ever names a path, and a second
write of the same result is the same object. A write is seen whole or not at all.

Invariant: a process uses storage only if its parent did not before the fork. obstore hangs for ever
in a child that was forked after the parent's first call (measured, 0.12.1; a local folder too, when
it streams), with the inherited store and with a new one alike; here that is an error instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import AzureStore, GCSStore, LocalStore, S3Store, from_url

if TYPE_CHECKING:
    from obstore.store import ObjectStore

CHUNK_BYTES = 1_048_576
_PART_BYTES = 5 * 1_048_576  # S3's smallest part
_PARTS_AT_ONCE = 2  # bounds the memory of one upload to about 15 MB

_used_by: list[int] = []  # the process that used obstore first; empty before


class StorageError(Exception):
    """Our storage did not do what it should; nothing is half-written. Trying again may help."""


class NotStoredError(StorageError):
    """There is no object of that key."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What was written: size in bytes and SHA-256 in lower-case hex."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An object being read: its whole size, and the chunks of the part that was asked for."""

    size_bytes: int
    chunks: Iterator[bytes]


def result_folder(task_id: str, attempt: int | None, made_at: datetime) -> str:
    """`results/<yyyy>/<mm>/<task id>/<attempt>`; without an attempt that of all of them.

    `made_at` is the task's creation, which never changes.
    """
    whole = f"results/{made_at:%Y}/{made_at:%m}/{task_id}"
    return whole if attempt is None else f"{whole}/{attempt}"


class Storage:
    """Objects under keys. Thread-safe. Nothing is opened before the first use.

    `url` is an obstore URL (s3://bucket/prefix, gs://, az://, file:///folder, memory://); empty:
    the folder `data_dir`. Raises StorageError from every method when the store fails.
    """

    def __init__(self, url: str, data_dir: Path) -> None:
        self._url, self._data_dir = url, data_dir
        self._store: ObjectStore | None = None

    def put_stream(self, key: str, chunks: Iterable[bytes], media_type: str) -> Stored:
        """Write `chunks` as one object; on any failure of theirs or ours nothing is seen of it."""
        digest, size = hashlib.sha256(), 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield chunk

        store = self._open()
        named = {"Content-Type": media_type} if self._keeps_attributes() else None
        with _translated(key):
            obstore.put(
                store,
                key,
                counted(),
                attributes=named,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )
        return Stored(bytes=size, sha256=digest.hexdigest())

    def put_bytes(self, key: str, content: bytes, media_type: str) -> Stored:
        """Write `content` as one object."""
        return self.put_stream(key, [content], media_type)

    def put_file(self, key: str, file: BinaryIO, media_type: str) -> Stored:
        """Write an open file, from its beginning, as one object."""
        file.seek(0)
        return self.put_stream(key, iter(lambda: file.read(CHUNK_BYTES), b""), media_type)

    def open(self, key: str, first: int = 0, last: int | None = None) -> Opened:
        """The object's bytes from `first` to `last`.

        Both are counted from 0 and inclusive, as HTTP ranges are. Raises NotStoredError when there
        is no such object, ValueError when the range lies outside of it.
        """
        with _translated(key):
            size = obstore.head(self._open(), key)["size"]
        end = size if last is None else min(last + 1, size)
        if size == 0 and first == 0:
            return Opened(size_bytes=0, chunks=iter(()))
        if not 0 <= first < end:
            message = f"range {first}-{last} lies outside of {size} bytes"
            raise ValueError(message)
        return Opened(size_bytes=size, chunks=self._chunks(key, first, end))

    def _chunks(self, key: str, first: int, end: int) -> Iterator[bytes]:
        with _translated(key):
            found = obstore.get(self._open(), key, options={"range": (first, end)})
            for chunk in found.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(chunk)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove these objects.

        One that is not there is no error, so that a second run is harmless.
        """
        for key in keys:
            try:
                with _translated(key):
                    obstore.delete(self._open(), key)
            except NotStoredError:
                continue

    def clear(self, folder: str) -> int:
        """Remove whatever lies in a folder; how many objects there were."""
        keys = [*self.list(folder)]
        self.delete(keys)
        return len(keys)

    def list(self, prefix: str) -> Iterator[str]:
        """Every key below `prefix`, a folder-like beginning such as `results/2026/11`."""
        with _translated(prefix):
            for page in obstore.list(self._open(), prefix):
                yield from (item["path"] for item in page)

    def signed_url(self, key: str, seconds: int) -> str | None:
        """A link that works without our key for so long.

        None where the store cannot sign (a local folder).
        """
        store = self._open()
        if not isinstance(store, S3Store | GCSStore | AzureStore):
            return None
        with _translated(key):
            return obstore.sign(store, "GET", key, timedelta(seconds=seconds))

    def _keeps_attributes(self) -> bool:
        return not isinstance(self._open(), LocalStore)

    def _open(self) -> ObjectStore:
        if not _used_by:
            _used_by.append(os.getpid())
        if os.getpid() not in _used_by:
            message = "storage was used before this process was forked; use it only after the fork"
            raise StorageError(message)
        if self._store is None:
            self._store = self._made()
        return self._store

    def _made(self) -> ObjectStore:
        if self._url and not self._url.startswith("file:"):
            return from_url(self._url)
        folder = Path(self._url.removeprefix("file://")) if self._url else self._data_dir
        return LocalStore(folder.absolute(), mkdir=True)


@contextlib.contextmanager
def _translated(key: str) -> Iterator[None]:
    """The library's exceptions -> ours, naming the key."""
    try:
        yield
    except (FileNotFoundError, NotFoundError):
        message = f"{key}: not stored"
        raise NotStoredError(message) from None
    except (BaseError, OSError, ValueError, NotImplementedError) as exc:  # ValueError: a bad path
        message = f"{key}: the storage failed ({type(exc).__name__})"
        raise StorageError(message) from exc
