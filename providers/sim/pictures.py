"""Pictures: a small landscape for every prompt and seed, with the prompt written into it.

Knows Pillow, nothing of jobs or HTTP. Invariant: the same prompt, seed and size give the same
bytes with the same version of Pillow; other seeds give another landscape in other colours.
"""

from __future__ import annotations

import colorsys
import functools
import hashlib
import io
import math
import random
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFilter
from PIL.PngImagePlugin import PngInfo

from providers.sim import lettering

Rgb = tuple[int, int, int]
Box = tuple[int, int, int, int]

_HORIZON = 0.62
_SMALLEST_LETTERED_PX = 48
# Zenith, horizon, sun or moon, farthest hills, nearest hills, night? Free hues gave muddy skies.
_SKIES = (
    ("#2e6fb0", "#ffd9a0", "#fff3cf", "#8fa9bd", "#1f3a3d", False),
    ("#5b4b8a", "#ff9e7a", "#ffe2b0", "#b07a94", "#2b1f3d", False),
    ("#3b8ea5", "#f5ee9e", "#fffbe0", "#8db7a6", "#23403a", False),
    ("#e07a5f", "#f9e0b7", "#fff6df", "#c9a48c", "#3d2c2e", False),
    ("#4a7bd0", "#cfe8ff", "#ffffff", "#9dbbdc", "#1d3557", False),
    ("#c0567f", "#ffd3b6", "#fff0dc", "#b98aa0", "#3a2035", False),
    ("#2a9d8f", "#fbe6a2", "#fff7d6", "#9cc3a5", "#1c3b2f", False),
    ("#0b1d3a", "#3f5f8a", "#f6f2e2", "#33507a", "#070f1f", True),
    ("#1b1038", "#6a4a8c", "#fbeed5", "#4a3670", "#0d0820", True),
    ("#06262b", "#2d6a6a", "#f2f7e8", "#28585a", "#041416", True),
    ("#141b2d", "#8a4f5e", "#ffe9d0", "#5a3f55", "#0c0d18", True),
)
MEDIA_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp"}


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one scene, from one hue."""

    zenith: Rgb
    horizon: Rgb
    sun: Rgb
    near: Rgb
    far: Rgb
    night: bool


@dataclass(frozen=True, slots=True)
class Wave:
    """The outline of one range of hills: three sines, each as (waves per width, phase, share)."""

    sines: tuple[tuple[int, float, float], ...]
    base: float
    """Middle of the outline, share of the height from the top."""
    swing: float
    """Largest distance from it, share of the height."""

    def outline(self, width: int, height: int, step: int) -> list[tuple[float, float]]:
        """Return the outline in pixels. It repeats after `width`, so a clip can roll it."""
        points: list[tuple[float, float]] = []
        for x in range(0, width + step, step):
            turn = 2 * math.pi * x / width
            lift = sum(share * math.sin(n * turn + phase) for n, phase, share in self.sines)
            points.append((x, height * (self.base - self.swing * lift)))
        return points


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to see, before any size is known."""

    palette: Palette
    waves: tuple[Wave, ...]
    sun_x: float
    sun_y: float
    sun_size: float
    stars: int
    dice_seed: str


