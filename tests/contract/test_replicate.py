"""The Replicate adapter: what goes out, and what every documented answer means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.contract import Invalid, Kind
from models.lifecycle import Failed, Finished, Observation, Unreadable, Working
from providers.inline import Picture
from providers.port import Accepted, NotAccepted, Refused, Uncertain
from providers.replicate_models import BOUNDS, FAMILIES, LISTED, Target, model_of
from providers.replicate_wire import from_wire, to_wire
from tests.contract.ark_jobs import answering, lines, scripted
from tests.contract.raw_server import Conn, RawServer, Script
from tests.contract.replicate_jobs import AT, CLIP, FRAME, ID, KEY, PAYLOADS, PICTURE, SDXL, adapter, job

# --- out ---


def sent(model: str, **asked: object) -> dict[str, object]:
    body = to_wire(job(model, **asked), {}).body
    assert isinstance(body, dict)
    return body


def given_input(model: str, **asked: object) -> Mapping[str, object]:
    body = sent(model, **asked)
    assert isinstance(body["input"], dict)
    return body["input"]


def test_official_model_is_asked_at_its_own_address_with_its_input_alone() -> None:
    ask = to_wire(job(image_count=2, seed=9, width=1344, height=768), {})
    assert (ask.method, ask.path, ask.headers) == ("POST", "/v1/models/black-forest-labs/flux-dev/predictions", {})
    assert ask.body == {
        "input": {
            "prompt": "a red cup",
            "seed": 9,
            "num_outputs": 2,
            "num_inference_steps": 28,
            "guidance": 3,
            "aspect_ratio": "16:9",
            "megapixels": "1",
            "output_format": "png",
            "disable_safety_checker": False,
            "go_fast": False,
        }
    }


def test_version_goes_in_the_body() -> None:
    ask = to_wire(job(SDXL, width=768, height=1024), {})
    assert isinstance(ask.body, dict)
    assert (ask.path, ask.body["version"]) == ("/v1/predictions", SDXL)
    assert given_input(SDXL, width=768, height=1024).items() >= {"width": 768, "height": 1024}.items()


def test_size_of_a_model_of_ratios_is_custom_where_it_can_be() -> None:
    asked = given_input("black-forest-labs/flux-1.1-pro", width=512, height=640)
    assert (asked["aspect_ratio"], asked["width"], asked["height"]) == ("custom", 512, 640)


def test_callback_is_for_the_end_alone() -> None:
    address = "https://weir.example/v1/callbacks/replicate/task_x/token"
    with RawServer(answering(201, {"id": ID, "status": "starting"})) as server:
        adapter(server.url).submit(replace(job(), callback_url=address))
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert f"Authorization: Bearer {KEY}\r\n".encode() in head
    assert b"prefer" not in head.lower()
    told = json.loads(body)
    assert told.keys() == {"input", "webhook", "webhook_events_filter"}
    assert (told["webhook"], told["webhook_events_filter"]) == (address, ["completed"])


def test_base_address_may_name_the_version() -> None:
    with RawServer(answering(201, {"id": ID})) as server:
        adapter(f"{server.url}/v1/").submit(job())
    assert lines(server) == ["POST /v1/models/black-forest-labs/flux-dev/predictions"]


@pytest.mark.parametrize("model", LISTED)
def test_defaults_alone_make_a_whole_input(model: str) -> None:
    asked = given_input(model)
    assert None not in asked.values()
    assert ("duration" in asked) == (BOUNDS[model].kind is Kind.VIDEO)


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("picture:acme/paint", Target("/models/acme/paint/predictions")),
        (f"picture:acme/paint:{'a' * 64}", Target("/predictions", f"acme/paint:{'a' * 64}")),
        ("flux:deployments/acme/prod", Target("/deployments/acme/prod/predictions")),
    ],
)
def test_any_model_is_named_by_its_family(model: str, target: Target) -> None:
    family = FAMILIES[model.partition(":")[0]]
    assert model_of(model) == (target, family)
    assert BOUNDS[model] is family.bounds


@pytest.mark.parametrize(
    "model",
    [
        "flux",
        "flux:",
        "flux:paint",
        "flux:../x",
        "flux:a/b/c",
        "flux:a/b?c=d",
        "flux:a/b:12",
        f"flux:deployments/a/b:{'a' * 64}",
        "acme/paint",
    ],
)
def test_model_without_a_usable_id_is_refused_without_a_call(model: str) -> None:
    assert isinstance(adapter("http://127.0.0.1:1").submit(replace(job(), model=model)), Refused)


def test_every_bound_names_its_source() -> None:
    assert all(re.search(r"\[(DOC|3P|U)\]", family.bounds.source) for family in FAMILIES.values())


@pytest.mark.parametrize(
    ("model", "asked", "field"),
    [
        (PICTURE, {"image_count": 5}, "/image_count"),
        (PICTURE, {"width": 1024, "height": 768}, "/width"),
        (CLIP, {"duration_s": 13}, "/duration_s"),
        ("kwaivgi/kling-v2.0", {"duration_s": 7}, "/duration_s"),
        (CLIP, {"first_frame": FRAME}, "/first_frame"),
        ("seedance-frame:bytedance/seedance-1-pro", {"first_frame": FRAME, "ratio": "1:1"}, "/ratio"),
    ],
)
def test_what_the_vendor_would_refuse_or_ignore_is_refused_before(
    model: str, asked: dict[str, object], field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        job(model, **asked)
    assert field in {error.pointer for error in caught.value.errors}


# --- reference pictures ---


FRAMED = "seedance-frame:bytedance/seedance-1-pro"
SMALL, LARGE = (
    Picture(media_type="image/png", content=b"\x89PNG"),
    Picture(media_type="image/png", content=bytes(300_000)),
)


def uploading(status: int, body: object) -> Script:
    return scripted(lambda _m, path, _q: (status, body) if path == "/v1/files" else (201, {"id": ID}))


def test_small_picture_goes_inside_the_request() -> None:
    with RawServer(uploading(500, {})) as server:
        outcome = adapter(server.url).submit(replace(job(FRAMED), inputs={"first_frame": SMALL}))
    assert isinstance(outcome, Accepted)
    assert len(lines(server)) == 1
    told = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert told["input"]["image"] == "data:image/png;base64,iVBORw=="
    assert "aspect_ratio" not in told["input"]


def test_large_picture_is_uploaded_first() -> None:
    link = f"https://api.replicate.com/v1/files/{ID}"
    with RawServer(uploading(201, {"id": ID, "urls": {"get": link}})) as server:
        inputs = {"first_frame": LARGE, "last_frame": SMALL}
        outcome = adapter(server.url).submit(replace(job(FRAMED), inputs=inputs))
    assert isinstance(outcome, Accepted)
    assert lines(server) == ["POST /v1/files", "POST /v1/models/bytedance/seedance-1-pro/predictions"]
    assert b'name="content"; filename="content.png"\r\nContent-Type: image/png\r\n' in server.requests[0]
    told = json.loads(server.requests[1].partition(b"\r\n\r\n")[2])["input"]
    assert (told["image"], told["last_frame_image"][:10]) == (link, "data:image")


@pytest.mark.parametrize(
    ("status", "body", "word", "kind"),
    [
        (413, {"title": "Payload too large", "detail": "too large", "status": 413}, Refused, "invalid_parameter"),
        (401, {"title": "Unauthenticated", "detail": "x", "status": 401}, NotAccepted, "provider_auth"),
        (429, {"detail": "Your rate limit resets in ~3s."}, NotAccepted, "provider_rate_limited"),
        (500, {"title": "x", "detail": "x", "status": 500}, NotAccepted, "provider_unreachable"),
        (201, {"id": ID}, NotAccepted, "provider_unreachable"),
        (504, None, NotAccepted, "provider_unreachable"),
    ],
)
def test_picture_that_is_not_uploaded_leaves_no_doubt_about_the_prediction(
    status: int, body: object, word: type, kind: str
) -> None:
    with RawServer(uploading(status, body)) as server:
        outcome = adapter(server.url).submit(replace(job(FRAMED), inputs={"first_frame": LARGE}))
    assert isinstance(outcome, word)
    assert isinstance(outcome, Refused | NotAccepted)
    assert outcome.error.kind == kind
    assert lines(server) == ["POST /v1/files"]


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
    assert lines(server) == ["POST /v1/models/black-forest-labs/flux-dev/predictions"]
    match outcome:
        case Accepted():
            assert payload["says"] == {"accepted": outcome.receipt}
        case Refused():
            assert payload["says"] == {"refused": outcome.error.kind}
        case NotAccepted():
            said = {"not_accepted": outcome.error.kind, "retry_after_s": outcome.retry_after_s}
            assert said.items() >= payload["says"].items()
        case Uncertain():
            assert payload["says"] == {"uncertain": outcome.error.kind}


def test_header_goes_before_the_words_of_a_throttling() -> None:
    def script(conn: Conn) -> None:
        if conn.request():
            conn.answer(json.dumps(PAYLOADS["submit_throttled"]["body"]).encode(), "429 x", "Retry-After: 4\r\n")

    with RawServer(script) as server:
        outcome = adapter(server.url).submit(job())
    assert isinstance(outcome, NotAccepted)
    assert outcome.retry_after_s == 4


def _says(seen: Observation) -> dict[str, object]:
    found: dict[str, object] = {"observation": type(seen).__name__}
    match seen:
        case Working():
            found["word"] = seen.word
        case Failed():
            found |= {"kind": seen.error.kind, "code": seen.error.upstream_code}
        case Unreadable():
            found["kind"] = seen.error.kind
            found |= {} if seen.retry_after_s is None else {"retry_after_s": seen.retry_after_s}
        case Finished():
            found |= {"urls": [output.url for output in seen.outputs], "missing": [one.kind for one in seen.missing]}
            found["usage"] = seen.usage
    return found


@pytest.mark.parametrize("name", _named("state_"))
def test_state_is_one_observation_and_one_call(name: str) -> None:
    payload = PAYLOADS[name]
    with RawServer(answering(payload["http_status"], payload["body"])) as server:
        seen = adapter(server.url).observe([ID], Kind.IMAGE)
    assert {receipt: _says(one) for receipt, one in seen.items()} == {ID: payload["says"]}
    assert lines(server) == [f"GET {AT}"]


def test_clip_is_the_video_and_not_its_thumbnail() -> None:
    clip, still = "https://replicate.delivery/a/out.mp4", "https://replicate.delivery/a/out.png"
    for output in (clip, [clip], {"video": clip, "thumbnail": still}):
        seen = from_wire({"status": "succeeded", "output": output}, Kind.VIDEO)
        assert isinstance(seen, Finished)
        assert [one.url for one in seen.outputs] == [clip]


def test_picture_inside_the_answer_is_its_bytes() -> None:
    seen = from_wire({"status": "succeeded", "output": "data:image/png;base64,iVBORw=="}, Kind.IMAGE)
    assert isinstance(seen, Finished)
    assert [(output.url, output.content) for output in seen.outputs] == [(None, b"\x89PNG")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("https://["),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.sampled_from(["succeeded", "failed", "canceled", "aborted", "starting"])
PREDICTION = st.fixed_dictionaries(
    {"status": WORDS | JSON},
    optional={
        "output": JSON,
        "error": JSON,
        "logs": JSON,
        "metrics": JSON,
        "data_removed": JSON,
        "input": JSON | st.fixed_dictionaries({"num_outputs": JSON}),
    },
)


@given(PREDICTION, st.sampled_from(Kind))
def test_any_json_is_an_observation(told: dict[str, object], kind: Kind) -> None:
    assert isinstance(from_wire(told, kind), Observation)


def test_words_of_a_failure_show_no_token() -> None:
    with RawServer(answering(200, {"id": ID, "status": "failed", "error": f"token {KEY}"})) as server:
        seen = adapter(server.url).observe([ID], Kind.IMAGE)[ID]
    assert isinstance(seen, Failed)
    assert KEY not in seen.error.message
