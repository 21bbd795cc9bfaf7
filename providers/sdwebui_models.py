"""PURE  What a Stable Diffusion WebUI can make, and which of its own names stand for our samplers.

The models are the operator's checkpoints, so they are named by family: `sdxl:NAME` asks for the checkpoint NAME,
`sdxl` for whatever is loaded. The family says at which size its pictures hold together.

Samplers are the server's, and it replaces a name that it does not know in silence: so its lists are asked, and only
what stands in them is sent. Up to 1.8 the schedule is inside the name ("DPM++ 2M Karras"), since 1.9 it is a field of
its own, where a wrong case is silently ignored.

Marks as in the sheet of 2026-11-30: [F] Forge of 2025-06, [A] A1111 1.8 and its change log up to 1.10.1, [U] not
confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.contract import SEED_MAX, Coupling, Kind, ModelBounds, SizeRule
from models.samplers import SAMPLERS, WEBUI_SAMPLERS, Sampler
from providers.families import Families, Members, split

_ONE_ANSWER = "one answer carries all the bytes"
_LARGE = 2.01  # times: from here on only small pictures are enlarged
_COUPLINGS = (
    Coupling(when="image", then="upscale_factor", maximum=1, reason="a picture that is given is not enlarged as well"),
    Coupling(when="upscale_factor", at_least=1.01, then="image_count", maximum=2, reason=_ONE_ANSWER),
    Coupling(when="upscale_factor", at_least=_LARGE, then="width", maximum=1024, reason=_ONE_ANSWER),
    Coupling(when="upscale_factor", at_least=_LARGE, then="height", maximum=1024, reason=_ONE_ANSWER),
)


def _family(native_px: int, source: str) -> ModelBounds:
    """Bounds of a family of checkpoints; ranges are those of the server's own page [F]."""
    return ModelBounds(
        kind=Kind.IMAGE,
        supports=frozenset({"seed", "image", "mask"}),
        size=SizeRule(step=8, min_side=64, max_side=2048),
        prompt_max=32_000,  # characters; the server has no limit [F], this is the contract's
        negative_prompt_max=32_000,
        seed_max=SEED_MAX,
        image_count_max=8,  # one after the other, so that memory does not decide
        steps=(1, 150),
        cfg_scale=(1.0, 30.0),
        samplers=WEBUI_SAMPLERS,
        upscale_max=4.0,
        defaults={"width": native_px, "height": native_px},
        couplings=_COUPLINGS,
        source=source,
    )


FAMILIES: Mapping[str, ModelBounds] = {
    "sd15": _family(512, "page of txt2img, 2025-06 [F]; multiples of 8 [U]; trained at 512 px"),
    "sdxl": _family(1024, "page of txt2img, 2025-06 [F]; multiples of 8 [U]; trained at 1024 px"),
}
BOUNDS = Families({}, FAMILIES)
SYNCHRONOUS = Members(FAMILIES)


def checkpoint_of(model: str) -> str:
    """The checkpoint that a `model` in BOUNDS asks for, "" for the one that is loaded."""
    return split(model, FAMILIES)[1]


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What a server says it has. `schedulers` None: it has no such list, the schedule is inside the sampler's name."""

    samplers: frozenset[str]
    schedulers: frozenset[str] | None


def offer(samplers: Sequence[object], schedulers: Sequence[object] | None) -> Offer:
    """The names in both lists, as the server spells them."""
    labels = None if schedulers is None else frozenset(_named(schedulers, "label") | _named(schedulers, "name"))
    return Offer(samplers=frozenset(_named(samplers, "name")), schedulers=labels)


def _named(listed: Sequence[object], key: str) -> set[str]:
    return {str(one[key]) for one in listed if isinstance(one, Mapping) and isinstance(one.get(key), str)}


def sampler_fields(sampler: str, has: Offer) -> dict[str, str] | None:
    """The fields that make this server use our `sampler`, method and schedule; None when it cannot.

    Raises ValueError for a word that is none of our samplers.
    """
    names = SAMPLERS[Sampler(sampler)].webui
    if names is None:
        return None
    method, schedule = names
    if has.schedulers is not None:
        known = method in has.samplers and schedule in has.schedulers
        return {"sampler_name": method, "scheduler": schedule} if known else None
    combined = method if schedule == "Automatic" else f"{method} {schedule}"
    return {"sampler_name": combined} if combined in has.samplers else None
