"""The node classes the simulated ComfyUI has installed: their inputs as /object_info tells them, and what they put out.

May not know HTTP or jobs. Invariant: what a class takes is written once, here; validation, /object_info and the running
of a graph read it from this table.

Source: /object_info of a real 0.33.0, recorded 2026-11-30; texts for people are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Spec = list[object]
"""`[type, options]`, or `[[choices], options]`: as on the wire."""

SAMPLERS = [
    "euler", "euler_cfg_pp", "euler_ancestral", "euler_ancestral_cfg_pp", "heun", "heunpp2", "exp_heun_2_x0",
    "exp_heun_2_x0_sde", "dpm_2", "dpm_2_ancestral", "lms", "dpm_fast", "dpm_adaptive", "dpmpp_2s_ancestral",
    "dpmpp_2s_ancestral_cfg_pp", "dpmpp_sde", "dpmpp_sde_gpu", "dpmpp_2m", "dpmpp_2m_cfg_pp", "dpmpp_2m_sde",
    "dpmpp_2m_sde_gpu", "dpmpp_2m_sde_heun", "dpmpp_2m_sde_heun_gpu", "dpmpp_3m_sde", "dpmpp_3m_sde_gpu", "ddpm",
    "lcm", "ipndm", "ipndm_v", "deis", "res_multistep", "res_multistep_cfg_pp", "res_multistep_ancestral",
    "res_multistep_ancestral_cfg_pp", "gradient_estimation", "gradient_estimation_cfg_pp", "er_sde", "seeds_2",
    "seeds_3", "sa_solver", "sa_solver_pece", "ddim", "uni_pc", "uni_pc_bh2",
]  # fmt: skip
SCHEDULERS = [
    "simple", "sgm_uniform", "karras", "exponential", "ddim_uniform", "beta", "normal", "linear_quadratic",
    "kl_optimal",
]  # fmt: skip
MODELS: Mapping[str, list[str]] = {
    "checkpoints": ["random-sd1-layout.safetensors", "sd_xl_base_1.0.safetensors"],
    "diffusion_models": ["wan2.1_t2v_1.3B_fp16.safetensors"],
    "text_encoders": ["umt5_xxl_fp8_e4m3fn_scaled.safetensors"],
    "vae": ["wan_2.1_vae.safetensors"],
    "upscale_models": ["RealESRGAN_x4plus.pth"],
}
_SIDE = 16384
_SEED = 2**64 - 1


def _link(kind: str) -> Spec:
    return [kind, {}]


def _int(default: int, low: int, high: int, **more: object) -> Spec:
    return ["INT", {"default": default, "min": low, "max": high, **more}]


def _float(default: float, low: float, high: float, **more: object) -> Spec:
    return ["FLOAT", {"default": default, "min": low, "max": high, **more}]


def _text(default: str | None = None) -> Spec:
    return ["STRING", {} if default is None else {"default": default}]


def _one_of(*words: str) -> Spec:
    return [list(words), {}]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """One class. `saves`: the list its files stand in, "" for a node that is no output; `ending` of those files."""

    inputs: Mapping[str, Spec]
    optional: Mapping[str, Spec] = field(default_factory=dict)
    gives: tuple[str, ...] = ()
    saves: str = ""
    ending: str = "png"
    temp: bool = False
    animated: bool = False

    @property
    def is_output(self) -> bool:
        """Whether a graph is run for its sake."""
        return self.saves != ""


_PREFIX = _text("ComfyUI")
_LATENT = {"width": _int(512, 16, _SIDE, step=8), "height": _int(512, 16, _SIDE, step=8)}
_BATCH = _int(1, 1, 4096)
_METHODS = ("nearest-exact", "bilinear", "area", "bicubic", "lanczos")
CLASSES: Mapping[str, NodeClass] = {
    "CheckpointLoaderSimple": NodeClass(
        inputs={"ckpt_name": _one_of(*MODELS["checkpoints"])}, gives=("MODEL", "CLIP", "VAE")
    ),
    "UNETLoader": NodeClass(
        inputs={
            "unet_name": _one_of(*MODELS["diffusion_models"]),
            "weight_dtype": _one_of("default", "fp8_e4m3fn", "fp8_e4m3fn_fast", "fp8_e5m2"),
        },
        gives=("MODEL",),
    ),
    "CLIPLoader": NodeClass(
        inputs={
            "clip_name": _one_of(*MODELS["text_encoders"]),
            "type": _one_of("stable_diffusion", "sd3", "ltxv", "hunyuan_image", "wan", "qwen_image"),
        },
        optional={"device": _one_of("default", "cpu")},
        gives=("CLIP",),
    ),
    "VAELoader": NodeClass(inputs={"vae_name": _one_of(*MODELS["vae"])}, gives=("VAE",)),
    "UpscaleModelLoader": NodeClass(
        inputs={"model_name": _one_of(*MODELS["upscale_models"])}, gives=("UPSCALE_MODEL",)
    ),
    "ModelSamplingSD3": NodeClass(
        inputs={"model": _link("MODEL"), "shift": _float(3.0, 0.0, 100.0, step=0.01)}, gives=("MODEL",)
    ),
    "CLIPTextEncode": NodeClass(inputs={"text": _text(), "clip": _link("CLIP")}, gives=("CONDITIONING",)),
    "EmptyLatentImage": NodeClass(inputs={**_LATENT, "batch_size": _BATCH}, gives=("LATENT",)),
    "EmptyHunyuanLatentVideo": NodeClass(
        inputs={
            "width": _int(848, 16, _SIDE, step=16),
            "height": _int(480, 16, _SIDE, step=16),
            "length": _int(25, 1, _SIDE, step=4),
            "batch_size": _BATCH,
        },
        gives=("LATENT",),
    ),
    "RepeatLatentBatch": NodeClass(inputs={"samples": _link("LATENT"), "amount": _int(1, 1, 64)}, gives=("LATENT",)),
    "KSampler": NodeClass(
        inputs={
            "model": _link("MODEL"),
            "seed": _int(0, 0, _SEED, control_after_generate=True),
            "steps": _int(20, 1, 10000),
            "cfg": _float(8.0, 0.0, 100.0, step=0.1, round=0.01),
            "sampler_name": _one_of(*SAMPLERS),
            "scheduler": _one_of(*SCHEDULERS),
            "positive": _link("CONDITIONING"),
            "negative": _link("CONDITIONING"),
            "latent_image": _link("LATENT"),
            "denoise": _float(1.0, 0.0, 1.0, step=0.01),
        },
        gives=("LATENT",),
    ),
    "VAEDecode": NodeClass(inputs={"samples": _link("LATENT"), "vae": _link("VAE")}, gives=("IMAGE",)),
    "VAEEncode": NodeClass(inputs={"pixels": _link("IMAGE"), "vae": _link("VAE")}, gives=("LATENT",)),
    "EmptyImage": NodeClass(
        inputs={
            "width": _int(512, 1, _SIDE, step=1),
            "height": _int(512, 1, _SIDE, step=1),
            "batch_size": _BATCH,
            "color": _int(0, 0, 0xFFFFFF, step=1, display="color"),
        },
        gives=("IMAGE",),
    ),
    "LoadImage": NodeClass(inputs={"image": ["STRING", {"image_upload": True}]}, gives=("IMAGE", "MASK")),
    "ImageInvert": NodeClass(inputs={"image": _link("IMAGE")}, gives=("IMAGE",)),
    "ImageScale": NodeClass(
        inputs={
            "image": _link("IMAGE"),
            "upscale_method": _one_of(*_METHODS),
            "width": _int(512, 0, _SIDE, step=1),
            "height": _int(512, 0, _SIDE, step=1),
            "crop": _one_of("disabled", "center"),
        },
        gives=("IMAGE",),
    ),
    "ImageScaleBy": NodeClass(
        inputs={
            "image": _link("IMAGE"),
            "upscale_method": _one_of(*_METHODS),
            "scale_by": _float(1.0, 0.01, 8.0, step=0.01),
        },
        gives=("IMAGE",),
    ),
    "ImageUpscaleWithModel": NodeClass(
        inputs={"upscale_model": _link("UPSCALE_MODEL"), "image": _link("IMAGE")}, gives=("IMAGE",)
    ),
    "CreateVideo": NodeClass(
        inputs={"images": _link("IMAGE"), "fps": _float(30.0, 1.0, 120.0, step=1.0)},
        optional={"audio": _link("AUDIO")},
        gives=("VIDEO",),
    ),
    "PrimitiveString": NodeClass(inputs={"value": _text()}, gives=("STRING",)),
    "SaveImage": NodeClass(inputs={"images": _link("IMAGE"), "filename_prefix": _PREFIX}, saves="images"),
    "PreviewImage": NodeClass(inputs={"images": _link("IMAGE")}, saves="images", temp=True),
    "PreviewAny": NodeClass(inputs={"source": _link("*")}, saves="text"),
    "SaveAnimatedWEBP": NodeClass(
        inputs={
            "images": _link("IMAGE"),
            "filename_prefix": _PREFIX,
            "fps": _float(6.0, 0.01, 1000.0, step=0.01),
            "lossless": ["BOOLEAN", {"default": True}],
            "quality": _int(80, 0, 100),
            "method": _one_of("default", "fastest", "slowest"),
        },
        saves="images",
        ending="webp",
        animated=True,
    ),
    "SaveVideo": NodeClass(
        inputs={"video": _link("VIDEO"), "filename_prefix": _text("video/ComfyUI"), "format": _text("auto")},
        # The new way to write it and the old one; both are taken.
        optional={"format.codec": _text("auto"), "codec": _text("auto")},
        saves="images",
        ending="mp4",
        animated=True,
    ),
    # A custom pack that most video workflows of the day use.
    "VHS_VideoCombine": NodeClass(
        inputs={
            "images": _link("IMAGE"),
            "frame_rate": _float(8.0, 1.0, 120.0, step=1.0),
            "loop_count": _int(0, 0, 100, step=1),
            "filename_prefix": _text("AnimateDiff"),
            "format": _one_of("video/h264-mp4"),
            "pingpong": ["BOOLEAN", {"default": False}],
            "save_output": ["BOOLEAN", {"default": True}],
        },
        saves="gifs",
        ending="mp4",
    ),
}


def object_info(name: str) -> dict[str, object]:
    """What /object_info tells of a class."""
    node = CLASSES[name]
    groups = {"required": dict(node.inputs)} | ({"optional": dict(node.optional)} if node.optional else {})
    return {
        "input": groups,
        "input_order": {group: list(specs) for group, specs in groups.items()},
        "is_input_list": False,
        "output": list(node.gives),
        "output_is_list": [False] * len(node.gives),
        "output_name": list(node.gives),
        "name": name,
        "display_name": name,
        "description": "",
        "python_module": "nodes",
        "category": "simulated",
        "output_node": node.is_output,
        "has_intermediate_output": False,
    }
