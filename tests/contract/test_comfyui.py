"""The ComfyUI adapter: what goes out, and what every answer means."""

from __future__ import annotations

import copy
import json
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.contract import Kind, resolve
from models.lifecycle import Failed, Finished, Observation, Unreadable, Working
from models.presets import Presets
from providers.comfyui import CLIENT_ID, prompt_id, to_wire
from providers.comfyui_answers import ECHO, from_wire
from providers.comfyui_workflows import SHIPPED, workflows
from providers.port import Accepted, CancelAnswer, FindAnswer, Job, NotAccepted, Refused, Uncertain
from tests.contract.comfyui_jobs import (
    ID,
    IDLE,
    KEY,
    PAYLOAD,
    adapter,
    answering,
    asked,
    job,
    saying,
)
from tests.contract.raw_server import RawServer

MODELS = workflows("studio", {})

# --- out ---


def _body(of: Job) -> dict[str, object]:
    body = to_wire(of, MODELS[of.model]).body
    assert isinstance(body, dict)
    return body


def _inputs(of: Job, node: str) -> dict[str, object]:
    graph = _body(of)["prompt"]
    assert isinstance(graph, dict)
    inputs = graph[node]["inputs"]
    assert isinstance(inputs, dict)
    return inputs


def test_every_parameter_of_a_picture_stands_where_the_graph_wants_it() -> None:
    picture = job()
    assert _inputs(picture, "6")["text"] == "a red cup"
    assert _inputs(picture, "7")["text"] == "cracks"
    assert _inputs(picture, "5") == {"width": 640, "height": 512, "batch_size": 2}
    sampler = _inputs(picture, "3")
    wanted = {"seed": 7, "steps": 12, "cfg": 5.5, "sampler_name": "euler_ancestral", "scheduler": "karras"}
    assert {name: sampler[name] for name in wanted} == wanted
    assert sampler["denoise"] == 1.0  # what is not mapped keeps the graph's value


def test_clip_has_its_size_and_four_n_plus_one_frames() -> None:
    assert _inputs(job("txt2video"), "5") == {"width": 480, "height": 832, "length": 49, "batch_size": 1}
    assert _inputs(job("txt2video"), "8")["seed"] == 9
    assert _inputs(job("txt2video", duration_s=5), "5")["length"] == 81


@pytest.mark.parametrize(("model", "saver"), [("txt2img", "9"), ("txt2video", "11")])
def test_saving_node_gets_a_prefix_that_no_other_attempt_has(model: str, saver: str) -> None:
    first, second = (_inputs(job(model, attempt=n), saver)["filename_prefix"] for n in (1, 2))
    assert first == f"weir/{prompt_id(job(model))}"
    assert first != second


def test_id_is_ours_stable_and_in_the_only_spelling_the_server_takes() -> None:
    ours = prompt_id(job())
    assert str(uuid.UUID(ours)) == ours
    assert ours == prompt_id(job("txt2video"))  # of task and attempt alone
    assert ours != prompt_id(job(attempt=2))
    assert _body(job())["prompt_id"] == ours


def test_request_holds_a_client_id_and_what_is_to_come_back_and_no_number() -> None:
    body = _body(job())
    assert set(body) == {"prompt", "prompt_id", "client_id", "extra_data"}
    assert body["client_id"] == CLIENT_ID  # without one, versions up to 0.27 name no files of a cached run
    assert body["extra_data"] == {ECHO: {"images": 2, "seed": 7}}
    assert "a red cup" not in json.dumps(body["extra_data"])


def test_filling_leaves_the_template_as_it_was() -> None:
    before = copy.deepcopy(MODELS["txt2img"].graph)
    first, second = _body(job(prompt="one")), _body(job(prompt="two"))
    assert MODELS["txt2img"].graph == before
    assert first["prompt"] != second["prompt"]


@pytest.mark.parametrize("model", ["txt2img", "txt2video"])
def test_defaults_alone_make_a_whole_request(model: str) -> None:
    bounds = MODELS[model].bounds
    none = Presets.from_tables({})
    found = resolve(bounds.kind, {"prompt": "x"}, bounds, none, strict=False, draw=lambda _low, high: high)
    body = _body(Job(task_id="t", attempt=1, kind=bounds.kind, model=model, effective=found.effective))
    assert "null" not in json.dumps(body)
    assert found.effective["seed"] == 2**32 - 1  # every seeded node takes it


