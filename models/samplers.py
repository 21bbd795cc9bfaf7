"""PURE  Samplers: our names for them, other people's spellings, and what each vendor calls them.

Vendors name the same thing in three ways: one display name with the schedule inside ("DPM++ 2M
Karras", WebUI up to 1.8), a name and a schedule (WebUI since 1.9, case-sensitive: a wrongly cased
schedule is silently ignored), and two identifiers (ComfyUI). Ours is one word, method and then
schedule: `dpmpp_2m_karras`. Without a schedule it is the vendor's ordinary one for that method.

Invariant: a vendor is sent the very method and schedule that were asked, or the sampler has no name
there. Near misses are no names: what is reported is what was used.

Sources: ComfyUI's /object_info of a real server (44 methods, 9 schedules), the WebUI and Forge
lists of samplers and schedulers (2025-06).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Sampler(StrEnum):
    """Our samplers: a method, followed by its schedule where it is not the ordinary one."""

    EULER = "euler"
    EULER_KARRAS = "euler_karras"
    EULER_EXPONENTIAL = "euler_exponential"
    EULER_SGM_UNIFORM = "euler_sgm_uniform"
    EULER_SIMPLE = "euler_simple"
    EULER_NORMAL = "euler_normal"
    EULER_UNIFORM = "euler_uniform"
    EULER_DDIM_UNIFORM = "euler_ddim_uniform"
    EULER_BETA = "euler_beta"
    EULER_KL_OPTIMAL = "euler_kl_optimal"
    EULER_LINEAR_QUADRATIC = "euler_linear_quadratic"
    EULER_A = "euler_a"
    EULER_A_KARRAS = "euler_a_karras"
    EULER_A_EXPONENTIAL = "euler_a_exponential"
    EULER_A_SGM_UNIFORM = "euler_a_sgm_uniform"
    EULER_A_SIMPLE = "euler_a_simple"
    EULER_A_NORMAL = "euler_a_normal"
    EULER_A_BETA = "euler_a_beta"
    HEUN = "heun"
    HEUN_KARRAS = "heun_karras"
    HEUN_EXPONENTIAL = "heun_exponential"
    HEUN_SIMPLE = "heun_simple"
    HEUNPP2 = "heunpp2"
    LMS = "lms"
    LMS_KARRAS = "lms_karras"
    DPM2 = "dpm2"
    DPM2_KARRAS = "dpm2_karras"
    DPM2_A = "dpm2_a"
    DPM2_A_KARRAS = "dpm2_a_karras"
    DPM_FAST = "dpm_fast"
    DPM_ADAPTIVE = "dpm_adaptive"
    DPMPP_2S_A = "dpmpp_2s_a"
    DPMPP_2S_A_KARRAS = "dpmpp_2s_a_karras"
    DPMPP_SDE = "dpmpp_sde"
    DPMPP_SDE_KARRAS = "dpmpp_sde_karras"
    DPMPP_SDE_EXPONENTIAL = "dpmpp_sde_exponential"
    DPMPP_SDE_SGM_UNIFORM = "dpmpp_sde_sgm_uniform"
    DPMPP_2M = "dpmpp_2m"
    DPMPP_2M_KARRAS = "dpmpp_2m_karras"
    DPMPP_2M_EXPONENTIAL = "dpmpp_2m_exponential"
    DPMPP_2M_POLYEXPONENTIAL = "dpmpp_2m_polyexponential"
    DPMPP_2M_SGM_UNIFORM = "dpmpp_2m_sgm_uniform"
    DPMPP_2M_SIMPLE = "dpmpp_2m_simple"
    DPMPP_2M_NORMAL = "dpmpp_2m_normal"
    DPMPP_2M_UNIFORM = "dpmpp_2m_uniform"
    DPMPP_2M_BETA = "dpmpp_2m_beta"
    DPMPP_2M_KL_OPTIMAL = "dpmpp_2m_kl_optimal"
    DPMPP_2M_LINEAR_QUADRATIC = "dpmpp_2m_linear_quadratic"
    DPMPP_2M_ALIGN_YOUR_STEPS = "dpmpp_2m_align_your_steps"
    DPMPP_2M_SDE = "dpmpp_2m_sde"
    DPMPP_2M_SDE_KARRAS = "dpmpp_2m_sde_karras"
    DPMPP_2M_SDE_EXPONENTIAL = "dpmpp_2m_sde_exponential"
    DPMPP_2M_SDE_POLYEXPONENTIAL = "dpmpp_2m_sde_polyexponential"
    DPMPP_2M_SDE_SGM_UNIFORM = "dpmpp_2m_sde_sgm_uniform"
    DPMPP_2M_SDE_BETA = "dpmpp_2m_sde_beta"
    DPMPP_2M_SDE_ALIGN_YOUR_STEPS = "dpmpp_2m_sde_align_your_steps"
    DPMPP_2M_SDE_HEUN = "dpmpp_2m_sde_heun"
    DPMPP_2M_SDE_HEUN_KARRAS = "dpmpp_2m_sde_heun_karras"
    DPMPP_2M_SDE_HEUN_EXPONENTIAL = "dpmpp_2m_sde_heun_exponential"
    DPMPP_3M_SDE = "dpmpp_3m_sde"
    DPMPP_3M_SDE_KARRAS = "dpmpp_3m_sde_karras"
    DPMPP_3M_SDE_EXPONENTIAL = "dpmpp_3m_sde_exponential"
    DPMPP_3M_SDE_POLYEXPONENTIAL = "dpmpp_3m_sde_polyexponential"
    DPMPP_3M_SDE_SGM_UNIFORM = "dpmpp_3m_sde_sgm_uniform"
    DDIM = "ddim"
    DDIM_CFG_PP = "ddim_cfg_pp"
    DDPM = "ddpm"
    PLMS = "plms"
    UNIPC = "unipc"
    UNIPC_KARRAS = "unipc_karras"
    UNIPC_SGM_UNIFORM = "unipc_sgm_uniform"
    UNIPC_BH2 = "unipc_bh2"
    LCM = "lcm"
    LCM_SGM_UNIFORM = "lcm_sgm_uniform"
    LCM_SIMPLE = "lcm_simple"
    DEIS = "deis"
    DEIS_KARRAS = "deis_karras"
    DEIS_BETA = "deis_beta"
    IPNDM = "ipndm"
    IPNDM_V = "ipndm_v"
    RESTART = "restart"
    EULER_CFG_PP = "euler_cfg_pp"
    RES_MULTISTEP = "res_multistep"
    RES_MULTISTEP_CFG_PP = "res_multistep_cfg_pp"
    GRADIENT_ESTIMATION = "gradient_estimation"
    GRADIENT_ESTIMATION_CFG_PP = "gradient_estimation_cfg_pp"
    ER_SDE = "er_sde"
    SEEDS_2 = "seeds_2"
    SEEDS_3 = "seeds_3"
    SA_SOLVER = "sa_solver"
    SA_SOLVER_PECE = "sa_solver_pece"
    DPMPP_2M_CFG_PP = "dpmpp_2m_cfg_pp"
    EXP_HEUN_2_X0 = "exp_heun_2_x0"
    EXP_HEUN_2_X0_SDE = "exp_heun_2_x0_sde"
    EULER_A_CFG_PP = "euler_a_cfg_pp"
    DPMPP_2S_A_CFG_PP = "dpmpp_2s_a_cfg_pp"
    RES_MULTISTEP_A = "res_multistep_a"
    RES_MULTISTEP_A_CFG_PP = "res_multistep_a_cfg_pp"


@dataclass(frozen=True, kw_only=True)
class VendorNames:
    """What vendors call one sampler; None where a vendor has none that does the same."""

    webui: tuple[str, str] | None  # (sampler_name, scheduler label)
    comfy: tuple[str, str] | None  # (sampler_name, scheduler)


_METHODS: Mapping[str, tuple[str | None, str | None]] = {  # ours: (WebUI, ComfyUI)
    "euler": ("Euler", "euler"),
    "euler_a": ("Euler a", "euler_ancestral"),
    "heun": ("Heun", "heun"),
    "heunpp2": ("HeunPP2", "heunpp2"),
    "lms": ("LMS", "lms"),
    "dpm2": ("DPM2", "dpm_2"),
    "dpm2_a": ("DPM2 a", "dpm_2_ancestral"),
    "dpm_fast": ("DPM fast", "dpm_fast"),
    "dpm_adaptive": ("DPM adaptive", "dpm_adaptive"),
    "dpmpp_2s_a": ("DPM++ 2S a", "dpmpp_2s_ancestral"),
    "dpmpp_sde": ("DPM++ SDE", "dpmpp_sde"),
    "dpmpp_2m": ("DPM++ 2M", "dpmpp_2m"),
    "dpmpp_2m_sde": ("DPM++ 2M SDE", "dpmpp_2m_sde"),
    "dpmpp_2m_sde_heun": ("DPM++ 2M SDE Heun", "dpmpp_2m_sde_heun"),
    "dpmpp_3m_sde": ("DPM++ 3M SDE", "dpmpp_3m_sde"),
    "ddim": ("DDIM", "ddim"),
    "ddim_cfg_pp": ("DDIM CFG++", None),
    "ddpm": ("DDPM", "ddpm"),
    "plms": ("PLMS", None),
    "unipc": ("UniPC", "uni_pc"),
    "unipc_bh2": (None, "uni_pc_bh2"),
    "lcm": ("LCM", "lcm"),
    "deis": ("DEIS", "deis"),
    "ipndm": ("IPNDM", "ipndm"),
    "ipndm_v": ("IPNDM_V", "ipndm_v"),
    "restart": ("Restart", None),
    "euler_cfg_pp": (None, "euler_cfg_pp"),
    "res_multistep": (None, "res_multistep"),
    "res_multistep_cfg_pp": (None, "res_multistep_cfg_pp"),
    "gradient_estimation": (None, "gradient_estimation"),
    "gradient_estimation_cfg_pp": (None, "gradient_estimation_cfg_pp"),
    "er_sde": (None, "er_sde"),
    "seeds_2": (None, "seeds_2"),
    "seeds_3": (None, "seeds_3"),
    "sa_solver": (None, "sa_solver"),
    "sa_solver_pece": (None, "sa_solver_pece"),
    "dpmpp_2m_cfg_pp": (None, "dpmpp_2m_cfg_pp"),
    "exp_heun_2_x0": (None, "exp_heun_2_x0"),
    "exp_heun_2_x0_sde": (None, "exp_heun_2_x0_sde"),
    "euler_a_cfg_pp": (None, "euler_ancestral_cfg_pp"),
    "dpmpp_2s_a_cfg_pp": (None, "dpmpp_2s_ancestral_cfg_pp"),
    "res_multistep_a": (None, "res_multistep_ancestral"),
    "res_multistep_a_cfg_pp": (None, "res_multistep_ancestral_cfg_pp"),
}

_SCHEDULES: Mapping[str, tuple[str | None, str | None]] = {  # ours: (WebUI label, ComfyUI)
    "karras": ("Karras", "karras"),
    "exponential": ("Exponential", "exponential"),
    "polyexponential": ("Polyexponential", None),
    "sgm_uniform": ("SGM Uniform", "sgm_uniform"),
    "simple": ("Simple", "simple"),
    "normal": ("Normal", "normal"),
    "uniform": ("Uniform", None),
    "ddim_uniform": ("DDIM", "ddim_uniform"),
    "beta": ("Beta", "beta"),
    "kl_optimal": ("KL Optimal", "kl_optimal"),
    "linear_quadratic": (None, "linear_quadratic"),
    "align_your_steps": ("Align Your Steps", None),
}

_ORDINARY = ("Automatic", "normal")  # without a schedule in the name
_ORDINARY_COMFY = {"ddim": "ddim_uniform"}  # WebUI's DDIM brings its own spacing; ComfyUI must be told

UNPLACED: Mapping[str, str] = MappingProxyType(
    {
        "dpmpp_sde_gpu": "dpmpp_sde with noise drawn on the GPU: the same method; an alias",
        "dpmpp_2m_sde_gpu": "dpmpp_2m_sde with its noise drawn on the GPU; an alias",
        "dpmpp_2m_sde_heun_gpu": "dpmpp_2m_sde_heun with its noise drawn on the GPU; an alias",
        "dpmpp_3m_sde_gpu": "dpmpp_3m_sde with its noise drawn on the GPU; an alias",
        "Turbo": "only for distilled models, whose operators set it as the server's default",
        "Align Your Steps GITS": "tied to one model family and one fork",
        "Align Your Steps 11": "cut for 11 steps: Align Your Steps interpolates to any number",
        "Align Your Steps 32": "cut for 32 steps: Align Your Steps interpolates to any number",
    }
)
"""Vendors' names that have no sampler of ours, each with the reason."""


