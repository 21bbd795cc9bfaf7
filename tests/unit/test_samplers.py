"""Samplers: every spelling finds ours, every vendor's name has a place or a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.samplers import COMFY_SAMPLERS, SAMPLERS, UNPLACED, WEBUI_SAMPLERS, Sampler, parse_sampler

COMFY_NAMES = [
    "euler",
    "euler_cfg_pp",
    "euler_ancestral",
    "euler_ancestral_cfg_pp",
    "heun",
    "heunpp2",
    "exp_heun_2_x0",
    "exp_heun_2_x0_sde",
    "dpm_2",
    "dpm_2_ancestral",
    "lms",
    "dpm_fast",
    "dpm_adaptive",
    "dpmpp_2s_ancestral",
    "dpmpp_2s_ancestral_cfg_pp",
    "dpmpp_sde",
    "dpmpp_sde_gpu",
    "dpmpp_2m",
    "dpmpp_2m_cfg_pp",
    "dpmpp_2m_sde",
    "dpmpp_2m_sde_gpu",
    "dpmpp_2m_sde_heun",
    "dpmpp_2m_sde_heun_gpu",
    "dpmpp_3m_sde",
    "dpmpp_3m_sde_gpu",
    "ddpm",
    "lcm",
    "ipndm",
    "ipndm_v",
    "deis",
    "res_multistep",
    "res_multistep_cfg_pp",
    "res_multistep_ancestral",
    "res_multistep_ancestral_cfg_pp",
    "gradient_estimation",
    "gradient_estimation_cfg_pp",
    "er_sde",
    "seeds_2",
    "seeds_3",
    "sa_solver",
    "sa_solver_pece",
    "ddim",
    "uni_pc",
    "uni_pc_bh2",
]
COMFY_SCHEDULERS = [
    "simple",
    "sgm_uniform",
    "karras",
    "exponential",
    "ddim_uniform",
    "beta",
    "normal",
    "linear_quadratic",
    "kl_optimal",
]
WEBUI_NAMES = [
    "DPM++ 2M",
    "DPM++ SDE",
    "DPM++ 2M SDE",
    "DPM++ 2M SDE Heun",
    "DPM++ 2S a",
    "DPM++ 3M SDE",
    "Euler a",
    "Euler",
    "LMS",
    "Heun",
    "DPM2",
    "DPM2 a",
    "DPM fast",
    "DPM adaptive",
    "Restart",
    "HeunPP2",
    "IPNDM",
    "IPNDM_V",
    "DEIS",
    "DDIM",
    "DDIM CFG++",
    "PLMS",
    "UniPC",
    "LCM",
    "DDPM",
]
WEBUI_SCHEDULERS = [
    "Automatic",
    "Uniform",
    "Karras",
    "Exponential",
    "Polyexponential",
    "SGM Uniform",
    "KL Optimal",
    "Align Your Steps",
    "Simple",
    "Normal",
    "DDIM",
    "Beta",
    "Turbo",
    "Align Your Steps GITS",
    "Align Your Steps 11",
    "Align Your Steps 32",
]
# As WebUI up to 1.8 listed them, the schedule inside the name.
WEBUI_JOINED = {
    "DPM++ 2M Karras": Sampler.DPMPP_2M_KARRAS,
    "DPM++ SDE Karras": Sampler.DPMPP_SDE_KARRAS,
    "DPM++ 2M SDE Exponential": Sampler.DPMPP_2M_SDE_EXPONENTIAL,
    "DPM++ 2M SDE Karras": Sampler.DPMPP_2M_SDE_KARRAS,
    "DPM++ 2M SDE Heun Karras": Sampler.DPMPP_2M_SDE_HEUN_KARRAS,
    "DPM++ 2M SDE Heun Exponential": Sampler.DPMPP_2M_SDE_HEUN_EXPONENTIAL,
    "DPM++ 3M SDE Karras": Sampler.DPMPP_3M_SDE_KARRAS,
    "DPM++ 3M SDE Exponential": Sampler.DPMPP_3M_SDE_EXPONENTIAL,
    "LMS Karras": Sampler.LMS_KARRAS,
    "DPM2 Karras": Sampler.DPM2_KARRAS,
    "DPM2 a Karras": Sampler.DPM2_A_KARRAS,
    "DPM++ 2S a Karras": Sampler.DPMPP_2S_A_KARRAS,
}


def test_every_sampler_is_its_own_spelling_and_has_a_vendor() -> None:
    for sampler in Sampler:
        assert parse_sampler(sampler.value) is sampler
        assert parse_sampler(sampler.value.upper().replace("_", " ")) is sampler
        assert SAMPLERS[sampler].webui or SAMPLERS[sampler].comfy
    assert set(SAMPLERS) == set(Sampler)


def test_no_two_samplers_are_sent_as_the_same_pair() -> None:
    webui = [SAMPLERS[sampler].webui for sampler in WEBUI_SAMPLERS]
    # ComfyUI has no "ordinary" schedule: there it is the one called normal.
    comfy = [SAMPLERS[sampler].comfy for sampler in COMFY_SAMPLERS if not sampler.endswith("_normal")]
    assert len(set(webui)) == len(webui)
    assert len(set(comfy)) == len(comfy)


@pytest.mark.parametrize(
    ("known", "side", "place"),
    [
        (COMFY_NAMES, "comfy", 0),
        (COMFY_SCHEDULERS, "comfy", 1),
        (WEBUI_NAMES, "webui", 0),
        (WEBUI_SCHEDULERS, "webui", 1),
    ],
    ids=["comfy samplers", "comfy schedulers", "webui samplers", "webui schedulers"],
)
def test_every_vendor_name_has_a_place_or_a_reason(known: list[str], side: str, place: int) -> None:
    pairs = [getattr(names, side) for names in SAMPLERS.values()]
    placed = {pair[place] for pair in pairs if pair}
    assert placed <= set(known), "a name that the vendor does not have"
    assert set(known) <= placed | set(UNPLACED)


@pytest.mark.parametrize("text", [*WEBUI_NAMES, *COMFY_NAMES, *WEBUI_JOINED])
def test_vendors_spelling_is_understood(text: str) -> None:
    found = parse_sampler(text)
    names = SAMPLERS[found]
    plain = text.removesuffix("_gpu")
    assert plain in {*(names.webui or ()), *(names.comfy or ())} or found is WEBUI_JOINED[text]


@pytest.mark.parametrize(
    ("text", "sampler"),
    [
        ("k_euler_a", Sampler.EULER_A),
        ("k_euler_ancestral", Sampler.EULER_A),
        ("k_dpmpp_2m_ka", Sampler.DPMPP_2M_KARRAS),
        ("k_dpm_2_a_ka", Sampler.DPM2_A_KARRAS),
        ("K_DPM_2", Sampler.DPM2),
        ("dpmpp_2m karras", Sampler.DPMPP_2M_KARRAS),
        ("dpm++ 2m KARRAS", Sampler.DPMPP_2M_KARRAS),
        ("  Euler   A  ", Sampler.EULER_A),
        ("euler normal", Sampler.EULER_NORMAL),
        ("heun normal", Sampler.HEUN),
        ("UniPC", Sampler.UNIPC),
    ],
)
def test_usual_spellings_are_understood(text: str, sampler: Sampler) -> None:
    assert parse_sampler(text) is sampler


def test_split_for_each_vendor_is_exact() -> None:
    names = SAMPLERS[Sampler.DPMPP_2M_KARRAS]
    assert names.webui == ("DPM++ 2M", "Karras")
    assert names.comfy == ("dpmpp_2m", "karras")
    assert SAMPLERS[Sampler.EULER_A].webui == ("Euler a", "Automatic")
    assert SAMPLERS[Sampler.EULER_A].comfy == ("euler_ancestral", "normal")
    assert SAMPLERS[Sampler.DDIM].comfy == ("ddim", "ddim_uniform")
    assert SAMPLERS[Sampler.RESTART].comfy is None


@pytest.mark.parametrize("text", ["dpm_9000", "", "karras", "DPM++", "euler " * 20])
def test_unknown_sampler_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown sampler"):
        parse_sampler(text)


def test_unknown_sampler_names_what_sounds_alike() -> None:
    with pytest.raises(ValueError, match="dpmpp_2m"):
        parse_sampler("dpmpp_22m")


@given(st.text(max_size=80))
def test_any_text_is_a_sampler_or_a_value_error(text: str) -> None:
    try:
        found = parse_sampler(text)
    except ValueError:
        return
    assert found in SAMPLERS
