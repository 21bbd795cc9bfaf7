"""The simulator's fal dialect as a plain client sees it, and held against the vendor's own SDK 1.0.3."""

# ruff: noqa: ANN401  the SDK's answers are JSON without a type

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import fal_client
import pytest
import requests
from fal_client.client import FalClientHTTPError

from models.contract import Kind
from models.lifecycle import Failed, Finished
from providers.port import Accepted, CancelAnswer, Forged, Uncertain
from providers.sim import Config, Simulator
from tests.contract.fal_jobs import adapter, job
from tests.contract.raw_server import Conn, RawServer, free_port
from tests.contract.simulated import ledger, only_job, renewed, script

KEY = "kid:sim-secret"
AUTH = {"Authorization": f"Key {KEY}"}
FLUX, KLING = "fal-ai/flux/dev", "fal-ai/kling-video/o3/pro/text-to-video"
SMALL = {"prompt": "a red cup", "image_size": {"width": 256, "height": 256}, "seed": 7}
sdk: Any = fal_client  # its types are those of an asynchronous client too


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0.1)


@pytest.fixture
def clients(sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    # The SDK has https hard-wired; after a submit it follows the addresses in the answer.
    monkeypatch.setattr("fal_client.client.QUEUE_URL_FORMAT", f"{sim.url}/fal/")
    made: list[Any] = []

    def make(key: str) -> Any:
        made.append(sdk.SyncClient(key=key))
        return made[-1]

    yield make
    for client in made:
        client._client.close()  # it has no close of its own


@pytest.fixture
def client(clients: Callable[[str], Any]) -> Any:
    return clients(KEY)


def submit(sim: Simulator, model: str = FLUX, **asked: object) -> Any:
    answer = requests.post(f"{sim.url}/fal/{model}", json={**SMALL, **asked}, headers=AUTH, timeout=5)
    assert answer.status_code == HTTPStatus.OK, answer.text
    return answer.json()


def get(url: str) -> requests.Response:
    return requests.get(url, headers=AUTH, timeout=5)


def ended(told: Any) -> requests.Response:
    """The result, whatever it is, once the request is COMPLETED."""
    end = time.monotonic() + 10
    while (seen := get(told["status_url"])).json()["status"] != "COMPLETED":
        assert seen.status_code == HTTPStatus.ACCEPTED
        assert time.monotonic() < end
        time.sleep(0.01)
    assert seen.status_code == HTTPStatus.OK
    return get(told["response_url"])


# --- the vendor's own client ---


def test_sdk_submits_waits_and_reads_a_picture(client: Any, sim: Simulator) -> None:
    handle = client.submit(FLUX, arguments=SMALL, priority="low", start_timeout=30)
    assert isinstance(handle.status(), sdk.Queued | sdk.InProgress | sdk.Completed)
    result = handle.get(interval=0.02)
    assert result["seed"] == 7
    picture = requests.get(result["images"][0]["url"], timeout=10)
    assert picture.headers["Content-Type"] == result["images"][0]["content_type"]
    assert only_job(sim)["model"] == FLUX


def test_sdk_tells_the_three_states_apart(client: Any, sim: Simulator) -> None:
    sim.world.config = Config(image_s=(0.4, 0.4), pending_share=0.5)
    handle = client.submit(FLUX, arguments=SMALL)
    seen: list[Any] = []
    for state in handle.iter_events(with_logs=True, interval=0.02):
        if not seen or type(state) is not type(seen[-1]):
            seen.append(state)
    assert [type(state) for state in seen] == [sdk.Queued, sdk.InProgress, sdk.Completed]
    assert seen[1].logs[0]["message"] == "1/28"
    assert seen[2].metrics["inference_time"] > 0


def test_sdk_asks_by_the_models_id(client: Any, sim: Simulator) -> None:
    told = submit(sim)
    ended(told)
    assert isinstance(client.status(FLUX, told["request_id"]), sdk.Completed)
    assert client.result(FLUX, told["request_id"])["images"]


def test_sdk_waits_for_a_clip(client: Any) -> None:
    clip = client.subscribe(KLING, arguments={"prompt": "waves", "duration": "3"})["video"]
    assert requests.get(clip["url"], timeout=30).content[4:8] == b"ftyp"


def test_sdk_cancels_what_waits(client: Any, sim: Simulator) -> None:
    sim.world.config = Config(image_s=(600, 600))
    handle = client.submit(FLUX, arguments=SMALL)
    handle.cancel()
    with pytest.raises(FalClientHTTPError) as caught:
        handle.status()
    assert caught.value.status_code == HTTPStatus.NOT_FOUND


def test_sdk_raises_on_the_cancel_of_what_has_ended(client: Any, sim: Simulator) -> None:
    told = submit(sim)
    ended(told)
    with pytest.raises(FalClientHTTPError) as caught:
        client.cancel(FLUX, told["request_id"])
    assert caught.value.status_code == HTTPStatus.BAD_REQUEST


def test_sdk_learns_of_a_bad_input_from_the_result_alone(client: Any) -> None:
    handle = client.submit(FLUX, arguments={**SMALL, "num_images": 9})
    end = time.monotonic() + 10
    while not isinstance(state := handle.status(), sdk.Completed):
        assert time.monotonic() < end
    assert state.error is None
    with pytest.raises(FalClientHTTPError) as caught:
        handle.get()
    assert (caught.value.status_code, caught.value.error_type) == (422, None)


def test_sdk_reads_the_platforms_error_type(client: Any) -> None:
    handle = client.submit(FLUX, arguments={**SMALL, "prompt": "x [[sim: fail runner_disconnected]]"})
    with pytest.raises(FalClientHTTPError) as caught:
        handle.get(interval=0.02)
    assert caught.value.error_type == "runner_disconnected"
    assert handle.status().error_type == "runner_disconnected"


def test_sdk_takes_a_401_for_an_error(clients: Callable[[str], Any]) -> None:
    with pytest.raises(FalClientHTTPError) as caught:
        clients("short").submit(FLUX, arguments=SMALL)
    assert caught.value.status_code == HTTPStatus.UNAUTHORIZED


def test_sdk_buys_twice_when_an_answer_is_lost(client: Any, sim: Simulator) -> None:
    client.submit(FLUX, arguments={**SMALL, "prompt": "x [[sim: lost-answer]]"})
    assert ledger(sim)["totals"]["fal"]["accepted"] == 2


# --- habits ---


def test_addresses_are_of_the_app(sim: Simulator) -> None:
    told = submit(sim)
    assert told["status_url"] == f"{sim.url}/fal/fal-ai/flux/requests/{told['request_id']}/status"
    whole = get(f"{sim.url}/fal/{FLUX}/requests/{told['request_id']}/status")
    other = get(f"{sim.url}/fal/fal-ai/other/requests/{told['request_id']}/status")
    assert [whole.status_code, other.status_code] == [404, 404]


def test_namespace_is_part_of_the_address(sim: Simulator) -> None:
    told = submit(sim, "workflows/acme/paint/v2")
    assert "/fal/workflows/acme/paint/requests/" in told["status_url"]
    assert ended(told).json()["images"]


def test_logs_are_null_unless_asked_for(sim: Simulator) -> None:
    told = submit(sim)
    ended(told)
    assert get(told["status_url"]).json()["logs"] is None
    assert get(told["status_url"] + "?logs=1").json()["logs"]


def test_result_of_what_still_runs_is_no_result(sim: Simulator) -> None:
    sim.world.config = Config(image_s=(600, 600))
    assert get(submit(sim)["response_url"]).status_code == HTTPStatus.BAD_REQUEST


def test_unknown_app_is_refused_at_once(sim: Simulator) -> None:
    answer = requests.post(f"{sim.url}/fal/fal-ai/no-such-app", json=SMALL, headers=AUTH, timeout=5)
    assert (answer.status_code, set(answer.json())) == (404, {"detail"})


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"prompt": ""}, "missing"),
        ({"image_size": "huge"}, "literal_error"),
        ({"num_images": 0}, "greater_than_equal"),
        ({"num_inference_steps": "9"}, "int_type"),
        ({"image_url": "file:///etc/passwd"}, "image_load_error"),
    ],
)
def test_bad_input_is_a_list_with_its_place(sim: Simulator, asked: dict[str, Any], kind: str) -> None:
    answer = ended(submit(sim, **asked))
    (fault,) = answer.json()["detail"]
    assert (answer.status_code, fault["type"], fault["loc"]) == (422, kind, ["body", next(iter(asked))])
    assert answer.headers["X-Fal-Retryable"] == "false"


