"""Clips: the landscape of a prompt with its hills rolling by, as H.264 in MP4.

PyAV is in the extra `local` and is imported when the first clip is wanted; without it `missing()`
says what to install. Nothing of jobs or HTTP. Invariant: exact size, whole frames, faststart, so
that a browser plays it while it loads.
"""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from providers.sim import pictures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.container import OutputContainer
    from PIL import Image

FPS = 24
"""Frames a second, unless a job asks for another number."""
MEDIA_TYPE = "video/mp4"


def missing() -> str | None:
    """Return what to install before clips can be made, None when all is there."""
    try:
        import av  # noqa: F401, PLC0415 - an extra: only who wants clips needs it
    except ImportError:
        return "The simulator makes clips with PyAV: pip install 'weir-gateway[local]'"
    return None


def clip(prompt: str, seed: int, width: int, height: int, duration_s: float, fps: int = FPS) -> bytes:
    """Return an MP4 of `width` x `height` pixels (both even) and `duration_s` seconds.

    Raises ImportError without PyAV (ask `missing` first).
    """
    import av  # noqa: PLC0415 - an extra: only who wants clips needs it

    # bitexact leaves out dates and version words: the same order gives the same bytes.
    options = {"movflags": "+faststart", "fflags": "+bitexact"}
    # A real file: faststart reads what has been written again to move the index to the front.
    with tempfile.TemporaryDirectory(prefix="weir-sim-") as folder:
        path = Path(folder) / "clip.mp4"
        with av.open(str(path), "w", format="mp4", options=options) as container:
            _encode(container, prompt, seed, (width, height), duration_s, fps)
        return path.read_bytes()


def _encode(
    container: OutputContainer,
    prompt: str,
    seed: int,
    size: tuple[int, int],
    duration_s: float,
    fps: int,
) -> None:
    import av  # noqa: PLC0415 - an extra: only who wants clips needs it

    container.metadata["title"] = prompt[:500]
    container.metadata["comment"] = f"seed {seed}"
    stream = container.add_stream("libx264", rate=fps)
    stream.width, stream.height = size
    stream.pix_fmt = "yuv420p"
    # One thread: frames then do not depend on how many cores there are, nor take them all.
    stream.options = {"preset": "ultrafast", "tune": "animation", "crf": "26", "threads": "1"}
    # Not the stream's own time base: the muxer changes that one with the first packet.
    tick = Fraction(1, fps)
    for number, image in enumerate(_frames(prompt, seed, size, duration_s, fps)):
        frame = av.VideoFrame.from_image(image)  # type: ignore[no-untyped-call]  # theirs
        frame.pts, frame.time_base = number, tick
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def _frames(prompt: str, seed: int, size: tuple[int, int], duration_s: float, fps: int) -> Iterator[Image.Image]:
    """Yield every frame. Near hills roll faster than far ones; the pane with the text stands."""
    width, height = size
    what = pictures.scene(prompt, seed)
    back = pictures.sky(what, width, height)
    ranges = [pictures.hills(what, place, width, height) for place in range(len(what.waves))]
    plain = back.copy()
    for colour, mask, top in ranges:
        plain.paste(colour, (0, top), mask)
    lettered = plain.copy()
    pane = pictures.lettered(lettered, prompt, seed)
    board = lettered.crop(pane or (0, 0, 1, 1))
    edge = pictures.rounded(board.size)
    for number in range(max(1, round(duration_s * fps))):
        frame = back.copy()
        for place, (colour, mask, top) in enumerate(ranges):
            # Whole pixels and a mask that repeats: two pastes and no new drawing per range.
            shift = round(number / fps * width * 0.012 * (1 + place)) % width
            frame.paste(colour, (-shift, top), mask)
            if shift:
                frame.paste(colour, (width - shift, top), mask)
        if pane is not None:
            frame.paste(board, pane[:2], edge)
        yield frame
