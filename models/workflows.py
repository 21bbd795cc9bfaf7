"""PURE  A ComfyUI workflow as an operator configures it: which graph, where our parameters go in it, how far.

Only the shape of the settings is here; providers/comfyui_workflows.py reads the graph and holds the names against it.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field

from models.fields import SEED_MAX


def _num(default: int, lo: int, hi: int, doc: str) -> typing.Any:  # noqa: ANN401  dataclass field idiom
    return field(default=default, metadata={"min": lo, "max": hi, "doc": doc})


def _list(default: tuple[object, ...], doc: str) -> typing.Any:  # noqa: ANN401  same
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, kw_only=True)
class WorkflowBounds:
    """How far a workflow may be driven. The server itself takes 16384 x 16384 x 4096 and dies of it while running."""

    prompt_max: int = _num(8000, 1, 32_000, "characters of a prompt")
    image_count_max: int = _num(4, 1, 64, "images of one job: its batch")
    seed_max: int = _num(SEED_MAX, 1, SEED_MAX, "largest seed that every seeded node of the graph takes")
    step: int = _num(8, 1, 256, "a side is a multiple of this, pixels; latents of 8 round other sizes in silence")
    min_side: int = _num(64, 64, 16384, "shortest side, pixels")
    max_side: int = _num(2048, 64, 16384, "longest side, pixels")
    max_pixels: int = _num(4_194_304, 4096, 2**28, "width x height")
    steps: tuple[int, ...] = _list((1, 100), "least and most")
    cfg_scale: tuple[float, ...] = _list((0.0, 30.0), "least and most")
    samplers: tuple[str, ...] = _list((), "our names of samplers; empty: all that ComfyUI has")
    upscale_max: int = _num(4, 1, 8, "largest factor, where `upscale_factor` has an input")
    durations_s: tuple[int, ...] = _list((5,), "lengths of a clip, seconds")
    fps: tuple[int, ...] = _list((16, 16), "least and most frames a second; the first where `fps` has no input")
    frame_step: int = _num(4, 1, 64, "a clip has a multiple of this many frames, and one")
    frames: Mapping[str, object] = field(
        default_factory=dict, metadata={"doc": 'pixels of a clip: "480p 16:9" = [832, 480]; needed for clips'}
    )


@dataclass(frozen=True, kw_only=True)
class WorkflowSettings:
    """One graph in API format, offered as a model under the name of its table."""

    graph: str = field(default="", metadata={"doc": "txt2img, txt2video ... as shipped, or an absolute path to a file"})
    type: str = field(
        default="",
        metadata={"choices": ("", "image", "video"), "doc": "what it makes; empty: as shipped, else image"},
    )
    inputs: Mapping[str, object] = field(
        default_factory=dict,
        metadata={"doc": "our parameter = `node.input` or a list of them; empty: as shipped"},
    )
    values: Mapping[str, object] = field(
        default_factory=dict, metadata={"doc": "`node.input` = a value of yours in place of the graph's"}
    )
    output: str = field(default="", metadata={"doc": "the node whose files are the result; empty: every saving node"})
    bounds: WorkflowBounds = field(default_factory=WorkflowBounds)
