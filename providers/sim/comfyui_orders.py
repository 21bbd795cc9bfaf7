"""What a ComfyUI graph asks for: from its nodes to the order that the media are made of.

May not know HTTP or the queue. The simulator samples nothing: it looks for the prompt, the size, the seed and the
number of frames where they stand in every graph, upstream of the nodes that save. Invariant: total over checked graphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from providers.sim.comfyui_nodes import CLASSES
from providers.sim.comfyui_validation import Graph
from providers.sim.ledger import Order

NAME = "comfyui"
_SIDE = 512
_SMALLEST_CLIP = 16
_SEED_SPACE = 2**63
_MODELS = ("ckpt_name", "unet_name", "model_name")


def inputs_of(node: Mapping[str, object]) -> Mapping[str, object]:
    """The inputs of a node, none for one without."""
    found = node.get("inputs")
    return found if isinstance(found, Mapping) else {}


def source_of(value: object) -> str | None:
    """The node that a link comes from, None for a value."""
    return str(value[0]) if isinstance(value, list) and len(value) == 2 else None


def upstream(graph: Graph, *starts: str) -> Iterator[str]:
    """Yield these nodes and all that feeds them, nearest first, each once."""
    waiting, seen = list(starts), set(starts)
    while waiting:
        node_id = waiting.pop(0)
        if node_id not in graph:
            continue
        yield node_id
        for value in inputs_of(graph[node_id]).values():
            source = source_of(value)
            if source is not None and source not in seen:
                seen.add(source)
                waiting.append(source)


def in_order(graph: Graph, starts: list[str]) -> list[str]:
    """Return these nodes and all that feeds them in an order they can run in: feeders first, each once."""
    done: dict[str, None] = {}

    def visit(node_id: str) -> None:
        if node_id in done or node_id not in graph:
            return
        for value in inputs_of(graph[node_id]).values():
            source = source_of(value)
            if source is not None:
                visit(source)
        done[node_id] = None

    for start in starts:
        visit(start)
    return list(done)


def words_of(graph: object) -> tuple[str, str]:
    """Return the prompt and the model of whatever was sent as a graph, '' for what it has not."""
    if not isinstance(graph, dict) or not all(isinstance(node, dict) for node in graph.values()):
        return "", ""
    found = list(upstream(graph, *_outputs(graph)))
    return _prompt(graph, found, "positive"), str(_first(graph, found, _MODELS) or "")


def _outputs(graph: Graph) -> list[str]:
    return [one for one, node in graph.items() if (kind := CLASSES.get(str(node.get("class_type")))) and kind.is_output]


def _first(graph: Graph, found: list[str], names: tuple[str, ...]) -> object:
    """The first value (no link) of an input of one of these names."""
    for node_id in found:
        for name, value in inputs_of(graph[node_id]).items():
            if name in names and source_of(value) is None:
                return value
    return None


def _prompt(graph: Graph, found: list[str], side: str) -> str:
    """The text upstream of a sampler's `positive` or `negative`; of a graph without one, any text."""
    for node_id in found:
        source = source_of(inputs_of(graph[node_id]).get(side))
        if source is not None:
            return str(_first(graph, list(upstream(graph, source)), ("text",)) or "")
    return str(_first(graph, found, ("text", "value")) or "") if side == "positive" else ""


def _number(value: object, default: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def order_of(graph: Graph, outputs: list[str], account: str, prompt_id: str) -> Order:
    """Return what a checked graph asks for."""
    found = list(upstream(graph, *outputs))
    kinds = [CLASSES[str(graph[one]["class_type"])] for one in outputs]
    video = any(kind.ending == "mp4" for kind in kinds)
    webp = not video and any(kind.ending == "webp" for kind in kinds)
    width, height = _size(graph, found)
    count = int(_number(_first(graph, found, ("length", "batch_size", "amount")), 1))
    fps = _number(_first(graph, found, ("fps", "frame_rate")), 8.0)
    if video:
        width, height = (max(_SMALLEST_CLIP, side - side % 2) for side in (width, height))
    return Order(
        dialect=NAME,
        account=account,
        kind="video" if video else "image",
        model=str(_first(graph, found, _MODELS) or ""),
        prompt=_prompt(graph, found, "positive"),
        seed=int(_number(_first(graph, found, ("seed", "noise_seed", "color")), 0)) % _SEED_SPACE,
        width=width,
        height=height,
        n=1 if video or webp else count,
        duration_s=count / fps if video else 0.0,
        image_type="webp" if webp else "png",
        extra={
            "prompt_id": prompt_id,
            "negative_prompt": _prompt(graph, found, "negative"),
            "frames": count if video else None,
            "fps": fps if video else None,
            "nodes": sorted({str(graph[one]["class_type"]) for one in found}),
            **{name: _first(graph, found, (name,)) for name in ("steps", "cfg", "sampler_name", "scheduler")},
        },
    )


def _size(graph: Graph, found: list[str]) -> tuple[int, int]:
    """The size of the nearest node that has one, times what stands after it; latents round to eights."""
    factor = 1.0
    for node_id in found:
        inputs, kind = inputs_of(graph[node_id]), graph[node_id]["class_type"]
        factor *= 4 if kind == "ImageUpscaleWithModel" else _number(inputs.get("scale_by"), 1)
        width, height = _number(inputs.get("width"), 0), _number(inputs.get("height"), 0)
        if width and height:
            grid = 8 if "Latent" in str(kind) else 1
            return tuple(int(int(side) // grid * grid * factor) for side in (width, height))  # type: ignore[return-value]
    return int(_SIDE * factor), int(_SIDE * factor)
