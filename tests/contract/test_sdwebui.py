"""The WebUI adapter: what goes out, and what every known answer means."""

from __future__ import annotations

import base64
import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.contract import Invalid, Kind, resolve
from models.failures import FailureKind
from models.lifecycle import Failed, Unknown
from models.presets import Presets
from models.samplers import WEBUI_SAMPLERS
from providers.calls import recorded
from providers.port import Accepted, CancelAnswer, FindAnswer, NotAccepted, Refused, Uncertain
from providers.sdwebui_models import BOUNDS, FAMILIES, Offer, offer, sampler_fields
from providers.sdwebui_wire import UnusableError, from_wire, to_wire
from providers.sim.sdwebui_lists import GENERATIONS, NEW
from tests.contract.raw_server import Conn, RawServer, free_port
from tests.contract.sdwebui_jobs import EFFECTIVE, LOGIN, PAYLOADS, Server, adapter, job

FIELDS = {"sampler_name": "DPM++ 2M", "scheduler": "Karras"}
PNG = b"\x89PNG\r\n\x1a\nrest"
INLINE = "data:image/png;base64," + b64encode(PNG).decode()
NONE = Presets.from_tables({})

# --- out ---


def test_picture_is_asked_for_with_every_value_that_versions_differ_in() -> None:
    path, body = to_wire(EFFECTIVE, FIELDS, checkpoint="", task_id="task_x.1")
    assert path == "/sdapi/v1/txt2img"
    assert body == {
        "prompt": "a red bicycle",
        "negative_prompt": "blur",
        "seed": 42,
        "subseed": -1,
        "subseed_strength": 0,
        "steps": 20,
        "cfg_scale": 7.5,
        "width": 512,
        "height": 640,
        "batch_size": 1,
        "n_iter": 2,
        "sampler_name": "DPM++ 2M",
        "scheduler": "Karras",
        "send_images": True,
        "save_images": False,
        "force_task_id": "task_x.1",
        "enable_hr": False,
    }


def test_checkpoint_of_the_models_name_is_loaded_and_left_loaded() -> None:
    _, body = to_wire(EFFECTIVE, FIELDS, checkpoint="sd_xl_base.safetensors", task_id="t")
    assert body["override_settings"] == {"sd_model_checkpoint": "sd_xl_base.safetensors"}
    assert body["override_settings_restore_afterwards"] is False


def test_enlarging_is_a_second_pass_with_the_same_sampler() -> None:
    _, body = to_wire({**EFFECTIVE, "upscale_factor": 2.0}, FIELDS, checkpoint="", task_id="t")
    assert {name: body[name] for name in body if name.startswith(("hr_", "enable_hr", "denoising"))} == {
        "enable_hr": True,
        "hr_scale": 2,
        "hr_upscaler": "Latent",
        "hr_second_pass_steps": 0,
        "hr_sampler_name": "DPM++ 2M",
        "hr_scheduler": "Karras",
        "denoising_strength": 0.7,
    }


def test_picture_from_a_picture_carries_bytes() -> None:
    path, body = to_wire({**EFFECTIVE, "image": INLINE, "mask": INLINE}, FIELDS, checkpoint="", task_id="t")
    assert path == "/sdapi/v1/img2img"
    assert body["init_images"] == [b64encode(PNG).decode()]
    assert body["mask"] == b64encode(PNG).decode()
    assert "enable_hr" not in body


@pytest.mark.parametrize("reference", ["https://h.example/a.png", "file_abc", "data:image/png;base64,&&"])
def test_picture_is_never_given_as_an_address(reference: str) -> None:
    with pytest.raises(UnusableError, match="inline"):
        to_wire({**EFFECTIVE, "image": reference}, FIELDS, checkpoint="", task_id="t")


# --- samplers (O-07) ---

NEW_OFFER = offer(NEW.sampler_list(), NEW.scheduler_list())
OLD_OFFER = Offer(samplers=frozenset({"Euler a", "DPM++ 2M", "DPM++ 2M Karras"}), schedulers=None)


