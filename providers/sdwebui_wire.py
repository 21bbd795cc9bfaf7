"""PURE  What goes to a Stable Diffusion WebUI and what its answers mean. No socket: providers/sdwebui.py carries.

What is always sent, because the defaults differ between versions: steps (50 or 20), sampler, scheduler, seed, sizes,
cfg_scale, and that pictures are answered and not kept on the server's disk. Several pictures are several batches of
one: the seeds are the same, and memory does not decide.

The sheet of 2026-11-30 has the sources: [F] Forge of 2025-06, [A] A1111 1.8 to 1.10.1; [U] not confirmed.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping

from models.failures import FAILURES
from models.failures import FailureKind as K
from models.lifecycle import Error, Failed, Finished, Missing, Output
from providers.inline import decoded, mapping, number, picture
from providers.verdicts import Dialect, VendorError, clean

TXT2IMG = "/sdapi/v1/txt2img"
IMG2IMG = "/sdapi/v1/img2img"
_SEED_TOP = 2**32 - 1
_HIRES_DENOISING = 0.7  # the page's own default [F]: enough for detail, little enough to keep the picture
_DENOISING = 0.75  # the schema's default of img2img [F, A]
_MASK_BLUR_PX = 4  # same
_FILL_WITH_ORIGINAL = 1  # of the masked part before it is made anew; 0 would smear its surroundings into it


class UnusableError(ValueError):
    """What was asked cannot be said to this server; the message says why and may be shown."""


Effective = Mapping[str, object]


def to_wire(
    effective: Effective, sampler: Mapping[str, str], *, checkpoint: str, task_id: str
) -> tuple[str, dict[str, object]]:
    """(path, body) of the generation call.

    `sampler` are the fields from `sdwebui_models.sampler_fields`, `checkpoint` "" for the one that is loaded. `task_id`
    is ours, for the server's own records (1.8 and later). Raises UnusableError.
    """
    body: dict[str, object] = {
        "prompt": effective["prompt"],
        "negative_prompt": effective.get("negative_prompt", ""),
        "seed": effective["seed"],
        "subseed": -1,
        "subseed_strength": 0,
        "steps": effective["steps"],
        "cfg_scale": effective["cfg_scale"],
        "width": effective["width"],
        "height": effective["height"],
        "batch_size": 1,
        "n_iter": effective["image_count"],
        **sampler,
        "send_images": True,
        "save_images": False,
        "force_task_id": task_id,
    }
    if checkpoint:
        # Not restored afterwards: two loads of a model for each picture would take longer than the picture.
        body |= {
            "override_settings": {"sd_model_checkpoint": checkpoint},
            "override_settings_restore_afterwards": False,
        }
    if effective.get("image") is not None:
        return IMG2IMG, body | _from_image(effective)
    return TXT2IMG, body | _hires(effective, sampler)


def _hires(effective: Effective, sampler: Mapping[str, str]) -> dict[str, object]:
    factor = number(effective.get("upscale_factor")) or 1
    if factor <= 1:
        return {"enable_hr": False}
    told: dict[str, object] = {
        "enable_hr": True,
        "hr_scale": factor,
        "hr_upscaler": "Latent",  # the one that every version has, without a file to install
        "hr_second_pass_steps": 0,  # as many as the first pass
        "denoising_strength": _HIRES_DENOISING,
    }
    told |= {f"hr_{name}": value for name, value in sampler.items()}
    return told


def _from_image(effective: Effective) -> dict[str, object]:
    told: dict[str, object] = {
        "init_images": [_base64(effective["image"], "image")],
        "denoising_strength": _DENOISING,
        "resize_mode": 0,
        "include_init_images": False,
    }
    if effective.get("mask") is not None:
        told |= {
            "mask": _base64(effective["mask"], "mask"),  # white changes, as in the contract
            "mask_blur": _MASK_BLUR_PX,
            "inpainting_fill": _FILL_WITH_ORIGINAL,
            "inpaint_full_res": False,  # else only the part around the mask would have the size that was asked
            "inpainting_mask_invert": 0,
        }
    return told


def _base64(reference: object, name: str) -> str:
    """Bytes only: an address would be fetched by the server, from inside the operator's network."""
    found = picture(reference)
    if found is None:
        raise UnusableError(f"{name} must be given inline: this server is given no addresses to fetch.")
    return b64encode(found.content).decode()


