"""The simulator's DashScope dialect, held against the vendor's own SDK 2.0.2 in both of its generations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import dashscope
import pytest
import requests
from dashscope import Client, ImageSynthesis, MultiModalConversation, VideoSynthesis
from dashscope.aigc.image_generation import ImageGeneration
from dashscope.v2.errors import (
    AuthenticationError,
    BadRequestError,
    ContentFilterError,
    DashScopeError,
    NotFoundError,
)

from providers.sim import Config, Simulator
from tests.contract.simulated import KEY, MESSAGE, OLD_WAN, finished, only_job, ordered, renewed

# The types of SDK 1.x leave out methods that it has, and give unions that no caller can tell apart.
images1: Any = ImageSynthesis
videos1: Any = VideoSynthesis
message_images1: Any = ImageGeneration
messages1: Any = MultiModalConversation


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0.2)


@pytest.fixture
def sdk1(sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashscope, "api_key", KEY)
    monkeypatch.setattr(dashscope, "base_http_api_url", sim.dashscope)


@pytest.fixture
def sdk2(sim: Simulator) -> Iterator[Client]:
    client = Client(api_key=KEY, base_url=sim.dashscope, max_retries=0)
    yield client
    client.close()


def slowly(sim: Simulator) -> None:
    """Jobs from now on stay PENDING for longer than any test runs."""
    sim.world.config = Config(image_s=(600, 600), video_s=(600, 600))


@pytest.mark.usefixtures("sdk1")
def test_sdk1_submits_an_image_as_pending() -> None:
    answer = images1.async_call(model=OLD_WAN, prompt="a red cup", n=1, size="1024*1024", seed=7)
    assert (answer.status_code, answer.output.task_status) == (200, "PENDING")


@pytest.mark.usefixtures("sdk1")
def test_sdk1_waits_for_an_image_whose_link_yields_a_png() -> None:
    answer = images1.async_call(model=OLD_WAN, prompt="a red cup", n=1, size="512*512", seed=7)
    done = images1.wait(answer.output.task_id)
    picture = requests.get(done.output.results[0].url, timeout=10)
    assert picture.content.startswith(b"\x89PNG")


@pytest.mark.usefixtures("sdk1")
def test_sdk1_waits_for_a_clip_whose_link_yields_an_mp4() -> None:
    answer = videos1.async_call(model="wan2.5-t2v-preview", prompt="a red cup spins", size="832*480", duration=5)
    done = videos1.wait(answer.output.task_id)
    assert requests.get(done.output.video_url, timeout=30).content[4:8] == b"ftyp"


@pytest.mark.usefixtures("sdk1")
def test_sdk1_submits_image_to_video(sim: Simulator) -> None:
    image = "https://example.com/a.png"
    videos1.async_call(model="wan2.5-i2v-preview", prompt="spin", img_url=image, resolution="480P")
    assert only_job(sim)["params"]["frames"] == ["img_url"]


@pytest.mark.usefixtures("sdk1")
def test_sdk1_submits_first_and_last_frame(sim: Simulator) -> None:
    videos1.async_call(
        model="wan2.2-kf2v-flash",
        prompt="spin",
        first_frame_url="https://example.com/a.png",
        last_frame_url="https://example.com/b.png",
        resolution="480P",
    )
    assert only_job(sim)["params"]["frames"] == ["first_frame_url", "last_frame_url"]


@pytest.mark.usefixtures("sdk1")
def test_sdk1_cancels_a_pending_task(sim: Simulator) -> None:
    slowly(sim)
    task_id = ordered(sim)
    images1.cancel(task_id)
    assert images1.fetch(task_id).output.task_status == "CANCELED"


@pytest.mark.usefixtures("sdk1")
def test_sdk1_cannot_cancel_a_finished_task(sim: Simulator) -> None:
    task_id = ordered(sim)
    finished(sim, task_id)
    assert images1.cancel(task_id).code == "UnsupportedOperation"


@pytest.mark.usefixtures("sdk1")
def test_sdk1_lists_tasks_under_data(sim: Simulator) -> None:
    task_id = ordered(sim)
    finished(sim, task_id)
    listed = images1.list(status="SUCCEEDED", page_no=1, page_size=20)
    assert [line["task_id"] for line in listed.output["data"]] == [task_id]


@pytest.mark.usefixtures("sdk1")
def test_sdk1_synchronous_image_answers_with_the_picture() -> None:
    answer = message_images1.call(model="wan2.6-t2i", messages=MESSAGE, size="1280*1280", n=1)
    link = answer.output.choices[0].message.content[0]["image"]
    assert requests.get(link, timeout=10).status_code == HTTPStatus.OK


@pytest.mark.usefixtures("sdk1")
def test_sdk1_asynchronous_message_image_answers_with_choices() -> None:
    answer = message_images1.async_call(model="wan2.6-t2i", messages=MESSAGE, size="1280*1280", n=1)
    done = message_images1.wait(answer.output.task_id)
    assert done.output.choices[0].message.content[0]["image"].startswith("http://127.0.0.1:")


@pytest.mark.usefixtures("sdk1")
def test_sdk1_qwen_image_answers_with_a_part_without_type() -> None:
    answer = messages1.call(model="qwen-image-plus", messages=MESSAGE, size="1328*1328")
    assert list(answer.output.choices[0].message.content[0]) == ["image"]


@pytest.mark.usefixtures("sdk1")
def test_sdk1_shows_an_html_page_as_code_unknown(sim: Simulator) -> None:
    sim.world.faults.add([{"on": "submit", "do": {"html": True}}])
    answer = images1.async_call(model=OLD_WAN, prompt="a red cup", n=1)
    assert (answer.status_code, answer.code) == (502, "Unknown")


@pytest.mark.usefixtures("sdk1")
def test_sdk1_wait_stops_at_once_on_429(sim: Simulator) -> None:
    task_id = ordered(sim)
    sim.world.faults.add([{"on": "query", "times": 1, "do": {"status": 429}}])
    assert images1.wait(task_id).status_code == HTTPStatus.TOO_MANY_REQUESTS


@pytest.mark.usefixtures("sdk1")
def test_sdk1_drops_the_code_of_an_error_in_a_200(sim: Simulator) -> None:
    code = "BailianGateway.Workspace.NotAuthorised"
    sim.world.faults.add([{"on": "submit", "do": {"status": 200, "code": code}}])
    answer = images1.async_call(model=OLD_WAN, prompt="a red cup", n=1)
    assert (answer.status_code, answer.code, answer.output) == (200, "", None)


def test_sdk2_waits_for_an_image(sdk2: Client) -> None:
    job = sdk2.images.jobs.create(model=OLD_WAN, prompt="a red cup", n=1, size="512x512")
    done = sdk2.images.jobs.wait(job, poll_interval=0.05, max_interval=0.1, timeout=10)
    assert requests.get(done.image_urls[0], timeout=10).content.startswith(b"\x89PNG")


def test_sdk2_waits_for_a_message_image(sdk2: Client) -> None:
    job = sdk2.images.jobs.create(model="wan2.6-t2i", prompt="a red cup", n=2)
    done = sdk2.images.jobs.wait(job, poll_interval=0.05, max_interval=0.1, timeout=10)
    assert len(done.image_urls) == 2


def test_sdk2_waits_for_a_clip(sdk2: Client) -> None:
    image = "https://example.com/a.png"
    job = sdk2.videos.jobs.create(model="wan2.7-i2v", prompt="spin", image_url=image, resolution="720P", duration=2)
    done = sdk2.videos.jobs.wait(job, poll_interval=0.05, max_interval=0.1, timeout=10)
    assert requests.get(str(done.video_url), timeout=30).content[4:8] == b"ftyp"


def test_sdk2_lists_tasks(sdk2: Client, sim: Simulator) -> None:
    task_id = ordered(sim)
    finished(sim, task_id)
    listed = sdk2.images.jobs.list(status="SUCCEEDED", page_size=20)
    assert [(one.task_id, one.status) for one in listed.tasks] == [(task_id, "SUCCEEDED")]


def test_sdk2_wait_raises_for_a_canceled_task(sdk2: Client, sim: Simulator) -> None:
    slowly(sim)
    job = sdk2.images.jobs.create(model=OLD_WAN, prompt="a red cup", n=1)
    sdk2.images.jobs.cancel(job.task_id)
    with pytest.raises(DashScopeError, match="canceled"):
        sdk2.images.jobs.wait(job, poll_interval=0.05, timeout=10)


def test_sdk2_fetch_returns_a_canceled_task(sdk2: Client, sim: Simulator) -> None:
    slowly(sim)
    job = sdk2.images.jobs.create(model=OLD_WAN, prompt="a red cup", n=1)
    sdk2.images.jobs.cancel(job.task_id)
    assert sdk2.images.jobs.fetch(job.task_id).status == "CANCELED"


def test_sdk2_takes_a_filtered_task_for_a_content_error(sdk2: Client) -> None:
    job = sdk2.images.jobs.create(model=OLD_WAN, prompt="a red cup [[sim: filtered]]", n=1)
    with pytest.raises(ContentFilterError) as caught:
        sdk2.images.jobs.wait(job, poll_interval=0.05, timeout=10)
    assert caught.value.status_code == HTTPStatus.OK


def test_sdk2_returns_an_unknown_task(sdk2: Client) -> None:
    assert sdk2.images.jobs.fetch("3f0c7e52-0000-4a11-9d11-aabbccddeeff").status == "UNKNOWN"


def test_sdk2_polls_a_suspended_task_until_its_timeout(sdk2: Client) -> None:
    job = sdk2.images.jobs.create(model=OLD_WAN, prompt="a red cup [[sim: word SUSPENDED]]", n=1)
    with pytest.raises(DashScopeError, match=r"(?i)time"):
        sdk2.images.jobs.wait(job, poll_interval=0.05, max_interval=0.05, timeout=0.4)


def test_sdk2_takes_a_401_for_an_authentication_error(sim: Simulator) -> None:
    with (
        Client(api_key="wrong", base_url=sim.dashscope, max_retries=0) as client,
        pytest.raises(AuthenticationError),
    ):
        client.images.jobs.create(model=OLD_WAN, prompt="a red cup", n=1)


def test_sdk2_takes_an_unknown_model_for_not_found(sdk2: Client) -> None:
    with pytest.raises(NotFoundError):
        sdk2.images.jobs.create(model="no-such-model", prompt="a red cup", n=1)


def test_sdk2_takes_a_refused_prompt_for_a_content_error(sdk2: Client) -> None:
    with pytest.raises(ContentFilterError):
        sdk2.images.jobs.create(model=OLD_WAN, prompt="a red cup [[sim: reject]]", n=1)


def test_sdk2_raises_for_an_error_in_a_200(sdk2: Client, sim: Simulator) -> None:
    sim.world.faults.add([{"on": "submit", "do": {"status": 200, "code": "InvalidParameter"}}])
    with pytest.raises(BadRequestError):
        sdk2.images.jobs.create(model=OLD_WAN, prompt="a red cup", n=1)


def test_sdk2_repeats_a_429_after_its_retry_after(sim: Simulator) -> None:
    rule = {"on": "submit", "times": 1, "do": {"status": 429, "retry_after": "1"}}
    sim.world.faults.add([rule])
    began = time.monotonic()
    with Client(api_key=KEY, base_url=sim.dashscope, max_retries=2) as client:
        client.images.jobs.create(model=OLD_WAN, prompt="a red cup", n=1)
    assert 1 <= time.monotonic() - began < 3


def test_sdk2_repeats_a_submit_after_an_html_502(sim: Simulator) -> None:
    sim.world.faults.add([{"on": "submit", "times": 1, "do": {"html": True}}])
    with Client(api_key=KEY, base_url=sim.dashscope, max_retries=2) as client:
        client.images.jobs.create(model=OLD_WAN, prompt="a red cup", n=1)
    assert sim.world.ledger.totals()["dashscope"]["submit"] == 2


def test_sdk2_buys_twice_when_an_accepted_submit_is_answered_with_500(sim: Simulator) -> None:
    sim.world.faults.add([{"on": "submit", "times": 1, "do": {"status": 500, "accepted": True}}])
    with Client(api_key=KEY, base_url=sim.dashscope, max_retries=2) as client:
        client.images.jobs.create(model=OLD_WAN, prompt="a red cup", n=1)
    assert sim.world.ledger.totals()["dashscope"]["accepted"] == 2
