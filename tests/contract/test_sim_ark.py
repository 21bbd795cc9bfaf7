"""The simulator's Ark dialect, held against the vendor's own SDK 5.0.54, and what the SDK does not show."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from http import HTTPStatus

import pytest
import requests
import volcenginesdkarkruntime as sdk  # type: ignore[import-untyped]  # ships no types
from volcenginesdkarkruntime._exceptions import (  # type: ignore[import-untyped]  # same
    ArkAPIError,
    ArkAuthenticationError,
    ArkBadRequestError,
    ArkConflictError,
    ArkInternalServerError,
    ArkNotFoundError,
    ArkPermissionDeniedError,
    ArkRateLimitError,
)

from providers.sim import Config, Simulator
from tests.contract.simulated import Body, renewed

KEY = "ark-test"
PICTURE, CLIP = "doubao-seedream-4-0-250828", "doubao-seedance-1-0-pro-250528"
SMALL = {"size": "960x960", "watermark": False}
TEXT = [{"type": "text", "text": "a red cup spins"}]
FRAME = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0.1)


def client(sim: Simulator, key: str = KEY, retries: int = 0) -> sdk.Ark:
    return sdk.Ark(base_url=f"{sim.url}/ark/api/v3", api_key=key, max_retries=retries, timeout=10)


@pytest.fixture
def ark(sim: Simulator) -> Iterator[sdk.Ark]:
    with client(sim) as made:
        yield made


def slowly(sim: Simulator, pending_share: float) -> None:
    """Tasks from now on stay in their first state, or at once in their second, longer than any test runs."""
    sim.world.config = Config(video_s=(600, 600), pending_share=pending_share)


def created(ark: sdk.Ark, text: str = "a red cup spins", **more: object) -> str:
    asked = {"resolution": "480p", "ratio": "1:1", "duration": 2, "seed": 11, "watermark": False} | more
    task = ark.content_generation.tasks.create(model=CLIP, content=[{"type": "text", "text": text}], **asked)
    return str(task.id)


def ended(ark: sdk.Ark, task_id: str) -> sdk.Ark:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        task = ark.content_generation.tasks.get(task_id=task_id)
        if task.status not in ("queued", "running"):
            return task
        time.sleep(0.02)
    pytest.fail("the task did not end in 10 s")


# --- pictures, by the SDK ---


def test_sdk_makes_a_picture_whose_link_yields_a_jpeg(ark: sdk.Ark) -> None:
    answer = ark.images.generate(model=PICTURE, prompt="a red cup", response_format="url", **SMALL)
    (image,) = answer.data
    assert image.size == "960x960"
    assert requests.get(image.url, timeout=10).content.startswith(b"\xff\xd8\xff")
    assert (answer.usage.generated_images, answer.usage.output_tokens) == (1, 3600)
    assert isinstance(answer.created, int)


def test_sdk_takes_base64(ark: sdk.Ark) -> None:
    answer = ark.images.generate(model=PICTURE, prompt="a red cup", response_format="b64_json", **SMALL)
    assert base64.b64decode(answer.data[0].b64_json).startswith(b"\xff\xd8\xff")


def group(ark: sdk.Ark, prompt: str, most: int, **more: object) -> sdk.Ark:
    options = sdk.types.images.images.SequentialImageGenerationOptions(max_images=most)
    return ark.images.generate(
        model=PICTURE,
        prompt=prompt,
        sequential_image_generation="auto",
        sequential_image_generation_options=options,
        **SMALL,
        **more,
    )


def test_sdk_shows_a_refused_image_as_an_element(ark: sdk.Ark) -> None:
    answer = group(ark, "a red cup [[sim: partial 2]]", 3)
    codes = [getattr(image, "error", None) and image.error["code"] for image in answer.data]
    assert codes == [None, None, "OutputImageSensitiveContentDetected"]
    assert answer.usage.generated_images == 2


def test_sdk_raises_nothing_for_a_call_whose_images_were_all_refused(ark: sdk.Ark) -> None:
    answer = group(ark, "a red cup [[sim: partial 0]]", 2)
    assert [image.url for image in answer.data] == [None, None]


def test_sdk_streams_a_group(ark: sdk.Ark) -> None:
    events = list(group(ark, "a red cup", 2, stream=True))
    assert [event.type for event in events] == [
        "image_generation.partial_succeeded",
        "image_generation.partial_succeeded",
        "image_generation.completed",
    ]
    assert [event.image_index for event in events[:2]] == [0, 1]
    assert requests.get(events[1].url, timeout=10).status_code == HTTPStatus.OK


def test_sdk_breaks_off_a_stream_at_its_first_refused_image(ark: sdk.Ark) -> None:
    with pytest.raises(ArkAPIError):
        list(group(ark, "a red cup [[sim: partial 1]]", 2, stream=True))


# --- clips, by the SDK ---


def test_sdk_submits_waits_lists_and_fetches_a_clip(ark: sdk.Ark) -> None:
    task_id = created(ark, safety_identifier="task_x.1")
    task = ended(ark, task_id)
    assert (task.status, task.seed, task.duration, task.safety_identifier) == ("succeeded", 11, 2, "task_x.1")
    assert task.usage.completion_tokens == 640 * 640 * 49 // 1024
    assert requests.get(task.content.video_url, timeout=30).content[4:8] == b"ftyp"
    listed = ark.content_generation.tasks.list(
        page_num=1, page_size=10, status="succeeded", task_ids=[task_id, "cgt-x"]
    )
    assert [(one.id, one.status, one.safety_identifier) for one in listed.items] == [(task_id, "succeeded", "task_x.1")]
    assert listed.total == 1


def test_sdk_lists_by_page_newest_first(ark: sdk.Ark, sim: Simulator) -> None:
    slowly(sim, pending_share=0.0)
    made = [created(ark) for _ in range(3)]
    pages = [ark.content_generation.tasks.list(page_num=n, page_size=2, status="running") for n in (1, 2)]
    assert [[one.id for one in page.items] for page in pages] == [made[:0:-1], made[:1]]
    assert pages[0].total == 3


def test_sdk_cancels_a_queued_clip(ark: sdk.Ark, sim: Simulator) -> None:
    slowly(sim, pending_share=1.0)
    task_id = created(ark)
    ark.content_generation.tasks.delete(task_id=task_id)
    assert ark.content_generation.tasks.get(task_id=task_id).status == "cancelled"


def test_sdk_cannot_cancel_a_running_clip_and_asks_three_times(sim: Simulator) -> None:
    slowly(sim, pending_share=0.0)
    with client(sim, retries=2) as ark:
        task_id = created(ark)
        with pytest.raises(ArkConflictError) as caught:
            ark.content_generation.tasks.delete(task_id=task_id)
        assert caught.value.code == "InvalidAction.RunningTaskDeletion"
        assert ark.content_generation.tasks.get(task_id=task_id).status == "running"
    assert sim.world.ledger.totals()["ark"]["cancel"] == 3


def test_sdk_that_deletes_a_finished_clip_has_lost_it(ark: sdk.Ark) -> None:
    task_id = created(ark)
    ended(ark, task_id)
    ark.content_generation.tasks.delete(task_id=task_id)
    with pytest.raises(ArkNotFoundError):
        ark.content_generation.tasks.get(task_id=task_id)
    assert ark.content_generation.tasks.list().total == 0


def test_sdk_shows_why_a_clip_failed(ark: sdk.Ark) -> None:
    task = ended(ark, created(ark, "a red cup [[sim: filtered]]"))
    assert (task.status, task.error.code) == ("failed", "OutputVideoSensitiveContentDetected")


def test_sdk_submits_frames(ark: sdk.Ark, sim: Simulator) -> None:
    frames = [{**FRAME, "role": role} for role in ("first_frame", "last_frame")]
    ark.content_generation.tasks.create(model="doubao-seedance-1-5-pro-251215", content=[*TEXT, *frames])
    (job,) = sim.world.ledger.accepted(0)
    assert job.order.extra["roles"] == ["first_frame", "last_frame"]
    assert (job.order.extra["generate_audio"], job.order.extra["watermark"]) == (True, False)


# --- how the SDK takes errors ---


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "InvalidParameter", ArkBadRequestError),
        (403, "AccountOverdueError", ArkPermissionDeniedError),
        (404, "ModelNotOpen", ArkNotFoundError),
        (429, "ServerOverloaded", ArkRateLimitError),
        (500, "InternalServiceError", ArkInternalServerError),
    ],
)
def test_sdk_reads_the_vendors_code(
    ark: sdk.Ark, sim: Simulator, status: int, code: str, error: type[ArkAPIError]
) -> None:
    sim.world.faults.add([{"on": "submit", "do": {"status": status, "code": code}}])
    with pytest.raises(error) as caught:
        created(ark)
    assert caught.value.code == code


def test_sdk_takes_a_short_key_for_a_wrong_one(sim: Simulator) -> None:
    with client(sim, key="wrong") as ark, pytest.raises(ArkAuthenticationError) as caught:
        created(ark)
    assert caught.value.code == "AuthenticationError"


def test_sdk_names_the_field_that_is_wrong(ark: sdk.Ark) -> None:
    with pytest.raises(ArkBadRequestError) as caught:
        created(ark, duration=13)
    assert (caught.value.param, caught.value.type) == ("duration", "BadRequest")


def test_sdk_creates_three_clips_when_two_answers_are_500(sim: Simulator) -> None:
    sim.world.faults.add([{"on": "submit", "times": 2, "do": {"status": 500, "accepted": True}}])
    with client(sim, retries=2) as ark:
        created(ark)
    assert sim.world.ledger.totals()["ark"]["accepted"] == 3


def test_sdk_hands_on_a_page_under_a_200_as_text(ark: sdk.Ark, sim: Simulator) -> None:
    sim.world.faults.add([{"on": "query", "do": {"html": True, "status": 200}}])
    assert isinstance(ark.content_generation.tasks.get(task_id="cgt-x"), str)


def test_sdk_returns_an_error_under_a_200(ark: sdk.Ark, sim: Simulator) -> None:
    sim.world.faults.add([{"on": "submit", "do": {"status": 200, "code": "InternalServiceError"}}])
    answer = ark.images.generate(model=PICTURE, prompt="a red cup", **SMALL)
    assert (answer.data, answer.error.code) == (None, "InternalServiceError")


# --- what the SDK does not show ---


def post(sim: Simulator, path: str, body: object) -> requests.Response:
    headers = {"Authorization": f"Bearer {KEY}"}
    return requests.post(f"{sim.url}/ark/api/v3{path}", json=body, headers=headers, timeout=10)


WRONG_PICTURES: list[tuple[Body, str]] = [
    ({"size": "1024*1024"}, "InvalidParameter"),
    ({"size": "512x512"}, "InvalidParameter"),
    ({"size": "960x960", "model": "doubao-seedream-4-5-251128"}, "InvalidParameter"),
    ({"size": "9600x512"}, "InvalidParameter"),
    ({"size": "3K"}, "InvalidParameter"),
    ({"seed": 2**31}, "InvalidParameter"),
    ({"watermark": "no"}, "InvalidParameter"),
    ({"image": "file:///etc/hosts"}, "InvalidImageURL.InvalidFormat"),
    (
        {"sequential_image_generation": "auto", "sequential_image_generation_options": {"max_images": 16}},
        "InvalidParameter",
    ),
    (
        {"model": "doubao-seedream-5-0-pro-260628", "sequential_image_generation": "disabled"},
        "InvalidParameter.UnsupportedParameter",
    ),
    ({"prompt": None}, "MissingParameter"),
    ({"model": None}, "MissingParameter"),
    ({"model": "doubao-seedream-3-0-t2i-250415"}, "InvalidEndpointOrModel.NotFound"),
]
WRONG_CLIPS: list[tuple[Body, str]] = [
    ({"resolution": "720P"}, "InvalidParameter"),
    ({"ratio": "adaptive"}, "InvalidParameter"),
    ({"duration": -1}, "InvalidParameter"),
    ({"frames": 30}, "InvalidParameter"),
    ({"generate_audio": False}, "InvalidParameter.UnsupportedParameter"),
    ({"execution_expires_after": 60}, "InvalidParameter"),
    ({"safety_identifier": "x" * 65}, "InvalidParameter"),
    ({"content": []}, "MissingParameter"),
    ({"content": [*TEXT, FRAME, FRAME]}, "MissingParameter"),
    ({"content": [*TEXT, {"type": "image_url", "image_url": "https://example.com/a.png"}]}, "InvalidParameter"),
    ({"content": [*TEXT, {**FRAME, "role": "last"}]}, "InvalidParameter"),
    ({"model": "doubao-seedance-2-0-260128", "service_tier": "flex"}, "InvalidParameter"),
    ({"model": "doubao-seedance-2-5-260628", "content": [*TEXT, FRAME], "ratio": "16:9"}, "InvalidParameter"),
    ({"model": "doubao-seedance-1-0-lite-i2v-250428"}, "InvalidParameter.TaskTypeMismatch"),
    ({"content": [{"type": "text", "text": "x [[ark: callback never]]"}]}, "InvalidParameter"),
]


@pytest.mark.parametrize(("more", "code"), WRONG_PICTURES)
def test_picture_out_of_bounds_is_refused(sim: Simulator, more: Body, code: str) -> None:
    answer = post(sim, "/images/generations", {"model": PICTURE, "prompt": "x", **more})
    assert answer.json()["error"]["code"] == code
    assert sim.world.ledger.totals()["ark"]["accepted"] == 0


@pytest.mark.parametrize(("more", "code"), WRONG_CLIPS)
def test_clip_out_of_bounds_is_refused(sim: Simulator, more: Body, code: str) -> None:
    answer = post(sim, "/contents/generations/tasks", {"model": CLIP, "content": TEXT, **more})
    assert answer.json()["error"]["code"] == code
    assert sim.world.ledger.totals()["ark"]["accepted"] == 0


@pytest.mark.parametrize("more", [{"framespersecond": 999}, {"n": 4}, {"duration": 12}, {"frames": 29}, {"seed": None}])
def test_what_the_vendor_does_not_check_is_taken(sim: Simulator, more: Body) -> None:
    assert (
        post(sim, "/contents/generations/tasks", {"model": CLIP, "content": TEXT, **more}).status_code == HTTPStatus.OK
    )


def test_watermark_is_on_for_pictures_unless_said(sim: Simulator) -> None:
    post(sim, "/images/generations", {"model": PICTURE, "prompt": "x", "size": "1K"})
    (job,) = sim.world.ledger.accepted(0)
    assert job.order.extra["watermark"] is True


def test_one_key_does_not_see_anothers_clips(ark: sdk.Ark, sim: Simulator) -> None:
    task_id = created(ark)
    with client(sim, key="another-key") as other:
        assert other.content_generation.tasks.list().total == 0
        with pytest.raises(ArkNotFoundError):
            other.content_generation.tasks.get(task_id=task_id)
