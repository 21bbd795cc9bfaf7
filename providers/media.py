"""What a file really is.

Type, pixels and seconds, from its bytes and never from a header or a name.

Pictures go through Pillow's `verify` and a look at how the file ends (a JPEG that was cut passes
`verify`); they are never decoded, so that a picture bomb costs nothing. MP4, MOV and WebM are read
box by box: the boxes must fill the file, so that a stump is noticed, and only the few bytes that
hold sizes and times are read.

Every doubt is a ProviderError RESULT_INVALID; nothing of the file is repeated in its message.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from PIL import Image

from models.failures import FailureKind
from models.fields import Kind
from providers.port import ProviderError

PIXELS_MAX = 80_000_000  # of one picture or frame; Pillow itself warns from 89 million
_HEAD_BYTES = 64
_PARTS_MAX = 10_000  # boxes or elements looked at in one file
_DEPTH_MAX = 6


@dataclass(frozen=True, kw_only=True)
class Media:
    """What a file is. `duration_s` is None for pictures and for clips that do not say."""

    media_type: str
    extension: str
    width: int
    height: int
    duration_s: float | None = None


_PICTURES = {
    "PNG": ("image/png", "png"),
    "JPEG": ("image/jpeg", "jpg"),
    "WEBP": ("image/webp", "webp"),
    "GIF": ("image/gif", "gif"),
    "AVIF": ("image/avif", "avif"),
}
_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    OverflowError,
    RuntimeError,  # AVIF
    struct.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)


def inspect(file: BinaryIO, kind: Kind) -> Media:
    """What `file` (seekable, from its beginning) is.

    Raises ProviderError RESULT_INVALID if it is no good `kind`.
    """
    try:
        found = _inspected(file)
    except _BROKEN:
        raise _invalid("The file that the provider delivered is damaged or cut short.") from None
    if not found.media_type.startswith(f"{kind.value}/"):
        raise _invalid(f"The provider delivered {found.media_type} where {kind.value} was asked.")
    if found.width < 1 or found.height < 1 or found.width * found.height > PIXELS_MAX:
        raise _invalid(f"The result has {found.width} x {found.height} pixels, allowed are {PIXELS_MAX:,}.")
    return found


def _invalid(message: str) -> ProviderError:
    return ProviderError(FailureKind.RESULT_INVALID, message)


def _inspected(file: BinaryIO) -> Media:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    picture = _picture_format(head)
    if picture:
        return _picture(file, size, picture)
    if head[4:8] == b"ftyp":
        quick = head[8:12] == b"qt  "
        return _mp4(file, size, ("video/quicktime", "mov") if quick else ("video/mp4", "mp4"))
    if head[:4] == _EBML:
        return _webm(file, size)
    message = "The provider delivered a file that is no picture and no clip."
    raise _invalid(message)


def _picture_format(head: bytes) -> str | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    brands = {head[at : at + 4] for at in (8, *range(16, len(head) - 3, 4))}
    return "AVIF" if head[4:8] == b"ftyp" and brands & {b"avif", b"avis"} else None


def _picture(file: BinaryIO, size: int, name: str) -> Media:
    file.seek(0)
    with Image.open(file, formats=[name]) as image:
        width, height = image.size
        if width * height <= PIXELS_MAX:
            image.verify()
    if not _is_whole(file, size, name):
        message = "no end"
        raise ValueError(message)
    media_type, extension = _PICTURES[name]
    return Media(media_type=media_type, extension=extension, width=width, height=height)


def _is_whole(file: BinaryIO, size: int, name: str) -> bool:
    """Whether the file ends as its format says it does."""
    if name == "AVIF":
        return sum(box.end - box.start for box in _boxes(file, 0, size)) == size
    if name == "WEBP":
        file.seek(4)
        return int.from_bytes(file.read(4), "little") + 8 <= size
    if name == "GIF":
        return _gif_ends(file)
    file.seek(max(0, size - 4096))
    # Some encoders pad after the end, so it need not be the very last byte; a cut one lacks it.
    return {"PNG": b"IEND\xae\x42\x60\x82", "JPEG": b"\xff\xd9"}[name] in file.read(4096)


def _gif_ends(file: BinaryIO) -> bool:
    """Whether the blocks of a GIF lead to its trailer; its last byte alone may be any pixel's.

    Raises IndexError where a block is cut.
    """
    file.seek(10)
    _skip_palette(file, file.read(3)[0])
    while kind := file.read(1):
        if kind == b";":
            return True
        if kind == b"!":
            file.seek(1, os.SEEK_CUR)
        elif kind == b",":
            _skip_palette(file, file.read(9)[8])
            file.seek(1, os.SEEK_CUR)
        elif kind != b"\0":
            return False
        while kind != b"\0" and (length := file.read(1)[0]):
            file.seek(length, os.SEEK_CUR)
    return False


def _skip_palette(file: BinaryIO, flags: int) -> None:
    if flags & 0x80:
        file.seek(3 << ((flags & 7) + 1), os.SEEK_CUR)


class _Box(NamedTuple):
    """One part of a container.

    `start` of its head, `body` and `end`, in bytes from the file's beginning.
    """

    name: bytes
    start: int
    body: int
    end: int


def _boxes(file: BinaryIO, start: int, end: int) -> Iterator[_Box]:
    """ISO/IEC 14496-12 boxes in [start, end).

    Raises ValueError where one does not fit: the file was cut.
    """
    at, count = start, 0
    while at < end:
        file.seek(at)
        length, name = struct.unpack(">I4s", file.read(8))
        body = at + 8
        if length == 1:
            (length,) = struct.unpack(">Q", file.read(8))
            body = at + 16
        stop = end if length == 0 else at + length
        count += 1
        if stop > end or stop < body or count > _PARTS_MAX:
            message = "a box does not fit"
            raise ValueError(message)
        yield _Box(name, at, body, stop)
        at = stop


def _mp4(file: BinaryIO, size: int, names: tuple[str, str]) -> Media:
    top = {box.name: box for box in _boxes(file, 0, size)}
    if b"moov" not in top or not {b"mdat", b"moof"} & set(top):
        message = "no media in it"
        raise ValueError(message)
    moov = top[b"moov"]
    width = height = 0
    duration_s: float | None = None
    for box in _boxes(file, moov.body, moov.end):
        if box.name == b"mvhd":
            duration_s = _header_seconds(file, box) or duration_s
        if box.name == b"mvex":
            duration_s = duration_s or _fragment_seconds(file, box, moov)
        if box.name == b"trak" and not width:
            width, height = _track_pixels(file, box)
    return Media(media_type=names[0], extension=names[1], width=width, height=height, duration_s=duration_s)


def _body(file: BinaryIO, box: _Box, most: int = 128) -> bytes:
    file.seek(box.body)
    return file.read(min(most, box.end - box.body))


def _header_times(file: BinaryIO, box: _Box) -> tuple[int, int]:
    """(ticks a second, ticks) of mvhd; version 1 has 64-bit times."""
    body = _body(file, box)
    if body[0] == 1:
        scale, ticks = struct.unpack_from(">IQ", body, 20)
    else:
        scale, ticks = struct.unpack_from(">II", body, 12)
    return scale, 0 if ticks in (2**32 - 1, 2**64 - 1) else ticks


def _header_seconds(file: BinaryIO, box: _Box) -> float | None:
    scale, ticks = _header_times(file, box)
    return round(ticks / scale, 3) if scale and ticks else None


def _fragment_seconds(file: BinaryIO, mvex: _Box, moov: _Box) -> float | None:
    """The length of a fragmented clip, from its mehd box, where it has one."""
    scale = next(
        (_header_times(file, box)[0] for box in _boxes(file, moov.body, moov.end) if box.name == b"mvhd"),
        0,
    )
    for box in _boxes(file, mvex.body, mvex.end):
        if box.name == b"mehd" and scale:
            body = _body(file, box)
            (ticks,) = struct.unpack_from(">Q" if body[0] == 1 else ">I", body, 4)
            return round(ticks / scale, 3) or None
    return None


def _track_pixels(file: BinaryIO, trak: _Box) -> tuple[int, int]:
    """(width, height) of a track's tkhd, 16.16 fixed point; (0, 0) for sound."""
    for box in _boxes(file, trak.body, trak.end):
        if box.name == b"tkhd":
            body = _body(file, box)
            width, height = struct.unpack_from(">II", body, 88 if body[0] == 1 else 76)
            return width >> 16, height >> 16
    return 0, 0