def _shifted(colour: str, turn: float, bright: float) -> Rgb:
    """Return a "#rrggbb" colour with its hue turned (share of the circle) and its value scaled."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
    new = colorsys.hsv_to_rgb((hue + turn) % 1, saturation, min(1, value * bright))
    r, g, b = (round(part * 255) for part in new)
    return r, g, b


def _mixed(one: Rgb, other: Rgb, share: float) -> Rgb:
    """Return the colour that lies `share` (0..1) of the way from `one` to `other`."""
    a, b, c = (round(x + (y - x) * share) for x, y in zip(one, other, strict=True))
    return a, b, c


@functools.lru_cache(maxsize=256)
def scene(prompt: str, seed: int) -> Scene:
    """Draw the lots for a prompt and seed."""
    mark = hashlib.sha256(f"{seed}|{prompt}".encode()).hexdigest()
    # Not for secrets: the dice must fall the same way for the same prompt and seed.
    dice = random.Random(mark)  # noqa: S311
    sky_top, sky_low, light, far, near, night = dice.choice(_SKIES)
    turn, bright = dice.uniform(-0.035, 0.035), dice.uniform(0.93, 1.04)
    palette = Palette(
        zenith=_shifted(sky_top, turn, bright),
        horizon=_shifted(sky_low, turn / 2, bright),
        sun=_shifted(light, 0, 1),
        near=_shifted(near, turn, bright),
        far=_shifted(far, turn, bright),
        night=night,
    )
    count = dice.randint(4, 6)
    waves = tuple(
        Wave(
            sines=tuple(
                (n, dice.uniform(0, 2 * math.pi), share)
                for n, share in ((dice.randint(1, 2), 0.55), (dice.randint(3, 5), 0.3), (9, 0.12))
            ),
            base=_HORIZON - 0.1 + 0.4 * place / count,
            swing=0.05 + 0.07 * dice.random(),
        )
        for place in range(count)
    )
    return Scene(
        palette=palette,
        waves=waves,
        sun_x=dice.uniform(0.18, 0.82),
        sun_y=dice.uniform(0.16, 0.42),
        sun_size=dice.uniform(0.07, 0.12),
        stars=90 if night else 0,
        dice_seed=mark,
    )


def sky(what: Scene, width: int, height: int) -> Image.Image:
    """Paint sky, stars and sun or moon."""
    palette = what.palette
    strip = Image.new("RGB", (1, 256))
    for row in range(256):
        strip.putpixel((0, row), _mixed(palette.zenith, palette.horizon, min(1, row / 170) ** 0.8))
    image = strip.resize((width, height), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    dice = random.Random(what.dice_seed + "stars")  # noqa: S311 - not for secrets
    for _ in range(what.stars):
        x, y = dice.uniform(0, width), dice.uniform(0, height * 0.5)
        size = max(0.6, min(width, height) / 700 * dice.uniform(0.5, 1.8))
        shade = _mixed(palette.zenith, (255, 255, 255), dice.uniform(0.4, 1))
        draw.ellipse((x - size, y - size, x + size, y + size), fill=shade)
    _sun(image, what)
    return image


def _sun(image: Image.Image, what: Scene) -> None:
    width, height = image.size
    radius = max(2.0, what.sun_size * min(width, height))
    # The glow is soft: painted small and enlarged, it costs next to nothing.
    glow = Image.radial_gradient("L").point(lambda v: round(max(0, 1 - v / 180) ** 2 * 200))
    reach = round(radius * 9)
    left, top = round(what.sun_x * width - reach / 2), round(what.sun_y * height - reach / 2)
    image.paste(what.palette.sun, (left, top), glow.resize((reach, reach)))
    fine = 4
    edge = round(radius * 2) + 4
    disc = Image.new("L", (edge * fine, edge * fine))
    ImageDraw.Draw(disc).ellipse((fine, fine, (edge - 1) * fine, (edge - 1) * fine), fill=255)
    if what.palette.night:
        bite = round(edge * fine * 0.32)
        box = (bite, -bite // 3, edge * fine + bite, edge * fine - bite // 3)
        ImageDraw.Draw(disc).ellipse(box, fill=0)
    mask = disc.reduce(fine)
    at = (round(what.sun_x * width - edge / 2), round(what.sun_y * height - edge / 2))
    image.paste(what.palette.sun, at, mask)


def hills(what: Scene, place: int, width: int, height: int) -> tuple[Rgb, Image.Image, int]:
    """Return range `place` of the hills (0 = farthest): its colour, its mask, the mask's top."""
    wave = what.waves[place]
    share = place / max(1, len(what.waves) - 1)
    top = max(0, int(height * (wave.base - wave.swing)) - 2)
    fine = 2
    mask = Image.new("L", (width * fine, (height - top) * fine))
    outline = [(x, y - top * fine) for x, y in wave.outline(width * fine, height * fine, 2 * fine)]
    floor = (height - top) * fine + 1
    ImageDraw.Draw(mask).polygon([(0, floor), *outline, (width * fine + 1, floor)], fill=255)
    return _mixed(what.palette.far, what.palette.near, share), mask.reduce(fine), top


