"""Workflows as models: a graph, what may be asked of it, and where each parameter of ours goes.

A workflow is read and checked once, when its provider is built; a name that is not in the graph is refused there, with
the nearest one. `filled_for` is pure: the graph of one job, with our seed in every seeded node and our prefix in every
saving one.

Input images (`image`, `mask`, `first_frame`, `last_frame`) have places in the mapping already, and they are checked; a
workflow that needs one is not offered until jobs carry them, since it would make something else without.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models.checked import suggest
from models.contract import Kind, ModelBounds, Sampler, SizeRule
from models.samplers import COMFY_SAMPLERS, SAMPLERS
from models.settings import SettingsError
from models.workflows import WorkflowBounds, WorkflowSettings
from providers.comfyui_graphs import (
    Graph,
    GraphFault,
    Target,
    filled,
    literal_inputs,
    node_of,
    read,
    target_of,
    value_at,
)

Inputs = Mapping[str, tuple[Target, ...]]

IMAGES = ("image", "mask", "first_frame", "last_frame")  # the name of an uploaded file goes there
_PLAIN = ("prompt", "negative_prompt", "width", "height", "seed")  # go in as they are, for pictures and clips
_PLAIN_IMAGE = (*_PLAIN, "steps", "cfg_scale", "image_count", "upscale_factor")
_FOR_IMAGES = (*_PLAIN_IMAGE, "sampler", "scheduler", "filename_prefix", "image", "mask")
_FOR_CLIPS = (*_PLAIN, "frames", "fps", "filename_prefix", "first_frame", "last_frame")
_SEEDS = ("seed", "noise_seed")  # KSampler; KSamplerAdvanced and RandomNoise
_GRAPHS = Path(__file__).with_name("workflows")
_PAIRS = {names.comfy: sampler for sampler, names in reversed([*SAMPLERS.items()]) if names.comfy}

_TXT2IMG = {
    "prompt": "6.text",
    "negative_prompt": "7.text",
    "width": "5.width",
    "height": "5.height",
    "image_count": "5.batch_size",
    "steps": "3.steps",
    "cfg_scale": "3.cfg",
    "sampler": "3.sampler_name",
    "scheduler": "3.scheduler",
}
_IMG2IMG = _TXT2IMG | {"width": "2.width", "height": "2.height", "image_count": "10.amount", "image": "1.image"}
_WAN_FRAMES = {"480p 16:9": [832, 480], "480p 9:16": [480, 832], "480p 1:1": [624, 624]}
_TXT2VIDEO = {
    "prompt": "6.text",
    "negative_prompt": "7.text",
    "width": "5.width",
    "height": "5.height",
    "frames": "5.length",
}
SHIPPED: Mapping[str, WorkflowSettings] = {
    "txt2img": WorkflowSettings(graph="txt2img", type="image", inputs=_TXT2IMG),
    "img2img": WorkflowSettings(graph="img2img", type="image", inputs=_IMG2IMG),
    "upscale": WorkflowSettings(graph="upscale", type="image", inputs={"image": "1.image"}),
    "txt2video": WorkflowSettings(
        graph="txt2video",
        type="video",
        inputs=_TXT2VIDEO,
        bounds=WorkflowBounds(durations_s=(1, 2, 3, 4, 5), frames=_WAN_FRAMES),  # 16 frames a second, 4n + 1 of them
    ),
}
"""Graphs of ours with their mappings: SDXL pictures, and Wan 2.1 clips of the small model."""


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """One graph with the places of our parameters in it."""

    kind: Kind
    graph: Graph = field(repr=False)
    inputs: Inputs
    output: str  # id of the node whose files are the result, "" for every saving node
    fps: int  # where the graph takes none
    frame_step: int
    bounds: ModelBounds

    @property
    def offered(self) -> bool:
        """Whether it can do its work: none of its inputs waits for an image."""
        return not any(name in self.inputs for name in IMAGES)

    def filled_for(self, effective: Mapping[str, object], prefix: str) -> dict[str, dict[str, object]]:
        """The graph of one job. `prefix`: unique, so that the saving nodes run and no file name is used twice."""
        given = self._given(effective) | {"filename_prefix": prefix}
        changes = {target: given[name] for name, targets in self.inputs.items() if name in given for target in targets}
        return filled(self.graph, changes)

    def _given(self, effective: Mapping[str, object]) -> dict[str, object]:
        given = {name: effective[name] for name in (*_PLAIN_IMAGE, "fps") if name in effective}
        pair = SAMPLERS[Sampler(str(effective["sampler"]))].comfy if "sampler" in effective else None
        if pair:
            given["sampler"], given["scheduler"] = pair
        if self.kind is Kind.VIDEO:
            size = self.bounds.frame_px(effective)
            assert size is not None, "clips have a table of frames"
            given["width"], given["height"] = size
            given["frames"] = self._frames(effective)
        return given

    def _frames(self, effective: Mapping[str, object]) -> int:
        """How many frames the clip has: the multiple of the step nearest to its length, and one."""
        seconds, fps = effective["duration_s"], effective.get("fps", self.fps)
        assert isinstance(seconds, int), "checked by the bounds"
        assert isinstance(fps, int), "same"
        return max(1, round(seconds * fps / self.frame_step)) * self.frame_step + 1


def workflows(provider: str, configured: Mapping[str, WorkflowSettings]) -> dict[str, Workflow]:
    """Every workflow by the name of its model; the shipped ones when none is configured.

    Raises SettingsError naming all that is wrong with all of them.
    """
    found, faults = {}, []
    for name, settings in (configured or SHIPPED).items():
        builder = _Builder(f"providers.{provider}.workflows.{name}", settings)
        workflow = builder.workflow()
        faults += builder.faults
        if workflow is not None:
            found[name] = workflow
    if faults:
        raise SettingsError("\n".join(faults))
    return found


class _Builder:
    """Makes one workflow of its settings and gathers what is wrong with them."""

    def __init__(self, where: str, settings: WorkflowSettings) -> None:
        self.faults: list[str] = []
        self._where = where
        self._settings = _as_shipped(settings)

    def workflow(self) -> Workflow | None:
        """The workflow, or None and `faults`."""
        try:
            graph = self._graph()
        except GraphFault as fault:
            self._fault("graph", f"{self._settings.graph!r} {fault}")
            return None
        graph = filled(graph, self._values(graph))
        inputs, output = self._inputs(graph), self._output(graph)
        bounds = None if self.faults else self._bounds(graph, inputs)
        if bounds is None:
            return None
        mine = self._settings.bounds
        return Workflow(
            kind=bounds.kind,
            graph=graph,
            inputs=inputs,
            output=output,
            fps=mine.fps[0],
            frame_step=mine.frame_step,
            bounds=bounds,
        )

    def _fault(self, key: str, message: object) -> None:
        self.faults.append(f"{self._where}.{key}: {message}")

    def _graph(self) -> Graph:
        """Raises GraphFault."""
        name = self._settings.graph
        path = _GRAPHS / f"{name}.json" if name in SHIPPED else Path(name)
        if not path.is_absolute():
            raise GraphFault(f"is neither shipped ({', '.join(SHIPPED)}) nor an absolute path{suggest(name, SHIPPED)}")
        try:
            return read(path.read_text(encoding="utf-8"))
        except OSError as exc:
            raise GraphFault(f"cannot be read: {exc.strerror}") from None
        except UnicodeDecodeError:
            raise GraphFault("is not UTF-8") from None

    def _values(self, graph: Graph) -> dict[Target, object]:
        found = {}
        for word, value in self._settings.values.items():
            target = self._target(graph, f"values.{word}", word)
            if target is not None:
                found[target] = value
        return found

    def _target(self, graph: Graph, key: str, word: object) -> Target | None:
        if not isinstance(word, str):
            self._fault(key, f"must be node.input, is {word!r}")
            return None
        try:
            return target_of(graph, word)
        except GraphFault as fault:
            self._fault(key, fault)
            return None

    def _inputs(self, graph: Graph) -> Inputs:
        found: dict[str, tuple[Target, ...]] = {}
        for name, words in self._settings.inputs.items():
            mine = _FOR_CLIPS if self._is_video() else _FOR_IMAGES
            if name not in mine:
                self._fault(f"inputs.{name}", f"no parameter of {self._settings.type or 'image'}s{suggest(name, mine)}")
                continue
            listed = words if isinstance(words, list | tuple) else [words]
            targets = [self._target(graph, f"inputs.{name}", word) for word in listed]
            found[name] = tuple(target for target in targets if target is not None)
        if "prompt" not in found and not any(name in found for name in IMAGES):
            self._fault("inputs", "names no input for the prompt")
        if ("sampler" in found) != ("scheduler" in found):
            self._fault("inputs", "sampler and scheduler come together: our samplers name both")
        found.setdefault("seed", literal_inputs(graph, _SEEDS))
        found.setdefault("filename_prefix", literal_inputs(graph, ["filename_prefix"]))
        if not found["filename_prefix"]:
            self._fault("graph", "no node has a filename_prefix; name the input for the file's name in inputs")
        return {name: targets for name, targets in found.items() if targets}

    def _output(self, graph: Graph) -> str:
        word = self._settings.output
        try:
            return node_of(graph, word) if word else ""
        except GraphFault as fault:
            self._fault("output", fault)
            return ""

    def _bounds(self, graph: Graph, inputs: Inputs) -> ModelBounds | None:
        try:
            return _video(self._settings, inputs, graph) if self._is_video() else _image(self._settings, inputs, graph)
        except ValueError as exc:
            self._fault("bounds", exc)
            return None

    def _is_video(self) -> bool:
        return self._settings.type == Kind.VIDEO


def _as_shipped(settings: WorkflowSettings) -> WorkflowSettings:
    """With what the shipped graph of that name brings along, where the operator says nothing."""
    ours = SHIPPED.get(settings.graph)
    if ours is None:
        return settings
    plain = WorkflowBounds()
    said = {
        one.name: getattr(settings.bounds, one.name)
        for one in dataclasses.fields(WorkflowBounds)
        if getattr(settings.bounds, one.name) != getattr(plain, one.name)
    }
    return dataclasses.replace(
        settings,
        type=settings.type or ours.type,
        inputs=settings.inputs or ours.inputs,
        bounds=dataclasses.replace(ours.bounds, **said),
    )


def _span(values: tuple[float, ...], name: str) -> tuple[float, float]:
    if len(values) != 2 or values[0] > values[1]:
        raise ValueError(f"{name} must be [least, most], is {list(values)}")
    return values[0], values[1]


def _defaults(graph: Graph, inputs: Inputs, names: tuple[str, ...]) -> dict[str, object]:
    """What the graph itself has: an operator tuned it for its model."""
    found = {name: value_at(graph, inputs[name][0]) for name in names if name in inputs}
    if "sampler" in inputs:
        pair = (str(value_at(graph, inputs["sampler"][0])), str(value_at(graph, inputs["scheduler"][0])))
        if pair in _PAIRS:
            found["sampler"] = _PAIRS[pair].value
    return found


def _samplers(bounds: WorkflowBounds, inputs: Inputs) -> tuple[Sampler, ...] | None:
    if "sampler" not in inputs:
        return None
    unknown = [name for name in bounds.samplers if name not in COMFY_SAMPLERS]
    if unknown:
        raise ValueError(f"samplers: {unknown[0]!r} has no name in ComfyUI{suggest(unknown[0], COMFY_SAMPLERS)}")
    return tuple(Sampler(name) for name in bounds.samplers) or COMFY_SAMPLERS


def _source(settings: WorkflowSettings) -> str:
    return f"workflow {Path(settings.graph).stem}, as configured; ranges of a real 0.33.0, 2026-11-30"


def _image(settings: WorkflowSettings, inputs: Inputs, graph: Graph) -> ModelBounds:
    mine = settings.bounds
    sized = "width" in inputs and "height" in inputs
    if not sized and {"width", "height"} & set(inputs):
        raise ValueError("width and height come together")
    low, high = _span(mine.steps, "steps")
    return ModelBounds(
        kind=Kind.IMAGE,
        supports=frozenset({"seed"} & set(inputs)),
        size=SizeRule(step=mine.step, min_side=mine.min_side, max_side=mine.max_side, max_pixels=mine.max_pixels)
        if sized
        else None,
        prompt_max=mine.prompt_max,
        negative_prompt_max=mine.prompt_max if "negative_prompt" in inputs else None,
        seed_max=mine.seed_max,
        image_count_max=mine.image_count_max if "image_count" in inputs else 1,
        steps=(int(low), int(high)) if "steps" in inputs else None,
        cfg_scale=_span(mine.cfg_scale, "cfg_scale") if "cfg_scale" in inputs else None,
        samplers=_samplers(mine, inputs),
        upscale_max=mine.upscale_max if "upscale_factor" in inputs else None,
        defaults=_defaults(graph, inputs, ("negative_prompt", "width", "height", "steps", "cfg_scale")),
        source=_source(settings),
    )


def _video(settings: WorkflowSettings, inputs: Inputs, graph: Graph) -> ModelBounds:
    mine = settings.bounds
    missing = [name for name in ("width", "height", "frames") if name not in inputs]
    if missing:
        raise ValueError(f"a clip needs inputs for {', '.join(missing)}")
    low, high = _span(mine.fps, "fps")
    frames = {}
    for words, size in mine.frames.items():
        resolution, _, ratio = words.partition(" ")
        if not ratio or not isinstance(size, list | tuple) or not all(isinstance(side, int) for side in size):
            raise ValueError(f'frames must be written as "480p 16:9" = [832, 480], is {words!r} = {size!r}')
        width, height = size
        frames[resolution, ratio] = (width, height)
    if not frames:
        raise ValueError("frames: a clip needs at least one resolution and ratio")
    first = next(iter(frames))
    return ModelBounds(
        kind=Kind.VIDEO,
        supports=frozenset({"seed"} & set(inputs)),
        prompt_max=mine.prompt_max,
        negative_prompt_max=mine.prompt_max if "negative_prompt" in inputs else None,
        seed_max=mine.seed_max,
        durations_s=mine.durations_s,
        frames=frames,
        fps=(int(low), int(high)) if "fps" in inputs else None,
        defaults=_defaults(graph, {n: t for n, t in inputs.items() if n != "sampler"}, ("negative_prompt",))
        | {"resolution": first[0], "ratio": first[1], "duration_s": max(mine.durations_s)},
        source=_source(settings),
    )
