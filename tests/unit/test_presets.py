"""Presets: read strictly, expanded once and for all, explicit values on top, forced ones above them."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.fields import Kind
from models.presets import Presets, Wish, expand
from tests.unit.sample_models import PRESETS, TABLES

WORDS = {
    option: st.sampled_from([None, "nope", *PRESETS.family(option)]) for option in ("style", "mode", "size", "upscale")
}
REQUESTS = st.fixed_dictionaries(
    {"prompt": st.text(min_size=1, max_size=9)},
    optional={
        **WORDS,
        "steps": st.integers(1, 99),
        "negative_prompt": st.text(max_size=3),
        "width": st.just(512),
        "seed": st.none() | st.integers(0, 9),
    },
)


@given(st.sampled_from(Kind), REQUESTS)
def test_expanding_twice_changes_nothing(kind: Kind, asked: dict[str, object]) -> None:
    once = expand(kind, asked, PRESETS)
    twice = expand(kind, once.values, PRESETS)
    assert twice.values == once.values
    assert not {"style", "mode", "size", "upscale"} & set(once.values)


@given(st.sampled_from(Kind), REQUESTS)
def test_explicit_value_wins_unless_it_was_forced_away(kind: Kind, asked: dict[str, object]) -> None:
    expanded = expand(kind, asked, PRESETS)
    forced = {line.field: line for line in expanded.overruled}
    for name in ("steps", "negative_prompt", "width", "seed"):
        value = asked.get(name)
        if value is None:
            continue
        if name in forced:
            assert (forced[name].asked, forced[name].by) == (value, "style")
        else:
            assert expanded.values[name] == value


def test_tables_come_back_as_they_were() -> None:
    assert PRESETS.to_tables() == TABLES
    assert Presets.from_tables(PRESETS.to_tables()) == PRESETS
    assert Presets.from_tables({}) == Presets()


def test_style_puts_its_words_around_the_prompt_once() -> None:
    expanded = expand(Kind.IMAGE, {"prompt": "a {prompt} {0}", "style": "watercolor"}, PRESETS)
    assert expanded.values["prompt"] == "watercolor of a {prompt} {0}"
    assert expanded.words == len("watercolor of ")


def test_layers_are_named() -> None:
    asked = {"prompt": "p", "style": "photo", "mode": "fast", "upscale": "x2", "seed": 5}
    expanded = expand(Kind.IMAGE, asked, PRESETS)
    assert expanded.values["steps"] == 15
    assert expanded.by == {
        "cfg_scale": "style", "steps": "mode", "upscale_factor": "upscale", "prompt": "", "seed": "",
    }  # fmt: skip


def test_values_of_the_other_kind_do_not_apply() -> None:
    expanded = expand(Kind.VIDEO, {"prompt": "p", "mode": "fast", "style": "anime"}, PRESETS)
    assert expanded.idle == ("mode",)
    assert "steps" not in expanded.values
    assert expanded.max_side is None
    assert expanded.values["negative_prompt"] == "photo"


def test_shape_comes_from_the_strongest_that_names_each_part() -> None:
    tables = {
        "styles": {"tall": {"ratio": "9:16", "megapixels": 2}},
        "modes": {"small": {"resolution": "480p"}},
        "sizes": {"wide": {"ratio": "16:9"}},
    }
    presets = Presets.from_tables(tables)
    asked = {"prompt": "p", "style": "tall", "mode": "small", "size": "wide"}
    video = expand(Kind.VIDEO, asked, presets)
    assert (video.wish, video.wish_by) == (Wish(ratio=(16, 9), area=2 * 1024 * 1024, resolution="480p"), "size")
    image = expand(Kind.IMAGE, {"prompt": "p", "style": "tall", "mode": "small"}, presets)
    assert (image.wish_by, image.idle) == ("style", ("mode",))


def test_smallest_largest_side_counts() -> None:
    presets = Presets.from_tables({"styles": {"a": {"max_side": 1024}}, "modes": {"b": {"max_side": 512}}})
    expanded = expand(Kind.IMAGE, {"prompt": "p", "style": "a", "mode": "b"}, presets)
    assert (expanded.max_side, expanded.max_side_by) == (512, "mode")


@pytest.mark.parametrize(
    ("family", "row", "said"),
    [
        ("styles", {"stepz": 3}, ["presets.styles.x.stepz", "did you mean steps"]),
        ("styles", {"steps": 1000}, ["presets.styles.x.steps", "between 1 and 150", "1000"]),
        ("styles", {"steps": "20"}, ["presets.styles.x.steps", "must be an integer", "'20'"]),
        ("styles", {"sampler": "dpm_9000"}, ["presets.styles.x.sampler", "must be one of"]),
        ("styles", {"force": {"promt": "x"}}, ["presets.styles.x.force.promt"]),
        ("styles", {"force": {"steps": 0}}, ["presets.styles.x.force.steps", "between 1 and 150"]),
        ("styles", {"force": 3}, ["presets.styles.x.force", "table"]),
        ("styles", {"prompt": "no hole"}, ["presets.styles.x.prompt", "{prompt}"]),
        ("styles", {"prompt": "{prompt} {prompt}"}, ["presets.styles.x.prompt"]),
        ("styles", {"max_side": 10}, ["presets.styles.x.max_side", "between 64 and 16384"]),
        ("styles", {"image": "file_a"}, ["presets.styles.x.image"]),
        ("modes", {"doc": 3}, ["presets.modes.x.doc"]),
        ("sizes", {"width": 1024}, ["presets.sizes.x.height", "together"]),
        ("sizes", {"width": 10, "height": 1024}, ["presets.sizes.x.width", "between 64"]),
        ("sizes", {"width": 1024, "height": 1024, "ratio": "1:1"}, ["presets.sizes.x.ratio", "not both"]),
        ("sizes", {"ratio": "16x9"}, ["presets.sizes.x.ratio", "'16x9'"]),
        ("sizes", {"ratio": "1:1", "megapixels": 0}, ["presets.sizes.x.megapixels", "between"]),
        ("sizes", {"doc": "nothing"}, ["presets.sizes.x.width", "required"]),
        ("sizes", {"steps": 3}, ["presets.sizes.x.steps"]),
        ("upscales", {}, ["presets.upscales.x.factor", "between 1 and 8"]),
        ("upscales", {"factor": 9}, ["presets.upscales.x.factor", "between 1 and 8"]),
        ("styles", 3, ["presets.styles.x", "table"]),
        ("style", {}, ["presets.style", "did you mean styles"]),
    ],
    ids=str,
)
def test_faulty_row_is_refused_with_key_value_and_range(family: str, row: object, said: list[str]) -> None:
    with pytest.raises(ValueError, match=r"presets\.") as caught:
        Presets.from_tables({family: {"x": row}})
    for words in said:
        assert words in str(caught.value)


def test_every_faulty_row_is_named_at_once() -> None:
    tables = copy.deepcopy(TABLES) | {"modes": {"a": {"steps": 0}, "b": {"stepz": 1}}, "sizes": 3}
    with pytest.raises(ValueError, match=r"presets\.") as caught:
        Presets.from_tables(tables)
    assert len(str(caught.value).splitlines()) == 3


def test_sampler_of_a_preset_is_kept_in_our_spelling() -> None:
    presets = Presets.from_tables({"modes": {"m": {"sampler": "DPM++ 2M Karras"}}})
    assert presets.modes["m"].values == {"sampler": "dpmpp_2m_karras"}