def lettered(image: Image.Image, prompt: str, seed: int) -> Box | None:
    """Write prompt and seed into the lower part of the picture, on a darkened pane, and return the pane's box.

    None when the picture is too small for letters.
    """
    width, height = image.size
    if min(width, height) < _SMALLEST_LETTERED_PX:
        return None
    margin = max(4, round(min(width, height) * 0.045))
    pad = max(3, margin // 2)
    box_width = width - 2 * (margin + pad)
    largest = max(9, round(min(width * 0.052, height * 0.075)))
    text = lettering.fitted(prompt, box_width, round(height * 0.36), largest)
    note = f"seed {seed}  \u00b7  simulated"
    if text.missing:
        cure = "" if lettering.chinese_font() else " (the extra 'local' brings a Chinese one)"
        note += f"  \u00b7  {text.missing} signs not shown: no font for them here{cure}"
    small = lettering.fitted(note, box_width, 2 * largest, max(9, round(largest * 0.5)))
    text_px, small_px = len(text.lines) * text.line_px, len(small.lines) * small.line_px
    pane_height = text_px + small_px + 2 * pad
    top = max(0, height - margin - pane_height)
    pane = (margin, top, width - margin, top + pane_height)
    _darken(image, pane)
    draw = ImageDraw.Draw(image)
    y = top + pad
    for caption, shade in ((text, (255, 255, 255)), (small, (205, 210, 218))):
        for line in caption.lines:
            draw.text((margin + pad, y), line, font=caption.font, fill=shade)
            y += caption.line_px
    return pane


def _darken(image: Image.Image, pane: Box) -> None:
    """Blur and darken what lies under the pane, so that white letters stand out on any scene."""
    behind = image.crop(pane)
    size = behind.size
    # Blurred small and enlarged: a wide blur at full size would take longer than the picture.
    low = behind.resize((max(1, size[0] // 8), max(1, size[1] // 8)))
    soft = low.filter(ImageFilter.GaussianBlur(2)).resize(size)
    dark = Image.blend(soft, Image.new("RGB", size, (8, 10, 16)), 0.62)
    image.paste(dark, pane[:2], rounded(size))


def rounded(size: tuple[int, int]) -> Image.Image:
    """Return a mask of a pane of this size with round corners."""
    mask = Image.new("L", size)
    round_px = max(2, min(size) // 10)
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, size[0] - 1, size[1] - 1), round_px, fill=255)
    return mask


def painted(prompt: str, seed: int, width: int, height: int) -> Image.Image:
    """Paint the whole picture. `width` and `height` in pixels, 1 and up."""
    what = scene(prompt, seed)
    image = sky(what, width, height)
    for place in range(len(what.waves)):
        colour, mask, top = hills(what, place, width, height)
        image.paste(colour, (0, top), mask)
    lettered(image, prompt, seed)
    return image


def picture(prompt: str, seed: int, width: int, height: int, kind: str = "png") -> bytes:
    """Return a picture of exactly `width` x `height` pixels as `kind`: png, jpeg or webp.

    Prompt and seed are also kept inside the file: as PNG text, else as a comment where there is
    room for one. Raises KeyError for another kind.
    """
    image = painted(prompt, seed, width, height)
    out = io.BytesIO()
    if kind == "png":
        notes = PngInfo()
        notes.add_itxt("prompt", prompt)
        notes.add_text("seed", str(seed))
        # Level 1: a third of the time of the default for a file a few per cent larger.
        image.save(out, "PNG", pnginfo=notes, compress_level=1)
    elif MEDIA_TYPES[kind] == "image/jpeg":
        image.save(out, "JPEG", quality=88, comment=f"seed {seed}: {prompt}"[:1000].encode())
    else:
        image.save(out, "WEBP", quality=85, method=1)
    return out.getvalue()
