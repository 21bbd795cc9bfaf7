"""Fonts and line breaks: how a prompt becomes legible in a picture, Chinese as well as English.

Knows Pillow and where fonts lie, nothing else. No font of the system is relied on: English comes
from the font inside Pillow, Chinese from the package of the extra `local`, else from a font of the
system; when there is none, the picture says so instead of showing empty boxes.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import ImageFont

_PACKAGE = "pylopdf_fonts_zh_cn"
_PACKAGE_FILE = "NotoSansSC-Regular.otf"
# Names under which systems ship a font with Chinese in it, the usual ones first.
_SYSTEM_FONTS = (
    "NotoSansCJK-Regular.ttc",
    "NotoSansCJKsc-Regular.otf",
    "NotoSansSC-Regular.otf",
    "SourceHanSansSC-Regular.otf",
    "wqy-microhei.ttc",
    "wqy-zenhei.ttc",
    "DroidSansFallbackFull.ttf",
    "PingFang.ttc",
    "Hiragino Sans GB.ttc",
    "STHeiti Light.ttc",
    "msyh.ttc",
    "simhei.ttf",
    "simsun.ttc",
)
# Nothing may stand at the start of a line that belongs to the sign before it.
_NEVER_FIRST = frozenset(",.;:!?)]}%\u3001\u3002\uff0c\uff01\uff1f\uff1b\uff1a\uff09\u300b\u300d\u201d")
_LATIN_END = 0x250
_SMALLEST_PX = 9
_MOST_SIGNS = 600

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, slots=True)
class Caption:
    """Text that has been fitted: lines, the font for them, and what could not be drawn."""

    lines: tuple[str, ...]
    font: Font
    line_px: int
    missing: int
    """Signs of the text that no font at hand can draw."""


def _system_folders() -> Iterator[Path]:
    home = Path.home()
    if sys.platform == "darwin":
        yield from (Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts")
    elif sys.platform == "win32":
        yield Path(os.environ.get("WINDIR", r"C:\Windows")) / "Fonts"
    else:
        yield from (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))
        yield from (home / ".local/share/fonts", home / ".fonts")


@functools.cache
def chinese_font() -> Path | None:
    """Return the file of a font with Chinese in it, None when there is none. Looks once."""
    package = importlib.util.find_spec(_PACKAGE)
    for place in (package.submodule_search_locations or ()) if package else ():
        path = Path(place) / _PACKAGE_FILE
        if path.is_file():
            return path
    found: dict[str, Path] = {}
    for folder in _system_folders():
        if folder.is_dir():
            found |= {path.name: path for path in folder.rglob("*") if path.name in _SYSTEM_FONTS}
    return next((found[name] for name in _SYSTEM_FONTS if name in found), None)


@functools.lru_cache(maxsize=64)
def _font(path: Path | None, size_px: int) -> Font:
    if path is None:
        return ImageFont.load_default(size_px)
    # The plain layout is enough for these scripts and does not depend on how Pillow was built.
    return ImageFont.truetype(path, size_px, layout_engine=ImageFont.Layout.BASIC)


@functools.lru_cache(maxsize=20_000)
def _draws(path: Path | None, sign: str) -> bool:
    """Whether a font has a glyph of its own for a sign: the stand-in for none is always the same."""
    if sign.isspace():
        return True
    font = _font(path, 24)
    return bytes(font.getmask(sign)) != bytes(font.getmask("\U0010fffd"))


def fitted(text: str, width_px: int, height_px: int, largest_px: int) -> Caption:
    """Return `text` in the largest font, from `largest_px` down to 9, whose lines fit the box.

    What does not fit even then is cut and ends in "..."; so is what is longer than 600 signs, since nobody reads on.
    """
    cut = len(text) > _MOST_SIGNS
    shown = text[:_MOST_SIGNS] + ("..." if cut else "")
    path = None if all(_draws(None, sign) for sign in shown) else chinese_font()
    drawn = [_drawable(path, sign) for sign in shown]
    missing = sum(1 for sign in drawn if sign is None)
    words = " ".join("".join(sign or " " for sign in drawn).split())
    size = max(largest_px, _SMALLEST_PX)
    while True:
        font, line_px = _font(path, size), round(size * 1.4)
        most = max(1, height_px // line_px)
        # One look at the whole length spares breaking lines at a size that cannot do.
        if size == _SMALLEST_PX or font.getlength(words) <= most * width_px:
            lines = list(_lines(words, font, width_px))
            if len(lines) <= most:
                return Caption(tuple(lines), font, line_px, missing)
        if size == _SMALLEST_PX:
            lines = [*lines[: most - 1], lines[most - 1].rstrip()[:-3] + "..."]
            return Caption(tuple(lines), font, line_px, missing)
        size = max(_SMALLEST_PX, int(size * 0.85))


def _drawable(path: Path | None, sign: str) -> str | None:
    """Return a sign as a font can draw it, an accented letter without its accent if need be; None if not at all."""
    if _draws(path, sign):
        return sign
    base = unicodedata.normalize("NFKD", sign)[0]
    return base if base != sign and _draws(path, base) else None


def _pieces(text: str) -> Iterator[str]:
    """Split where a line may break: after a space, and around every Chinese sign."""
    piece = ""
    for sign in text:
        alone = ord(sign) >= _LATIN_END
        if piece and (alone or ord(piece[-1]) >= _LATIN_END) and sign not in _NEVER_FIRST:
            yield piece
            piece = ""
        piece += sign
        if sign == " ":
            yield piece
            piece = ""
    if piece:
        yield piece


def _lines(text: str, font: Font, width_px: int) -> Iterator[str]:
    line = ""
    for piece in _pieces(text):
        if font.getlength(line + piece.rstrip()) <= width_px:
            line += piece
            continue
        if line:
            yield line.rstrip()
        rest = piece
        while font.getlength(rest.rstrip()) > width_px and len(rest) > 1:
            # A word longer than the line: broken where it is full.
            wide = rest
            fits = max(1, bisect_right(range(1, len(wide)), width_px, key=lambda n: round(font.getlength(wide[:n]))))
            yield rest[:fits]
            rest = rest[fits:]
        line = rest
    if line.strip():
        yield line.rstrip()
