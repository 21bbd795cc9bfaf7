"""Truth check: exchanges with a real ComfyUI, replayed against the simulator and against the adapter.

There is no SDK to hold against. Our own exchanges, written after the recordings, are always replayed; the recordings
themselves wherever they lie beside the project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.contract import Kind
from models.lifecycle import Canceled, Failed, Finished, Observation, Working
from models.workflows import WorkflowBounds, WorkflowSettings
from providers.comfyui import to_wire
from providers.comfyui_answers import from_wire
from providers.comfyui_workflows import workflows
from providers.port import Accepted, CancelAnswer, Job, Refused, Uncertain
from providers.sim import Simulator, comfyui_machine
from providers.sim.comfyui_nodes import CLASSES
from tests.contract.comfyui_exchanges import PAYLOADS, RECORDED, Exchange, Replay, exchanges, is_small
from tests.contract.comfyui_jobs import adapter, answering, job, saying
from tests.contract.raw_server import RawServer

OURS = sorted(PAYLOADS.glob("exchanges_*.json"))
THEIRS = sorted(RECORDED.glob("*.json"))
FILES = [*OURS, *THEIRS]
# Recordings of one server's own facts, of an older server, and of a history that takes half a minute to fill.
NOT_REPLAYED = ("01-", "07-", "10-", "11-", "12-", "14-")
# Where the simulator is another server than the one that was recorded, and why.
DIFFERS = {
    "conditional request with the etag": "the etag is that of the recorded file",
    "checkpoint file that is not on the server": "that server had no checkpoint at all",
    "state after it": "a third submit with the same number was not recorded",
    "list filtered by workflow_id": "that server had other jobs of the day before",
    "paging and sorting": "same",
}
# Files that were deleted by hand meanwhile, and the number that came free by it.
DELETED = "batch_0000"


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    # The real server took its time to stop, and a recording leans on it: what is behind must not start meanwhile.
    with pytest.MonkeyPatch.context() as patch, Simulator(image_s=(0, 0.01), video_s=(0, 0.01)) as simulator:
        patch.setattr(comfyui_machine, "STEP_S", 0.4)
        yield simulator


def _is_known(one: Exchange) -> bool:
    """Whether the simulator has the nodes it is about."""
    graph = one.sent.get("prompt") if isinstance(one.sent, dict) else None
    nodes = graph.values() if isinstance(graph, dict) and one.status == 200 else ()
    kinds = {node.get("class_type") for node in nodes if isinstance(node, dict)}
    named = str(one.query.get("filename", ""))
    return kinds <= {*CLASSES, None} and not named.startswith(("webm_", "apng_", "sound", "ComfyUI_temp", DELETED))


def test_our_own_exchanges_are_there() -> None:
    assert [path.stem for path in OURS] == [
        "exchanges_outputs",
        "exchanges_queue",
        "exchanges_restart",
        "exchanges_validation",
    ]
    for path in OURS:
        told = json.loads(path.read_text(encoding="utf-8"))
        assert told["date"]
        assert told["source"]


@pytest.mark.parametrize(
    "path", [path for path in FILES if not path.name.startswith(NOT_REPLAYED)], ids=lambda path: path.stem
)
def test_simulator_answers_as_the_real_server_did(vendor: Simulator, path: Path) -> None:
    vendor.world.reset()
    replay = Replay(f"{vendor.url}/comfyui")
    unknown: set[str] = set()
    differing: dict[str, str] = {}
    for one in exchanges(path):
        ids = {name for name in unknown if name in one.path}
        if not is_small(one) or not _is_known(one) or ids or one.note in DIFFERS:
            if isinstance(one.body, dict) and one.path == "/prompt":
                unknown.add(str(one.body.get("prompt_id")))
            continue
        words = replay.differs(one)
        if words:
            differing[one.note] = words
    assert differing == {}


# --- the adapter reads what was recorded ---


def _all(path: str) -> list[Exchange]:
    found = [one for file in FILES if not file.name.startswith(("07-", "10-", "11-")) for one in exchanges(file)]
    return [one for one in found if one.path.startswith(path)]


def _records() -> list[tuple[str, dict[str, Any]]]:
    return [
        (one.note, record) for one in _all("/history/") if isinstance(one.body, dict) for record in one.body.values()
    ]


def _type_of(record: dict[str, Any]) -> type[Observation]:
    words = {message[0] for message in record["status"]["messages"]}
    if "execution_interrupted" in words:
        return Canceled
    return Failed if "execution_error" in words else Finished if record["status"]["completed"] else Working


@pytest.mark.parametrize("kind", Kind)
def test_every_record_is_what_its_own_messages_say(kind: Kind) -> None:
    records = [(note, record) for note, record in _records() if "status" in record]
    assert len(records) > 9
    for note, record in records:
        seen = from_wire(record, kind, "http://h/view")
        assert isinstance(seen, _type_of(record)), note
        if isinstance(seen, Failed):
            assert seen.error.upstream_code, note
            assert "tensor(" not in seen.error.message, note


def test_every_file_that_was_saved_is_found_and_no_preview() -> None:
    for note, record in _records():
        if record.get("status", {}).get("completed"):
            files = [
                one["filename"]
                for made in record["outputs"].values()
                for key in ("images", "gifs")
                for one in made.get(key, [])
                if one["type"] == "output"
            ]
            seen = [from_wire(record, kind, "http://h/view") for kind in Kind]
            found = [output.url or "" for one in seen if isinstance(one, Finished) for output in one.outputs]
            assert [url.split("=")[1].split("&")[0] for url in found] == files, note


def test_every_answer_to_a_submit_is_the_right_word() -> None:
    seen: dict[type, int] = {}
    for one in _all("/prompt"):
        if one.method != "POST" or one.path != "/prompt":
            continue
        with RawServer(saying({"http_status": one.status, "body": one.body})) as server:
            outcome = adapter(server.url).submit(job())
        seen[type(outcome)] = seen.get(type(outcome), 0) + 1
        if one.status == 200:
            assert isinstance(outcome, Accepted), one.note
            assert outcome.receipt == one.body["prompt_id"]
        elif one.status == 400:
            assert isinstance(outcome, Refused), one.note
            assert outcome.error.upstream_code == one.body["error"]["type"]
            assert outcome.error.message
            assert "File " not in outcome.error.message, "a trace"
        else:
            assert isinstance(outcome, Uncertain), one.note
    assert set(seen) == {Accepted, Refused, Uncertain}


def test_every_answer_to_a_cancel_can_be_read() -> None:
    told = [one for one in [*_all("/interrupt"), *_all("/queue")] if one.method == "POST" and one.status == 200]
    assert {one.body for one in told} == {""}
    running = {"queue_running": [[1, "r", {}, {}, []]], "queue_pending": []}
    known = [one.body for one in _all("/system_stats")]
    stats = known[0] if known else {"system": {"comfyui_version": "0.33.0"}}
    answers = {"/queue": running, "/system_stats": stats, "/history/r": {}, "/interrupt": ""}
    with RawServer(answering(lambda _method, path: (200, answers[path]))) as server:
        found = adapter(server.url).cancel(Job(**{**vars(job()), "receipt": "r"}))
    assert found is CancelAnswer.UNCLEAR
    assert server.requests[-2].endswith(b'\r\n\r\n{"prompt_id": "r"}')


# --- what goes out is what was recorded to work ---

# As it ran on the real server (09-txt2img-ksampler.json); the words and numbers are ours.
PROVEN: dict[str, Any] = {
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "mine.safetensors"}},
    "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 128, "height": 128, "batch_size": 2}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a blue jug", "clip": ["4", 1]}},
    "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "cracks", "clip": ["4", 1]}},
    "3": {
        "class_type": "KSampler",
        "inputs": {
            "seed": 1002,
            "steps": 6,
            "cfg": 7.0,
            "sampler_name": "euler",
            "scheduler": "normal",
            "denoise": 1.0,
            "model": ["4", 0],
            "positive": ["6", 0],
            "negative": ["7", 0],
            "latent_image": ["5", 0],
        },
    },
    "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
    "9": {"class_type": "SaveImage", "inputs": {"filename_prefix": "gw/job-c", "images": ["8", 0]}},
}


def _proven() -> list[dict[str, Any]]:
    found = [
        one.sent["prompt"]
        for file in THEIRS
        if file.name.startswith("09-")
        for one in exchanges(file)
        if one.path == "/prompt" and one.status == 200 and "batch of 2" in one.note
    ]
    return [PROVEN, *found]


def test_filled_graph_is_the_one_that_ran_to_the_last_byte(tmp_path: Path) -> None:
    for number, graph in enumerate(_proven()):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(graph), encoding="utf-8")
        bounds = WorkflowBounds(image_count_max=4)
        settings = WorkflowSettings(
            graph=str(path), inputs=workflows_inputs(), bounds=bounds, values={"7.text": "", "3.steps": 1, "6.text": ""}
        )
        workflow = workflows("studio", {"mine": settings})["mine"]
        sampler = graph["3"]["inputs"]
        effective = {
            "prompt": graph["6"]["inputs"]["text"],
            "negative_prompt": graph["7"]["inputs"]["text"],
            "width": 128,
            "height": 128,
            "image_count": 2,
            "steps": sampler["steps"],
            "cfg_scale": sampler["cfg"],
            "sampler": "euler",
            "seed": sampler["seed"],
        }
        mine = Job(task_id="t", attempt=1, kind=Kind.IMAGE, model="mine", effective=effective, reference="t.1")
        body = to_wire(mine, workflow).body
        assert isinstance(body, dict)
        sent = body["prompt"]
        assert isinstance(sent, dict)
        expected = json.loads(json.dumps(graph))
        expected["9"]["inputs"]["filename_prefix"] = f"weir/{body['prompt_id']}"
        assert json.dumps(sent) == json.dumps(expected)


def workflows_inputs() -> dict[str, object]:
    """The mapping of the shipped txt2img, whose nodes have the same ids."""
    return {
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


@pytest.mark.parametrize("name", ["KSampler", "EmptyImage", "SaveImage"])
def test_node_classes_take_what_the_real_ones_take(name: str) -> None:
    for one in _all(f"/object_info/{name}"):
        real = one.body[name]["input"]["required"]
        plain = {key: [spec[0], {k: v for k, v in spec[1].items() if k != "tooltip"}] for key, spec in real.items()}
        assert CLASSES[name].inputs == plain
    assert CLASSES[name].inputs
