"""Workflows of the operator: read once, held against their graph, filled without a trace."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from models.contract import Kind, Sampler
from models.settings import SHIPPED as SHIPPED_TOML
from models.settings import Settings, SettingsError
from models.workflows import WorkflowBounds, WorkflowSettings
from providers import catalogue
from providers.comfyui_graphs import GraphFault, Target, filled, read, target_of
from providers.comfyui_workflows import SHIPPED, Workflow, workflows

GRAPH: dict[str, Any] = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
    "57:2": {"class_type": "CLIPTextEncode", "inputs": {"text": "old", "clip": ["1", 1]}, "_meta": {"title": "Words"}},
    "3": {
        "class_type": "KSampler",
        "inputs": {
            "seed": 1,
            "steps": 25,
            "cfg": 4.5,
            "sampler_name": "heun",
            "scheduler": "normal",
            "model": ["1", 0],
        },
        "_meta": {"title": "Base"},
    },
    "4": {
        "class_type": "KSamplerAdvanced",
        "inputs": {"noise_seed": 2, "steps": 8, "sampler_name": "heun", "scheduler": "normal", "latent": ["3", 0]},
    },
    "5": {"class_type": "RandomNoise", "inputs": {"noise_seed": ["4", 0]}},
    "9": {
        "class_type": "SaveImage",
        "inputs": {"filename_prefix": "x", "images": ["4", 0]},
        "_meta": {"title": "Save"},
    },
    "10": {"class_type": "SaveVideo", "inputs": {"filename_prefix": "y", "format": "mp4", "format.codec": "h264"}},
}
MINE = {"prompt": "57:2.text", "steps": ["3.steps", "4.steps"], "cfg_scale": "Base.cfg"}


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GRAPH), encoding="utf-8")
    return path


def made(path: Path | str, **settings: object) -> Workflow:
    settings = {"inputs": MINE, **settings}
    return workflows("studio", {"mine": WorkflowSettings(graph=str(path), **settings)})["mine"]  # type: ignore[arg-type]  # a test's own keywords


def faults(path: Path | str, **settings: object) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        made(path, **settings)
    lines = str(caught.value).splitlines()
    assert all(line.startswith("providers.studio.workflows.mine.") for line in lines)
    return [line.removeprefix("providers.studio.workflows.mine.") for line in lines]


# --- a graph of one's own ---


def test_one_parameter_goes_to_every_input_it_is_mapped_to(graph_file: Path) -> None:
    graph = made(graph_file).filled_for({"prompt": "new", "steps": 40, "cfg_scale": 3.0, "seed": 6}, "weir/p")
    assert graph["57:2"]["inputs"] == {"text": "new", "clip": ["1", 1]}
    assert [graph[node]["inputs"]["steps"] for node in ("3", "4")] == [40, 40]  # type: ignore[index]  # JSON
    assert graph["3"]["inputs"]["cfg"] == 3.0  # type: ignore[index]  # same


def test_one_seed_goes_to_every_seeded_node_and_no_link_is_cut(graph_file: Path) -> None:
    graph = made(graph_file).filled_for({"prompt": "new", "seed": 6}, "weir/p")
    assert graph["3"]["inputs"]["seed"] == graph["4"]["inputs"]["noise_seed"] == 6  # type: ignore[index]  # JSON
    assert graph["5"]["inputs"] == {"noise_seed": ["4", 0]}


def test_seed_goes_where_the_operator_says_if_he_says_so(graph_file: Path) -> None:
    graph = made(graph_file, inputs=MINE | {"seed": "3.seed"}).filled_for({"prompt": "x", "seed": 6}, "p")
    assert graph["4"]["inputs"]["noise_seed"] == 2  # type: ignore[index]  # JSON


def test_seed_stays_within_what_the_narrowest_node_takes(graph_file: Path) -> None:
    narrow = WorkflowBounds(seed_max=2**31 - 1)
    assert made(graph_file).bounds.seed_max == 2**32 - 1
    assert made(graph_file, bounds=narrow).bounds.seed_max == 2**31 - 1


def test_every_saving_node_gets_the_prefix(graph_file: Path) -> None:
    graph = made(graph_file).filled_for({"prompt": "new"}, "weir/p")
    assert [graph[node]["inputs"]["filename_prefix"] for node in ("9", "10")] == ["weir/p", "weir/p"]  # type: ignore[index]  # JSON


def test_values_stand_in_place_of_the_graphs(graph_file: Path) -> None:
    workflow = made(graph_file, values={"1.ckpt_name": "b.safetensors", "10.format.codec": "av1"})
    graph = workflow.filled_for({"prompt": "new"}, "weir/p")
    assert graph["1"]["inputs"] == {"ckpt_name": "b.safetensors"}
    assert graph["10"]["inputs"]["format.codec"] == "av1"  # type: ignore[index]  # JSON


def test_model_takes_what_is_mapped_and_nothing_else(graph_file: Path) -> None:
    bounds = made(graph_file).bounds
    assert bounds.supports == {"prompt", "steps", "cfg_scale", "seed", "image_count"}
    assert bounds.image_count_max == 1
    assert (bounds.default("steps"), bounds.default("cfg_scale")) == (25, 4.5)


def test_sampler_and_scheduler_are_sent_as_our_samplers_pair(graph_file: Path) -> None:
    both = MINE | {"sampler": ["3.sampler_name", "4.sampler_name"], "scheduler": ["3.scheduler", "4.scheduler"]}
    workflow = made(graph_file, inputs=both, bounds=WorkflowBounds(samplers=("heun", "dpmpp_2m_sde_karras")))
    assert workflow.bounds.samplers == (Sampler.HEUN, Sampler.DPMPP_2M_SDE_KARRAS)
    assert workflow.bounds.default("sampler") == "heun"
    graph = workflow.filled_for({"prompt": "x", "sampler": "dpmpp_2m_sde_karras"}, "p")
    assert graph["4"]["inputs"]["sampler_name"] == "dpmpp_2m_sde"  # type: ignore[index]  # JSON
    assert graph["4"]["inputs"]["scheduler"] == "karras"  # type: ignore[index]  # same


def test_place_of_a_picture_is_checked_though_it_is_not_offered_yet(graph_file: Path) -> None:
    assert not made(graph_file, inputs=MINE | {"image": "1.ckpt_name"}).offered
    assert made(graph_file).offered
    assert faults(graph_file, inputs=MINE | {"image": "1.image"}) == [
        "inputs.image: node 1 (CheckpointLoaderSimple) has no input 'image'"
    ]


# --- names ---


@pytest.mark.parametrize(
    ("inputs", "fault"),
    [
        ({"prompt": "58:2.text"}, "inputs.prompt: node '58:2' is not in the graph; did you mean '57:2'?"),
        (
            {"prompt": "57:2.test"},
            "inputs.prompt: node 57:2 (CLIPTextEncode) has no input 'test'; did you mean 'text'?",
        ),
        ({"prompt": "Word.text"}, "inputs.prompt: node 'Word' is not in the graph; did you mean 'Words'?"),
        ({"prompt": "57:2.clip"}, "inputs.prompt: 57:2.clip is fed by another node; name the input of that one"),
        ({"prompt": "text"}, "inputs.prompt: 'text' must be written as node.input"),
        ({"prompt": 6}, "inputs.prompt: must be node.input, is 6"),
        ({"promt": "57:2.text"}, "inputs.promt: no parameter of images; did you mean 'prompt'?"),
        ({"frames": "3.steps"}, "inputs.frames: no parameter of images"),
        ({"steps": "3.steps"}, "inputs: names no input for the prompt"),
        ({"prompt": "57:2.text", "sampler": "3.sampler_name"}, "inputs: sampler and scheduler come together"),
    ],
)
def test_wrong_name_is_named_with_the_nearest(graph_file: Path, inputs: dict[str, object], fault: str) -> None:
    assert any(line.startswith(fault) for line in faults(graph_file, inputs=inputs)), faults(graph_file, inputs=inputs)


def test_every_fault_is_named_at_once(graph_file: Path) -> None:
    lines = faults(graph_file, inputs={"prompt": "6.text", "stepps": "3.steps"}, values={"3.ckpt": 1}, output="99")
    assert [line.split(":")[0] for line in lines] == ["values.3.ckpt", "inputs.prompt", "inputs.stepps", "output"]


def test_title_that_two_nodes_have_is_no_name() -> None:
    twice = {"1": GRAPH["57:2"], "2": GRAPH["57:2"], "3": GRAPH["1"] | {"_meta": {"title": "1"}}}
    graph = read(json.dumps(twice).replace('["1", 1]', '["3", 1]'))
    with pytest.raises(GraphFault, match="'Words' is not in the graph"):
        target_of(graph, "Words.text")
    assert target_of(graph, "1.text") == Target("1", "text")  # an id goes before a title


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "is not JSON"),
        ("[]", "is not an object"),
        ("{}", "is not an object"),
        ('{"nodes": [], "links": []}', "as the editor saves it; export it in the API format"),
        ('{"1": {"inputs": {}}}', "node '1' has no class_type"),
        ('{"1": {"class_type": "A"}}', "node '1' has no inputs"),
        ('{"1": {"class_type": "A", "inputs": {"x": ["2", 0]}}}', "1.x is fed by node '2', which is not in the graph"),
        ('{"1": {"class_type": "A", "inputs": {"text": ""}}}', "no node has a filename_prefix"),
    ],
)
def test_file_that_is_no_graph_is_refused_by_what_is_wrong(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    assert any(fault in line for line in faults(path, inputs={"prompt": "1.text"}))


def test_file_is_named_by_an_absolute_path_or_as_shipped(tmp_path: Path) -> None:
    assert faults("txt2imgg")[0].endswith("nor an absolute path; did you mean 'txt2img'?")
    assert faults("flows/mine.json") == [
        "graph: 'flows/mine.json' is neither shipped (txt2img, img2img, upscale, txt2video) nor an absolute path"
    ]
    assert "No such file" in faults(tmp_path / "none.json")[0]


@pytest.mark.parametrize(
    ("bounds", "fault"),
    [
        (WorkflowBounds(steps=(5,)), "steps must be [least, most], is [5]"),
        (WorkflowBounds(cfg_scale=(9.0, 1.0)), "cfg_scale must be [least, most]"),
        (WorkflowBounds(steps=(30, 40)), "defaults: steps = 25"),
    ],
)
def test_bounds_that_contradict_themselves_or_the_graph_are_refused(
    graph_file: Path, bounds: WorkflowBounds, fault: str
) -> None:
    (line,) = faults(graph_file, bounds=bounds)
    assert line.startswith("bounds: ")
    assert fault in line


def test_clip_needs_frames_and_a_place_for_them(graph_file: Path) -> None:
    assert faults(graph_file, type="video", inputs={"prompt": "57:2.text"}) == [
        "bounds: a clip needs inputs for width, height, frames"
    ]
    sized = {"prompt": "57:2.text", "width": "3.steps", "height": "4.steps", "frames": "3.cfg"}
    assert "needs at least one resolution" in faults(graph_file, type="video", inputs=sized)[0]
    wrong = WorkflowBounds(frames={"480p": [1, 2]})
    assert "must be written as" in faults(graph_file, type="video", inputs=sized, bounds=wrong)[0]


@pytest.mark.parametrize(("seconds", "fps", "frames"), [(1, 8, 9), (5, 16, 81), (2, 24, 49), (3, 25, 77), (1, 1, 5)])
def test_frames_are_the_nearest_the_model_makes(graph_file: Path, seconds: int, fps: int, frames: int) -> None:
    sized = {"prompt": "57:2.text", "width": "3.steps", "height": "4.steps", "frames": "3.cfg", "fps": "3.seed"}
    bounds = WorkflowBounds(durations_s=(1, 2, 3, 5), fps=(1, 30), frames={"480p 16:9": [832, 480]})
    workflow = made(graph_file, type="video", inputs=sized, bounds=bounds)
    effective = {"prompt": "x", "duration_s": seconds, "fps": fps, "resolution": "480p", "ratio": "16:9"}
    graph = workflow.filled_for(effective, "p")
    assert graph["3"]["inputs"]["cfg"] == frames  # type: ignore[index]  # JSON
    assert graph["3"]["inputs"]["steps"] == 832  # type: ignore[index]  # same
    assert workflow.kind is Kind.VIDEO


def test_filled_graph_shares_nothing_that_is_written_to() -> None:
    graph = read(json.dumps(GRAPH))
    first = filled(graph, {Target("3", "steps"): 1})
    first["9"]["inputs"]["filename_prefix"] = "mine"  # type: ignore[index]  # JSON
    assert graph == GRAPH
    assert filled(graph, {}) == GRAPH


# --- shipped ---


def test_shipped_workflow_can_be_changed_in_part(graph_file: Path) -> None:  # noqa: ARG001  the same signature
    mine = made("txt2img", inputs={}, bounds=WorkflowBounds(max_side=1024), values={"4.ckpt_name": "b.safetensors"})
    assert mine.bounds.size is not None
    assert mine.bounds.size.max_side == 1024
    assert mine.bounds.takes("sampler")
    clip = made("txt2video", inputs={}, bounds=WorkflowBounds(durations_s=(2,)))
    assert clip.bounds.durations_s == (2,)
    assert clip.bounds.ratios == ("16:9", "9:16", "1:1")


def test_every_shipped_workflow_fits_its_graph() -> None:
    assert set(workflows("studio", {})) == set(SHIPPED)


def test_no_model_is_asked_for_more_than_a_server_survives() -> None:
    bounds = workflows("studio", {})["txt2img"].bounds
    assert bounds.size is not None
    assert not bounds.size.is_legal(16384, 16384)
    assert bounds.image_count_max <= 8


def test_ready_block_of_the_shipped_file_works_as_it_stands(tmp_path: Path) -> None:
    text = SHIPPED_TOML.read_text(encoding="utf-8")
    block = re.search(r"# \[providers\.studio\]\n(?:#.*\n)+", text)
    assert block is not None
    plain = "\n".join(line.removeprefix("#").removeprefix(" ") for line in block[0].splitlines())
    assert set(tomllib.loads(plain)) == {"providers", "models"}
    path = tmp_path / "weir.toml"
    path.write_text(plain, encoding="utf-8")
    settings = Settings.load({"WEIR_CONFIG": str(path)})
    can = catalogue(settings)["studio"].capabilities
    assert set(can.models) == {route.model for model in settings.models.values() for route in model.providers}
    assert can.models["sdxl"].steps == (10, 60)
    assert can.models["sdxl"].size is not None
    assert can.models["sdxl"].size.step == 64


def test_wrong_name_in_the_file_is_a_fault_of_the_catalogue(tmp_path: Path) -> None:
    path = tmp_path / "weir.toml"
    path.write_text(
        '[providers.studio]\nadapter = "comfyui"\nbase_url = "http://h"\n'
        '[providers.studio.workflows.a]\ngraph = "txt2img"\ninputs = { prompt = "66.text" }\n[models]\n',
        encoding="utf-8",
    )
    with pytest.raises(SettingsError, match=r"studio\.workflows\.a\.inputs\.prompt: node '66' .*did you mean '6'"):
        catalogue(Settings.load({"WEIR_CONFIG": str(path)}))


def test_unknown_key_of_a_workflow_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    path = tmp_path / "weir.toml"
    path.write_text(
        '[providers.s]\nbase_url = "h"\n[providers.s.workflows.a]\ngrahp = "x"\n[models]\n', encoding="utf-8"
    )
    with pytest.raises(SettingsError, match=r"s\.workflows\.a\.grahp: unknown key; did you mean 'graph'"):
        Settings.load({"WEIR_CONFIG": str(path)})