@pytest.mark.parametrize(
    ("has", "sampler", "fields"),
    [
        (NEW_OFFER, "dpmpp_2m_karras", {"sampler_name": "DPM++ 2M", "scheduler": "Karras"}),
        (NEW_OFFER, "euler_a", {"sampler_name": "Euler a", "scheduler": "Automatic"}),
        (NEW_OFFER, "dpmpp_2m_sgm_uniform", {"sampler_name": "DPM++ 2M", "scheduler": "SGM Uniform"}),
        (NEW_OFFER, "heunpp2", None),  # Forge has it, this one does not
        (NEW_OFFER, "res_multistep", None),  # no WebUI has it
        (OLD_OFFER, "dpmpp_2m_karras", {"sampler_name": "DPM++ 2M Karras"}),
        (OLD_OFFER, "dpmpp_2m", {"sampler_name": "DPM++ 2M"}),
        (OLD_OFFER, "dpmpp_2m_exponential", None),
        (Offer(samplers=frozenset({"DPM++ 2M"}), schedulers=frozenset({"karras"})), "dpmpp_2m_karras", None),  # case
    ],
)
def test_sampler_is_sent_as_this_server_spells_it_or_not_at_all(
    has: Offer, sampler: str, fields: dict[str, str] | None
) -> None:
    assert sampler_fields(sampler, has) == fields


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name or "new")
@pytest.mark.parametrize("sampler", WEBUI_SAMPLERS)
def test_no_server_replaces_what_is_sent(generation: object, sampler: str) -> None:
    assert isinstance(generation, type(NEW))
    has = offer(generation.sampler_list(), generation.scheduler_list() if generation.labels else None)
    fields = sampler_fields(sampler, has)
    if fields is not None:
        asked = fields["sampler_name"], fields.get("scheduler", "")
        assert generation.taken(*asked) == asked


def test_sampler_the_server_lacks_is_refused_before_it_could_be_replaced() -> None:
    with RawServer(Server(200, PAYLOADS["two"]["body"])) as server:
        outcome = adapter(server.url).submit(job(sampler="heunpp2"))
    assert isinstance(outcome, Refused)
    assert outcome.error.kind is FailureKind.INVALID_PARAMETER
    assert "heunpp2" in outcome.error.message
    assert all(b"txt2img" not in request for request in server.requests)


def test_server_without_a_list_of_schedules_gets_the_old_names() -> None:
    lists: dict[str, tuple[int, object]] = {
        "samplers": (200, [{"name": "DPM++ 2M Karras"}]),
        "schedulers": (404, {"detail": "Not Found"}),
    }
    server = Server(200, {"images": ["AAAA"], "info": json.dumps({"sampler_name": "DPM++ 2M Karras"})}, lists)
    with RawServer(server) as raw:
        outcome = adapter(raw.url).submit(job(image_count=1))
    assert isinstance(outcome, Accepted)
    (_, body), *_ = server.asked
    assert body["sampler_name"] == "DPM++ 2M Karras"
    assert "scheduler" not in body


@pytest.mark.parametrize(
    ("name", "status", "body", "word", "kind"),
    [
        ("samplers", 500, {"detail": "oops"}, NotAccepted, FailureKind.NOT_SENT),
        ("samplers", 401, {"detail": "Incorrect username or password"}, NotAccepted, FailureKind.PROVIDER_AUTH),
        ("samplers", 404, {"detail": "Not Found"}, Refused, FailureKind.PROVIDER_ERROR),
        ("schedulers", 503, {"detail": "busy"}, NotAccepted, FailureKind.NOT_SENT),
        ("schedulers", 429, {"detail": "slow"}, NotAccepted, FailureKind.RATE_LIMITED),
    ],
)
def test_failed_question_before_the_submit_is_never_doubt(
    name: str, status: int, body: object, word: type, kind: FailureKind
) -> None:
    server = Server(200, PAYLOADS["two"]["body"], {name: (status, body)})
    with RawServer(server) as raw:
        outcome = adapter(raw.url).submit(job())
    assert isinstance(outcome, word)
    assert not isinstance(outcome, Accepted)
    assert outcome.error.kind is kind
    assert server.asked == []


# --- bounds ---


@pytest.mark.parametrize("model", [*FAMILIES, "sdxl:juggernaut_v9.safetensors", "sd15:a:b"])
def test_family_and_checkpoint_make_a_model(model: str) -> None:
    found = resolve(Kind.IMAGE, {"prompt": "x"}, BOUNDS[model], NONE, strict=False, draw=lambda low, _: low)
    side = 512 if model.startswith("sd15") else 1024
    assert (found.effective["width"], found.effective["height"]) == (side, side)
    assert found.adjustments == ()
    _, body = to_wire(found.effective, FIELDS, checkpoint="", task_id="t")
    assert None not in body.values()


@pytest.mark.parametrize("model", ["flux", "other:x", ""])
def test_unknown_family_is_refused_without_a_call(model: str) -> None:
    outcome = adapter("http://127.0.0.1:1").submit(job(model))
    assert isinstance(outcome, Refused)
    assert model not in BOUNDS


