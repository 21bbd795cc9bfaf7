"""What Ark's models accept: one table, and the sizes in which they make clips.

Source: the provider sheet of 2026-11-30 (docs of images and videos, live notes, price maps). May not know HTTP or jobs.
Invariant: names are matched without the brand, so that both of the vendor's clouds are served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModel:
    """A Seedream."""

    least_px: int
    most_px: int
    tiers: tuple[str, ...]
    groups: bool = True
    """Takes `sequential_image_generation`."""
    png: bool = False
    """Takes `output_format`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoModel:
    """A Seedance."""

    seconds: tuple[int, int]
    """The shortest and the longest clip."""
    tiers: tuple[str, ...]
    generation: float
    text: bool = True
    """Makes clips without a frame."""
    frames: bool = True
    """Takes frames."""

    @property
    def sounds(self) -> bool:
        """Whether it makes sound, and does so when nobody says no."""
        return self.generation >= 1.5


_SMALL = ("480p", "720p")
_ANY = (*_SMALL, "1080p")
IMAGE_MODELS: tuple[tuple[str, ImageModel], ...] = (
    (
        r"seedream-5-0-pro-\d{6}",
        ImageModel(least_px=921_600, most_px=4_600_000, tiers=("1K", "1.5K", "2K"), groups=False),
    ),
    (
        r"seedream-5-0-(lite-)?\d{6}",
        ImageModel(least_px=3_686_400, most_px=10_404_496, tiers=("2K", "3K"), png=True),
    ),
    (r"seedream-4-5-\d{6}", ImageModel(least_px=3_686_400, most_px=4096**2, tiers=("2K", "4K"))),
    (r"seedream-4-0-\d{6}", ImageModel(least_px=921_600, most_px=4096**2, tiers=("1K", "2K", "4K"))),
)
VIDEO_MODELS: tuple[tuple[str, VideoModel], ...] = (
    (r"seedance-1-0-lite-t2v-\d{6}", VideoModel(seconds=(2, 12), tiers=_ANY, generation=1.0, frames=False)),
    (r"seedance-1-0-lite-i2v-\d{6}", VideoModel(seconds=(2, 12), tiers=_ANY, generation=1.0, text=False)),
    (r"seedance-1-0-pro-(fast-)?\d{6}", VideoModel(seconds=(2, 12), tiers=_ANY, generation=1.0)),
    (r"seedance-1-5-pro-\d{6}", VideoModel(seconds=(4, 12), tiers=_ANY, generation=1.5)),
    (r"seedance-2-0-(fast|mini)-\d{6}", VideoModel(seconds=(4, 15), tiers=_SMALL, generation=2.0)),
    (r"seedance-2-0-\d{6}", VideoModel(seconds=(4, 15), tiers=(*_ANY, "4k"), generation=2.0)),
    (r"seedance-2-5-\d{6}", VideoModel(seconds=(4, 30), tiers=_ANY, generation=2.5)),
)
TIERS: Mapping[str, int] = {"1K": 1024, "1.5K": 1536, "2K": 2048, "3K": 3072, "4K": 4096}
"""The side in pixels of the square that a tier stands for; the real model reads another shape out of the prompt."""

RATIOS = ("16:9", "4:3", "1:1", "3:4", "9:16", "21:9")
_FRAMES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "480p": ((864, 480), (736, 544), (640, 640), (544, 736), (480, 864), (960, 416)),
    "720p": ((1248, 704), (1120, 832), (960, 960), (832, 1120), (704, 1248), (1504, 640)),
    "1080p": ((1920, 1088), (1664, 1248), (1440, 1440), (1248, 1664), (1088, 1920), (2176, 928)),
    "4k": ((3840, 2176), (3328, 2496), (2880, 2880), (2496, 3328), (2176, 3840), (4352, 1856)),
}


def frame(tier: str, ratio: str) -> tuple[int, int]:
    """Return the pixels of a tier in a ratio; `adaptive` is a landscape here, whatever the frame shows."""
    return _FRAMES[tier][0 if ratio == "adaptive" else RATIOS.index(ratio)]


def image_model(name: str) -> ImageModel | None:
    """Return the Seedream of this name, None for a name nobody serves."""
    return next((model for form, model in IMAGE_MODELS if re.fullmatch(form, _plain(name))), None)


def video_model(name: str) -> VideoModel | None:
    """Return the Seedance of this name, None for a name nobody serves."""
    return next((model for form, model in VIDEO_MODELS if re.fullmatch(form, _plain(name))), None)


def _plain(name: str) -> str:
    return re.sub(r"^(doubao|dreamina|dola)-", "", name)
