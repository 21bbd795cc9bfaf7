"""From asked to effective: every error at once, seeds, layers, what a model lacks, couplings, bounds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.contract import (
    FIELDS,
    OPTIONS,
    Checked,
    Coupling,
    Invalid,
    Kind,
    ModelBounds,
    Presets,
    Role,
    image_seeds,
    resolve,
)
from tests.unit.sample_models import (
    COMFY,
    PRESETS,
    QWEN,
    SEED,
    SEEDANCE,
    SEEDREAM,
    WAN,
    WEBUI,
    Asked,
    draw,
    made,
    refused,
)  # fmt: skip


def lines(checked: Checked) -> dict[str, str]:
    return {line.field: line.code for line in checked.adjustments}


# All at once


def test_every_error_is_named_at_once_sorted_by_pointer() -> None:
    with pytest.raises(Invalid) as caught:
        made(
            WEBUI, prompt=None, width="1", seed=2**64 - 1, foo=1, sampler="dpm_9000", image_count=9, fps=3, size="sqare"
        )
    errors = caught.value.errors
    assert [(error.pointer, error.code) for error in errors] == [
        ("/foo", "unknown_field"),
        ("/fps", "inconsistent"),
        ("/image_count", "out_of_range"),
        ("/prompt", "null_not_allowed"),
        ("/sampler", "not_one_of"),
        ("/seed", "out_of_range"),
        ("/size", "not_one_of"),
        ("/width", "invalid_type"),
    ]


def test_image_count_above_the_model_is_refused_with_the_range() -> None:
    error = refused(WEBUI, image_count=5)["/image_count"]
    assert error.code == "out_of_range"
    assert error.allowed == {"type": "integer", "min": 1, "max": 4}
    assert error.nearest == [4]


def test_prompt_is_measured_against_the_model_in_characters() -> None:
    assert made(WEBUI, prompt="字" * 800).effective["prompt"] == "字" * 800
    error = refused(WEBUI, prompt="x" * 10_000)["/prompt"]
    assert error.code == "too_long"
    assert "800" in error.detail
    assert "10000" in error.detail


def test_words_of_a_style_count_against_the_prompt() -> None:
    room = 800 - len(", anime")
    assert made(WEBUI, prompt="x" * room, style="anime").effective["prompt"] == "x" * room + ", anime"
    error = refused(WEBUI, prompt="x" * (room + 1), style="anime")["/prompt"]
    assert (error.code, error.allowed) == ("too_long", {"type": "string", "max_length": room})


# Seeds


@pytest.mark.parametrize("asked", [{}, {"seed": -1}, {"seed": None}])
def test_seed_is_drawn_inside_the_models_range(asked: Asked) -> None:
    ranges = []

    def spy(low: int, high: int) -> int:
        ranges.append((low, high))
        return high

    checked = resolve(Kind.IMAGE, {"prompt": "p", **asked}, QWEN, PRESETS, strict=True, draw=spy)
    assert ranges == [(0, 2**31 - 1)]
    assert checked.effective["seed"] == 2**31 - 1


def test_seed_zero_is_a_seed_like_any_other() -> None:
    assert made(WEBUI, seed=0).effective["seed"] == 0


@pytest.mark.parametrize(("bounds", "seed"), [(WEBUI, 2**64 - 1), (WEBUI, 2**32), (WEBUI, -2), (QWEN, 2**31)])
def test_seed_outside_the_models_range_is_refused(bounds: ModelBounds, seed: int) -> None:
    error = refused(bounds, seed=seed)["/seed"]
    assert error.code == "out_of_range"
    assert error.allowed == {"type": "integer", "min": -1, "max": bounds.seed_max}


def test_no_seed_is_drawn_for_a_model_without_seeds() -> None:
    checked = resolve(Kind.IMAGE, {"prompt": "p"}, SEEDREAM, PRESETS, strict=True, draw=lambda _low, _high: 1 // 0)
    assert "seed" not in checked.effective


@given(first=st.integers(0, 2**32 - 1), count=st.integers(1, 64))
def test_seeds_of_a_batch_wrap_inside_the_range(first: int, count: int) -> None:
    seeds = image_seeds(first, count)
    assert seeds[0] == first
    assert len(set(seeds)) == count
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_last_seed_counts_on_from_zero() -> None:
    assert image_seeds(4294967295, 4) == (4294967295, 0, 1, 2)


# Layers


def test_effective_is_complete() -> None:
    assert made(WEBUI).effective == {
        "prompt": "a kite",
        "negative_prompt": "",
        "width": 1024,
        "height": 1024,
        "steps": 30,
        "cfg_scale": 7.5,
        "sampler": "euler_a",
        "seed": SEED,
        "image_count": 1,
        "upscale_factor": 1,
    }
    assert set(made(WAN).effective) == {
        "prompt", "negative_prompt", "seed", "duration_s", "resolution", "ratio", "audio",
    }  # fmt: skip


def test_models_own_defaults_win_over_the_contracts() -> None:
    effective = made(COMFY).effective
    assert (effective["steps"], effective["sampler"]) == (20, "dpmpp_2m_karras")
    assert effective["cfg_scale"] == 7.5


def test_default_outside_the_models_range_is_moved_in_without_a_line() -> None:
    bounds = ModelBounds(kind=Kind.VIDEO, prompt_max=10, durations_s=(4, 8, 12), steps=None, resolutions=("1080p",))
    checked = resolve(Kind.VIDEO, {"prompt": "p"}, bounds, PRESETS, strict=True, draw=draw)
    assert checked.effective == {"prompt": "p", "duration_s": 4, "resolution": "1080p"}


@pytest.mark.parametrize(
    ("asked", "steps"),
    [
        ({}, 30),
        ({"style": "photo"}, 25),
        ({"style": "photo", "mode": "fast"}, 15),
        ({"style": "photo", "mode": "fast", "steps": 33}, 33),
    ],
)
def test_each_layer_wins_over_the_one_below(asked: Asked, steps: int) -> None:
    assert made(WEBUI, asked).effective["steps"] == steps


def test_forced_value_wins_over_an_explicit_one_with_a_line() -> None:
    checked = made(WEBUI, style="anime", negative_prompt="blur")
    assert checked.effective["negative_prompt"] == "photo"
    (line,) = checked.adjustments
    assert (line.field, line.code, line.asked, line.effective) == ("negative_prompt", "forced", "blur", "photo")


def test_forced_value_that_was_asked_for_anyway_needs_no_line() -> None:
    assert made(WEBUI, style="anime", negative_prompt="photo").adjustments == ()


def test_presets_value_is_clamped_with_a_line_and_an_explicit_one_is_refused() -> None:
    checked = made(COMFY, mode="quality")
    assert checked.effective["steps"] == 28
    assert lines(checked) == {"steps": "clamped"}
    assert refused(COMFY, steps=40)["/steps"].nearest == [28]
    assert refused(COMFY, mode="quality", strict=True)["/mode"].code == "not_supported_by_model"


def test_preset_that_says_nothing_about_this_kind_is_named() -> None:
    (line,) = made(WAN, mode="fast").adjustments
    assert (line.field, line.code, line.asked) == ("mode", "no_effect", "fast")
    (line,) = made(WEBUI, size="tier").adjustments
    assert (line.field, line.code) == ("size", "no_effect")


# What a model lacks

TUNING: Mapping[str, object] = {
    "negative_prompt": "blur", "steps": 20, "cfg_scale": 5, "sampler": "euler", "seed": 5, "fps": 30,
}  # fmt: skip
MAKING: Mapping[str, object] = {
    "image": "file_a", "image_count": 2, "first_frame": "file_a", "last_frame": "file_a", "resolution": "720p",
    "ratio": "16:9", "audio": True, "duration_s": 11, "upscale": "x2", "size": "square",
}  # fmt: skip
BARE = {
    Kind.IMAGE: ModelBounds(kind=Kind.IMAGE, prompt_max=100),
    Kind.VIDEO: ModelBounds(kind=Kind.VIDEO, prompt_max=100, durations_s=(5,)),
}


def test_every_parameter_has_a_role() -> None:
    by_role = {role: {spec.name for spec in FIELDS.values() if spec.role is role} for role in Role}
    assert by_role[Role.TUNING] == set(TUNING)
    assert by_role[Role.PROMPT] == {"prompt"}


@pytest.mark.parametrize("name", TUNING)
def test_tuning_parameter_the_model_lacks_is_left_out_and_named(name: str) -> None:
    for kind in FIELDS[name].kinds:
        checked = made(BARE[kind], {name: TUNING[name]})
        assert name not in checked.effective
        (line,) = checked.adjustments
        assert (line.field, line.code, line.asked, line.effective) == (name, "left_out", TUNING[name], None)
        assert refused(BARE[kind], {name: TUNING[name]}, strict=True)[f"/{name}"].code == "not_supported_by_model"


@pytest.mark.parametrize("name", MAKING)
def test_parameter_that_changes_what_is_made_is_refused(name: str) -> None:
    for kind in {**FIELDS, **OPTIONS}[name].kinds:
        error = refused(BARE[kind], {name: MAKING[name]})[f"/{name}"]
        expected = {"image_count": "out_of_range", "duration_s": "out_of_range"}.get(name, "not_supported_by_model")
        assert error.code == expected


@pytest.mark.parametrize(("kind", "name", "value"), [(Kind.VIDEO, "audio", False), (Kind.IMAGE, "negative_prompt", "")])
def test_value_that_says_no_more_than_nothing_is_fine_anywhere(kind: Kind, name: str, value: object) -> None:
    checked = made(BARE[kind], {name: value}, strict=True)
    assert name not in checked.effective
    assert checked.adjustments == ()


def test_mask_without_an_image_is_refused_at_the_image() -> None:
    assert refused(WEBUI, mask="file_m")["/image"].code == "required"
    assert refused(WAN, last_frame="file_m")["/first_frame"].code == "required"


def test_field_that_the_model_needs_is_required() -> None:
    assert refused(SEEDANCE)["/first_frame"].code == "required"
    assert made(SEEDANCE, first_frame="file_a").effective["first_frame"] == "file_a"


# Samplers


@pytest.mark.parametrize("text", ["DPM++ 2M Karras", "dpmpp_2m_karras", "dpm++ 2m KARRAS", "k_dpmpp_2m_ka"])
def test_sampler_is_understood_in_any_spelling(text: str) -> None:
    checked = made(WEBUI, sampler=text)
    assert checked.effective["sampler"] == "dpmpp_2m_karras"
    assert checked.adjustments == ()


def test_unknown_sampler_is_refused_with_the_known_ones() -> None:
    error = refused(WEBUI, sampler="dpm_9000")["/sampler"]
    assert error.code == "not_one_of"
    assert error.allowed is not None
    assert "euler_a" in str(error.allowed["values"])


def test_sampler_that_this_model_lacks_is_replaced_with_a_line() -> None:
    checked = made(COMFY, sampler="Restart")
    assert checked.effective["sampler"] == "dpmpp_2m_karras"
    assert lines(checked) == {"sampler": "replaced"}
    assert refused(COMFY, sampler="Restart", strict=True)["/sampler"].code == "not_supported_by_model"


# Couplings


def test_coupling_is_explained_and_names_what_is_allowed() -> None:
    assert made(WEBUI, steps=40, image_count=4).adjustments == ()
    assert made(WEBUI, steps=41).effective["image_count"] == 1
    error = refused(WEBUI, steps=41, image_count=2)["/image_count"]
    assert (error.code, error.allowed, error.nearest) == ("inconsistent", {"max": 1}, [1])
    assert "41" in error.detail
    assert "memory" in error.detail


def test_coupling_with_a_presets_value_says_where_it_came_from() -> None:
    error = refused(WEBUI, mode="finest", image_count=2)["/image_count"]
    assert "steps is 60 by the chosen mode" in error.detail


def test_default_gives_way_to_a_coupling_silently_a_preset_with_a_line() -> None:
    checked = made(WAN, first_frame="file_a")
    assert "ratio" not in checked.effective
    assert checked.adjustments == ()
    checked = made(WAN, first_frame="file_a", size="portrait")
    assert "ratio" not in checked.effective
    assert lines(checked) == {"ratio": "coupled"}
    assert refused(WAN, first_frame="file_a", ratio="9:16")["/ratio"].code == "inconsistent"


def test_couplings_that_cannot_both_be_met_are_refused() -> None:
    rules = (
        Coupling(when="prompt", then="steps", maximum=10),
        Coupling(when="prompt", then="steps", minimum=20),
    )
    bounds = ModelBounds(kind=Kind.IMAGE, prompt_max=100, steps=(1, 50), couplings=rules)
    assert refused(bounds)["/steps"].code == "inconsistent"


# Bounds


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"supports": frozenset({"stepz"})}, "did you mean steps"),
        ({"supports": frozenset({"fps"})}, "fps"),
        ({"supports": frozenset({"width"})}, "size"),
        ({"steps": (1, 20), "defaults": {"steps": 30}}, "steps = 30"),
        ({"defaults": {"steps": 30}}, "does not take it"),
        ({"prompt_max": 0}, "prompt_max"),
        ({"couplings": (Coupling(when="nope", then="steps"),)}, "nope"),
    ],
)
def test_bounds_that_contradict_themselves_cannot_be_built(wrong: Asked, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        ModelBounds(**{"kind": Kind.IMAGE, "prompt_max": 100, **wrong})  # type: ignore[arg-type]


def test_video_bounds_need_a_duration_and_known_words() -> None:
    with pytest.raises(ValueError, match="durations_s"):
        ModelBounds(kind=Kind.VIDEO, prompt_max=100)
    with pytest.raises(ValueError, match="frames"):
        ModelBounds(
            kind=Kind.VIDEO, prompt_max=9, durations_s=(5,), resolutions=("480p",), frames={("720p", "1:1"): (960, 960)}
        )


def test_bounds_of_the_other_kind_are_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="image"):
        resolve(Kind.VIDEO, {"prompt": "p"}, WEBUI, PRESETS, strict=False, draw=draw)


@pytest.mark.parametrize(
    ("rule", "fine", "broken", "mended"),
    [
        (Coupling(when="mode", then="x", choices=("a", "b")), "b", "c", "a"),
        (Coupling(when="mode", then="x", minimum=3), 3, 2, 3),
        (Coupling(when="mode", then="x", maximum=3), 3, 4, 3),
        (Coupling(when="mode", then="x", absent=True), None, 4, None),
        (Coupling(when="mode", then="x", equals=("on",), maximum=3), None, 4, 3),
    ],
    ids=["choices", "minimum", "maximum", "absent", "equals"],
)
def test_coupling_tells_fine_from_broken_and_mends(
    rule: Coupling, fine: object, broken: object, mended: object
) -> None:
    assert not rule.broken_by({"mode": "on", "x": fine})
    assert rule.broken_by({"mode": "on", "x": broken})
    assert not rule.broken_by({"x": broken})
    assert rule.mended(broken) == mended
    assert not rule.broken_by({"mode": "on", "x": mended})
    assert rule.explain().startswith("with mode")


def test_value_of_a_style_that_cannot_be_moved_into_range_is_refused_at_the_style() -> None:
    bounds = ModelBounds(kind=Kind.IMAGE, prompt_max=100, negative_prompt_max=3)
    error = refused(bounds, style="anime")["/style"]
    assert error.code == "not_supported_by_model"
    assert "negative_prompt" in error.detail


def test_shape_of_a_style_is_left_out_with_a_line_where_the_model_has_none() -> None:
    presets = Presets.from_tables({"styles": {"tall": {"ratio": "9:16"}}})
    bounds = ModelBounds(kind=Kind.IMAGE, prompt_max=100)
    asked = {"prompt": "p", "style": "tall"}
    checked = resolve(Kind.IMAGE, asked, bounds, presets, strict=False, draw=draw)
    assert lines(checked) == {"style": "left_out"}


def test_ratio_is_refused_as_a_size_and_left_to_the_first_frame_where_the_model_takes_none() -> None:
    bounds = ModelBounds(kind=Kind.VIDEO, prompt_max=100, durations_s=(5,), resolutions=("480p", "720p"))
    assert refused(bounds, size="portrait")["/size"].code == "not_supported_by_model"
    assert made(bounds, size="tier").effective["resolution"] == "480p"
