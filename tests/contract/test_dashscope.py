"""The DashScope adapter: what goes out, and what every documented answer means."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.contract import Kind
from models.lifecycle import Failed, Finished, Observation, Working
from providers.dashscope import from_wire, to_wire
from providers.dashscope_models import MODELS
from providers.port import Accepted, CancelAnswer, FindAnswer, Job, NotAccepted, Refused, Uncertain
from tests.contract.dashscope_jobs import IMAGE, KEY, PAYLOADS, adapter, answering, job, resolved
from tests.contract.raw_server import RawServer

# --- out ---

OUT = {
    "wan2.2-t2i-flash": (
        "text2image/image-synthesis",
        {"prompt": "a red cup", "negative_prompt": "blur"},
        {"size": "1024*768", "n": 2, "seed": 7},
    ),
    "qwen-image": (
        "text2image/image-synthesis",
        {"prompt": "a red cup"},
        {"negative_prompt": "blur", "size": "1024*768", "n": 2, "seed": 7},
    ),
    "wan2.6-t2i": (
        "image-generation/generation",
        {"messages": [{"role": "user", "content": [{"text": "a red cup"}]}]},
        {"negative_prompt": "blur", "size": "1024*768", "n": 2, "seed": 7},
    ),
    "wan2.5-t2v-preview": (
        "video-generation/video-synthesis",
        {"prompt": "it spins", "negative_prompt": "blur"},
        {"size": "832*480", "duration": 5, "seed": 9},
    ),
    "wan2.7-t2v": (
        "video-generation/video-synthesis",
        {"prompt": "it spins", "negative_prompt": "blur"},
        {"resolution": "480P", "ratio": "16:9", "duration": 5, "seed": 9},
    ),
}
SAME_AS = {
    "wan2.2-t2i-plus": "wan2.2-t2i-flash",
    "wan2.5-t2i-preview": "wan2.2-t2i-flash",
    "qwen-image-plus": "qwen-image",
    "wan2.2-t2v-plus": "wan2.5-t2v-preview",
    "wan2.6-t2v": "wan2.5-t2v-preview",
}


@pytest.mark.parametrize("model", MODELS)
def test_request_has_the_words_where_the_model_wants_them(model: str) -> None:
    path, given_, parameters = OUT[SAME_AS.get(model, model)]
    ask = to_wire(job(model, negative_prompt="blur"))
    assert ask.path == f"/api/v1/services/aigc/{path}"
    assert ask.headers["X-DashScope-Async"] == "enable"
    assert ask.body == {
        "model": model,
        "input": given_,
        "parameters": {**parameters, "prompt_extend": False, "watermark": False},
    }


@pytest.mark.parametrize("model", MODELS)
def test_empty_negative_prompt_is_left_out(model: str) -> None:
    assert "negative_prompt" not in str(to_wire(job(model, negative_prompt="")).body)


@pytest.mark.parametrize("model", MODELS)
def test_defaults_alone_make_a_whole_request(model: str) -> None:
    body = to_wire(resolved(model, "x")).body
    assert isinstance(body, Mapping)
    parameters = body["parameters"]
    assert isinstance(parameters, dict)
    assert "n" in parameters or "duration" in parameters
    assert "size" in parameters or "resolution" in parameters
    assert None not in parameters.values()


def test_every_bound_names_its_source() -> None:
    for model in MODELS.values():
        assert re.search(r"\[(docs|SDK|3p)\]", model.bounds.source)


# --- in ---


def _named(prefix: str) -> list[str]:
    return [name for name in PAYLOADS if name.startswith(prefix)]


@pytest.mark.parametrize("name", PAYLOADS)
def test_payload_says_where_it_is_from(name: str) -> None:
    assert set(PAYLOADS[name]) == {"date", "source", "note", "http_status", "body", "says"}


@pytest.mark.parametrize("name", _named("submit_"))
def test_answer_to_a_submit_is_one_of_four_words(name: str) -> None:
    payload = PAYLOADS[name]
    with RawServer(answering(payload["http_status"], payload["body"])) as server:
        outcome = adapter(server.url).submit(job())
    assert len(server.requests) == 1
    match outcome:
        case Accepted():
            assert payload["says"] == {"accepted": outcome.receipt}
            assert outcome.request_id == payload["body"]["request_id"]
        case Refused():
            assert payload["says"] == {"refused": outcome.error.kind}
        case NotAccepted():
            assert payload["says"] == {"not_accepted": outcome.error.kind}
        case Uncertain():
            assert payload["says"] == {"uncertain": outcome.error.kind}
    if not isinstance(outcome, Accepted) and "code" in payload["body"]:
        assert outcome.error.upstream_code == payload["body"]["code"]
        assert outcome.error.message == payload["body"]["message"]


def _says(seen: Observation) -> dict[str, object]:
    found: dict[str, object] = {"observation": type(seen).__name__}
    match seen:
        case Working():
            found["word"] = seen.word
        case Failed():
            found |= {"kind": seen.error.kind, "code": seen.error.upstream_code}
        case Finished():
            found["urls"] = [output.url for output in seen.outputs]
            found["missing"] = [missing.kind for missing in seen.missing]
            found["usage"] = seen.usage
    return found


@pytest.mark.parametrize("name", _named("query_"))
def test_answer_to_a_query_is_one_observation(name: str) -> None:
    payload = PAYLOADS[name]
    with RawServer(answering(payload["http_status"], payload["body"])) as server:
        seen = adapter(server.url).observe(["r-1"], Kind.IMAGE)
    assert {receipt: _says(one) for receipt, one in seen.items()} == {"r-1": payload["says"]}
    assert server.requests[0].startswith(b"GET /api/v1/tasks/r-1 HTTP/1.1\r\n")


@pytest.mark.parametrize("name", _named("cancel_"))
def test_answer_to_a_cancel_is_one_of_three_words(name: str) -> None:
    payload = PAYLOADS[name]
    with RawServer(answering(payload["http_status"], payload["body"])) as server:
        answer = adapter(server.url).cancel(job())
    assert payload["says"] == {"cancel": answer}
    assert server.requests[0].startswith(b"POST /api/v1/tasks/r-1/cancel HTTP/1.1\r\n")
    assert b"Content-Length: 0\r\n" in server.requests[0]


def test_lost_job_cannot_be_looked_up() -> None:
    assert adapter("http://127.0.0.1:1").find(job()) is FindAnswer.UNCLEAR


def test_job_without_a_receipt_cannot_be_canceled() -> None:
    lost = Job(task_id="t", attempt=1, kind=Kind.IMAGE, model="wan2.2-t2i-flash", effective=IMAGE)
    assert adapter("http://127.0.0.1:1").cancel(lost) is CancelAnswer.UNCLEAR


def test_unknown_model_is_refused_without_a_call() -> None:
    asked = Job(task_id="t", attempt=1, kind=Kind.IMAGE, model="wan9", effective=IMAGE)
    assert isinstance(adapter("http://127.0.0.1:1").submit(asked), Refused)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = [
    "results",
    "choices",
    "message",
    "content",
    "video_url",
    "url",
    "image",
    "code",
    "message",
    "task_metrics",
    "FAILED",
    "usage",
]
STATES = ["SUCCEEDED", "FAILED", "CANCELED", "UNKNOWN", "RUNNING", "", "x\x00y"]


@given(
    st.fixed_dictionaries({"task_status": st.sampled_from(STATES) | JSON}, optional=dict.fromkeys(NAMES, JSON)),
    JSON,
)
def test_any_json_is_an_observation(output: dict[str, object], usage: object) -> None:
    seen = from_wire({"output": output, "usage": usage, "code": usage})
    assert isinstance(seen, Observation)


@pytest.mark.parametrize("base", ["", "/", "/api/v1", "/api/v1/"])
def test_address_is_taken_with_and_without_its_version(base: str) -> None:
    with RawServer(answering(200, PAYLOADS["query_running"]["body"])) as server:
        adapter(server.url + base).observe(["a/b"], Kind.IMAGE)
    assert server.requests[0].startswith(b"GET /api/v1/tasks/a%2Fb HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}\r\n".encode() in server.requests[0]


def test_words_of_a_failure_show_no_key() -> None:
    body = {
        "output": {
            "task_status": "FAILED",
            "code": "InternalError",
            "message": f"key {KEY} https://h/a?Signature=b",
        }
    }
    with RawServer(answering(200, body)) as server:
        seen = adapter(server.url).observe(["r"], Kind.IMAGE)["r"]
    assert isinstance(seen, Failed)
    assert KEY not in seen.error.message
    assert "Signature" not in seen.error.message
