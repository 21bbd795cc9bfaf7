"""The simulator's OpenAI dialect, held against the vendor's own SDK 3.57.0, and our adapter against the dialect."""

# ruff: noqa: ANN401  the SDK tells a stream from an answer by overloads that no caller of ours can name

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import openai
import pytest
import requests
from PIL import Image

from models.contract import Kind
from models.failures import FailureKind
from models.lifecycle import Finished, Output, Unknown
from models.settings import ProviderSettings, Results
from providers.fetch import Downloads
from providers.port import Accepted, ProviderError, Refused
from providers.sim import Simulator
from tests.contract.openai_jobs import KEY, adapter, inline, job, png
from tests.contract.simulated import ledger, only_job, renewed, script

# Every method of videos is marked deprecated there: api.openai.com has none since 2026-09-24, others do.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
MODEL = "gpt-image-2.6-flare"
SMALL = {"size": "512x640", "model": MODEL}
CUP = {"width": 512, "height": 640, "image_count": 1}


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0.05)


@pytest.fixture
def sdk(sim: Simulator) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{sim.url}/openai/v1", api_key=KEY, max_retries=0) as client:
        yield client


def bytes_of(image: Any) -> bytes:
    return base64.b64decode(image.b64_json)


def seconds_of(clip: bytes, tmp_path: Path) -> float | None:
    settings = ProviderSettings(adapter="openai", base_url="http://h")
    with Downloads(Results(), tmp_path).fetched(settings, Output(content=clip), Kind.VIDEO) as got:
        return got.media.duration_s


# --- the SDK ---


def test_sdk_generates_pictures(sdk: Any) -> None:
    made = sdk.images.generate(prompt="a red cup", n=2, quality="low", **SMALL)
    sizes = [Image.open(io.BytesIO(bytes_of(image))).size for image in made.data]
    assert sizes == [(512, 640)] * 2
    assert bytes_of(made.data[0]) != bytes_of(made.data[1])
    assert (made.output_format, made.quality, made.size, made.usage.total_tokens) == ("png", "low", "512x640", 558)
    assert made._request_id.startswith("req_")


@pytest.mark.parametrize(("kind", "name"), [("jpeg", "JPEG"), ("webp", "WEBP")])
def test_sdk_generates_other_formats(sdk: Any, kind: str, name: str) -> None:
    made = sdk.images.generate(prompt="a red cup", output_format=kind, **SMALL)
    assert Image.open(io.BytesIO(bytes_of(made.data[0]))).format == name


@pytest.mark.parametrize("count", [1, 2])
def test_sdk_edits_one_picture_and_many(sdk: Any, sim: Simulator, count: int) -> None:
    files = [("a.png", png(), "image/png")] * count
    mask = ("mask.png", png("RGBA"), "image/png")
    sdk.images.edit(image=files[0] if count == 1 else files, mask=mask, prompt="a blue cup", n=1, **SMALL)
    params = only_job(sim)["params"]
    assert (params["references"], params["mask"]) == (count, True)


def test_sdk_lists_models(sdk: Any) -> None:
    assert MODEL in [model.id for model in sdk.models.list()]


@pytest.mark.parametrize("with_file", [False, True])
def test_sdk_creates_polls_downloads_lists_and_deletes_a_clip(
    sdk: Any,
    sim: Simulator,
    tmp_path: Path,
    with_file: bool,  # noqa: FBT001
) -> None:
    more = {"input_reference": ("a.png", png(), "image/png")} if with_file else {}
    done = sdk.videos.create_and_poll(
        model="sora-2", prompt="waves at dawn", seconds="4", size="1280x720", poll_interval_ms=20, **more
    )
    assert (done.status, done.progress, done.seconds, done.size) == ("completed", 100, "4", "1280x720")
    assert only_job(sim)["params"]["reference"] is with_file
    clip = sdk.videos.download_content(done.id).read()
    assert clip[4:8] == b"ftyp"
    assert seconds_of(clip, tmp_path) == pytest.approx(4, abs=0.1)
    thumbnail = sdk.videos.download_content(done.id, variant="thumbnail").read()
    assert Image.open(io.BytesIO(thumbnail)).format == "WEBP"
    assert [video.id for video in sdk.videos.list()] == [done.id]
    assert sdk.videos.delete(done.id).deleted is True
    assert list(sdk.videos.list()) == []
    with pytest.raises(openai.NotFoundError):
        sdk.videos.retrieve(done.id)


def test_sdk_pages_through_a_list(sdk: Any) -> None:
    made = [sdk.videos.create(model="sora-2", prompt=f"wave {n}").id for n in range(5)]
    assert [video.id for video in sdk.videos.list(limit=2)] == made[::-1]
    assert [video.id for video in sdk.videos.list(limit=2, order="asc")] == made


def test_sdk_stops_polling_a_clip_that_failed(sdk: Any) -> None:
    done = sdk.videos.create_and_poll(model="sora-2", prompt="x [[sim: filtered]]", poll_interval_ms=20)
    assert (done.status, done.error.code) == ("failed", "moderation_blocked")