# WebM (Matroska): element ids as they stand in the file, with their length marker.
_EBML, _SEGMENT, _INFO, _TRACKS = b"\x1a\x45\xdf\xa3", 0x18538067, 0x1549A966, 0x1654AE6B
_ENTRY, _VIDEO, _WIDTH, _HEIGHT = 0xAE, 0xE0, 0xB0, 0xBA
_SCALE, _DURATION, _CLUSTER = 0x2AD7B1, 0x4489, 0x1F43B675
_PARENTS = frozenset({_SEGMENT, _INFO, _TRACKS, _ENTRY, _VIDEO})


def _number(file: BinaryIO, *, keep_marker: bool) -> tuple[int, int, bool]:
    """An EBML variable-length number: (value, bytes read, whether it says "unknown")."""
    first = file.read(1)[0]
    length = 9 - first.bit_length()
    if length > 8:
        message = "no number"
        raise ValueError(message)
    rest = file.read(length - 1)
    if len(rest) < length - 1:
        message = "cut"
        raise ValueError(message)
    marked = int.from_bytes(bytes([first]) + rest, "big")
    value = marked & ((1 << (7 * length)) - 1)
    return marked if keep_marker else value, length, value == (1 << (7 * length)) - 1


def _elements(file: BinaryIO, start: int, end: int, depth: int = 0) -> Iterator[tuple[int, int, int]]:
    """(id, start of body, end) of each element in [start, end), parents' children included."""
    at, count = start, 0
    while at < end and depth < _DEPTH_MAX and count < _PARTS_MAX:
        file.seek(at)
        name, id_bytes, _ = _number(file, keep_marker=True)
        length, size_bytes, open_end = _number(file, keep_marker=False)
        body = at + id_bytes + size_bytes
        at = end if open_end else body + length
        count += 1
        if at > end:
            message = "an element does not fit"
            raise ValueError(message)
        yield name, body, at
        if name in _PARENTS:
            yield from _elements(file, body, at, depth + 1)


def _webm(file: BinaryIO, size: int) -> Media:
    values: dict[int, bytes] = {}
    seen = set()
    for name, body, end in _elements(file, 0, size):
        seen.add(name)
        if name in (_WIDTH, _HEIGHT, _SCALE, _DURATION) and name not in values:
            file.seek(body)
            values[name] = file.read(min(8, end - body))
    if _CLUSTER not in seen:
        message = "no media in it"
        raise ValueError(message)
    scale = int.from_bytes(values.get(_SCALE, b""), "big") or 1_000_000  # nanoseconds a tick
    raw = values.get(_DURATION, b"")
    ticks = struct.unpack(">f" if len(raw) == 4 else ">d", raw)[0] if raw else 0.0
    seconds = ticks * scale / 1e9
    return Media(
        media_type="video/webm",
        extension="webm",
        width=int.from_bytes(values[_WIDTH], "big"),
        height=int.from_bytes(values[_HEIGHT], "big"),
        duration_s=round(seconds, 3) if 0 < seconds < 1e6 else None,
    )
