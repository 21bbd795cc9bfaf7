"""The simulator's Replicate dialect, held against the vendor's own SDK 1.0.7."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from replicate.client import Client
from replicate.exceptions import ModelError, ReplicateError
from replicate.webhook import InvalidSignatureError, Webhooks, WebhookSigningSecret

from providers.sim import Config, Simulator
from tests.contract.replicate_calls import (
    AUTH,
    PRO,
    SCHNELL,
    SMALL,
    TOKEN,
    Receiver,
    created,
    ended,
    until,
)
from tests.contract.replicate_jobs import CLIP, SDXL
from tests.contract.simulated import only_job, renewed, script


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0.1)


@contextmanager
def connected(sim: Simulator, token: str) -> Iterator[Client]:
    made = Client(api_token=token, base_url=f"{sim.url}/replicate")
    made.poll_interval = 0.02
    yield made
    made._client.close()  # it has no close of its own


@pytest.fixture
def client(sim: Simulator) -> Iterator[Client]:
    with connected(sim, TOKEN) as made:
        yield made


def test_sdk_creates_by_model_waits_and_reads_pictures(client: Client, sim: Simulator) -> None:
    prediction = client.models.predictions.create(SCHNELL, input={**SMALL, "num_outputs": 2})
    assert prediction.status == "starting"
    prediction.wait()
    assert (prediction.status, len(prediction.output or [])) == ("succeeded", 2)
    picture = requests.get((prediction.output or [])[0], timeout=10)
    assert picture.content.startswith(b"\x89PNG")
    assert only_job(sim)["model"] == SCHNELL


def test_sdk_creates_by_version_and_lists(client: Client) -> None:
    prediction = client.predictions.create(version=SDXL, input=SMALL)
    assert client.predictions.get(prediction.id).id == prediction.id
    assert [one.id for one in client.predictions.list().results] == [prediction.id]


def test_sdk_turns_pages(client: Client, sim: Simulator) -> None:
    made = [created(sim)["id"] for _ in range(101)]
    first = client.predictions.list()
    assert first.next is not None
    second = client.predictions.list(first.next)
    assert [one.id for one in (*first.results, *second.results)] == made[::-1]
    assert second.next is None


def test_sdk_creates_on_a_deployment(client: Client) -> None:
    prediction = client.deployments.predictions.create("acme/prod", input=SMALL)
    prediction.wait()
    assert prediction.status == "succeeded"


def test_sdk_runs_and_takes_what_is_not_yet_succeeded(client: Client, sim: Simulator) -> None:
    assert [str(one).startswith(sim.url) for one in client.run(SCHNELL, input=SMALL)] == [True]
    single: Any = client.run(PRO, input={**SMALL, "aspect_ratio": "custom"})
    assert str(single).startswith(sim.url)


def test_sdk_runs_a_version_and_looks_at_its_schema(client: Client) -> None:
    assert len(list(client.run(SDXL, input=SMALL))) == 1


def test_sdk_waits_for_a_clip(client: Client) -> None:
    prediction = client.models.predictions.create(CLIP, input={"prompt": "waves", "duration": 2})
    prediction.wait()
    assert requests.get(str(prediction.output), timeout=30).content[4:8] == b"ftyp"


@pytest.mark.parametrize("running", [False, True])
def test_sdk_cancels_what_waits_and_what_runs(client: Client, sim: Simulator, running: bool) -> None:  # noqa: FBT001
    sim.world.config = Config(image_s=(600, 600), pending_share=0 if running else 1)
    prediction = client.models.predictions.create(SCHNELL, input=SMALL)
    prediction.reload()
    assert prediction.status == ("processing" if running else "starting")
    prediction.cancel()
    assert client.predictions.get(prediction.id).status == "canceled"


def test_sdk_cancels_what_has_ended_without_an_error(client: Client, sim: Simulator) -> None:
    name = created(sim)["id"]
    ended(sim, name)
    assert client.predictions.cancel(name).status == "succeeded"


def test_sdk_raises_for_a_model_that_failed(client: Client) -> None:
    with pytest.raises(ModelError, match="E005"):
        client.run(SCHNELL, input={**SMALL, "prompt": "x [[sim: filtered]]"}, wait=False)


def test_sdk_breaks_on_aborted(client: Client, sim: Simulator) -> None:
    name = created(sim, prompt="x [[sim: word aborted]]")["id"]
    with pytest.raises(ValueError, match="given=aborted"):
        client.predictions.get(name)


@pytest.mark.parametrize(
    ("model", "asked", "status"),
    [
        ("acme/no-such-model", {}, 404),
        (SCHNELL, {"num_outputs": 9}, 422),
        (SCHNELL, {"prompt": ""}, 422),
        (SCHNELL, {"aspect_ratio": "7:1"}, 422),
        (SCHNELL, {"prompt": "x [[sim: reject]]"}, 400),
        (SCHNELL, {"prompt": "x [[replicate: callback sometimes]]"}, 400),
        (CLIP, {"duration": 99}, 422),
        (CLIP, {"resolution": "8k"}, 422),
    ],
)
def test_sdk_tells_a_refusal_by_its_status(client: Client, model: str, asked: dict[str, object], status: int) -> None:
    with pytest.raises(ReplicateError) as caught:
        client.models.predictions.create(model, input={**SMALL, **asked})
    assert caught.value.status == status


def test_sdk_tells_a_bad_token(sim: Simulator) -> None:
    with connected(sim, "short") as stranger, pytest.raises(ReplicateError) as caught:
        stranger.predictions.list()
    assert (caught.value.status, caught.value.title) == (401, "Unauthenticated")


def test_sdk_repeats_a_query_and_never_a_create(client: Client, sim: Simulator) -> None:
    name = created(sim)["id"]
    script(sim, "query", times=1, status=503)
    assert client.predictions.get(name).id == name
    script(sim, "submit", times=1, status=503)
    with pytest.raises(ReplicateError):
        client.models.predictions.create(SCHNELL, input=SMALL)


def test_sdk_uploads_a_file_and_names_it_in_the_input(client: Client, sim: Simulator) -> None:
    picture = io.BytesIO(b"\x89PNG\r\n\x1a\n")
    client.models.predictions.create(CLIP, input={"prompt": "waves", "image": picture, "duration": 2})
    link = only_job(sim)["params"]["input"]["image"]
    assert link.startswith(f"{sim.url}/replicate/v1/files/")
    assert requests.get(link, headers=AUTH, timeout=5).json()["size"] == 8


def test_sdk_puts_a_file_inside_the_input_when_told_so(client: Client, sim: Simulator) -> None:
    given = {"prompt": "waves", "image": io.BytesIO(b"\x89PNG\r\n\x1a\n"), "duration": 2}
    client.models.predictions.create(CLIP, input=given, file_encoding_strategy="base64")
    assert only_job(sim)["params"]["input"]["image"].startswith("data:")


def test_sdk_verifies_a_webhook(client: Client, sim: Simulator) -> None:
    with Receiver() as receiver:
        client.models.predictions.create(
            SCHNELL, input=SMALL, webhook=f"{receiver.url}/hook", webhook_events_filter=["completed"]
        )
        until(lambda: receiver.requests)
    ((headers, body),) = receiver.calls
    secret = client.webhooks.default.secret()
    Webhooks.validate(headers=headers, body=body.decode(), secret=secret, tolerance=300)
    other = WebhookSigningSecret(key="whsec_c2ltLXNlY3JldC1vZi1hbm90aGVy")
    with pytest.raises(InvalidSignatureError):
        Webhooks.validate(headers=headers, body=body.decode(), secret=other)
    assert json.loads(body) == ended(sim, json.loads(body)["id"])