def test_sdk_obeys_the_pace_of_the_server(sdk: Any, sim: Simulator) -> None:
    script(sim, "query", headers={"openai-poll-after-ms": "30"})
    began = time.monotonic()
    sdk.videos.create_and_poll(model="sora-2", prompt="waves [[sim: slow 0.2]]")
    assert time.monotonic() - began < 0.9  # a second is its own pace


def test_sdk_cannot_fetch_or_delete_a_clip_before_its_end(sdk: Any) -> None:
    made = sdk.videos.create(model="sora-2", prompt="x [[sim: stuck]]")
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.videos.download_content(made.id)
    assert caught.value.code == "video_not_ready"
    with pytest.raises(openai.BadRequestError):
        sdk.videos.delete(made.id)


@pytest.mark.parametrize(
    ("asked", "error", "code", "param"),
    [
        ({"size": "100x100"}, openai.BadRequestError, "invalid_value", "size"),
        ({"size": "512x2048"}, openai.BadRequestError, "invalid_value", "size"),
        ({"n": 11}, openai.BadRequestError, "invalid_value", "n"),
        ({"model": "gpt-image-2", "quality": "max"}, openai.BadRequestError, "invalid_value", "quality"),
        ({"response_format": "url"}, openai.BadRequestError, "unknown_parameter", "response_format"),
        ({"extra_body": {"seed": 7}}, openai.BadRequestError, "unknown_parameter", "seed"),
        ({"model": "dall-e-3"}, openai.NotFoundError, "model_not_found", "model"),
        ({"prompt": ""}, openai.BadRequestError, "missing_required_parameter", "prompt"),
        ({"prompt": "x" * 32_001}, openai.BadRequestError, "string_above_max_length", "prompt"),
        ({"prompt": "x [[sim: reject]]"}, openai.BadRequestError, "moderation_blocked", None),
        ({"prompt": "x [[sim: filtered]]"}, openai.BadRequestError, "moderation_blocked", None),
        ({"prompt": "x [[sim: fail]]"}, openai.InternalServerError, "server_error", None),
        ({"prompt": "x [[sim: 429]]"}, openai.RateLimitError, "rate_limit_exceeded", None),
        ({"prompt": "x [[sim: 503]]"}, openai.InternalServerError, "server_is_overloaded", None),
    ],
)
def test_sdk_raises_the_class_and_code_of_an_error(
    sdk: Any,
    asked: dict[str, object],
    error: type[openai.APIStatusError],
    code: str,
    param: str | None,
) -> None:
    with pytest.raises(error) as caught:
        sdk.images.generate(**{"prompt": "a red cup", **SMALL, **asked})
    assert (caught.value.code, caught.value.param) == (code, param)
    assert str(caught.value.request_id).startswith("req_")


