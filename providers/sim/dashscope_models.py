"""What DashScope's models accept: one table, and the checks that its vendor makes.

Source: the provider sheet of 2026-11-30 (docs of text-to-image v2, qwen-image, text- and
image-to-video). May not know HTTP or jobs. Invariant: what a vendor cuts or ignores in silence
(long prompts, unknown fields, a misplaced negative prompt) is cut and ignored in silence here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SizeRule = Callable[[int, int], str | None]
"""(width, height) -> None when legal, else the words for what is."""


def sides(low: int, high: int) -> SizeRule:
    """Each side from `low` to `high` pixels."""
    text = f"each side must be from {low} to {high}"
    return lambda w, h: None if low <= w <= high and low <= h <= high else text


def area(low: int, high: int) -> SizeRule:
    """Between `low` and `high` squared pixels in all, ratio between 1:4 and 4:1."""
    text = f"total pixels must be from {low}*{low} to {high}*{high}, ratio from 1:4 to 4:1"
    return lambda w, h: None if low**2 <= w * h <= high**2 and h <= 4 * w <= 16 * h else text


def one_of(*sizes: str) -> SizeRule:
    """Exactly one of these."""
    text = f"size must be one of {', '.join(sizes)}"
    return lambda w, h: None if f"{w}*{h}" in sizes else text


TEXT2IMAGE = "text2image"
MESSAGES = "multimodal-generation"
MESSAGES_ASYNC = "image-generation"
VIDEO = "video-generation"
FRAMES = "image2video"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModel:
    """A family of picture models."""

    services: tuple[str, ...]
    """The paths that serve it."""
    prompt_chars: int
    size: SizeRule
    default_size: str
    most: int = 4
    """Largest `n`."""
    default_n: int = 4
    """What is made, and billed, when `n` is left out."""
    references: int = 0
    """Most reference images."""
    named_sizes: Mapping[str, tuple[int, int]] | None = None
    qwen: bool = False
    """Speaks the qwen variant: negative prompt in `parameters`, another usage block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoModel:
    """A family of clip models."""

    prompt_chars: int
    durations: tuple[int, ...]
    frame: str = "size"
    """How the picture's size is asked for: `size`, `resolution` (of an image) or `ratio`."""
    default: str = "1920*1080"
    """Default size, or default resolution."""
    tiers: tuple[str, ...] = ("480P", "720P", "1080P")
    needs: str | None = None
    """The input besides the prompt: img_url, media, frames, reference_urls; None = none."""
    service: str = VIDEO
    new_usage: bool = False
    any_size: bool = False


_QWEN_SIZES = ("1664*928", "1472*1104", "1328*1328", "1104*1472", "928*1664")
_K_SIZES = {"1K": (1024, 1024), "2K": (2048, 2048), "4K": (4096, 4096)}
_BOTH = (MESSAGES, MESSAGES_ASYNC)
_OLD_WAN = ImageModel(services=(TEXT2IMAGE,), prompt_chars=800, size=sides(512, 1440), default_size="1024*1024")
_QWEN = ImageModel(
    services=(MESSAGES,),
    prompt_chars=800,
    size=one_of(*_QWEN_SIZES),
    default_size="1664*928",
    most=1,
    default_n=1,
    references=3,
    qwen=True,
)
_QWEN_2 = ImageModel(
    services=(MESSAGES,),
    prompt_chars=800,
    size=area(512, 2048),
    default_size="2048*2048",
    most=6,
    default_n=1,
    references=3,
    qwen=True,
)

# The first pattern that matches the whole name decides.
IMAGE_MODELS: tuple[tuple[str, ImageModel], ...] = (
    (
        r"sim-image",
        ImageModel(
            services=(TEXT2IMAGE, MESSAGES, MESSAGES_ASYNC),
            prompt_chars=2000,
            size=sides(64, 2048),
            default_size="1024*1024",
            references=4,
        ),
    ),
    (
        r"wan2\.5-t2i.*",
        ImageModel(
            services=(TEXT2IMAGE,),
            prompt_chars=2000,
            size=area(1280, 1440),
            default_size="1280*1280",
        ),
    ),
    (r"wan2\.2-t2i-(flash|plus)|wanx2\.[01]-t2i-.*|wanx-v1", _OLD_WAN),
    (
        r"wan2\.6-t2i.*",
        ImageModel(services=_BOTH, prompt_chars=2100, size=area(1280, 1440), default_size="1280*1280"),
    ),
    (
        r"wan2\.6-image.*",
        ImageModel(
            services=_BOTH,
            prompt_chars=2000,
            size=area(768, 1280),
            default_size="1280*1280",
            references=4,
        ),
    ),
    (
        r"wan2\.7-image.*",
        ImageModel(
            services=_BOTH,
            prompt_chars=5000,
            size=area(768, 4096),
            default_size="2K",
            references=9,
            named_sizes=_K_SIZES,
        ),
    ),
    (
        r"qwen-image(-plus)?",
        ImageModel(
            services=(TEXT2IMAGE, MESSAGES),
            prompt_chars=800,
            size=one_of(*_QWEN_SIZES),
            default_size="1664*928",
            most=1,
            default_n=1,
            references=3,
            qwen=True,
        ),
    ),
    (r"qwen-image-[23]\.0(-pro)?", _QWEN_2),
    (r"qwen-image-(max|edit).*", _QWEN),
)