def test_defaults_are_the_graphs_own() -> None:
    bounds = MODELS["txt2img"].bounds
    names = ("width", "height", "steps", "cfg_scale", "sampler")
    assert [bounds.default(name) for name in names] == [1024, 1024, 30, 7.0, "dpmpp_2m_karras"]


def test_workflow_that_needs_a_picture_is_not_offered_before_jobs_carry_one() -> None:
    can = adapter("http://127.0.0.1:1").capabilities
    assert set(SHIPPED) - set(can.models) == {"img2img", "upscale"}
    assert not any(bounds.takes("image") for bounds in can.models.values())


# --- in ---


def _named(prefix: str) -> list[str]:
    return [name for name in PAYLOAD if name.startswith(prefix)]


@pytest.mark.parametrize("name", PAYLOAD)
def test_payload_says_where_it_is_from(name: str) -> None:
    assert set(PAYLOAD[name]) == {"date", "source", "note", "http_status", "body", "says"}


@pytest.mark.parametrize("name", _named("submit_"))
def test_answer_to_a_submit_is_one_of_four_words(name: str) -> None:
    payload = PAYLOAD[name]
    with RawServer(saying(payload)) as server:
        outcome = adapter(server.url).submit(job())
    assert len(server.requests) == 1
    match outcome:
        case Accepted():
            assert payload["says"] == {"accepted": outcome.receipt}
            return
        case Refused():
            word = "refused"
        case NotAccepted():
            word = "not_accepted"
        case Uncertain():
            word = "uncertain"
    assert payload["says"][word] == outcome.error.kind
    assert payload["says"].get("code") == outcome.error.upstream_code
    assert payload["says"].get("message", outcome.error.message) == outcome.error.message


def _says(seen: Observation) -> dict[str, object]:
    found: dict[str, object] = {"observation": type(seen).__name__}
    match seen:
        case Working():
            found["word"] = seen.word
        case Failed():
            error = seen.error
            found |= {"kind": error.kind, "code": error.upstream_code, "message": error.message}
        case Finished():
            found["urls"] = [output.url for output in seen.outputs]
            found["missing"] = [missing.kind for missing in seen.missing]
            found["seeds"] = [output.seed for output in seen.outputs]
    return found


@pytest.mark.parametrize("name", _named("history_"))
def test_record_of_a_job_is_one_observation(name: str) -> None:
    says = dict(PAYLOAD[name]["says"])
    kind = Kind(says.pop("kind")) if says["observation"] == "Finished" and "kind" in says else Kind.IMAGE
    with RawServer(saying(PAYLOAD[name])) as server:
        seen = adapter(server.url).observe([ID], kind)
    if "urls" in says:
        says["urls"] = [url.format(url=server.url) for url in says["urls"]]
    assert {receipt: _says(one) for receipt, one in seen.items()} == {ID: says}
    assert [asked(one)[:2] for one in server.requests] == [("GET", "/queue"), ("GET", f"/history/{ID}")]


def test_words_of_a_failure_show_no_prompt_and_no_dump() -> None:
    seen = from_wire(PAYLOAD["history_error"]["body"][ID], Kind.IMAGE, "http://h/view")
    assert isinstance(seen, Failed)
    assert "secret prompt" not in repr(seen)
    assert "execution.py" not in repr(seen)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FILE = st.fixed_dictionaries(
    {},
    optional={
        "filename": st.text(max_size=12) | st.sampled_from(["a.png", "..", "a/b.png", "a.mp4"]) | JSON,
        "subfolder": st.sampled_from(["", "weir", "..", "a//b", "a\\b"]) | JSON,
        "type": st.sampled_from(["output", "temp", "input"]) | JSON,
    },
)
MADE = st.dictionaries(
    st.text(max_size=3), st.dictionaries(st.sampled_from(["images", "gifs", "audio"]), st.lists(FILE))
)


@given(
    st.sampled_from(["success", "error", "", "x\x00y"]) | JSON,
    MADE | JSON,
    st.lists(st.tuples(st.sampled_from(["execution_error", "execution_interrupted"]), JSON).map(list)) | JSON,
    JSON,
    st.sampled_from(Kind),
)
def test_any_json_is_an_observation_and_no_link_leads_out(
    word: object, outputs: object, messages: object, extra: object, kind: Kind
) -> None:
    entry = {
        "status": {"status_str": word, "messages": messages},
        "outputs": outputs,
        "prompt": [1, "x", {}, extra, []],
    }
    seen = from_wire(entry, kind, "http://h:1/view")
    assert isinstance(seen, Observation)
    for output in seen.outputs if isinstance(seen, Finished) else ():
        assert output.url is not None
        assert output.url.startswith("http://h:1/view?filename=")
        assert output.url.endswith("&type=output")
        assert ".." not in output.url.replace("%2F", "/").split("/")


