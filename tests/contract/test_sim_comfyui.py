"""The simulator's ComfyUI: what the recordings do not show, and the adapter's way through its habits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from models.contract import Kind
from models.failures import FailureKind
from models.lifecycle import Failed, Finished, Output, Working
from models.settings import ProviderSettings, Results
from models.workflows import WorkflowBounds, WorkflowSettings
from providers.comfyui import ComfyUI, prompt_id
from providers.fetch import Downloads, Fetched
from providers.port import CancelAnswer, FindAnswer, ProviderError, Refused, Uncertain
from providers.sim import Simulator
from tests.contract.comfyui_jobs import STUCK, adapter, ended, new_job, outputs, seen, taken
from tests.contract.simulated import script


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    vendor.world.reset()
    vendor.world.config = vendor.world.config.changed({"image_s": [0, 0], "video_s": [0, 0]})
    return vendor


@pytest.fixture
def provider(sim: Simulator) -> ComfyUI:
    return adapter(f"{sim.url}/comfyui")


@pytest.fixture
def old(sim: Simulator) -> ComfyUI:
    """A server of summer 2025."""
    return adapter(f"{sim.url}/comfyui/old")


def fetched(sim: Simulator, output: Output, kind: Kind, folder: Path) -> tuple[Fetched, bytes]:
    settings = ProviderSettings(adapter="comfyui", base_url=f"{sim.url}/comfyui")
    with Downloads(Results(), folder).fetched(settings, output, kind) as got:
        return got, got.file.read()


def own_graph(folder: Path, graph: Mapping[str, Any], **settings: object) -> dict[str, WorkflowSettings]:
    path = folder / "graph.json"
    path.write_text(json.dumps(graph), encoding="utf-8")
    return {"mine": WorkflowSettings(graph=str(path), **settings)}  # type: ignore[arg-type]  # a test's own keywords


# --- results ---


def test_cached_run_of_another_task_has_files_of_its_own(sim: Simulator, provider: ComfyUI, tmp_path: Path) -> None:
    first, second = taken(provider, new_job()), taken(provider, new_job())
    (one,), (other,) = outputs(ended(provider, first)), outputs(ended(provider, second))
    assert one.url != other.url
    assert fetched(sim, one, Kind.IMAGE, tmp_path)[1] == fetched(sim, other, Kind.IMAGE, tmp_path)[1]


def test_every_picture_of_a_batch_reports_the_seed_that_was_sent(provider: ComfyUI) -> None:
    found = outputs(ended(provider, taken(provider, new_job(image_count=3, seed=11))))
    assert [(output.place, output.seed) for output in found] == [(0, 11), (1, 11), (2, 11)]


def test_clip_has_the_size_and_length_that_were_asked(sim: Simulator, provider: ComfyUI, tmp_path: Path) -> None:
    (output,) = outputs(ended(provider, taken(provider, new_job(model="txt2video", duration_s=1, ratio="16:9"))))
    got, _ = fetched(sim, output, Kind.VIDEO, tmp_path)
    assert (got.media.width, got.media.height) == (832, 480)
    assert got.media.duration_s == pytest.approx(17 / 16, abs=0.1)


VHS: dict[str, Any] = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 9, "color": 3}},
    "2": {
        "class_type": "VHS_VideoCombine",
        "inputs": {
            "images": ["1", 0],
            "frame_rate": 8.0,
            "loop_count": 0,
            "filename_prefix": "x",
            "format": "video/h264-mp4",
            "pingpong": False,
            "save_output": True,
        },
    },
    "3": {"class_type": "PrimitiveString", "inputs": {"value": "words"}},
    "4": {"class_type": "PreviewAny", "inputs": {"source": ["3", 0]}},
}
VHS_INPUTS = {"prompt": "3.value", "width": "1.width", "height": "1.height", "frames": "1.batch_size"}
VHS_BOUNDS = WorkflowBounds(frames={"480p 9:16": [64, 96]}, fps=(8, 8), durations_s=(1, 3), frame_step=8)


def test_clip_of_a_custom_pack_is_found_under_its_own_key(sim: Simulator, tmp_path: Path) -> None:
    mine = own_graph(tmp_path, VHS, type="video", inputs=VHS_INPUTS, bounds=VHS_BOUNDS)
    provider = adapter(f"{sim.url}/comfyui", mine)
    job = replace(new_job(model="txt2video"), model="mine")
    (output,) = outputs(ended(provider, taken(provider, job)))
    assert fetched(sim, output, Kind.VIDEO, tmp_path)[0].media.height == 96


def test_clip_that_is_only_a_preview_is_no_result(sim: Simulator, tmp_path: Path) -> None:
    values = {"2.save_output": False}
    mine = own_graph(tmp_path, VHS, type="video", inputs=VHS_INPUTS, bounds=VHS_BOUNDS, values=values)
    provider = adapter(f"{sim.url}/comfyui", mine)
    job = replace(new_job(model="txt2video"), model="mine")
    assert ended(provider, taken(provider, job)) == Finished(outputs=())


def test_success_without_a_file_is_no_result(provider: ComfyUI) -> None:
    assert ended(provider, taken(provider, new_job("x [[sim: no-payload]]"))) == Finished(outputs=())


def test_file_that_was_tidied_away_is_unavailable(sim: Simulator, provider: ComfyUI, tmp_path: Path) -> None:
    (output,) = outputs(ended(provider, taken(provider, new_job("x [[sim: expired]]"))))
    with pytest.raises(ProviderError) as caught:
        fetched(sim, output, Kind.IMAGE, tmp_path)
    assert caught.value.kind is FailureKind.RESULT_UNAVAILABLE


@pytest.mark.parametrize("kind", ["html", "text", "empty", "mp4"])
def test_wrong_bytes_are_no_result(sim: Simulator, provider: ComfyUI, tmp_path: Path, kind: str) -> None:
    (output,) = outputs(ended(provider, taken(provider, new_job(f"x [[sim: file-bytes {kind}]]"))))
    with pytest.raises(ProviderError) as caught:
        fetched(sim, output, Kind.IMAGE, tmp_path)
    assert caught.value.kind is FailureKind.RESULT_INVALID


# --- a submit whose answer was lost ---


def test_lost_submit_is_found_while_it_waits_and_after_it_ended(provider: ComfyUI) -> None:
    running, waiting = new_job(f"{STUCK} [[sim: lost-answer]]"), new_job("x [[sim: lost-answer]] [[sim: stuck]]")
    for job in (running, waiting):
        assert isinstance(provider.submit(job), Uncertain)
        assert provider.find(job) == prompt_id(job)
    done = new_job("y [[sim: lost-answer]]")
    requests.post(f"{provider_url(provider)}/queue", json={"clear": True}, timeout=5)
    assert provider.cancel(replace(running, receipt=prompt_id(running))) is CancelAnswer.UNCLEAR
    assert isinstance(provider.submit(done), Uncertain)
    assert isinstance(ended(provider, replace(done, receipt=prompt_id(done))), Finished)
    assert provider.find(done) == prompt_id(done)


def provider_url(provider: ComfyUI) -> str:
    return provider._view.removesuffix("/view")


def test_submit_that_may_still_arrive_is_not_called_absent(sim: Simulator, provider: ComfyUI) -> None:
    job = new_job()
    script(sim, "submit", times=1, reset=True)
    assert isinstance(provider.submit(job), Uncertain)
    assert provider.find(job) is FindAnswer.UNCLEAR


def test_another_attempt_does_not_find_its_dead_predecessor(provider: ComfyUI) -> None:
    job = taken(provider, new_job())
    again = replace(job, attempt=2, reference=job.reference.replace(".1", ".2"), receipt=None)
    assert provider.find(job) == job.receipt
    assert provider.find(again) is FindAnswer.UNCLEAR


def test_same_submit_again_is_answered_from_the_cache(sim: Simulator, provider: ComfyUI) -> None:
    job = taken(provider, new_job())
    first = outputs(ended(provider, job))
    assert outputs(ended(provider, taken(provider, job))) == first
    history = requests.get(f"{sim.url}/comfyui/history/{job.receipt}", timeout=5).json()
    messages = dict(history[str(job.receipt)]["status"]["messages"])
    assert set(messages["execution_cached"]["nodes"]) == {"3", "4", "5", "6", "7", "8", "9"}


# --- what is refused ---


def test_graph_of_which_only_a_part_would_run_is_refused_and_stopped(sim: Simulator, tmp_path: Path) -> None:
    graph = {
        "1": {"class_type": "PrimitiveString", "inputs": {"value": ""}},
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
        "3": {"class_type": "EmptyImage", "inputs": {"width": -5, "height": 8, "batch_size": 1, "color": 0}},
        "4": {"class_type": "SaveImage", "inputs": {"filename_prefix": "x", "images": ["3", 0]}},
    }
    mine = adapter(f"{sim.url}/comfyui", own_graph(tmp_path, graph, inputs={"prompt": "1.value"}))
    taken(adapter(f"{sim.url}/comfyui"), new_job(STUCK))
    outcome = mine.submit(replace(new_job(), model="mine"))
    assert isinstance(outcome, Refused)
    assert outcome.error.kind is FailureKind.INVALID_PARAMETER
    assert outcome.error.message == "EmptyImage (node 3): Value -5 smaller than min of 1: width"
    left = requests.get(f"{sim.url}/comfyui/prompt", timeout=5).json()
    assert left == {"exec_info": {"queue_remaining": 1}}


def test_checkpoint_that_the_server_lacks_is_refused_by_its_name(sim: Simulator) -> None:
    mine = WorkflowSettings(graph="txt2img", values={"4.ckpt_name": "mine.safetensors"})
    outcome = adapter(f"{sim.url}/comfyui", {"mine": mine}).submit(replace(new_job(), model="mine"))
    assert isinstance(outcome, Refused)
    assert outcome.error.message.startswith("CheckpointLoaderSimple (node 4): ckpt_name: 'mine.safetensors' not in [")


def test_job_that_fails_names_its_node(provider: ComfyUI) -> None:
    found = ended(provider, taken(provider, new_job("x [[sim: fail torch.OutOfMemoryError]]")))
    assert isinstance(found, Failed)
    assert found.error.upstream_code == "torch.OutOfMemoryError"
    assert found.error.message == "KSampler (node 3): The job failed by script."


# --- the simulator's own ---


def test_shipped_graphs_run_on_the_simulated_server(sim: Simulator) -> None:
    folder = Path(__file__).parents[2] / "providers" / "workflows"
    upload = {"image": ("example.png", b"\x89PNG", "image/png")}
    assert requests.post(f"{sim.url}/comfyui/upload/image", files=upload, timeout=5).json()["name"] == "example.png"
    for path in folder.glob("*.json"):
        graph = json.loads(path.read_text(encoding="utf-8"))
        answer = requests.post(f"{sim.url}/comfyui/prompt", json={"prompt": graph}, timeout=5)
        assert (answer.status_code, answer.json()["node_errors"]) == (200, {}), path.stem


def test_order_says_what_was_understood(sim: Simulator, provider: ComfyUI) -> None:
    taken(provider, new_job("a blue jug", seed=12, image_count=2))
    (job,) = sim.world.ledger.accepted(0)
    order = job.order
    assert (order.prompt, order.seed, order.n, order.width, order.height) == ("a blue jug", 12, 2, 64, 96)
    assert order.model == "sd_xl_base_1.0.safetensors"
    told = {name: order.extra[name] for name in ("negative_prompt", "steps", "cfg", "sampler_name", "scheduler")}
    assert told == {
        "negative_prompt": "cracks",
        "steps": 12,
        "cfg": 5.5,
        "sampler_name": "euler_ancestral",
        "scheduler": "karras",
    }


def test_rule_strikes_by_the_words_of_a_job_in_the_queue(sim: Simulator, provider: ComfyUI) -> None:
    job = taken(provider, new_job("a striking cup [[sim: stuck]]"))
    rule = {
        "on": "query",
        "match": {"prompt_contains": "striking"},
        "times": 1,
        "do": {"status_word": "POSTPROCESSING"},
    }
    requests.post(f"{sim.url}/_sim/faults", json=[rule], timeout=5)
    assert seen(provider, job) == Working(word="POSTPROCESSING")
    assert seen(provider, job) == Working(word="running")