def _split(sampler: Sampler) -> tuple[str, str]:
    """Method and schedule of one of ours; the schedule is "" for the ordinary one."""
    if sampler.value in _METHODS:
        return sampler.value, ""
    schedule = max((name for name in _SCHEDULES if sampler.value.endswith("_" + name)), key=len)
    return sampler.value.removesuffix("_" + schedule), schedule


def _pair(method: str | None, schedule: str | None) -> tuple[str, str] | None:
    return (method, schedule) if method and schedule else None


def _names(sampler: Sampler) -> VendorNames:
    method, schedule = _split(sampler)
    webui, comfy = _METHODS[method]
    webui_schedule, comfy_schedule = _SCHEDULES[schedule] if schedule else _ORDINARY
    if not schedule:
        comfy_schedule = _ORDINARY_COMFY.get(method, comfy_schedule)
    return VendorNames(webui=_pair(webui, webui_schedule), comfy=_pair(comfy, comfy_schedule))


SAMPLERS: Mapping[Sampler, VendorNames] = MappingProxyType({sampler: _names(sampler) for sampler in Sampler})
WEBUI_SAMPLERS: tuple[Sampler, ...] = tuple(sampler for sampler, names in SAMPLERS.items() if names.webui)
COMFY_SAMPLERS: tuple[Sampler, ...] = tuple(sampler for sampler, names in SAMPLERS.items() if names.comfy)