def test_flagged_picture_is_black_and_in_its_place(sim: Simulator) -> None:
    result = ended(submit(sim, prompt="x [[sim: partial 1]]", num_images=3)).json()
    assert result["has_nsfw_concepts"] == [False, True, True]
    assert [image["url"][:5] for image in result["images"]] == ["http:", "data:", "data:"]


def test_one_key_does_not_see_anothers_requests(sim: Simulator) -> None:
    told = submit(sim)
    other = requests.get(told["status_url"], headers={"Authorization": "Key another-key"}, timeout=5)
    assert other.status_code == HTTPStatus.NOT_FOUND


# --- callbacks ---


class Receiver(RawServer):
    """A callback address. `answers` are the first statuses it answers with; 204 afterwards."""

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)
        super().__init__(self._take)

    def _take(self, conn: Conn) -> None:
        if conn.request():
            conn.answer(b"", f"{self._answers.pop(0) if self._answers else 204} x")

    def came(self, count: int) -> list[tuple[dict[str, str], bytes]]:
        """The headers, with lower-case names, and the body of each call, once there are so many."""
        end = time.monotonic() + 10
        while len(self.requests) < count:
            assert time.monotonic() < end, f"{len(self.requests)} calls came"
            time.sleep(0.01)
        calls = []
        for whole in self.requests:
            head, _, body = whole.partition(b"\r\n\r\n")
            lines = [line.partition(": ") for line in head.decode().split("\r\n")[1:]]
            calls.append(({name.lower(): value for name, _, value in lines}, body))
        return calls


