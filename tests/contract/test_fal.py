"""The fal adapter: what goes out, and what every documented answer means."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.contract import Invalid, Kind
from models.lifecycle import Failed, Finished, Observation, Unreadable, Working
from providers.fal_models import BOUNDS, FAMILIES, LISTED, app_of, model_of
from providers.fal_wire import from_result, from_status, to_wire
from providers.inline import Picture
from providers.port import Accepted, CancelAnswer, FindAnswer, NotAccepted, Refused, Uncertain
from tests.contract.ark_jobs import answering, lines, scripted
from tests.contract.fal_jobs import AT, CLIP, FRAME, ID, KEY, PAYLOADS, PICTURE, RECEIPT, adapter, job
from tests.contract.raw_server import RawServer

# --- out ---


def sent(model: str, **asked: object) -> dict[str, object]:
    body = to_wire(job(model, **asked)).body
    assert isinstance(body, dict)
    return body


def test_picture_goes_to_the_models_own_address_with_its_input_alone() -> None:
    ask = to_wire(job(image_count=2, seed=9))
    assert (ask.method, ask.path, ask.params) == ("POST", "/fal-ai/flux/dev", {})
    assert ask.body == {
        "prompt": "a red cup",
        "seed": 9,
        "num_images": 2,
        "num_inference_steps": 28,
        "guidance_scale": 3.5,
        "enable_safety_checker": True,
        "output_format": "png",
        "image_size": {"width": 1024, "height": 1024},
    }


def test_wait_and_files_are_bounded() -> None:
    headers = to_wire(job()).headers
    assert headers["X-Fal-Request-Start-Timeout"] == "86400"
    assert json.loads(headers["X-Fal-Object-Lifecycle-Preference"]) == {"expiration_duration_seconds": 86400}


def test_length_of_a_clip_is_text_and_its_sound_is_said() -> None:
    clip = {"prompt": "a red cup", "duration": "5", "aspect_ratio": "16:9", "generate_audio": False}
    assert sent(CLIP) == clip
    assert sent(CLIP, audio=True, duration_s=12) == {**clip, "generate_audio": True, "duration": "12"}


def test_reference_goes_as_address_or_inside_the_input() -> None:
    asked = job("fal-ai/flux/dev/image-to-image")
    assert sent(asked.model)["image_url"] == FRAME
    given = replace(asked, inputs={"image": Picture(media_type="image/png", content=b"\x89PNG")})
    body = to_wire(given).body
    assert isinstance(body, dict)
    assert body["image_url"] == "data:image/png;base64,iVBORw=="
    assert "image_size" not in body


def test_callback_address_is_part_of_the_query() -> None:
    address = "https://weir.example/v1/callbacks/fal/task_x/token"
    with RawServer(answering(200, {"request_id": ID})) as server:
        adapter(server.url).submit(replace(job(), callback_url=address))
    target = server.requests[0].split(b" ")[1].decode()
    assert parse_qs(urlsplit(target).query) == {"fal_webhook": [address]}
    assert f"Authorization: Key {KEY}\r\n".encode() in server.requests[0]


@pytest.mark.parametrize("model", LISTED)
def test_defaults_alone_make_a_whole_input(model: str) -> None:
    body = sent(model)
    assert None not in body.values()
    assert ("duration" in body) == (BOUNDS[model].kind is Kind.VIDEO)


def test_any_model_is_named_by_its_family() -> None:
    ask = to_wire(job("picture:acme/paint/v2/text-to-image"))
    assert (ask.path, model_of("picture:acme/paint/v2/text-to-image")) == (
        "/acme/paint/v2/text-to-image",
        ("acme/paint/v2/text-to-image", FAMILIES["picture"]),
    )


@pytest.mark.parametrize("model", ["flux", "flux:", "flux:paint", "flux:../x/y", "flux:a/b?c=d", "acme/paint"])
def test_model_without_a_usable_id_is_refused_without_a_call(model: str) -> None:
    asked = replace(job(), model=model)
    assert isinstance(adapter("http://127.0.0.1:1").submit(asked), Refused)


@pytest.mark.parametrize(
    ("name", "app"),
    [
        ("fal-ai/flux/dev", "fal-ai/flux"),
        ("acme/paint", "acme/paint"),
        ("workflows/acme/paint/v2", "workflows/acme/paint"),
        ("comfy/acme/paint/v2", "comfy/acme/paint"),
    ],
)
def test_requests_are_of_the_app_and_not_of_the_model(name: str, app: str) -> None:
    assert app_of(name) == app


def test_every_bound_names_its_source() -> None:
    assert all(re.search(r"\[(DOC|3P|U)\]", family.bounds.source) for family in FAMILIES.values())


@pytest.mark.parametrize(
    ("model", "asked", "field"),
    [
        (PICTURE, {"image_count": 5}, "/image_count"),
        (PICTURE, {"width": 1000, "height": 1024}, "/width"),
        (CLIP, {"duration_s": 16}, "/duration_s"),
        ("fal-ai/kling-video/v2.5-turbo/pro/text-to-video", {"duration_s": 7}, "/duration_s"),
        ("fal-ai/kling-video/v2.5-turbo/pro/text-to-video", {"first_frame": FRAME}, "/first_frame"),
    ],
)
def test_what_the_vendor_would_refuse_is_refused_before(model: str, asked: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        job(model, **asked)
    assert field in {error.pointer for error in caught.value.errors}


# --- in ---


def _named(prefix: str) -> list[str]:
    return [name for name in PAYLOADS if name.startswith(prefix)]


@pytest.mark.parametrize("name", PAYLOADS)
def test_payload_says_where_it_is_from(name: str) -> None:
    more = {"state"} if name.startswith("result_") else set()
    assert set(PAYLOADS[name]) == {"date", "source", "note", "http_status", "body", "says"} | more


@pytest.mark.parametrize("name", _named("submit_"))
def test_answer_to_a_submit_is_one_of_four_words(name: str) -> None:
    payload = PAYLOADS[name]
    with RawServer(answering(payload["http_status"], payload["body"])) as server:
        outcome = adapter(server.url).submit(job())
    assert lines(server) == ["POST /fal-ai/flux/dev"]
    match outcome:
        case Accepted():
            assert payload["says"] == {"accepted": outcome.receipt}
        case Refused():
            assert payload["says"] == {"refused": outcome.error.kind}
        case NotAccepted():
            assert payload["says"] == {"not_accepted": outcome.error.kind}
        case Uncertain():
            assert payload["says"] == {"uncertain": outcome.error.kind}


def _says(seen: Observation) -> dict[str, object]:
    found: dict[str, object] = {"observation": type(seen).__name__}
    match seen:
        case Working():
            found["word"] = seen.word
        case Failed():
            found |= {"kind": seen.error.kind, "code": seen.error.upstream_code}
        case Unreadable():
            found["kind"] = seen.error.kind
        case Finished():
            found |= {"urls": [o.url for o in seen.outputs], "seeds": [o.seed for o in seen.outputs]}
            found |= {"missing": [m.kind for m in seen.missing], "usage": seen.usage}
    return found


@pytest.mark.parametrize("name", _named("state_"))
def test_state_is_one_observation_and_one_call(name: str) -> None:
    payload = PAYLOADS[name]
    with RawServer(answering(payload["http_status"], payload["body"])) as server:
        seen = adapter(server.url).observe([RECEIPT], Kind.IMAGE)
    assert {receipt: _says(one) for receipt, one in seen.items()} == {RECEIPT: payload["says"]}
    assert lines(server) == [f"GET {AT}/status"]


@pytest.mark.parametrize("name", _named("result_"))
def test_completed_is_no_success_before_its_result_is_read(name: str) -> None:
    payload = PAYLOADS[name]
    answers = {f"{AT}/status": (200, payload["state"]), AT: (payload["http_status"], payload["body"])}
    with RawServer(scripted(lambda _method, path, _query: answers[path])) as server:
        seen = adapter(server.url).observe([RECEIPT], Kind.IMAGE)
    assert {receipt: _says(one) for receipt, one in seen.items()} == {RECEIPT: payload["says"]}
    assert lines(server) == [f"GET {AT}/status", f"GET {AT}"]


def test_page_in_place_of_a_result_is_no_news() -> None:
    def say(_method: str, path: str, _query: object) -> tuple[int, object]:
        return (200, {"status": "COMPLETED", "logs": None}) if path.endswith("/status") else (500, "<html>")

    with RawServer(scripted(say)) as server:
        assert isinstance(adapter(server.url).observe([RECEIPT], Kind.IMAGE)[RECEIPT], Unreadable)


def test_clip_is_the_video_and_not_its_thumbnail() -> None:
    clip = {"url": "https://v3b.fal.media/a.mp4", "content_type": "video/mp4"}
    result = {"thumbnail": {"url": "https://v3b.fal.media/a.png", "content_type": "image/png"}, "clip": [clip]}
    for body in (result, {"video": clip}, {"video": {"url": clip["url"]}}, {"videos": [clip]}):
        seen = from_result({"status": "COMPLETED"}, body, Kind.VIDEO)
        assert isinstance(seen, Finished)
        assert [output.url for output in seen.outputs] == [clip["url"]]


def test_picture_inside_the_answer_is_its_bytes() -> None:
    seen = from_result({}, {"images": [{"url": "data:image/png;base64,iVBORw=="}]}, Kind.IMAGE)
    assert isinstance(seen, Finished)
    assert [(output.url, output.content) for output in seen.outputs] == [(None, b"\x89PNG")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
STATUS = st.dictionaries(st.sampled_from(["status", "error", "error_type", "metrics", "logs"]), JSON)
RESULT = st.dictionaries(st.sampled_from(["images", "video", "url", "seed", "has_nsfw_concepts", "x"]), JSON)


@given(STATUS, RESULT, st.sampled_from(Kind))
def test_any_json_is_an_observation(status: dict[str, object], result: dict[str, object], kind: Kind) -> None:
    assert isinstance(from_status(status) or from_result(status, result, kind), Observation)


def test_words_of_a_failure_show_no_key() -> None:
    status = {"status": "COMPLETED", "error": f"key {KEY}", "error_type": "internal_error"}
    with RawServer(scripted(lambda _m, path, _q: (200, status) if path.endswith("status") else (200, {}))) as server:
        seen = adapter(server.url).observe([RECEIPT], Kind.IMAGE)[RECEIPT]
    assert isinstance(seen, Failed)
    assert KEY not in seen.error.message


# --- cancel and find ---


@pytest.mark.parametrize(
    ("told", "after", "answer"),
    [
        ((200, {"status": "OK"}), (404, {"detail": "Request not found"}), CancelAnswer.CONFIRMED),
        ((200, {"status": "OK"}), (202, {"status": "IN_QUEUE"}), CancelAnswer.UNCLEAR),
        ((202, {"status": "CANCELLATION_REQUESTED"}), (202, {"status": "IN_PROGRESS"}), CancelAnswer.UNCLEAR),
        (
            (202, {"status": "CANCELLATION_REQUESTED"}),
            (200, {"status": "COMPLETED", "error_type": "client_cancelled"}),
            CancelAnswer.CONFIRMED,
        ),
        ((202, None), (404, {"message": "no route"}), CancelAnswer.UNCLEAR),
        ((400, {"status": "ALREADY_COMPLETED"}), None, CancelAnswer.REFUSED),
        ((404, {"status": "NOT_FOUND"}), None, CancelAnswer.UNCLEAR),
        ((500, {"detail": "Internal server error"}), None, CancelAnswer.UNCLEAR),
    ],
)
def test_cancel_is_believed_when_the_request_is_gone(
    told: tuple[int, object], after: tuple[int, object] | None, answer: CancelAnswer
) -> None:
    with RawServer(scripted(lambda method, _path, _query: told if method == "PUT" else after or (500, {}))) as server:
        assert adapter(server.url).cancel(job()) is answer
    assert lines(server) == [f"PUT {AT}/cancel"] + ([f"GET {AT}/status"] if after else [])


def test_lost_request_is_found_by_the_id_that_a_callback_lent() -> None:
    status = {"status": "IN_QUEUE", "request_id": ID, "queue_position": 0}
    with RawServer(answering(202, status)) as server:
        assert adapter(server.url).find(replace(job(), receipt=ID)) == RECEIPT
        assert adapter(server.url).find(replace(job(), receipt="another")) is FindAnswer.UNCLEAR
    assert lines(server)[0] == f"GET {AT}/status"


def test_lost_request_without_a_callback_is_not_looked_for() -> None:
    assert adapter("http://127.0.0.1:1").find(replace(job(), receipt=None)) is FindAnswer.UNCLEAR


def test_family_alone_is_no_model_and_is_refused_when_the_configuration_is_read() -> None:
    assert not {*FAMILIES} & {*BOUNDS}
    assert "flux" not in BOUNDS
    assert "flux:" not in BOUNDS
    assert BOUNDS["flux:acme/paint"] is FAMILIES["flux"].bounds
