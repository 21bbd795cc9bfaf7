"""Our storage of result bytes, and what a file really is."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import av
import pytest
from av.container import InputContainer
from av.video.stream import VideoStream
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from models.contract import Kind
from models.failures import FailureKind
from providers.media import PIXELS_MAX, Media, inspect
from providers.port import ProviderError
from providers.storage import NotStoredError, Storage, StorageError, result_folder

KEY = "results/2026/11/task_x/0.png"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage("", tmp_path)


# --- storage ---


def test_key_is_made_of_month_task_and_place() -> None:
    made_at = datetime(2026, 3, 4, tzinfo=UTC)
    assert result_folder("task_x", 2, made_at) == "results/2026/03/task_x/2"
    assert result_folder("task_x", None, made_at) == "results/2026/03/task_x"


@pytest.mark.parametrize("url", ["", "memory://", "file"])
def test_object_comes_back_as_it_was_written(url: str, tmp_path: Path) -> None:
    store = Storage(f"file://{tmp_path}/there" if url == "file" else url, tmp_path)
    content = os.urandom(3_000_000)
    stored = store.put_stream(KEY, iter([content[:1], content[1:]]), "image/png")
    assert (stored.bytes, stored.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    opened = store.open(KEY)
    assert opened.size_bytes == len(content)
    assert b"".join(opened.chunks) == content
    assert store.put_file(KEY, io.BytesIO(content), "image/png") == stored
    assert store.put_bytes(KEY, content, "image/png") == stored
    assert list(store.list("results")) == [KEY]


@pytest.mark.parametrize(
    ("first", "last", "part"),
    [(0, 0, b"0"), (2, 4, b"234"), (8, None, b"89"), (8, 99, b"89"), (0, None, b"0123456789")],
)
def test_range_counts_as_http_does(storage: Storage, first: int, last: int | None, part: bytes) -> None:
    storage.put_bytes(KEY, b"0123456789", "image/png")
    opened = storage.open(KEY, first, last)
    assert opened.size_bytes == 10
    assert b"".join(opened.chunks) == part


@pytest.mark.parametrize(("first", "last"), [(10, None), (5, 4), (-1, None)])
def test_range_outside_is_refused(storage: Storage, first: int, last: int | None) -> None:
    storage.put_bytes(KEY, b"0123456789", "image/png")
    with pytest.raises(ValueError, match="outside"):
        storage.open(KEY, first, last)


def test_empty_object_is_an_object(storage: Storage) -> None:
    storage.put_bytes(KEY, b"", "image/png")
    assert b"".join(storage.open(KEY).chunks) == b""


def test_half_written_object_is_never_seen(storage: Storage, tmp_path: Path) -> None:
    def breaking() -> Iterator[bytes]:
        for _ in range(12):
            yield b"x" * 1_000_000
            assert not (tmp_path / KEY).exists()
        raise ProviderError(FailureKind.RESULT_UNAVAILABLE)

    with pytest.raises(ProviderError):
        storage.put_stream(KEY, breaking(), "image/png")
    assert list(storage.list("results")) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_second_write_is_the_same_object(storage: Storage) -> None:
    storage.put_bytes(KEY, b"old and longer", "image/png")
    storage.put_bytes(KEY, b"new", "image/png")
    assert b"".join(storage.open(KEY).chunks) == b"new"


def test_missing_object_is_said_so(storage: Storage) -> None:
    with pytest.raises(NotStoredError, match=KEY):
        storage.open(KEY)


def test_delete_is_harmless_when_repeated(storage: Storage) -> None:
    storage.put_bytes(KEY, b"x", "image/png")
    storage.put_bytes("results/2026/11/task_y/0.png", b"x", "image/png")
    for _ in range(2):
        storage.delete([KEY, "results/none.png"])
    assert list(storage.list("results")) == ["results/2026/11/task_y/0.png"]


@pytest.mark.parametrize("key", ["../out.png", "results/../../out.png", "results/./x"])
def test_key_cannot_leave_the_folder(storage: Storage, tmp_path: Path, key: str) -> None:
    with pytest.raises(StorageError):
        storage.put_bytes(key, b"x", "image/png")
    assert not (tmp_path.parent / "out.png").exists()


def test_local_folder_and_memory_cannot_sign(storage: Storage, tmp_path: Path) -> None:
    assert storage.signed_url(KEY, 60) is None
    assert Storage("memory://", tmp_path).signed_url(KEY, 60) is None


def test_object_store_signs_a_link_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "eu-x",
    }.items():
        monkeypatch.setenv(name, value)
    link = Storage("s3://bucket/prefix", tmp_path).signed_url(KEY, 60)
    assert link is not None
    assert f"/prefix/{KEY}?" in link
    assert "X-Amz-Expires=60" in link
    assert "secret" not in link


def test_folder_that_cannot_be_written_is_our_failure(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file where a folder must be")
    with pytest.raises(StorageError, match="task_x"):
        Storage("", tmp_path).put_bytes(KEY, b"x", "image/png")


FORKED = """
import os, sys
from pathlib import Path
from providers.storage import Storage, StorageError
used, url = sys.argv[1] == "used", sys.argv[2]
parent = Storage(url, Path(sys.argv[3]))
if used:
    parent.put_bytes("a/b", b"x", "image/png")