_UP_TO_15 = tuple(range(2, 16))
VIDEO_MODELS: tuple[tuple[str, VideoModel], ...] = (
    (
        r"sim-video",
        VideoModel(prompt_chars=2000, durations=tuple(range(1, 16)), default="1280*720", any_size=True),
    ),
    (
        r".*kf2v.*",
        VideoModel(
            prompt_chars=800,
            durations=(5,),
            frame="resolution",
            default="720P",
            needs="frames",
            service=FRAMES,
        ),
    ),
    (
        r"(wan2\.7|happyhorse-1\.[01])-t2v.*",
        VideoModel(
            prompt_chars=5000,
            durations=_UP_TO_15,
            frame="ratio",
            default="1080P",
            tiers=("720P", "1080P"),
            new_usage=True,
        ),
    ),
    (
        r"(wan2\.7|happyhorse-1\.[01])-[ir]2v.*",
        VideoModel(
            prompt_chars=5000,
            durations=_UP_TO_15,
            frame="resolution",
            default="1080P",
            tiers=("720P", "1080P"),
            needs="media",
            new_usage=True,
        ),
    ),
    (
        r"wan3\.0-video.*",
        VideoModel(
            prompt_chars=5000,
            durations=(-1, *range(2, 31)),
            frame="ratio",
            default="720P",
            tiers=("480P", "720P"),
            new_usage=True,
        ),
    ),
    (r"wan2\.6-t2v.*", VideoModel(prompt_chars=1500, durations=_UP_TO_15, new_usage=True)),
    (r"wan2\.5-t2v.*", VideoModel(prompt_chars=1500, durations=(5, 10))),
    (r"wan2\.2-t2v.*", VideoModel(prompt_chars=800, durations=(5,))),
    (r"wanx2\.1-t2v.*", VideoModel(prompt_chars=800, durations=(5,), default="1280*720")),
    (
        r"wan2\.6-r2v.*",
        VideoModel(prompt_chars=1500, durations=_UP_TO_15, needs="reference_urls", new_usage=True),
    ),
    (
        r"wan2\.6-i2v.*",
        VideoModel(
            prompt_chars=1500,
            durations=_UP_TO_15,
            frame="resolution",
            default="1080P",
            needs="img_url",
            new_usage=True,
        ),
    ),
    (
        r"wan2\.5-i2v.*",
        VideoModel(
            prompt_chars=1500,
            durations=(5, 10),
            frame="resolution",
            default="1080P",
            needs="img_url",
        ),
    ),
    (
        r"wan2\.2-i2v-plus|wanx2\.1-i2v-plus",
        VideoModel(
            prompt_chars=800,
            durations=(5,),
            frame="resolution",
            default="1080P",
            needs="img_url",
        ),
    ),
    (
        r"wan2\.2-i2v.*|wanx2\.1-i2v.*",
        VideoModel(prompt_chars=800, durations=(5,), frame="resolution", default="720P", needs="img_url"),
    ),
)

VIDEO_SIZES: Mapping[str, str] = {
    size: tier
    for tier, sizes in {
        "480P": ("832*480", "480*832", "624*624"),
        "720P": ("1280*720", "720*1280", "960*960", "1088*832", "832*1088"),
        "1080P": ("1920*1080", "1080*1920", "1440*1440", "1632*1248", "1248*1632"),
    }.items()
    for size in sizes
}
_TIER_SIZES = {
    "480P": ("832*480", "480*832", "624*624", "640*480", "480*640"),
    "720P": ("1280*720", "720*1280", "960*960", "1088*832", "832*1088"),
    "1080P": ("1920*1080", "1080*1920", "1440*1440", "1632*1248", "1248*1632"),
}
RATIOS = ("16:9", "9:16", "1:1", "4:3", "3:4")


def framed(tier: str, ratio: str) -> tuple[int, int]:
    """Return the pixels of a resolution tier in a ratio."""
    width, _, height = _TIER_SIZES[tier][RATIOS.index(ratio)].partition("*")
    return int(width), int(height)


def image_model(name: str) -> ImageModel | None:
    """Return the picture family a name belongs to, None for a name nobody serves."""
    return next((model for form, model in IMAGE_MODELS if re.fullmatch(form, name)), None)


def video_model(name: str) -> VideoModel | None:
    """Return the clip family a name belongs to, None for a name nobody serves."""
    return next((model for form, model in VIDEO_MODELS if re.fullmatch(form, name)), None)
