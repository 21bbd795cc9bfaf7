"""The simulator's pictures and clips: exact, repeatable, different, and legible."""

from __future__ import annotations

import io
import time
from pathlib import Path

import av
import pytest
from PIL import Image, ImageChops

from providers.sim import clips, lettering, pictures
from providers.sim.directives import bare

CHINESE = "一只橘猫坐在窗台上看雨"


def opened(content: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(content))
    image.load()
    return image


@pytest.fixture
def no_chinese_font(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lettering, "chinese_font", lambda: None)


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_picture_is_of_the_kind_asked_for(kind: str) -> None:
    assert opened(pictures.picture("a red cup", 7, 128, 128, kind)).format == kind.upper()


@pytest.mark.parametrize("size", [(1, 1), (64, 64), (97, 301), (1280, 720), (512, 1440)])
def test_picture_has_exactly_the_size_asked_for(size: tuple[int, int]) -> None:
    assert opened(pictures.picture("a red cup", 7, *size)).size == size


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_picture_of_the_same_prompt_and_seed_has_the_same_bytes(kind: str) -> None:
    first, second = (pictures.picture("a red cup", 7, 256, 256, kind) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("other", [("a red cup", 8), ("a blue cup", 7)])
def test_picture_of_another_prompt_or_seed_is_another_landscape(other: tuple[str, int]) -> None:
    one, two = (pictures.painted(prompt, seed, 256, 256) for prompt, seed in (("a red cup", 7), other))
    # The sky, where no letters are.
    sky = (0, 0, 256, 128)
    assert ImageChops.difference(one.crop(sky), two.crop(sky)).getbbox() is not None


def test_png_holds_its_prompt_and_seed() -> None:
    image = opened(pictures.picture(CHINESE, 7, 128, 128))
    assert (image.info["prompt"], image.info["seed"]) == (CHINESE, "7")


def test_picture_of_a_megapixel_takes_a_quarter_of_a_second() -> None:
    pictures.picture("warm up the fonts", 1, 1024, 1024)
    began = time.process_time()
    pictures.picture("a red kite over wheat", 7, 1024, 1024)
    assert time.process_time() - began < 0.25


def test_picture_with_a_prompt_has_letters_on_it() -> None:
    plain, lettered = (pictures.painted("a red cup", 7, 512, 512) for _ in range(2))
    pictures.lettered(lettered, "another text on top", 7)
    assert ImageChops.difference(plain, lettered).getbbox() is not None


@pytest.mark.usefixtures("no_chinese_font")
def test_caption_without_a_chinese_font_counts_what_it_cannot_draw() -> None:
    assert lettering.fitted(f"{CHINESE} rain", 400, 200, 30).missing == len(CHINESE)


@pytest.mark.usefixtures("no_chinese_font")
def test_caption_without_a_chinese_font_still_draws_the_english() -> None:
    assert lettering.fitted(f"{CHINESE} rain", 400, 200, 30).lines == ("rain",)


def test_caption_with_a_chinese_font_draws_chinese() -> None:
    if lettering.chinese_font() is None:
        pytest.skip("SKIPPED, NOT TESTED: no Chinese font here, neither the package nor the system's")
    caption = lettering.fitted(CHINESE, 2000, 200, 30)
    assert (caption.lines, caption.missing) == ((CHINESE,), 0)


@pytest.mark.usefixtures("no_chinese_font")
def test_caption_draws_an_accented_letter_without_its_accent_if_need_be() -> None:
    assert lettering.fitted("caf\u00e9", 400, 200, 30).lines == ("cafe",)


def test_caption_of_english_misses_nothing() -> None:
    assert lettering.fitted("a red cup, 50% off: caf\u00e9", 400, 200, 30).missing == 0


@pytest.mark.parametrize("text", ["word " * 60, "w" * 300, "", " "])
def test_caption_lines_fit_their_box(text: str) -> None:
    caption = lettering.fitted(text, 300, 120, 40)
    assert all(caption.font.getlength(line) <= 300 for line in caption.lines)


def test_caption_too_long_for_the_smallest_letters_ends_in_dots() -> None:
    caption = lettering.fitted("word " * 600, 100, 40, 20)
    assert caption.lines[-1].endswith("...")


def test_caption_breaks_english_between_words() -> None:
    lines = lettering.fitted("some plain words that need two lines", 150, 400, 20).lines
    assert " ".join(lines) == "some plain words that need two lines"


def test_font_of_the_package_goes_before_those_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "pylopdf_fonts_zh_cn"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "NotoSansSC-Regular.otf").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert lettering.chinese_font.__wrapped__() == package / "NotoSansSC-Regular.otf"


def test_bare_prompt_has_no_directives() -> None:
    assert bare("a red [[sim: slow 3]] cup [[sim: fail]]") == "a red cup"


@pytest.fixture(scope="module")
def clip() -> bytes:
    return clips.clip(CHINESE, 9, 320, 240, 2)


def test_clip_has_the_size_rate_and_length_asked_for(clip: bytes) -> None:
    with av.open(io.BytesIO(clip), "r") as container:
        stream = container.streams.video[0]
        assert stream.average_rate is not None
        seen = (stream.width, stream.height, float(stream.average_rate), stream.frames, container.duration)
    assert seen == (320, 240, clips.FPS, 2 * clips.FPS, 2_000_000)


def test_clip_is_what_browsers_play(clip: bytes) -> None:
    with av.open(io.BytesIO(clip), "r") as container:
        context = container.streams.video[0].codec_context
        assert (context.name, context.pix_fmt) == ("h264", "yuv420p")


def test_clip_has_its_index_in_front(clip: bytes) -> None:
    assert clip.index(b"moov") < clip.index(b"mdat")


def test_clip_moves(clip: bytes) -> None:
    with av.open(io.BytesIO(clip), "r") as container:
        frames = [frame.to_image() for frame in container.decode(video=0)]  # type: ignore[no-untyped-call]  # theirs
    assert ImageChops.difference(frames[0], frames[-1]).getbbox() is not None


def test_clip_of_the_same_prompt_and_seed_has_the_same_bytes(clip: bytes) -> None:
    assert clips.clip(CHINESE, 9, 320, 240, 2) == clip


def test_clip_of_another_seed_has_other_bytes(clip: bytes) -> None:
    assert clips.clip(CHINESE, 10, 320, 240, 2) != clip


def test_clip_of_five_seconds_in_720p_takes_three_seconds_of_work() -> None:
    began = time.process_time()
    clips.clip("a paper boat in rain", 7, 1280, 720, 5)
    assert time.process_time() - began < 3