pid = os.fork()
if pid == 0:
    code = 0
    for store in (parent, Storage(url, Path(sys.argv[3]))):
        try:
            store.put_bytes("a/c", b"x", "image/png")
        except StorageError as exc:
            code = 3 if "fork" in str(exc) else 4
    os._exit(code)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize(
    ("used", "url", "code"),
    [("used", "memory://", 3), ("used", "", 3), ("unused", "memory://", 0), ("unused", "", 0)],
)
def test_storage_used_before_a_fork_is_refused_after_it_and_does_not_hang(
    used: str, url: str, code: int, tmp_path: Path
) -> None:
    arguments = [sys.executable, "-c", FORKED, used, url, str(tmp_path)]
    assert subprocess.run(arguments, check=False, timeout=60).returncode == code


# --- media ---


def picture(name: str, size: tuple[int, int] = (48, 32)) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(file, name)
    return file.getvalue()


def clip(
    form: str = "mp4",
    codec: str = "mpeg4",
    seconds: int = 2,
    size: tuple[int, int] = (64, 48),
    **options: str,
) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"clip.{form}"
        _encode(path, form, codec, seconds, size, options)
        return path.read_bytes()


def _encode(path: Path, form: str, codec: str, seconds: int, size: tuple[int, int], options: dict[str, str]) -> None:
    with av.open(str(path), "w", format=form, options=options) as container:
        stream = container.add_stream(codec, rate=8)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for n in range(8 * seconds):
            still = Image.new("RGB", size, (n * 9 % 255, 20, 90))
            frame = av.VideoFrame.from_image(still)  # type: ignore[no-untyped-call]  # Pillow's is
            frame.pts, frame.time_base = n, Fraction(1, 8)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def look(content: bytes, kind: Kind = Kind.IMAGE) -> Media:
    return inspect(io.BytesIO(content), kind)


def refused(content: bytes, kind: Kind = Kind.IMAGE) -> str:
    with pytest.raises(ProviderError) as caught:
        look(content, kind)
    assert caught.value.kind is FailureKind.RESULT_INVALID
    return str(caught.value)


