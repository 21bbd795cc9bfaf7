"""What ComfyUI finds wrong with a graph before it queues it, error for error as the real server words it.

May not know HTTP or jobs. Invariants: an output node that is right is run although another is wrong; values are
converted where Python converts them and the converted ones are kept.

Source: every refusal of a real 0.33.0, recorded 2026-11-30, which is replayed in tests/contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from providers.sim.comfyui_nodes import CLASSES, NodeClass, Spec

Graph = dict[str, dict[str, object]]
_SHOWN_CHOICES = 20
_LINK_FORM = "Bad linked input, must be a length-2 list of [node_id, slot_index]"


class RejectedError(Exception):
    """The server does not queue the graph."""

    def __init__(self, error: Mapping[str, object], node_errors: Mapping[str, object] | None = None) -> None:
        """`error` as in the answer; `node_errors` by node id."""
        super().__init__(str(error["type"]))
        self.body = {"error": error, "node_errors": node_errors or {}}


@dataclass(slots=True)
class Checked:
    """A graph that can be queued: which outputs are run, and what is wrong with the others."""

    outputs: list[str]
    node_errors: dict[str, object] = field(default_factory=dict)


def whole_error(kind: str, message: str, details: str = "", **extra: object) -> dict[str, object]:
    """The `error` of an answer."""
    return {"type": kind, "message": message, "details": details, "extra_info": extra}


def check(graph: Graph, is_file: Callable[[str], bool]) -> Checked:
    """Check a graph, converting its values in place. `is_file`: whether LoadImage finds a name.

    Raises RejectedError.
    """
    for node_id, node in graph.items():
        _check_class(node_id, node)
    outputs = [node_id for node_id, node in graph.items() if _class(node).is_output]
    if not outputs:
        raise RejectedError(whole_error("prompt_no_outputs", "Prompt has no outputs"))
    finder = _Finder(graph, is_file)
    good, words = [], []
    for node_id in outputs:
        finder.visit_output(node_id)
        if finder.is_right(node_id):
            good.append(node_id)
        words += [f"{one['message']}: {one['details']}" for one in finder.errors.get(node_id, [])]
    node_errors = finder.as_json()
    if not good:
        details = "\n".join(words)
        error = whole_error("prompt_outputs_failed_validation", "Prompt outputs failed validation", details)
        raise RejectedError(error, node_errors)
    return Checked(good, node_errors)


def _class(node: Mapping[str, object]) -> NodeClass:
    return CLASSES[str(node["class_type"])]


def _check_class(node_id: str, node: Mapping[str, object]) -> None:
    name = node.get("class_type")
    meta = node.get("_meta")
    title = meta.get("title") if isinstance(meta, Mapping) else None
    told = {"node_id": node_id, "class_type": name, "node_title": title}
    where = f"Node ID '#{node_id}'"
    if name is None:
        words = f"Node 'ID #{node_id}' has no class_type. The workflow may be corrupted or a custom node is missing."
        raise RejectedError(whole_error("missing_node_type", words, where, **told))
    if name not in CLASSES:
        words = f"Node '{title or name}' not found. The custom node may not be installed."
        raise RejectedError(whole_error("missing_node_type", words, where, **told))


class _Finder:
    """Walks a graph upstream from its outputs and gathers the errors of each node."""

    def __init__(self, graph: Graph, is_file: Callable[[str], bool]) -> None:
        self._graph, self._is_file = graph, is_file
        self.errors: dict[str, list[dict[str, object]]] = {}
        self._wanted_by: dict[str, list[str]] = {}
        self._seen: dict[str, bool] = {}
        self._path: list[str] = []
        self._output = ""

    def visit_output(self, node_id: str) -> None:
        """Check an output node and all that feeds it."""
        self._output = node_id
        try:
            self._visit(node_id)
        except (KeyError, IndexError) as error:
            self._note(node_id, _exception("exception_during_validation", "Exception when validating node", error))
            self._seen[node_id] = False
        self._path.clear()

    def is_right(self, node_id: str) -> bool:
        """Whether a node and all that feeds it is right."""
        return self._seen.get(node_id, False)

    def as_json(self) -> dict[str, object]:
        """`node_errors` of the answer."""
        return {
            node_id: {
                "errors": errors,
                "dependent_outputs": self._wanted_by[node_id],
                "class_type": self._graph[node_id]["class_type"],
            }
            for node_id, errors in self.errors.items()
        }

    def _note(self, node_id: str, error: dict[str, object]) -> None:
        self.errors.setdefault(node_id, []).append(error)
        wanted_by = self._wanted_by.setdefault(node_id, [])
        if self._output not in wanted_by:
            wanted_by.append(self._output)

    def _visit(self, node_id: str) -> bool:
        if node_id in self._path:
            self._note_cycle(self._path[self._path.index(node_id) :])
            return False
        if node_id in self._seen:
            if node_id in self.errors and self._output not in self._wanted_by[node_id]:
                self._wanted_by[node_id].append(self._output)
            return self._seen[node_id]
        self._path.append(node_id)
        node = self._graph[node_id]
        kind = _class(node)
        right = True
        for name, spec in {**kind.inputs, **kind.optional}.items():
            error = self._check_input(node, name, spec, needed=name in kind.inputs)
            if error is not None:
                self._note(node_id, error)
            elif not self._feeds(node, name):
                right = False
        right = right and node_id not in self.errors
        self._path.pop()
        self._seen[node_id] = right
        return right

    def _feeds(self, node: dict[str, object], name: str) -> bool:
        """Whether what feeds an input is right; a value feeds itself."""
        value = _inputs(node).get(name)
        return self._visit(str(value[0])) if isinstance(value, list) else True

    def _note_cycle(self, cycle: list[str]) -> None:
        names = " -> ".join(f"{one} ({self._graph[one]['class_type']})" for one in [*cycle, cycle[0]])
        for node_id in cycle:
            words = "Dependency cycle detected"
            error = _input_error("dependency_cycle", words, names, node_id=node_id, cycle_nodes=list(cycle))
            self._note(node_id, error)

    def _check_input(self, node: dict[str, object], name: str, spec: Spec, *, needed: bool) -> dict[str, object] | None:
        """Check one input; a value that can be converted is. Raises KeyError and IndexError as the real one does."""
        inputs = _inputs(node)
        if name not in inputs:
            words = "Required input is missing"
            return _input_error("required_input_missing", words, name, input_name=name) if needed else None
        value = inputs[name]
        if isinstance(value, list):
            return self._check_link(name, spec, value)
        if node["class_type"] == "LoadImage" and not self._is_file(str(value)):
            words = f"image - Invalid image file: {value}"
            return _input_error("custom_validation_failed", "Custom validation failed for node", words, input_name=name)
        told = {"input_name": name, "input_config": spec, "received_value": value}
        try:
            inputs[name] = converted = _converted(spec[0], value)
        except (ValueError, TypeError) as error:
            words = f"Failed to convert an input value to a {spec[0]} value"
            details = f"{name}, {value}, {error}"
            return _input_error("invalid_input_type", words, details, **told, exception_message=str(error))
        return _out_of_range(name, spec, converted, told | {"received_value": converted})

    def _check_link(self, name: str, spec: Spec, value: list[object]) -> dict[str, object] | None:
        told = {"input_name": name, "input_config": spec}
        if len(value) != 2:
            return _input_error("bad_linked_input", _LINK_FORM, name, **told, received_value=value)
        source, slot = value
        gives = CLASSES[str(self._graph[source]["class_type"])].gives  # type: ignore[index]  # KeyError, as it does
        given = gives[slot]  # type: ignore[call-overload]  # IndexError, same
        if given != spec[0] and spec[0] != "*" and not isinstance(spec[0], list):
            details = f"{name}, received_type({given}) mismatch input_type({spec[0]})"
            words = "Return type mismatch between linked nodes"
            return _input_error("return_type_mismatch", words, details, **told, received_type=given, linked_node=value)
        return None


def _inputs(node: Mapping[str, object]) -> dict[str, object]:
    found = node.get("inputs")
    return found if isinstance(found, dict) else {}


def _input_error(kind: str, message: str, details: str, **extra: object) -> dict[str, object]:
    return {"type": kind, "message": message, "details": details, "extra_info": extra}


def _exception(kind: str, message: str, error: Exception) -> dict[str, object]:
    return _input_error(kind, message, str(error), exception_type=type(error).__name__, traceback=[])


def _converted(kind: object, value: object) -> object:
    """As Python converts. Raises ValueError and TypeError."""
    if kind == "INT":
        return int(value)  # type: ignore[call-overload]  # raises for what is no number
    if kind == "FLOAT":
        return float(value)  # type: ignore[arg-type]  # same
    if kind == "STRING":
        return str(value)
    return bool(value) if kind == "BOOLEAN" else value


def _out_of_range(name: str, spec: Spec, value: object, told: dict[str, object]) -> dict[str, object] | None:
    kind, options = spec[0], spec[1]
    if isinstance(kind, list):
        if value in kind:
            return None
        shown, config = str(kind), told["input_config"]
        if len(kind) > _SHOWN_CHOICES:
            shown, config = f"(list of length {len(kind)})", None
        words = f"{name}: '{value}' not in {shown}"
        return _input_error("value_not_in_list", "Value not in list", words, **{**told, "input_config": config})
    if not isinstance(options, Mapping) or not isinstance(value, int | float):
        return None
    if "min" in options and value < options["min"]:
        return _input_error(
            "value_smaller_than_min", f"Value {value} smaller than min of {options['min']}", name, **told
        )
    if "max" in options and value > options["max"]:
        return _input_error("value_bigger_than_max", f"Value {value} bigger than max of {options['max']}", name, **told)
    return None