@pytest.mark.parametrize(
    "asked",
    [
        {"upscale_factor": 2, "image": INLINE},
        {"upscale_factor": 2, "image_count": 3},
        {"upscale_factor": 4, "width": 2048, "height": 1024},
        {"width": 513},
        {"steps": 151},
        {"sampler": "res_multistep"},
    ],
)
def test_what_no_answer_could_carry_is_refused_at_the_door(asked: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        resolve(Kind.IMAGE, {"prompt": "x", **asked}, BOUNDS["sdxl"], NONE, strict=True, draw=lambda low, _: low)


# --- in ---


@pytest.mark.parametrize("name", PAYLOADS)
def test_payload_says_where_it_is_from(name: str) -> None:
    assert set(PAYLOADS[name]) == {"date", "source", "note", "http_status", "body", "says"}


def _said(outcome: object) -> dict[str, object]:
    match outcome:
        case Accepted(finished=done) if done is not None:
            return {
                "accepted": [output.place for output in done.outputs],
                "seeds": [output.seed for output in done.outputs],
                "missing": [missing.kind for missing in done.missing],
            }
        case Refused(error=error):
            return {"refused": error.kind, "code": error.upstream_code}
        case NotAccepted(error=error):
            return {"waits": error.kind, "code": error.upstream_code}
        case Uncertain(error=error):
            return {"uncertain": error.kind, "code": error.upstream_code}
    raise AssertionError(outcome)


@pytest.mark.parametrize("name", PAYLOADS)
def test_answer_to_a_generation_is_one_of_four_words(name: str) -> None:
    payload = PAYLOADS[name]
    server = Server(payload["http_status"], payload["body"])
    with RawServer(server) as raw:
        outcome = adapter(raw.url).submit(job())
    assert _said(outcome) == payload["says"]
    assert [path for path, _ in server.asked] == ["/sdapi/v1/txt2img"]
    if isinstance(outcome, Accepted):
        assert outcome.receipt == "task_x.1"
        assert outcome.finished is not None
        assert all((output.content or b"").startswith(b"\x89PNG") for output in outcome.finished.outputs)
    else:
        assert "secret" not in repr(outcome)  # FastAPI repeats what was sent


def test_plain_text_of_forge_is_doubt() -> None:
    def script(conn: Conn) -> None:
        answers = Server(200, {})
        while request := conn.request():
            name = request.split(b" ")[1].decode().rpartition("/")[2]
            if name in answers.lists:
                conn.answer(json.dumps(answers.lists[name][1]).encode(), close=False)
            else:
                conn.answer(b"Internal Server Error", "500 x", close=False)

    with RawServer(script) as raw:
        outcome = adapter(raw.url).submit(job())
    assert isinstance(outcome, Uncertain)
    assert outcome.error.kind is FailureKind.SERVER_ERROR


def test_login_goes_as_basic_and_shows_nowhere() -> None:
    body = {"detail": f"no {LOGIN} and not let-me-in"}
    with RawServer(Server(400, body)) as raw:
        outcome = adapter(raw.url, LOGIN).submit(job())
    expected = b"Authorization: Basic " + base64.b64encode(LOGIN.encode())
    assert all(expected in request for request in raw.requests)
    assert isinstance(outcome, Refused)
    assert "let-me-in" not in outcome.error.message


@pytest.mark.parametrize("base", ["", "/", "/sdapi/v1", "/sdapi/v1/"])
def test_address_is_taken_with_and_without_its_path(base: str) -> None:
    server = Server(200, PAYLOADS["two"]["body"])
    with RawServer(server) as raw:
        adapter(raw.url + base).submit(job())
    assert server.asked[0][0] == "/sdapi/v1/txt2img"


def test_nothing_is_asked_canceled_or_found() -> None:
    provider = adapter(f"http://127.0.0.1:{free_port()}")
    with recorded() as calls:
        assert provider.observe(["a", "b"], Kind.IMAGE) == {"a": Unknown(), "b": Unknown()}
        assert provider.cancel(job()) is CancelAnswer.REFUSED
        assert provider.find(job()) is FindAnswer.UNCLEAR
    assert calls == []
    assert not provider.capabilities.cancel


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = ["sampler_name", "all_seeds", "index_of_first_image"]


@given(
    st.lists(st.sampled_from(["AAAA", "", "x"]) | JSON, max_size=5) | JSON,
    st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, JSON)).map(json.dumps) | JSON,
    st.integers(1, 4),
)
def test_any_json_is_pictures_or_a_failure(images: object, info: object, asked: int) -> None:
    seen = from_wire({"images": images, "info": info}, asked, "Euler")
    assert isinstance(seen, Failed) or (seen.outputs and len(seen.outputs) + len(seen.missing) == asked)
