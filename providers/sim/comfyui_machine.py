"""One simulated ComfyUI server: a queue worked off one by one, a history, a cache, a disk. All of it in memory.

May not know HTTP. What happened by now is computed when somebody asks, so a server costs no thread. Invariants: a job
is in the queue or in the history and never in neither, unless it was canceled while it waited or the server was
restarted; a node that was run with the same inputs before is not run again, and a saving one then names the old files.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import math
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field

from providers.sim.comfyui_files import Disk, Made, OutsideError
from providers.sim.comfyui_nodes import CLASSES
from providers.sim.comfyui_orders import NAME, in_order, inputs_of, source_of
from providers.sim.comfyui_validation import Graph
from providers.sim.ledger import Job, now_s
from providers.sim.world import World

HISTORY_MAX = 10_001
"""Entries that are kept; the oldest goes first, without a word."""
STEP_S = 0.03
"""Seconds until a running job looks whether it is to stop: between two steps of its sampler."""
_REMEMBERED_NODES = 100_000
_MEMORY_BYTES = 2**34
_PICTURE_HEADS = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")

Message = tuple[str, dict[str, object]]


class NodeError(Exception):
    """A node failed while it ran."""

    def __init__(self, node_id: str, kind: str, message: str) -> None:
        """`kind` as the class of an exception of Python."""
        super().__init__(message)
        self.node_id, self.kind, self.message = node_id, kind, message


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """A prompt in the queue, running, or in the history."""

    number: float
    prompt_id: str
    graph: Graph
    extra: dict[str, object]
    targets: list[str]
    """The output nodes that are run."""
    job: Job
    takes_s: float
    outputs: dict[str, dict[str, object]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    status: str = ""
    """`success`, `error` or a word that a fault asks for; empty until it has ended."""
    executed: list[str] = field(default_factory=list)
    stops_at: float = math.inf
    """When an interrupt will have reached it."""

    def say(self, word: str, at_s: float, **more: object) -> None:
        """Append a message of the run."""
        self.messages.append((word, {"prompt_id": self.prompt_id, **more, "timestamp": int(at_s * 1000)}))


class Machine:
    """The server. Safe under threads: `with machine.lock` around what belongs together; each method takes it too."""

    def __init__(self, world: World) -> None:
        """Start with nothing."""
        self._world = world
        self.lock = threading.RLock()
        self.disk = Disk()
        self.pending: list[Entry] = []
        self.running: Entry | None = None
        self.history: OrderedDict[str, Entry] = OrderedDict()
        self._numbers = 0
        self._free_at = 0.0
        self._cache: OrderedDict[str, dict[str, object]] = OrderedDict()

    def next_number(self) -> int:
        """Return the place of a prompt that asks for none."""
        with self.lock:
            self.work()  # a restart begins anew
            self._numbers += 1
            return self._numbers - 1

    def put(self, entry: Entry) -> None:
        """Queue a prompt; it starts at once when nothing runs."""
        with self.lock:
            self._world.ledger.move(entry.job, math.inf, math.inf)
            self.pending.append(entry)
            if entry.job.fault.status_word is not None:
                # A state that nobody knows shows where states are told: in the history.
                self.pending.remove(entry)
                self._record(entry, entry.job.fault.status_word, now_s())
            self.work()

    def work(self) -> None:
        """Do what was to be done by now."""
        with self.lock:
            self._notice_restart()
            now = now_s()
            while True:
                if self.running is not None:
                    ended = self.running
                    if min(ended.job.ends_at, ended.stops_at) > now:
                        return
                    self.running = None
                    self._end(ended) if ended.stops_at > now else self._interrupted(ended)
                ready = [one for one in self.pending if one.job.fault.stuck != "PENDING"]
                if not ready:
                    return
                start = max(self._free_at, min(one.job.created_at for one in ready))
                there = [one for one in ready if one.job.created_at <= start]
                self._start(min(there, key=lambda one: (one.number, one.prompt_id)), start)

    def remove(self, prompt_id: str) -> bool:
        """Take a prompt that waits out of the queue, without a trace; return whether it was there."""
        with self.lock:
            self.work()
            for entry in self.pending:
                if entry.prompt_id == prompt_id:
                    self.pending.remove(entry)
                    self._world.ledger.cancel(entry.job)
                    return True
            return False

    def interrupt(self, prompt_id: str | None) -> bool:
        """Tell what runs to stop, if it has this id (None: whatever it is); return whether something was told."""
        with self.lock:
            self.work()
            entry = self.running
            if entry is None or prompt_id not in (None, entry.prompt_id):
                return False
            at_s = now_s() + STEP_S
            if at_s < min(entry.stops_at, entry.job.ends_at):
                self._world.ledger.cancel(entry.job, running=True)
                entry.stops_at = at_s
            return True

    def _interrupted(self, entry: Entry) -> None:
        self._free_at = entry.stops_at
        node = in_order(entry.graph, entry.targets)[-1]
        kind, done = entry.graph[node]["class_type"], list(entry.executed)
        entry.say("execution_interrupted", entry.stops_at, node_id=node, node_type=kind, executed=done)
        self._record(entry, "error", entry.stops_at)

    def waiting(self) -> list[Entry]:
        """Return the queue as it lies in memory: a heap, the next one first and the others in no order to rely on."""
        heap: list[tuple[float, str, int]] = []
        for place, one in enumerate(self.pending):
            heapq.heappush(heap, (one.number, one.prompt_id, place))
        return [self.pending[place] for _, _, place in heap]

    def find(self, prompt_id: str) -> Entry | None:
        """Return the newest entry of an id in the history, running or waiting: history wins, as with the real one."""
        with self.lock:
            live = [self.running, *self.pending]
            return self.history.get(prompt_id) or next(
                (one for one in live if one and one.prompt_id == prompt_id), None
            )

    def _notice_restart(self) -> None:
        """Everything but the files in output and input is gone with the jobs the ledger hides."""
        one = next(iter(self.disk.made.values()), None)
        if one is not None and self._world.ledger.for_file(one.job.id) is None:
            self.disk = Disk()  # no restart but a new beginning
        live = [*([self.running] if self.running else []), *self.pending]
        first = min(
            [*live, *itertools.islice(self.history.values(), 1)], key=lambda one: one.job.created_at, default=None
        )
        if first is None or self._is_known(first):
            return
        gone = [one for one in live if not self._is_known(one)]
        for entry in gone:
            if self._world.ledger.for_file(entry.job.id) is not None:  # else it is off the books altogether
                self._world.ledger.cancel(entry.job, running=True)
        kept = [one for one in self.pending if one not in gone]
        self.pending, self.running, self._free_at = kept, None, 0.0
        self.history.clear()
        self._cache.clear()
        self._numbers = 0
        self.disk.restart()

    def _is_known(self, entry: Entry) -> bool:
        return self._world.ledger.find(entry.job.id, NAME, entry.job.order.account, math.inf) is not None

    def _start(self, entry: Entry, at_s: float) -> None:
        self.pending.remove(entry)
        self.running = entry
        nodes = in_order(entry.graph, entry.targets)
        signatures = _signatures(entry.graph, nodes)
        cached = [one for one in nodes if signatures[one] in self._cache]
        entry.executed = []
        entry.say("execution_start", at_s)
        entry.messages.append(
            ("execution_cached", {"nodes": cached, "prompt_id": entry.prompt_id, "timestamp": int(at_s * 1000)})
        )
        # What samples is in the cache: saving takes no time.
        work = [one for one in nodes if one not in cached and one not in entry.targets]
        stuck = entry.job.fault.stuck == "RUNNING"
        takes = math.inf if stuck else entry.takes_s if work or entry.job.fault.slow_s else 0.0
        self._world.ledger.move(entry.job, at_s, at_s + takes)

    def _end(self, entry: Entry) -> None:
        self._free_at = at_s = entry.job.ends_at
        try:
            self._run(entry)
        except NodeError as error:
            entry.say(
                "execution_error",
                at_s,
                node_id=error.node_id,
                node_type=entry.graph[error.node_id]["class_type"],
                executed=list(entry.executed),
                exception_message=error.message,
                exception_type=error.kind,
                traceback=[],
                current_inputs={},
                current_outputs=list(entry.executed),
            )
            self._record(entry, "error", at_s)
            return
        entry.say("execution_success", at_s)
        self._record(entry, "success", at_s)

    def _record(self, entry: Entry, status: str, at_s: float) -> None:
        entry.status = status
        if not entry.messages:
            entry.say("execution_start", at_s)
        self.history.pop(entry.prompt_id, None)
        self.history[entry.prompt_id] = entry
        while len(self.history) > HISTORY_MAX:
            self.history.popitem(last=False)

    def _run(self, entry: Entry) -> None:
        """Run every node that is not cached, feeders first. Raises NodeError."""
        for node_id, signature in _signatures(entry.graph, in_order(entry.graph, entry.targets)).items():
            known = self._cache.get(signature)
            if known is None:
                known = self._run_node(entry, node_id)
                entry.executed.append(node_id)
                self._cache[signature] = known
                if len(self._cache) > _REMEMBERED_NODES:
                    self._cache.popitem(last=False)
            if node_id in entry.targets and known:
                entry.outputs[node_id] = known
        if entry.job.fault.no_payload:
            entry.outputs = {}

    def _run_node(self, entry: Entry, node_id: str) -> dict[str, object]:
        """What a saving node puts out; nothing for the others. Raises NodeError."""
        node = entry.graph[node_id]
        inputs, kind = inputs_of(node), CLASSES[str(node["class_type"])]
        self._check_inputs(entry, node_id)
        if not kind.is_output:
            return {}
        if entry.job.failure is not None:
            code, words = entry.job.failure
            sampler = next((one for one in entry.executed if entry.graph[one]["class_type"] == "KSampler"), node_id)
            raise NodeError(sampler, code or "RuntimeError", words)
        if kind.saves == "text":
            source = source_of(inputs.get("source"))
            return {"text": [str(next(iter(inputs_of(entry.graph[source or node_id]).values()), ""))]}
        count = 1 if kind.ending != "png" else entry.job.good
        made = [Made(entry.job, index) for index in range(count)]
        temp = kind.temp or inputs.get("save_output") is False
        try:
            files = self.disk.save(str(inputs.get("filename_prefix", "")), kind.ending, made, temp=temp)
        except OutsideError as error:
            words = "**** ERROR: Saving image outside the output folder is not allowed.\n full_output_folder: <dir>\n"
            raise NodeError(node_id, "Exception", words) from error
        if kind.saves == "gifs":
            more = {"format": inputs.get("format"), "frame_rate": inputs.get("frame_rate")}
            return {"gifs": [{**one, **more} for one in files]}
        return {kind.saves: files, **({"animated": [True]} if kind.animated else {})}

    def _check_inputs(self, entry: Entry, node_id: str) -> None:
        """What only shows while running: memory, and files that are no pictures. Raises NodeError."""
        node = entry.graph[node_id]
        inputs = inputs_of(node)
        if node["class_type"] == "LoadImage":
            found = self.disk.input_of(str(inputs.get("image")))
            if isinstance(found, bytes) and not found.startswith(_PICTURE_HEADS):
                raise NodeError(node_id, "av.error.InvalidDataError", "Invalid data found when processing input")
        sides = [value for name in ("width", "height", "batch_size") if isinstance(value := inputs.get(name), int)]
        needed = math.prod(sides) * 12
        if len(sides) > 1 and needed > _MEMORY_BYTES:
            words = f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {needed} bytes."
            raise NodeError(node_id, "RuntimeError", words)


def _signatures(graph: Graph, nodes: list[str]) -> dict[str, str]:
    """A text for each of `nodes` (feeders first): the same for the same class with the same inputs all the way up."""
    found: dict[str, str] = {}
    for node_id in nodes:
        told: dict[str, object] = {}
        for name, value in inputs_of(graph[node_id]).items():
            source = source_of(value)
            # Which node it comes from does not matter, what that one does and which output it is does.
            told[name] = [found[source], value[1]] if source in found and isinstance(value, list) else value
        text = json.dumps([graph[node_id]["class_type"], told], sort_keys=True)
        found[node_id] = hashlib.sha256(text.encode()).hexdigest()
    return found


def new_id(chosen: object, *, any_text: bool) -> str | None:
    """Return the id a prompt gets: the caller's, or one of ours for none; None for one the server does not take.

    `any_text`: as before 0.25, when any text was taken and null became "None".
    """
    if any_text:
        return str(chosen)
    if chosen is None:
        return str(uuid.uuid4())
    try:
        return chosen if isinstance(chosen, str) and str(uuid.UUID(chosen)) == chosen else None
    except ValueError:
        return None
