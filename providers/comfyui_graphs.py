"""PURE  ComfyUI graphs in API format: reading one, naming an input of it, filling it.

A graph is `{node id: {"class_type": ..., "inputs": {name: value or [node id, slot]}}}`. A node is named by its id or by
its title, where no other node has that; an input as `node.input`. Both may hold dots.

Invariant: a graph that was read is never written to; `filled` gives another one.

Source: the sheet of 2026-11-30, sections 3 and 8, seen on a real 0.33.0.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from models.checked import suggest

Graph = Mapping[str, Mapping[str, object]]


class GraphFault(ValueError):  # noqa: N818  a refusal of a file or a name, said to the operator
    """A graph, or the name of an input, cannot be used; the message says why and what is near."""


class Target(NamedTuple):
    """One input of one node."""

    node: str
    input: str


def read(text: str) -> Graph:
    """The graph in `text`. Raises GraphFault."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise GraphFault("is not JSON") from None
    if isinstance(found, dict) and isinstance(found.get("nodes"), list):
        raise GraphFault("is a workflow as the editor saves it; export it in the API format")
    if not isinstance(found, dict) or not found:
        raise GraphFault("is not an object of nodes by their ids")
    for name, node in found.items():
        if not isinstance(node, dict) or not isinstance(node.get("class_type"), str):
            raise GraphFault(f"node {name!r} has no class_type")
        if not isinstance(node.get("inputs"), dict):
            raise GraphFault(f"node {name!r} has no inputs")
    for name, node in found.items():
        for word, value in node["inputs"].items():
            if is_link(value) and value[0] not in found:
                raise GraphFault(f"{name}.{word} is fed by node {value[0]!r}, which is not in the graph")
    return found


def is_link(value: object) -> bool:
    """Whether an input's value says where it comes from, not what it is."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int)


def inputs_of(graph: Graph, node: str) -> Mapping[str, object]:
    """The inputs of a node, by their names."""
    found = graph[node]["inputs"]
    assert isinstance(found, Mapping), "`read` made sure"
    return found


def node_of(graph: Graph, word: str) -> str:
    """The id of the node that `word` names. Raises GraphFault with the nearest name."""
    names = _names(graph)
    if word not in names:
        raise GraphFault(f"node {word!r} is not in the graph{suggest(word, names)}")
    return names[word]


def target_of(graph: Graph, word: str) -> Target:
    """The input that `word` names. Raises GraphFault with the nearest name."""
    names = _names(graph)
    splits = [(word[:at], word[at + 1 :]) for at, sign in enumerate(word) if sign == "."]
    if not splits:
        raise GraphFault(f"{word!r} must be written as node.input")
    known = [(node, name) for node, name in splits if node in names]
    if not known:
        raise GraphFault(f"node {splits[0][0]!r} is not in the graph{suggest(splits[0][0], names)}")
    for node, name in known:
        inputs = inputs_of(graph, names[node])
        if name in inputs:
            if is_link(inputs[name]):
                raise GraphFault(f"{word} is fed by another node; name the input of that one")
            return Target(names[node], name)
    node, name = known[0]
    kind = graph[names[node]]["class_type"]
    raise GraphFault(f"node {node} ({kind}) has no input {name!r}{suggest(name, inputs_of(graph, names[node]))}")


def _names(graph: Graph) -> dict[str, str]:
    """Every name of every node: ids first, then titles that only one node has."""
    titles = [(_title(node), node_id) for node_id, node in graph.items()]
    often = Counter(title for title, _ in titles)
    return {title: node_id for title, node_id in titles if title and often[title] == 1} | {one: one for one in graph}


def _title(node: Mapping[str, object]) -> str:
    meta = node.get("_meta")
    title = meta.get("title") if isinstance(meta, Mapping) else None
    return title if isinstance(title, str) else ""


def literal_inputs(graph: Graph, names: Iterable[str]) -> tuple[Target, ...]:
    """Every input of one of these names that holds a value and no link."""
    wanted = set(names)
    return tuple(
        Target(node, name)
        for node in graph
        for name, value in inputs_of(graph, node).items()
        if name in wanted and not is_link(value)
    )


def value_at(graph: Graph, target: Target) -> object:
    """What the graph has there."""
    return inputs_of(graph, target.node)[target.input]


def filled(graph: Graph, changes: Mapping[Target, object]) -> dict[str, dict[str, object]]:
    """Another graph with these values in it."""
    made: dict[str, dict[str, object]] = {
        node: {**graph[node], "inputs": dict(inputs_of(graph, node))} for node in graph
    }
    for target, value in changes.items():
        inputs = made[target.node]["inputs"]
        assert isinstance(inputs, dict), "made above"
        inputs[target.input] = value
    return made
