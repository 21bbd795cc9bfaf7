"""The simulator's Replicate dialect as a plain client and as our adapter see it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus

import pytest
import requests

from models.contract import Kind
from models.lifecycle import Failed, Finished
from providers.inline import Picture
from providers.port import Accepted, CancelAnswer, Forged, NotAccepted, Uncertain
from providers.sim import Config, Limits, Simulator
from providers.sim.replicate_answers import prediction
from tests.contract.replicate_calls import (
    PRO,
    SCHNELL,
    SMALL,
    Receiver,
    call,
    created,
    ended,
    seen,
    slowly,
    until,
)
from tests.contract.replicate_jobs import SDXL, adapter, job
from tests.contract.simulated import only_job, renewed, script


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0.1)


# --- webhooks ---


def test_start_is_called_to_whom_wants_it(sim: Simulator) -> None:
    with Receiver() as receiver:
        body = {"input": SMALL, "webhook": receiver.url, "webhook_events_filter": ["start", "completed"]}
        call(sim, "POST", f"/models/{SCHNELL}/predictions", json=body)
        until(lambda: len(receiver.requests) == 2)
    assert [json.loads(body)["status"] for _, body in receiver.calls] == ["processing", "succeeded"]


def test_webhook_that_is_sent_again_keeps_its_id(sim: Simulator) -> None:
    with Receiver(500) as receiver:
        body = {"input": SMALL, "webhook": receiver.url, "webhook_events_filter": ["completed"]}
        call(sim, "POST", f"/models/{SCHNELL}/predictions", json=body)
        until(lambda: len(receiver.requests) == 2)
    first, second = receiver.calls
    assert (first[0]["webhook-id"], first[1]) == (second[0]["webhook-id"], second[1])


def test_canceled_prediction_is_not_called_as_succeeded(sim: Simulator) -> None:
    slow = {**SMALL, "prompt": "a red cup [[sim: slow 1]]"}
    with Receiver() as receiver:
        body = {"input": slow, "webhook": receiver.url, "webhook_events_filter": ["completed"]}
        name = call(sim, "POST", f"/models/{SCHNELL}/predictions", json=body).json()["id"]
        call(sim, "POST", f"/predictions/{name}/cancel")
        other = call(sim, "POST", f"/models/{SCHNELL}/predictions", json=body).json()["id"]
        until(lambda: receiver.requests)
    assert {json.loads(body)["id"] for _, body in receiver.calls} == {other}


# --- habits ---


def test_wait_holds_the_create_and_says_processing_of_what_is_done(sim: Simulator) -> None:
    told = created(sim, headers={"Prefer": "wait=5"})
    assert (told["status"], len(told["output"])) == ("processing", 1)
    assert seen(sim, told["id"])["status"] == "succeeded"


def test_wait_that_is_over_early_gives_what_is_unfinished(sim: Simulator) -> None:
    slowly(sim)
    told = created(sim, headers={"Prefer": "wait=1"})
    assert (told["status"], told["output"]) == ("starting", None)


@pytest.mark.parametrize(("share", "word"), [(1.0, "aborted"), (0.0, "canceled")])
def test_deadline_aborts_what_waits_and_cancels_what_runs(sim: Simulator, share: float, word: str) -> None:
    sim.world.config = Config(image_s=(600, 600), pending_share=share)
    told = created(sim, headers={"Cancel-After": "5s"})
    (made,) = sim.world.ledger.accepted(0)
    made.order = replace(made.order, extra={**made.order.extra, "deadline_at": made.created_at + 0.001})
    assert told["deadline"] is not None
    assert until(lambda: seen(sim, told["id"])["status"] == word)


def test_output_grows(sim: Simulator) -> None:
    sim.world.config = Config(image_s=(600, 600), pending_share=0)
    created(sim, num_outputs=4)
    (made,) = sim.world.ledger.accepted(0)

    def told(share: float) -> object:
        now = made.starts_at + share * (made.ends_at - made.starts_at)
        return prediction(made, now, "", lambda _job, index: str(index), ttl_s=60)["output"]

    assert [told(share) for share in (0.2, 0.3, 0.8, 1)] == [None, ["0"], ["0", "1", "2"], ["0", "1", "2", "3"]]


def test_data_is_removed_and_the_record_stays(sim: Simulator) -> None:
    name = created(sim)["id"]
    ended(sim, name)
    sim.world.config = Config(image_s=(0.1, 0.1), link_ttl_s=0.2)
    found = until(lambda: told if (told := seen(sim, name))["data_removed"] else None)
    assert (found["status"], found["output"], found["input"]) == ("succeeded", None, {})


@pytest.mark.parametrize(
    "body",
    [
        {"input": SMALL, "model": SCHNELL},
        {"version": "sdxl", "input": SMALL},
        {"version": f"acme/no-such:{'a' * 64}", "input": SMALL},
        {"input": SMALL},
        {"version": SDXL},
        {"version": SDXL, "input": SMALL, "webhook": "ftp://x"},
        {"version": SDXL, "input": SMALL, "webhook_events_filter": ["end"]},
        {"version": SDXL, "input": {**SMALL, "image": "x.png"}},
        ["version"],
        7,
    ],
)
def test_body_out_of_form_is_refused(sim: Simulator, body: object) -> None:
    answer = call(sim, "POST", "/predictions", json=body)
    assert (answer.status_code, answer.json()["status"]) == (422, 422)


def test_list_is_of_the_token_and_of_the_time_asked_for(sim: Simulator) -> None:
    old = created(sim)
    listed = call(sim, "GET", "/predictions", params={"created_before": old["created_at"]}).json()
    assert listed == {"next": None, "previous": None, "results": []}
    other = requests.get(
        f"{sim.url}/replicate/v1/predictions", headers={"Authorization": "Bearer r8_another"}, timeout=5
    )
    assert other.json()["results"] == []


def test_limit_names_its_wait_in_words_or_in_a_header(sim: Simulator) -> None:
    for wait_s, header in ((None, None), (2.0, "2")):
        sim.world.config = Config(limits=Limits(submits_per_s=1, retry_after_s=wait_s))
        answers = [call(sim, "POST", "/predictions", json={"version": SDXL, "input": SMALL}) for _ in range(5)]
        late = next(answer for answer in answers if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS)
        assert (late.headers.get("Retry-After"), set(late.json())) == (header, {"detail"})


# --- our adapter ---


def test_adapter_obeys_the_words_of_a_throttling(sim: Simulator) -> None:
    script(sim, "submit", times=1, status=429)
    outcome = adapter(f"{sim.url}/replicate").submit(job(SDXL))
    assert isinstance(outcome, NotAccepted)
    assert outcome.retry_after_s == 30


def test_adapter_sees_a_list_of_many_and_takes_single_texts(sim: Simulator) -> None:
    provider = adapter(f"{sim.url}/replicate")
    outcomes = [provider.submit(job(PRO, width=256, height=256)) for _ in range(6)]
    receipts = [outcome.receipt for outcome in outcomes if isinstance(outcome, Accepted)]
    assert until(
        lambda: all(isinstance(one, Finished) for one in provider.observe(receipts, Kind.IMAGE).values()) and receipts
    )
    totals = sim.world.ledger.totals()["replicate"]
    assert (totals["list"] > 0, totals["query"]) == (True, 0)


def test_adapter_uploads_a_large_picture(sim: Simulator) -> None:
    large = Picture(media_type="image/png", content=bytes(300_000))
    asked = replace(job("seedance-frame:bytedance/seedance-1-pro", duration_s=2), inputs={"first_frame": large})
    assert isinstance(adapter(f"{sim.url}/replicate").submit(asked), Accepted)
    assert only_job(sim)["params"]["input"]["image"].startswith(f"{sim.url}/replicate/v1/files/")


def test_adapter_cancels_what_runs_and_sees_why_a_prediction_failed(sim: Simulator) -> None:
    provider = adapter(f"{sim.url}/replicate")
    running = provider.submit(job(SDXL, prompt="x [[sim: stuck RUNNING]]"))
    failed = provider.submit(job(SDXL, prompt="x [[sim: partial 0]]"))
    assert isinstance(running, Accepted)
    assert isinstance(failed, Accepted)
    assert provider.cancel(replace(job(SDXL), receipt=running.receipt)) is CancelAnswer.CONFIRMED
    found = until(
        lambda: (
            one if isinstance(one := provider.observe([failed.receipt], Kind.IMAGE)[failed.receipt], Failed) else None
        )
    )
    assert (found.error.kind, found.error.upstream_code) == ("content_filtered", "nsfw")


def test_adapter_adopts_a_lost_prediction_by_its_signed_callback(sim: Simulator) -> None:
    """O-48: the create's answer is lost, the webhook's is not."""
    provider = adapter(f"{sim.url}/replicate")
    read = provider.capabilities.callback
    assert read is not None
    with Receiver() as receiver:
        lost = replace(
            job(SDXL, prompt="x [[sim: lost-answer]]"),
            callback_url=f"{receiver.url}/cb",
            receipt=None,
            claimed_at_s=time.time(),
        )
        assert isinstance(provider.submit(lost), Uncertain)
        until(lambda: receiver.requests)
    ((headers, body),) = receiver.calls
    lent = read(headers, body)
    assert lent is not None
    assert provider.find(replace(lost, receipt=lent)) == lent
    assert provider.find(replace(lost, receipt=lent, effective={**lost.effective, "prompt": "another"})) != lent
    with pytest.raises(Forged):
        read(headers, body.replace(b"succeeded", b"failed"))