_SYNONYMS = {
    "ancestral": "a",
    "ka": "karras",
    "exp": "exponential",
}  # the last two as WebUI's short names end


def _key(text: str) -> str:
    """`text` without case, spaces, signs and k_: equal for all spellings of one sampler."""
    tokens = re.findall("[a-z0-9]+", text.lower().replace("++", "pp"))
    if tokens[:1] == ["k"]:
        tokens = tokens[1:]
    plain = [_SYNONYMS.get(token, token) if place else token for place, token in enumerate(tokens)]
    return "".join(plain)


def _spellings(sampler: Sampler, names: VendorNames) -> Iterable[str]:
    yield sampler.value
    if names.webui:
        method, schedule = names.webui
        if schedule == _ORDINARY[0]:
            yield method
        yield f"{method} {schedule}"
    if names.comfy:
        method, schedule = names.comfy
        if schedule in (_ORDINARY[1], _ORDINARY_COMFY.get(sampler.value)):
            yield method
        yield f"{method} {schedule}"


def _keys() -> Mapping[str, Sampler]:
    found = {_key(sampler.value): sampler for sampler in Sampler}
    for sampler, names in SAMPLERS.items():
        for spelling in _spellings(sampler, names):
            found.setdefault(_key(spelling), sampler)
    for name in UNPLACED:
        if name.endswith("_gpu"):
            found.setdefault(_key(name), found[_key(name.removesuffix("_gpu"))])
    return MappingProxyType(found)


_BY_KEY = _keys()


def parse_sampler(text: str) -> Sampler:
    """The sampler that `text` means, in anyone's spelling: ours, WebUI's, ComfyUI's, the k_ names.

    Raises ValueError naming those that sound alike.
    """
    found = _BY_KEY.get(_key(text[:64])) if len(text) <= 64 else None
    if found is None:
        close = difflib.get_close_matches(text[:64].lower(), [sampler.value for sampler in Sampler], n=3)
        message = "unknown sampler" + (f"; did you mean {' or '.join(close)}?" if close else "")
        raise ValueError(message)
    return found