# Python's words for what broke while it made the picture [A]: a definite end, and nothing was paid for.
_BROKEN = (
    "OutOfMemoryError NansException RuntimeError ValueError TypeError KeyError IndexError AttributeError "
    "AssertionError NotImplementedError FileNotFoundError UnidentifiedImageError AcceleratorError OSError"
)
CODES: Mapping[str, K] = {
    **dict.fromkeys(_BROKEN.split(), K.PROVIDER_ERROR),
    **dict.fromkeys(
        # said with 500 though they are about the request [A, F]
        ("Invalid encoded image", "Requests not allowed", "Request to local resource not allowed"),
        K.INVALID_PARAMETER,
    ),
    "Not Found": K.PROVIDER_ERROR,  # the router's word: a server without `--api`
}
_NO_API = "The server has no such route; it must be started with --api."


def error_of(fields: Mapping[str, object]) -> VendorError | None:
    """The error in an answer, in A1111's shape (`error`, `errors`, `detail`) or FastAPI's (`detail`)."""
    if "images" in fields:
        return None
    name, detail = fields.get("error"), fields.get("detail")
    words = _text(detail) or (str(fields["errors"]) if fields.get("errors") else "")
    if not name and not words:
        return None
    if words in CODES:
        return VendorError(words, _NO_API if words == "Not Found" else words)
    return VendorError(str(name) if name and name != "HTTPException" else None, words)


def _text(detail: object) -> str:
    """`detail` as one text. Of a list of faults the places and the rules, never the values: one is the prompt."""
    if isinstance(detail, str):
        return detail
    faults = [mapping(fault) for fault in detail] if isinstance(detail, list) else []
    told = []
    for fault in faults:
        place = fault.get("loc")
        where = ".".join(str(part) for part in place) if isinstance(place, list) else ""
        told.append(f"{where}: {fault.get('msg', '')}")
    return "; ".join(told)


DIALECT = Dialect(codes=CODES, error_of=error_of)


def from_wire(
    fields: Mapping[str, object], asked: int, sampler_name: str, secrets: tuple[str, ...] = ()
) -> Finished | Failed:
    """What the answer to a generation brings. Total.

    `asked` pictures were asked for, with `sampler_name`. There may be more: a grid before them, and what scripts add
    behind them. The seed of each is in `info`, a JSON text inside the JSON; `parameters` only repeats the request, -1
    included.
    """
    info = _info(fields)
    used = info.get("sampler_name")
    if isinstance(used, str) and used != sampler_name:
        # A name it does not know is replaced in silence [F]. What was made is not what was asked.
        message = f"The server used the sampler {clean(used, secrets)} in place of {sampler_name}."
        return Failed(error=Error(kind=K.PROVIDER_ERROR, message=message))
    listed = fields.get("images")
    first = int(number(info.get("index_of_first_image")) or 0)
    images = listed[max(0, first) :][:asked] if isinstance(listed, list) else []
    if not images:
        return Failed(error=Error(kind=K.PROVIDER_ERROR, message="The server answered without any image."))
    seeds = info.get("all_seeds")
    outputs: list[Output] = []
    missing: list[Missing] = []
    for place in range(asked):
        content = decoded(images[place]) if place < len(images) else None
        if content is None:
            kind = K.RESULT_INVALID if place < len(images) else K.RESULT_MISSING
            missing.append(Missing(kind=kind, message=FAILURES[kind].message))
        else:
            outputs.append(Output(content=content, place=place, seed=_seed(seeds, place)))
    if not outputs:
        return Failed(error=Error(kind=missing[0].kind, message=missing[0].message))
    return Finished(outputs=tuple(outputs), missing=tuple(missing))


def _info(fields: Mapping[str, object]) -> Mapping[str, object]:
    told = fields.get("info")
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            return {}
    return mapping(told)


def _seed(seeds: object, place: int) -> int | None:
    """The seed that made one picture; None where the server does not say, then it is the one that was sent."""
    told = seeds[place] if isinstance(seeds, list) and place < len(seeds) else None
    found = number(told)
    return int(found) if found is not None and 0 <= found <= _SEED_TOP and found == int(found) else None