# --- the address, and a proxy before it ---


def test_key_is_for_a_proxy_and_goes_with_every_call_and_download() -> None:
    with RawServer(saying(PAYLOAD["submit_accepted"])) as server:
        provider = adapter(server.url)
        provider.submit(job())
        provider.observe(["r"], Kind.IMAGE)
    assert all(f"Authorization: Bearer {KEY}\r\n".encode() in request for request in server.requests)
    assert provider.result_headers() == {"Authorization": f"Bearer {KEY}"}


def test_without_a_key_nothing_is_sent_that_a_browser_would_send() -> None:
    with RawServer(saying(PAYLOAD["submit_accepted"])) as server:
        provider = adapter(server.url, key="")
        provider.submit(job())
    (request,) = server.requests
    for header in (b"authorization:", b"origin:", b"sec-fetch-site:"):
        assert header not in request.lower()
    assert provider.result_headers() == {}


def test_address_may_have_a_path() -> None:
    with RawServer(answering(lambda _method, _path: (200, IDLE))) as server:
        adapter(server.url + "/comfy/").observe(["a/b"], Kind.IMAGE)
    assert [asked(one)[1] for one in server.requests] == ["/comfy/queue", "/comfy/history/a%2Fb"]


def test_unknown_workflow_is_refused_without_a_call() -> None:
    assert isinstance(adapter("http://127.0.0.1:1").submit(job("nobody")), Refused)


def test_job_without_a_receipt_cannot_be_canceled() -> None:
    lost = Job(task_id="t", attempt=1, kind=Kind.IMAGE, model="txt2img", effective={})
    assert adapter("http://127.0.0.1:1").cancel(lost) is CancelAnswer.UNCLEAR


@pytest.mark.parametrize("body", [{}, {"queue_running": []}, {"queue_running": [], "queue_pending": None}, [], "page"])
def test_queue_that_cannot_be_read_is_no_empty_queue(body: object) -> None:
    with RawServer(answering(lambda _method, _path: (200, body))) as server:
        provider = adapter(server.url)
        assert isinstance(provider.observe([ID], Kind.IMAGE)[ID], Unreadable)
        assert provider.find(job()) is FindAnswer.LATER


def test_one_look_at_the_queue_answers_for_all_that_are_in_it() -> None:
    waiting = [[n, f"w{n}", {}, {}, []] for n in range(50)]
    queue = {"queue_running": [[0, "r", {}, {}, []]], "queue_pending": waiting}
    with RawServer(answering(lambda _method, path: (200, queue if path == "/queue" else {}))) as server:
        seen = adapter(server.url).observe(["r", *(f"w{n}" for n in range(50))], Kind.IMAGE)
    assert len(server.requests) == 1
    assert seen["r"] == Working(word="running")
    assert {one for receipt, one in seen.items() if receipt != "r"} == {Working(word="pending")}


def test_strange_items_of_a_queue_are_passed_over() -> None:
    queue = {"queue_running": [None, [], [1], [1, {}, {}], {"id": ID}], "queue_pending": [[2, ID, {}, {}, []]]}
    with RawServer(answering(lambda _method, _path: (200, queue))) as server:
        assert adapter(server.url).observe([ID], Kind.IMAGE) == {ID: Working(word="pending")}


def test_slow_down_ends_the_round() -> None:
    def answers(_method: str, path: str) -> tuple[int, object]:
        return (200, IDLE) if path == "/queue" else (429, {"error": "slow down"})

    with RawServer(answering(answers)) as server:
        seen = adapter(server.url, side_by_side=1).observe([f"r{n}" for n in range(20)], Kind.IMAGE)
    assert len(server.requests) == 2
    assert list(seen) == ["r0"]


def test_queue_of_many_megabytes_is_read() -> None:
    graph = {"1": {"inputs": {"text": "x" * 100_000}}}
    queue = {"queue_running": [], "queue_pending": [[n, f"s{n}", graph, {}, []] for n in range(60)]}
    with RawServer(answering(lambda _method, _path: (200, queue))) as server:
        assert adapter(server.url).observe(["s59"], Kind.IMAGE) == {"s59": Working(word="pending")}


def test_shipped_graphs_are_in_the_package() -> None:
    folder = Path(__file__).parents[2] / "providers" / "workflows"
    assert {path.stem for path in folder.glob("*.json")} == set(SHIPPED)
