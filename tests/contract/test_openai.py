"""The OpenAI adapter: what goes out, and what every documented answer means."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from models.contract import Invalid, Kind, resolve
from models.failures import FailureKind
from models.lifecycle import Canceled, Failed, Finished, Observation, Output, Unknown, Unreadable, Working
from models.presets import Presets
from providers.calls import recorded
from providers.http import Ask
from providers.openai import versioned
from providers.openai_models import BOUNDS, MODELS, model_of
from providers.openai_wire import UnusableError, clip_from_wire, pictures_from_wire, to_wire
from providers.port import Accepted, CancelAnswer, FindAnswer, Job, NotAccepted, Refused, Uncertain
from tests.contract.dashscope_jobs import answering
from tests.contract.openai_jobs import IMAGE, KEY, PAYLOADS, adapter, inline, job, png
from tests.contract.raw_server import RawServer


def parts(ask: Ask) -> dict[str, tuple[str | None, bytes]]:
    """The parts of a form by name: file name and content."""
    assert isinstance(ask.body, bytes)
    head = f"Content-Type: {ask.headers['Content-Type']}\r\n\r\n".encode()
    found: dict[str, tuple[str | None, bytes]] = {}
    for part in BytesParser(policy=HTTP).parsebytes(head + ask.body).iter_parts():
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        found[str(part.get_param("name", header="content-disposition"))] = (part.get_filename(), content)
    return found


# --- out ---


def test_picture_is_asked_for_with_everything_that_costs_money() -> None:
    ask = to_wire(job())
    assert (ask.method, ask.path) == ("POST", "/images/generations")
    assert ask.headers == {"Idempotency-Key": "task_x.1"}
    assert ask.body == {
        "model": "gpt-image-2.6-flare",
        "prompt": "a red cup",
        "n": 2,
        "size": "1024x768",
        "quality": "medium",
        "output_format": "png",
    }


def test_quality_is_part_of_the_models_name() -> None:
    body = to_wire(job("gpt-image-2.6-sunburst:xhigh")).body
    assert isinstance(body, Mapping)
    assert (body["model"], body["quality"]) == ("gpt-image-2.6-sunburst", "xhigh")
    assert model_of("gpt-image-2:xhigh") is None  # a word that only later models know


@pytest.mark.parametrize(("model", "named"), [("image:flux.1-dev", {"model": "flux.1-dev"}), ("image", {})])
def test_server_that_copies_the_shape_is_told_only_the_words_of_the_shape(model: str, named: dict[str, str]) -> None:
    assert to_wire(job(model)).body == {**named, "prompt": "a red cup", "n": 2, "size": "1024x768"}


def test_inline_picture_is_edited_as_a_form() -> None:
    ask = to_wire(job(image=inline(png())))
    assert ask.path == "/images/edits"
    sent = parts(ask)
    assert sent["image"] == ("image.png", png())
    assert {name: value for name, (file, value) in sent.items() if file is None} == {
        "model": b"gpt-image-2.6-flare",
        "prompt": b"a red cup",
        "n": b"2",
        "size": b"1024x768",
        "quality": b"medium",
        "output_format": b"png",
    }


def test_white_of_a_mask_becomes_transparent() -> None:
    mask = Image.new("L", (4, 3), 0)
    mask.paste(255, (0, 0, 2, 3))
    out = io.BytesIO()
    mask.save(out, "PNG")
    sent = parts(to_wire(job(image=inline(png()), mask=inline(out.getvalue()))))
    with Image.open(io.BytesIO(sent["mask"][1])) as turned:
        alpha = turned.getchannel("A")
        assert [alpha.getpixel((x, 0)) for x in range(4)] == [0, 0, 255, 255]


@pytest.mark.parametrize(
    ("effective", "words"),
    [
        ({"image": "https://h.example/a.png", "mask": inline(png("L"))}, "inline"),
        ({"image": inline(png()), "mask": inline(b"no picture")}, "mask"),
        ({"image": "file_abc"}, "image"),
        ({"image": "data:image/png;base64,&&&"}, "image"),
    ],
)
def test_picture_that_cannot_be_given_is_refused_without_a_call(effective: dict[str, str], words: str) -> None:
    asked = job("gpt-image-2", **effective)
    with pytest.raises(UnusableError, match=words):
        to_wire(asked)
    outcome = adapter("http://127.0.0.1:1").submit(asked)
    assert isinstance(outcome, Refused)
    assert outcome.error.kind is FailureKind.INVALID_PARAMETER


def test_address_of_a_picture_goes_as_json() -> None:
    ask = to_wire(job(image="https://h.example/a.png"))
    assert ask.path == "/images/edits"
    assert isinstance(ask.body, Mapping)
    assert ask.body["images"] == [{"image_url": "https://h.example/a.png"}]


def test_clip_is_asked_for_with_its_length_as_text() -> None:
    ask = to_wire(job("sora-2"))
    assert ask.path == "/videos"
    assert ask.body == {"model": "sora-2", "prompt": "it spins", "seconds": "8", "size": "1280x720"}


def test_first_frame_goes_as_a_file_or_as_an_address() -> None:
    sent = parts(to_wire(job("sora-2", first_frame=inline(png()))))
    assert sent["input_reference"] == ("input_reference.png", png())
    assert sent["seconds"] == (None, b"8")
    body = to_wire(job("video:wan", first_frame="https://h.example/a.png")).body
    assert isinstance(body, Mapping)
    assert body["input_reference"] == {"image_url": "https://h.example/a.png"}


def test_same_job_gives_the_same_bytes() -> None:
    edit = job(image=inline(png()))
    assert to_wire(edit) == to_wire(edit)


@pytest.mark.parametrize("model", ["nope", "gpt-image-1", "dall-e-3", "audio:x"])
def test_unknown_model_is_refused_without_a_call(model: str) -> None:
    asked = Job(task_id="t", attempt=1, kind=Kind.IMAGE, model=model, effective=IMAGE)
    assert isinstance(adapter("http://127.0.0.1:1").submit(asked), Refused)
    assert model not in BOUNDS


@pytest.mark.parametrize("model", BOUNDS)
def test_defaults_alone_make_a_whole_request(model: str) -> None:
    bounds = BOUNDS[model]
    none = Presets.from_tables({})
    found = resolve(bounds.kind, {"prompt": "x", "seed": 7}, bounds, none, strict=False, draw=lambda low, _: low)
    body = to_wire(Job(task_id="t", attempt=1, kind=bounds.kind, model=model, effective=found.effective)).body
    assert isinstance(body, Mapping)
    assert None not in body.values()
    assert {"n", "size"} <= body.keys() or {"seconds", "size"} <= body.keys()
    assert [note.field for note in found.adjustments] == ["seed"]  # left out, and said so


def test_every_bound_names_its_source() -> None:
    for bounds in BOUNDS.values():
        assert re.search(r"\[(SPEC|SDK|U|3P)\]", bounds.source)


@pytest.mark.parametrize(
    ("width", "height", "count"), [(1024, 1000, 1), (3840, 2176, 1), (3072, 1008, 1), (3840, 2160, 3), (4096, 1024, 1)]
)
def test_size_off_the_grid_the_area_the_ratio_or_the_answer_is_refused(width: int, height: int, count: int) -> None:
    asked = {"prompt": "x", "width": width, "height": height, "image_count": count}
    with pytest.raises(Invalid):
        resolve(
            Kind.IMAGE, asked, BOUNDS["gpt-image-2"], Presets.from_tables({}), strict=False, draw=lambda low, _: low
        )


@pytest.mark.parametrize(
    ("base", "path"),
    [("", "/v1"), ("/", "/v1"), ("/v1", "/v1"), ("/v1/", "/v1"), ("/api/v3", "/api/v3"), ("/x", "/x/v1")],
)
def test_address_is_taken_with_and_without_its_version(base: str, path: str) -> None:
    assert versioned("http://h" + base) == "http://h" + path


# --- in ---


def _named(prefix: str) -> list[str]:
    return [name for name in PAYLOADS if name.startswith(prefix)]


@pytest.mark.parametrize("name", PAYLOADS)
def test_payload_says_where_it_is_from(name: str) -> None:
    assert set(PAYLOADS[name]) == {"date", "source", "note", "http_status", "body", "says"}


def _came(output: Output) -> str | None:
    return "png" if output.content and output.content.startswith(b"\x89PNG") else output.url


def _said(outcome: object) -> dict[str, object]:
    match outcome:
        case Accepted(finished=None, receipt=receipt):
            return {"accepted": receipt}
        case Accepted(finished=done) if done is not None:
            return {
                "accepted": [_came(output) for output in done.outputs],
                "places": [output.place for output in done.outputs],
                "missing": [missing.kind for missing in done.missing],
                "usage": done.usage,
            }
        case Refused(error=error):
            return {"refused": error.kind, "code": error.upstream_code, "message": error.message}
        case NotAccepted(error=error):
            return {"not_accepted": error.kind, "waits": error.kind, "code": error.upstream_code}
        case Uncertain(error=error):
            return {"uncertain": error.kind, "code": error.upstream_code}
    raise AssertionError(outcome)


@pytest.mark.parametrize("name", [*_named("image_"), *_named("clip_")])
def test_answer_to_a_submit_is_one_of_four_words(name: str) -> None:
    payload = PAYLOADS[name]
    asked = job() if name.startswith("image_") else job("sora-2")
    with RawServer(answering(payload["http_status"], payload["body"])) as server:
        outcome = adapter(server.url).submit(asked)
    assert len(server.requests) == 1
    said = _said(outcome)
    assert {key: said.get(key) for key in payload["says"]} == payload["says"]
    if isinstance(outcome, Accepted) and outcome.finished:
        assert outcome.receipt == asked.reference


def _says(seen: Observation, base: str) -> dict[str, object]:
    found: dict[str, object] = {"observation": type(seen).__name__}
    match seen:
        case Working():
            found |= {"word": seen.word, "progress": seen.progress}
        case Failed():
            found |= {"kind": seen.error.kind, "code": seen.error.upstream_code}
        case Finished():
            found["urls"] = [str(output.url).removeprefix(f"{base}/v1") for output in seen.outputs]
            found["usage"] = seen.usage
    return found


@pytest.mark.parametrize("name", _named("query_"))
def test_answer_to_a_query_is_one_observation(name: str) -> None:
    payload = PAYLOADS[name]
    with RawServer(answering(payload["http_status"], payload["body"])) as server:
        seen = adapter(server.url).observe(["video_gw42"], Kind.VIDEO)
    assert {receipt: _says(one, server.url) for receipt, one in seen.items()} == {"video_gw42": payload["says"]}
    assert server.requests[0].startswith(b"GET /v1/videos/video_gw42 HTTP/1.1\r\n")
    assert f"Authorization: Bearer {KEY}\r\n".encode() in server.requests[0]


def test_server_without_a_key_is_sent_none() -> None:
    with RawServer(answering(200, PAYLOADS["query_queued"]["body"])) as server:
        provider = adapter(server.url, key="")
        provider.observe(["video_gw42"], Kind.VIDEO)
    assert b"Authorization" not in server.requests[0]
    assert provider.result_headers() == {}


def test_picture_has_nothing_to_ask_about_to_cancel_or_to_find() -> None:
    provider = adapter("http://127.0.0.1:1")
    with recorded() as calls:
        assert provider.observe(["task_x.1"], Kind.IMAGE) == {"task_x.1": Unknown()}
        assert provider.cancel(job()) is CancelAnswer.REFUSED
        assert provider.find(job()) is FindAnswer.UNCLEAR
    assert calls == []


def test_words_of_a_failure_show_no_key_and_no_link() -> None:
    body = {"error": {"message": f"key {KEY} at https://h/a?Signature=b", "type": "x", "param": None, "code": "y"}}
    with RawServer(answering(400, body)) as server:
        outcome = adapter(server.url).submit(job())
    assert isinstance(outcome, Refused)
    assert KEY not in outcome.error.message
    assert "Signature" not in outcome.error.message


# --- whatever comes ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
STATES = ["queued", "completed", "failed", "cancelled", "", "x\x00y"]


@given(
    st.fixed_dictionaries(
        {"status": st.sampled_from(STATES) | JSON},
        optional=dict.fromkeys(["id", "progress", "seconds", "error", "detail", "message"], JSON),
    )
)
def test_any_json_is_an_observation(fields: dict[str, object]) -> None:
    assert isinstance(clip_from_wire(fields, "http://h/v1"), Observation)


@given(
    st.fixed_dictionaries(
        {
            "data": st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(["b64_json", "url", "error"], JSON)))
            | JSON
        },
        optional=dict.fromkeys(["usage", "error", "detail"], JSON),
    ),
    st.integers(1, 4),
)
def test_any_json_is_pictures_or_a_failure(fields: dict[str, object], asked: int) -> None:
    seen = pictures_from_wire(fields, asked)
    assert isinstance(seen, Failed) or len(seen.outputs) + len(seen.missing) == asked


def test_every_listed_model_is_known_by_its_bounds() -> None:
    assert set(MODELS) < set(BOUNDS)
    assert isinstance(clip_from_wire({"status": "canceled"}, ""), Canceled)
    assert isinstance(clip_from_wire({}, ""), Unreadable)