def test_sdk_takes_a_wrong_key_for_an_authentication_error(sim: Simulator) -> None:
    with (
        openai.OpenAI(base_url=f"{sim.url}/openai/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


def test_sdk_refuses_seconds_as_a_number(sdk: Any) -> None:
    body = {"seconds": 4, "prompt": "waves", "model": "sora-2"}
    with pytest.raises(openai.BadRequestError):
        sdk.post("/videos", body=body, cast_to=object)


def test_sdk_buys_twice_when_the_answer_is_lost(sim: Simulator) -> None:
    script(sim, "submit", 1, lost_answer="reset")
    with openai.OpenAI(base_url=f"{sim.url}/openai/v1", api_key=KEY, max_retries=1) as client:
        client.images.generate(prompt="a red cup", model=MODEL, size="512x640")
    assert ledger(sim)["totals"]["openai"]["accepted"] == 2


# --- our adapter ---


def made(sim: Simulator, prompt: str, model: str = MODEL, **effective: object) -> Finished:
    outcome = adapter(f"{sim.url}/openai").submit(job(model, **{"prompt": prompt, **CUP, **effective}))
    assert isinstance(outcome, Accepted), outcome
    assert outcome.finished is not None
    return outcome.finished


@pytest.mark.parametrize(
    ("kind", "media_type"), [("png", "image/png"), ("jpeg", "image/jpeg"), ("webp", "image/webp"), ("html", None)]
)
def test_bytes_are_what_they_are_and_not_what_they_are_called(
    sim: Simulator, tmp_path: Path, kind: str, media_type: str | None
) -> None:  # O-35
    (output,) = made(sim, f"cup [[sim: file-bytes {kind}]]").outputs
    downloads, settings = Downloads(Results(), tmp_path), ProviderSettings(adapter="openai", base_url=sim.url)
    if media_type is None:
        with pytest.raises(ProviderError) as caught, downloads.fetched(settings, output, Kind.IMAGE):
            pass
        assert caught.value.kind is FailureKind.RESULT_INVALID
        return
    with downloads.fetched(settings, output, Kind.IMAGE) as got:
        assert got.media.media_type == media_type


def test_empty_list_with_a_text_is_a_failure_with_the_text(sim: Simulator) -> None:  # O-20
    script(sim, "submit", status=200, body={"data": [], "error": "Dropped: https://h/a?Signature=s"})
    outcome = adapter(f"{sim.url}/openai").submit(job())
    assert isinstance(outcome, Refused)
    assert outcome.error.kind is FailureKind.PROVIDER_ERROR
    assert outcome.error.message == "Dropped: https://h/a"


def test_picture_without_any_payload_is_a_failure(sim: Simulator) -> None:
    outcome = adapter(f"{sim.url}/openai").submit(job(**{**CUP, "prompt": "cup [[sim: no-payload]]"}))  # type: ignore[arg-type]
    assert isinstance(outcome, Refused)


def test_adapter_edits_with_a_mask(sim: Simulator) -> None:
    made(sim, "cup", image=inline(png()), mask=inline(png("L")))
    params = only_job(sim)["params"]
    assert (params["references"], params["mask"]) == (1, True)


def test_adapter_gives_an_address_to_edit(sim: Simulator) -> None:
    made(sim, "cup", image="https://h.example/a.png")
    assert only_job(sim)["params"]["references"] == 1


def test_links_of_a_server_that_copies_the_shape_are_fetched_without_our_key(sim: Simulator, tmp_path: Path) -> None:
    answer = requests.post(
        f"{sim.url}/openai/v1/images/generations",
        json={"model": "sim-image", "prompt": "cup", "size": "512x640", "response_format": "url"},
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=10,
    )
    output = Output(url=answer.json()["data"][0]["url"])
    settings = ProviderSettings(adapter="openai", base_url="http://vendor.example", result_hosts=(sim.url[7:],))
    with Downloads(Results(), tmp_path).fetched(
        settings, output, Kind.IMAGE, {"Authorization": f"Bearer {KEY}"}
    ) as got:
        assert got.media.width == 512


def finished_clip(sim: Simulator, prompt: str) -> Output:
    provider = adapter(f"{sim.url}/openai")
    clip = job("video:sim-video", prompt=prompt, resolution="480p", duration_s=1)
    outcome = provider.submit(clip)
    assert isinstance(outcome, Accepted), outcome
    end = time.monotonic() + 10
    while not isinstance(seen := provider.observe([outcome.receipt], Kind.VIDEO)[outcome.receipt], Finished):
        assert time.monotonic() < end
    return seen.outputs[0]


def test_key_does_not_follow_a_redirect_to_another_host(sim: Simulator, tmp_path: Path) -> None:  # O-30
    elsewhere = f"localhost:{sim.url.rpartition(':')[2]}"
    output = finished_clip(sim, f"waves [[sim: redirect http://{elsewhere}/files/moved/{{file}}]]")
    settings = ProviderSettings(adapter="openai", base_url=f"{sim.url}/openai", result_hosts=(elsewhere,))
    headers = adapter(sim.url).result_headers()
    with Downloads(Results(), tmp_path).fetched(settings, output, Kind.VIDEO, headers) as got:
        assert got.media.media_type == "video/mp4"
    totals = ledger(sim)["totals"]["openai"]
    assert (totals["fetch"], totals["fetch_moved"], totals.get("fetch_with_credentials", 0)) == (1, 1, 0)


def test_clip_is_not_given_without_our_key(sim: Simulator, tmp_path: Path) -> None:
    output = finished_clip(sim, "waves")
    settings = ProviderSettings(adapter="openai", base_url=f"{sim.url}/openai")
    downloads = Downloads(Results(), tmp_path)
    with pytest.raises(ProviderError), downloads.fetched(settings, output, Kind.VIDEO):
        pass
    assert requests.get(str(output.url), timeout=5).status_code == HTTPStatus.UNAUTHORIZED


def test_numbers_as_text_do_not_keep_a_clip_from_ending(sim: Simulator) -> None:  # O-08
    body = {"id": "video_x", "status": "completed", "seconds": "3.4", "progress": "100%", "created_at": "1770313599"}
    script(sim, "query", status=200, body=body)
    seen = adapter(f"{sim.url}/openai").observe(["video_x"], Kind.VIDEO)["video_x"]
    assert isinstance(seen, Finished)
    assert seen.usage == {"seconds": 3.4}


def test_vendor_that_forgot_is_unknown(sim: Simulator) -> None:
    provider = adapter(f"{sim.url}/openai")
    outcome = provider.submit(job("sora-2"))
    assert isinstance(outcome, Accepted)
    sim.world.ledger.forget()
    assert provider.observe([outcome.receipt], Kind.VIDEO) == {outcome.receipt: Unknown()}


def test_same_size_and_prompt_give_another_picture(sim: Simulator) -> None:
    # There is no seed: whoever wants the same again has to keep it.
    assert made(sim, "cup").outputs[0].content != made(sim, "cup").outputs[0].content


def test_receipt_is_the_reference(sim: Simulator) -> None:
    asked = replace(job(**{**CUP, "prompt": "cup"}), reference="task_y.3")  # type: ignore[arg-type]
    outcome = adapter(f"{sim.url}/openai").submit(asked)
    assert isinstance(outcome, Accepted)
    assert outcome.receipt == "task_y.3"
    assert str(outcome.request_id).startswith("req_")