def test_end_is_called_once_and_our_adapter_believes_the_signature(sim: Simulator) -> None:
    provider = adapter(f"{sim.url}/fal")
    read = provider.capabilities.callback
    assert read is not None
    with Receiver() as receiver:
        asked = replace(job(), callback_url=f"{receiver.url}/v1/callbacks/fal/task_x/token")
        outcome = provider.submit(asked)
        ((headers, body),) = receiver.came(1)
    assert receiver.requests[0].startswith(b"POST /v1/callbacks/fal/task_x/token HTTP/1.1\r\n")
    assert isinstance(outcome, Accepted)
    told = json.loads(body)
    assert (told["status"], told["payload"]["has_nsfw_concepts"]) == ("OK", [False])
    lent = read(headers, body)
    assert provider.find(replace(asked, receipt=lent)) == outcome.receipt
    with pytest.raises(Forged):
        read(headers, body.replace(b"OK", b"NO"))


def test_callback_lends_the_id_of_a_request_whose_answer_was_lost(sim: Simulator) -> None:
    provider = adapter(f"{sim.url}/fal")
    read = provider.capabilities.callback
    assert read is not None
    with Receiver() as receiver:
        asked = replace(job(prompt="x [[sim: lost-answer]]"), callback_url=receiver.url, receipt=None)
        assert isinstance(provider.submit(asked), Uncertain)
        ((headers, body),) = receiver.came(1)
    receipt = provider.find(replace(asked, receipt=read(headers, body)))
    assert isinstance(receipt, str)
    assert isinstance(provider.observe([receipt], Kind.IMAGE)[receipt], Finished)


def test_refused_input_is_called_with_its_reason(sim: Simulator) -> None:
    with Receiver() as receiver:
        submit(sim, f"{FLUX}?fal_webhook={receiver.url}", num_images=9)
        ((_, body),) = receiver.came(1)
    told = json.loads(body)
    assert (told["status"], told["error"]) == ("ERROR", "Invalid status code: 422")
    assert told["payload"]["detail"][0]["type"] == "less_than_equal"


@pytest.mark.parametrize(("directive", "answers"), [("twice", (204,)), ("late 0", (500,))])
def test_calls_come_again(sim: Simulator, directive: str, answers: tuple[int, ...]) -> None:
    with Receiver(*answers) as receiver:
        submit(sim, f"{FLUX}?fal_webhook={receiver.url}", prompt=f"x [[fal: callback {directive}]]")
        first, second = receiver.came(2)
    assert first[1] == second[1]


def test_early_call_comes_before_the_answer(sim: Simulator) -> None:
    with Receiver() as receiver:
        told = submit(sim, f"{FLUX}?fal_webhook={receiver.url}", prompt="x [[fal: callback early]]")
        assert len(receiver.requests) == 1
    assert told["request_id"].encode() in receiver.requests[0]


def test_unknown_directive_is_refused_and_another_dialects_is_not_ours(sim: Simulator) -> None:
    answer = requests.post(
        f"{sim.url}/fal/{FLUX}", json={**SMALL, "prompt": "x [[fal: callback odd]]"}, headers=AUTH, timeout=5
    )
    assert (answer.status_code, "callback lost" in answer.text) == (422, True)
    assert submit(sim, prompt="x [[ark: callback odd]]")["request_id"]


# --- our adapter against it ---


def test_adapter_cannot_stop_what_runs(sim: Simulator) -> None:
    provider = adapter(f"{sim.url}/fal")
    outcome = provider.submit(job(prompt="x [[sim: stuck RUNNING]]"))
    assert isinstance(outcome, Accepted)
    end = time.monotonic() + 10
    while "IN_QUEUE" in repr(provider.observe([outcome.receipt], Kind.IMAGE)):
        assert time.monotonic() < end
    asked = job(prompt="x")
    assert provider.cancel(replace(asked, receipt=outcome.receipt)) is CancelAnswer.UNCLEAR


def test_adapter_follows_no_address_of_an_answer(sim: Simulator) -> None:
    elsewhere = f"http://127.0.0.1:{free_port()}/x"
    body = {"request_id": "r1", "response_url": elsewhere, "status_url": elsewhere, "cancel_url": elsewhere}
    script(sim, "submit", status=200, body=body)
    provider = adapter(f"{sim.url}/fal")
    outcome = provider.submit(job())
    assert isinstance(outcome, Accepted)
    provider.observe([outcome.receipt], Kind.IMAGE)
    assert ledger(sim)["totals"]["fal"]["query"] == 1


def test_adapter_tells_a_refused_input_from_a_failure(sim: Simulator) -> None:
    provider = adapter(f"{sim.url}/fal")
    for directive, kind in (("fail InvalidParameter", "invalid"), ("fail startup_timeout", "provider")):
        outcome = provider.submit(job(prompt=f"x [[sim: {directive}]]"))
        assert isinstance(outcome, Accepted)
        end = time.monotonic() + 10
        while not isinstance(seen := provider.observe([outcome.receipt], Kind.IMAGE)[outcome.receipt], Failed):
            assert not isinstance(seen, Finished)
            assert time.monotonic() < end
        assert kind in seen.error.kind
