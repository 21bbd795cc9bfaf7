"""The Ark adapter: what goes out, and what every documented answer means."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.contract import FieldError, Invalid, Kind
from models.failures import FailureKind
from models.lifecycle import Failed, Finished, Observation, Unknown, Unreadable, Working
from models.settings import Settings
from providers.ark import to_wire
from providers.ark_models import MODELS, SYNCHRONOUS
from providers.ark_wire import from_images, from_wire
from providers.calls import recorded
from providers.port import Accepted, Job, NotAccepted, Refused, Uncertain
from tests.contract.ark_jobs import CLIP, FRAME, KEY, PAYLOADS, PICTURE, TASKS, adapter, answering, job, lines, task
from tests.contract.raw_server import Conn, RawServer

# --- out ---


def sent(model: str, **asked: object) -> dict[str, object]:
    body = to_wire(job(model, **asked)).body
    assert isinstance(body, dict)
    return body


def test_picture_is_one_link_of_an_explicit_size_without_watermark() -> None:
    assert to_wire(job(PICTURE)).path == "/api/v3/images/generations"
    assert sent(PICTURE) == {
        "model": PICTURE,
        "prompt": "a red cup",
        "size": "2048x2048",
        "response_format": "url",
        "watermark": False,
        "sequential_image_generation": "disabled",
    }


def test_group_has_a_limit() -> None:
    body = sent(PICTURE, image_count=3, image=FRAME)
    assert body["sequential_image_generation"] == "auto"
    assert body["sequential_image_generation_options"] == {"max_images": 3}
    assert body["image"] == FRAME


def test_clip_names_everything_that_costs() -> None:
    assert to_wire(job()).path == TASKS
    assert sent(CLIP, seed=9) == {
        "model": CLIP,
        "content": [{"type": "text", "text": "a red cup"}],
        "resolution": "720p",
        "ratio": "16:9",
        "duration": 5,
        "seed": 9,
        "watermark": False,
        "service_tier": "default",
        "execution_expires_after": 86_400,
        "safety_identifier": "task_x.1",
    }


def test_frames_carry_their_roles_and_the_clip_their_shape() -> None:
    body = sent("doubao-seedance-1-5-pro-251215", first_frame=FRAME, last_frame=FRAME + "2", audio=True)
    assert body["content"] == [
        {"type": "text", "text": "a red cup"},
        {"type": "image_url", "image_url": {"url": FRAME}, "role": "first_frame"},
        {"type": "image_url", "image_url": {"url": FRAME + "2"}, "role": "last_frame"},
    ]
    assert (body["ratio"], body["generate_audio"]) == ("adaptive", True)


def test_newest_generation_is_not_told_a_ratio_with_a_frame() -> None:
    assert "ratio" not in sent("doubao-seedance-2-5-260628", first_frame=FRAME)
    assert sent("doubao-seedance-2-5-260628")["ratio"] == "16:9"


def test_callback_address_goes_along_with_clips_only() -> None:
    address = "https://weir.example/v1/callbacks/ark/task_x/token"
    clip, picture = (
        to_wire(replace(job(), callback_url=address)).body,
        to_wire(replace(job(PICTURE), callback_url=address)).body,
    )
    assert isinstance(clip, dict)
    assert clip["callback_url"] == address
    assert "callback_url" not in str(picture)


@pytest.mark.parametrize("model", MODELS)
def test_defaults_alone_make_a_whole_request(model: str) -> None:
    body = sent(model)
    assert body["watermark"] is False
    assert None not in body.values()
    assert ("size" in body) == (model in SYNCHRONOUS)
    assert ("generate_audio" in body) == MODELS[model].bounds.takes("audio")


def test_every_bound_names_its_source() -> None:
    for model in MODELS.values():
        assert re.search(r"\[(docs|SDK|3p|3p-live)\]", model.bounds.source)


@pytest.mark.parametrize(
    ("model", "asked", "field"),
    [
        (PICTURE, {"width": 1024, "height": 1024}, "/width"),  # O: under the least area of this model
        (PICTURE, {"image": FRAME, "image_count": 15}, "/image_count"),
        ("doubao-seedream-5-0-pro-260628", {"image_count": 2}, "/image_count"),
        (CLIP, {"first_frame": FRAME, "ratio": "1:1"}, "/ratio"),
        (CLIP, {"ratio": "adaptive"}, "/first_frame"),
        (CLIP, {"audio": True}, "/audio"),
        (CLIP, {"duration_s": 13}, "/duration_s"),
        ("doubao-seedance-2-0-fast-260128", {"resolution": "1080p"}, "/resolution"),
        ("doubao-seedance-1-0-lite-t2v-250428", {"first_frame": FRAME}, "/first_frame"),
    ],
)
def test_what_the_vendor_would_refuse_is_refused_before(model: str, asked: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        job(model, **asked)
    errors: tuple[FieldError, ...] = caught.value.errors
    assert field in {error.pointer for error in errors}


# --- in ---


def _named(*prefixes: str) -> list[str]:
    return [name for name in PAYLOADS if name.startswith(prefixes)]


@pytest.mark.parametrize("name", PAYLOADS)
def test_payload_says_where_it_is_from(name: str) -> None:
    assert set(PAYLOADS[name]) == {"date", "source", "note", "http_status", "body", "says"}


@pytest.mark.parametrize("name", _named("submit_", "images_"))
def test_answer_to_a_submit_is_one_of_four_words(name: str) -> None:
    payload, picture = PAYLOADS[name], name.startswith("images_")
    with RawServer(answering(payload["http_status"], payload["body"])) as server:
        outcome = adapter(server.url).submit(job(PICTURE, image_count=3) if picture else job())
    assert len(server.requests) == 1
    match outcome:
        case Accepted(finished=Finished() as done):
            assert outcome.receipt == "task_x.1"  # the vendor has no name for it
            found = {"accepted": [[o.place, o.url] for o in done.outputs], "missing": [m.kind for m in done.missing]}
            assert found | {"usage": done.usage} == payload["says"]
        case Accepted():
            assert payload["says"] == {"accepted": outcome.receipt}
        case Refused():
            assert payload["says"] == {"refused": outcome.error.kind}
        case NotAccepted():
            assert payload["says"] == {"not_accepted": outcome.error.kind}
        case Uncertain():
            assert payload["says"] == {"uncertain": outcome.error.kind}
    code = (payload["body"].get("error") or {}).get("code")
    if code is not None and not isinstance(outcome, Accepted):
        assert outcome.error.upstream_code == code


def test_base64_of_any_type_is_taken_as_it_is() -> None:
    """O-35: what the bytes are is judged where they are stored."""
    kept = [b"\xff\xd8\xff\xe0jpeg", b"RIFF\0\0\0\0WEBP", b"\x89PNG\r\n"]
    data: list[object] = [{"b64_json": base64.b64encode(one).decode()} for one in kept]
    data[1] = {"b64_json": "data:image/webp;base64," + base64.b64encode(kept[1]).decode()}
    done = from_images({"data": [*data, {"b64_json": "<html>no picture</html>"}]}, 4)
    assert [output.content for output in done.outputs] == [*kept, b"<html>no picture</html>"]


def test_synchronous_call_that_is_cut_is_doubt() -> None:
    def script(conn: Conn) -> None:
        conn.request()
        conn.send(b'HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{"data":[{"url"')

    with RawServer(script) as server:
        assert isinstance(adapter(server.url).submit(job(PICTURE)), Uncertain)
    assert len(server.requests) == 1


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
            found |= {"missing": list(seen.missing), "usage": seen.usage}
    return found


@pytest.mark.parametrize("name", _named("query_"))
def test_answer_to_a_query_is_one_observation(name: str) -> None:
    payload = PAYLOADS[name]
    with RawServer(answering(payload["http_status"], payload["body"])) as server:
        seen = adapter(server.url).observe(["cgt-1"], Kind.VIDEO)
    assert {receipt: _says(one) for receipt, one in seen.items()} == {"cgt-1": payload["says"]}
    assert lines(server) == [f"GET {TASKS}/cgt-1"]


def test_picture_cannot_be_asked_about() -> None:
    with recorded() as calls:
        assert adapter("http://127.0.0.1:1").observe(["task_x.1"], Kind.IMAGE) == {"task_x.1": Unknown()}
    assert calls == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
STATES = st.sampled_from(["succeeded", "failed", "cancelled", "expired", "queued", "", "x\x00y"]) | JSON
IMAGE = st.dictionaries(st.sampled_from(["url", "b64_json", "error"]), JSON) | JSON


@given(st.fixed_dictionaries({"status": STATES}, optional=dict.fromkeys(["content", "usage", "error", "seed"], JSON)))
def test_any_json_is_an_observation(fields: dict[str, object]) -> None:
    assert isinstance(from_wire(fields), Observation)


@given(st.lists(IMAGE, max_size=4) | JSON, JSON, JSON, st.integers(1, 15))
def test_any_json_is_an_end_of_a_synchronous_call(data: object, error: object, usage: object, asked: int) -> None:
    done = from_images({"data": data, "error": error, "usage": usage}, asked)
    if done.outputs:
        assert len(done.outputs) + len(done.missing) >= asked
    assert all(output.url or output.content for output in done.outputs)


# --- the rest ---


def test_unknown_model_is_refused_without_a_call() -> None:
    asked = Job(task_id="t", attempt=1, kind=Kind.IMAGE, model="seedream-9", effective={})
    assert isinstance(adapter("http://127.0.0.1:1").submit(asked), Refused)


def test_words_of_a_failure_show_no_key_and_no_signature() -> None:
    words = f"key {KEY} https://h/a?X-Tos-Signature=b"
    with RawServer(answering(200, task("r", "failed", error={"code": "x", "message": words}))) as server:
        seen = adapter(server.url).observe(["r"], Kind.VIDEO)["r"]
    assert isinstance(seen, Failed)
    assert seen.error.kind is FailureKind.PROVIDER_ERROR
    assert KEY not in seen.error.message
    assert "Signature" not in seen.error.message


def test_block_of_the_shipped_file_works_with_one_variable(tmp_path: Path) -> None:
    shipped = (Path(__file__).parents[2] / "models" / "weir.toml").read_text(encoding="utf-8")
    block = "# [providers.ark]" + shipped.partition("# [providers.ark]")[2].partition("\n\n")[0]
    mine = tmp_path / "mine.toml"
    mine.write_text(
        "\n".join(line.removeprefix("#").removeprefix(" ") for line in block.splitlines()), encoding="utf-8"
    )
    settings = Settings.load({"WEIR_CONFIG": str(mine), "ARK_API_KEY": KEY})
    routes = [(model.type, route) for model in settings.models.values() for route in model.providers]
    assert {kind for kind, _ in routes} == {"image", "video"}
    for kind, route in routes:
        assert settings.providers[route.name].adapter == "ark"
        assert MODELS[route.model].bounds.kind.value == kind
    assert settings.env.vendor_keys == {"ARK_API_KEY": KEY}
