"""Sizes of pictures and frames of videos: refused with legal neighbours, presets moved to what a model makes."""

from __future__ import annotations

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from models.contract import Kind, ModelBounds, SizeRule
from models.sizes import MEGAPIXEL
from tests.unit.sample_models import COMFY, QWEN, SEEDANCE, SEEDREAM, WAN, WEBUI, made, refused

SIDES = st.integers(1, 20_000)


@st.composite
def rules(draw: st.DrawFn) -> SizeRule:
    low = draw(st.integers(64, 1024))
    try:
        return SizeRule(
            step=draw(st.sampled_from([1, 2, 8, 16, 32, 64])),
            min_side=low,
            max_side=low + draw(st.integers(64, 4096)),
            min_pixels=draw(st.none() | st.integers(1, 4_000_000)),
            max_pixels=draw(st.none() | st.integers(100_000, 17_000_000)),
            min_ratio=draw(st.none() | st.sampled_from([1 / 16, 1 / 3, 0.5, 1.0])),
            max_ratio=draw(st.none() | st.sampled_from([16, 3.0, 16 / 9, 1.0])),
            sizes=draw(st.just(()) | st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=6).map(tuple)),
        )
    except ValueError:
        reject()


@given(rules(), SIDES, SIDES)
def test_whatever_is_named_as_nearest_or_fits_is_legal(rule: SizeRule, width: int, height: int) -> None:
    near = rule.nearest(width, height)
    assert 1 <= len(near) <= 4
    for size in (*near, rule.fit(width, height, width * height), rule.fit(16, 9, MEGAPIXEL)):
        assert rule.check(*size) == ()
        assert rule.is_legal(*size)


@given(rules(), SIDES, SIDES)
def test_check_agrees_with_is_legal_and_a_legal_size_stays(rule: SizeRule, width: int, height: int) -> None:
    assert (rule.check(width, height) == ()) == rule.is_legal(width, height)
    size = rule.nearest(width, height)[0]
    assert rule.nearest(*size) == (size,)
    assert rule.fit(*size, size[0] * size[1]) == size


@given(rules(), SIDES, SIDES, st.sampled_from(["width", "height"]))
def test_partner_makes_a_legal_size(rule: SizeRule, side: int, wanted: int, name: str) -> None:
    other = rule.partner(name, side, wanted)
    if other is not None:
        assert rule.is_legal(*((side, other) if name == "width" else (other, side)))


@given(rules(), st.integers(64, 5000))
def test_limited_rule_keeps_below_its_limit(rule: SizeRule, limit: int) -> None:
    tight = rule.limited(limit)
    if tight is not None:
        size = tight.fit(1, 1, MEGAPIXEL)
        assert max(size) <= limit
        assert rule.is_legal(*size)


def test_rule_without_any_legal_size_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="no size"):
        SizeRule(max_side=100, min_pixels=1_000_000)
    with pytest.raises(ValueError, match="no size"):
        SizeRule(min_side=600, max_pixels=1000)
    with pytest.raises(ValueError, match="no size"):
        SizeRule(step=64, min_side=65, max_side=127)
    with pytest.raises(ValueError, match="no size"):
        SizeRule(step=0)


# Images


def test_side_off_the_grid_is_refused_with_its_neighbours() -> None:
    errors = refused(WEBUI, width=1920, height=1080)
    assert list(errors) == ["/height"]
    error = errors["/height"]
    assert error.code == "out_of_range"
    assert error.nearest == [1072, 1088]
    assert error.allowed == {"min": 64, "max": 2048, "step": 16}
    assert all(word in error.detail for word in ("16", "1072", "1088"))
    effective = made(WEBUI, width=1920, height=1072).effective
    assert (effective["width"], effective["height"]) == (1920, 1072)


def test_area_below_the_floor_names_a_size_of_the_same_ratio() -> None:
    errors = refused(SEEDREAM, width=720, height=1280)
    assert list(errors) == ["/height", "/width"]
    for error in errors.values():
        assert "3686400" in error.detail
        assert error.nearest == [{"width": 1440, "height": 2560}]


@pytest.mark.parametrize(
    ("width", "height", "said"),
    [(5000, 5000, "at most 16777216"), (16000, 900, "between 0.0625 and 16")],
    ids=["area", "ratio"],
)
def test_area_or_ratio_outside_is_refused_with_the_rule(width: int, height: int, said: str) -> None:
    error = refused(SEEDREAM, width=width, height=height)["/width"]
    assert error.code == "out_of_range"
    assert said in error.detail


def test_preset_below_the_floor_is_made_larger_in_the_same_ratio() -> None:
    checked = made(SEEDREAM, size="portrait")
    assert (checked.effective["width"], checked.effective["height"]) == (1440, 2560)
    (line,) = checked.adjustments
    assert (line.field, line.code, line.asked, line.effective) == ("size", "size_moved", "portrait", "1440x2560")


def test_nothing_but_a_prompt_gives_the_models_own_size() -> None:
    effective = made(SEEDREAM).effective
    assert (effective["width"], effective["height"]) == (2048, 2048)