PICTURES = {
    "PNG": ("image/png", "png"),
    "JPEG": ("image/jpeg", "jpg"),
    "WEBP": ("image/webp", "webp"),
    "GIF": ("image/gif", "gif"),
    "AVIF": ("image/avif", "avif"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_what_its_bytes_say(name: str) -> None:
    media_type, extension = PICTURES[name]
    found = look(picture(name))
    assert found == Media(media_type=media_type, extension=extension, width=48, height=32)


@pytest.mark.parametrize("name", PICTURES)
def test_picture_that_was_cut_is_noticed_wherever(name: str) -> None:
    whole = picture(name)
    for length in {*range(1, len(whole) - 2, max(1, len(whole) // 60)), len(whole) - 2}:
        refused(whole[:length])


def test_gif_that_was_cut_behind_a_semicolon_is_no_whole_one() -> None:
    whole = picture("GIF", (200, 200))  # enough noise for its trailer's byte to be in the pixels too
    cuts = [n + 1 for n in range(len(whole) - 1) if whole[n] == ord(";")]
    assert cuts
    for length in cuts:
        refused(whole[:length])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html><body>expired</body></html>",
        b'{"code": "AccessDenied"}',
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7",
        b"BM" + b"\0" * 100,
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"\0" * 4096,
        b"\0\0\0\x08ftyp",
    ],
    ids=range(10),
)
@pytest.mark.parametrize("kind", Kind)
def test_what_is_no_media_is_refused_without_repeating_it(content: bytes, kind: Kind) -> None:
    assert "expired" not in refused(content, kind)


def _bomb(width: int, height: int) -> bytes:
    """A small PNG that says it is huge."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(30_000, 30_000), (10_000, 8_001), (2**31 - 1, 1)])
def test_picture_bomb_is_refused_undecoded(width: int, height: int) -> None:
    refused(_bomb(width, height))


def test_largest_picture_is_taken() -> None:
    assert look(_bomb(10_000, 8_000)).width * 8_000 == PIXELS_MAX


def test_still_is_no_clip_and_a_clip_no_still() -> None:
    assert "image/png" in refused(picture("PNG"), Kind.VIDEO)
    assert "video/mp4" in refused(clip(), Kind.IMAGE)


@pytest.mark.parametrize(
    ("form", "codec", "media_type", "extension"),
    [
        ("mp4", "mpeg4", "video/mp4", "mp4"),
        ("mp4", "libx264", "video/mp4", "mp4"),
        ("mov", "mpeg4", "video/quicktime", "mov"),
        ("webm", "libvpx", "video/webm", "webm"),
    ],
)
def test_clip_is_measured_as_ffmpeg_measures_it(form: str, codec: str, media_type: str, extension: str) -> None:
    content = clip(form, codec)
    with av.open(io.BytesIO(content), "r") as opened:
        assert isinstance(opened, InputContainer)
        assert opened.duration is not None
        seconds = opened.duration / 1_000_000
    found = look(content, Kind.VIDEO)
    assert (found.media_type, found.extension, found.width, found.height) == (
        media_type,
        extension,
        64,
        48,
    )
    assert found.duration_s == pytest.approx(seconds, abs=0.15)


def test_clip_with_its_index_in_front_is_measured() -> None:
    found = look(clip(movflags="faststart"), Kind.VIDEO)
    assert (found.width, found.duration_s) == (64, 2.0)


def test_fragmented_clip_is_a_clip() -> None:
    found = look(clip(movflags="frag_keyframe+empty_moov"), Kind.VIDEO)
    assert (found.width, found.height) == (64, 48)


@pytest.mark.parametrize("form", ["mp4", "webm"])
def test_clip_that_was_cut_is_noticed_wherever(form: str) -> None:
    whole = clip(form, "mpeg4" if form == "mp4" else "libvpx")
    for length in {*range(1, len(whole) - 1, max(1, len(whole) // 60)), len(whole) - 1}:
        refused(whole[:length], Kind.VIDEO)


@pytest.mark.parametrize("form", ["mp4", "webm"])
@settings(max_examples=150, deadline=2000)
@given(flips=st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), max_size=12))
def test_damaged_clip_is_judged_and_never_breaks_the_judge(form: str, flips: list[tuple[int, int]]) -> None:
    content = bytearray(_CLIPS[form])
    for at, byte in flips:
        content[at % len(content)] = byte
    try:
        found = look(bytes(content), Kind.VIDEO)
    except ProviderError as exc:
        assert exc.kind is FailureKind.RESULT_INVALID
    else:
        assert 0 < found.width * found.height <= PIXELS_MAX


@pytest.mark.parametrize("name", PICTURES)
@settings(max_examples=60, deadline=2000)
@given(flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=12))
def test_damaged_picture_is_judged_and_never_breaks_the_judge(name: str, flips: list[tuple[int, int]]) -> None:
    content = bytearray(_PICTURES[name])
    for at, byte in flips:
        content[at % len(content)] = byte
    try:
        look(bytes(content))
    except ProviderError as exc:
        assert exc.kind is FailureKind.RESULT_INVALID


_CLIPS = {"mp4": clip(movflags="faststart"), "webm": clip("webm", "libvpx")}
_PICTURES = {name: picture(name) for name in PICTURES}