@pytest.mark.parametrize(
    ("preset", "size"),
    [("square", (1024, 1024)), ("portrait", (768, 1344)), ("landscape", (1344, 768)), ("hd", (1920, 1088))],
)
def test_preset_becomes_the_nearest_size_on_the_grid(preset: str, size: tuple[int, int]) -> None:
    effective = made(COMFY, size=preset).effective
    assert (effective["width"], effective["height"]) == size


def test_preset_becomes_one_of_the_listed_sizes_even_under_strict() -> None:
    checked = made(QWEN, size="square", strict=True)
    assert (checked.effective["width"], checked.effective["height"]) == (1328, 1328)


def test_size_that_is_not_listed_is_refused_with_the_list() -> None:
    error = refused(QWEN, width=1000, height=1000)["/width"]
    assert error.code == "not_one_of"
    assert error.nearest is not None
    assert error.nearest[0] == {"width": 1328, "height": 1328}


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        ({"width": 512}, (512, 1024)),
        ({"height": 512, "size": "square"}, (1024, 512)),
        ({"width": 512, "height": 768, "size": "square"}, (512, 768)),
    ],
)
def test_explicit_side_wins_over_a_preset(asked: dict[str, object], size: tuple[int, int]) -> None:
    effective = made(WEBUI, asked).effective
    assert (effective["width"], effective["height"]) == size


def test_side_alone_finds_its_listed_partner() -> None:
    effective = made(QWEN, width=1104).effective
    assert (effective["width"], effective["height"]) == (1104, 1472)
    assert list(refused(QWEN, width=1105)) == ["/width"]


def test_largest_side_of_a_style_binds_presets_and_refuses_explicit_sides() -> None:
    effective = made(WEBUI, style="anime", size="hd").effective
    assert (effective["width"], effective["height"]) == (1024, 576)
    error = refused(WEBUI, style="anime", width=1920, height=512)["/width"]
    assert (error.code, error.allowed, error.nearest) == ("inconsistent", {"max": 1024}, [1024])


def test_largest_side_that_the_model_cannot_keep_is_lifted_with_a_line() -> None:
    checked = made(SEEDREAM, style="anime")
    assert ("style", "limit_lifted") in {(line.field, line.code) for line in checked.adjustments}
    assert checked.effective["width"] == 2048
    assert "/style" in refused(SEEDREAM, style="anime", strict=True)


def test_fault_of_one_side_is_not_told_twice() -> None:
    assert list(refused(WEBUI, width="1024", height=1080)) == ["/width"]


def test_default_size_must_be_whole_and_legal() -> None:
    for wrong, said in (({"width": 1024}, "together"), ({"width": 1000, "height": 1024}, "1000")):
        with pytest.raises(ValueError, match=said):
            ModelBounds(kind=Kind.IMAGE, prompt_max=9, size=WEBUI.size, defaults=wrong)
    with pytest.raises(ValueError, match="legal size"):
        ModelBounds(kind=Kind.IMAGE, prompt_max=9, size=SEEDREAM.size, defaults={"width": 1024, "height": 1024})


# Videos


@pytest.mark.parametrize(
    ("asked", "frame"),
    [
        ({}, ("720p", "16:9")),
        ({"size": "square"}, ("720p", "1:1")),
        ({"size": "portrait"}, ("720p", "9:16")),
        ({"size": "hd"}, ("1080p", "16:9")),
        ({"size": "wide"}, ("720p", "16:9")),
        ({"size": "tier"}, ("480p", "16:9")),
        ({"resolution": "480p"}, ("480p", "16:9")),
        ({"ratio": "1:1"}, ("720p", "1:1")),
        ({"size": "portrait", "resolution": "480p"}, ("480p", "9:16")),
        ({"size": "hd", "ratio": "9:16"}, ("720p", "9:16")),
    ],
)
def test_video_size_becomes_a_pair_that_the_model_makes(asked: dict[str, object], frame: tuple[str, str]) -> None:
    effective = made(WAN, asked).effective
    assert (effective["resolution"], effective["ratio"]) == frame
    assert WAN.frame_px(effective) == WAN.frames[frame]


def test_ratio_that_the_tier_does_not_have_is_refused_with_those_it_has() -> None:
    error = refused(WAN, resolution="480p", ratio="1:1")["/ratio"]
    assert (error.code, error.nearest) == ("inconsistent", ["16:9", "9:16"])


def test_preset_whose_ratio_the_tier_does_not_have_is_moved_with_a_line() -> None:
    checked = made(WAN, size="square", resolution="480p")
    assert checked.effective["ratio"] in {"16:9", "9:16"}
    assert [line.code for line in checked.adjustments] == ["size_moved"]


def test_model_without_a_table_takes_tier_and_ratio_as_they_are() -> None:
    effective = made(SEEDANCE, first_frame="file_a", size="hd").effective
    assert (effective["resolution"], effective["ratio"]) == ("1080p", "16:9")
    assert SEEDANCE.frame_px(effective) is None
    effective = made(SEEDANCE, first_frame="file_a", size="square").effective
    assert (effective["resolution"], effective["ratio"]) == ("1080p", "1:1")
    assert made(SEEDANCE, first_frame="file_a", ratio="adaptive").effective["ratio"] == "adaptive"
