"""The simulator's Jimeng dialect, held against the vendor's own SDK, volcengine 1.0.229, and its habits one by one."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from models.contract import Kind
from models.failures import FailureKind
from models.lifecycle import Finished
from models.settings import Polling, Retries
from providers import PROVIDERS
from providers.port import Accepted, NotAccepted, ProviderError
from providers.sim import Simulator
from tests.contract.simulated import only_job, renewed
from tests.contract.vendors import made

with warnings.catch_warnings():  # the SDK warns about itself when it is imported
    warnings.simplefilter("ignore")
    from volcengine.visual.VisualService import VisualService

ACCESS, SECRET = "AKTESTEXAMPLE0001", "U0VDUkVURVhBTVBMRTAwMDE="
PICTURE, CLIP = "jimeng_t2i_v30", "jimeng_t2v_v30"


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0.1)


@pytest.fixture
def sdk(sim: Simulator) -> Any:  # noqa: ANN401  the SDK has no types
    service = VisualService()
    service.set_ak(ACCESS)
    service.set_sk(SECRET)
    host, path = sim.url.removeprefix("http://"), "/jimeng/"
    service.set_host(host)
    service.service_info.header["Host"] = host
    for api in service.api_info.values():
        api.path = path
    return service


def _until_done(sdk: Any, task: str, req_key: str = PICTURE) -> dict[str, Any]:  # noqa: ANN401  same
    asked = {"req_key": req_key, "task_id": task, "req_json": json.dumps({"return_url": True})}
    for _ in range(100):
        answer = sdk.cv_sync2async_get_result(asked)
        if answer["data"]["status"] == "done":
            return dict(answer["data"])
        time.sleep(0.05)
    raise AssertionError("never done")


def test_sdk_makes_a_picture_by_a_signed_submit_and_query(sim: Simulator, sdk: Any) -> None:  # noqa: ANN401  same
    asked = {"req_key": PICTURE, "prompt": "a red cup", "width": 512, "height": 640, "seed": 7}
    answer = sdk.cv_sync2async_submit_task(asked)
    assert (answer["code"], answer["message"]) == (10000, "Success")
    task = answer["data"]["task_id"]
    assert isinstance(task, str)
    done = _until_done(sdk, task)
    assert [url.startswith(sim.url) for url in done["image_urls"]] == [True]
    assert only_job(sim)["prompt"] == "a red cup"


def test_sdk_makes_a_clip(sdk: Any) -> None:  # noqa: ANN401  same
    asked = {"req_key": CLIP, "prompt": "a red cup turns", "frames": 121, "aspect_ratio": "16:9"}
    task = sdk.cv_sync2async_submit_task(asked)["data"]["task_id"]
    assert _until_done(sdk, task, CLIP)["video_url"].partition("?")[0].endswith(".mp4")


def test_sdk_with_a_wrong_secret_is_refused_by_the_gateway(sdk: Any) -> None:  # noqa: ANN401  same
    sdk.set_sk("wrong")
    with pytest.raises(Exception, match="SignatureDoesNotMatch"):
        sdk.cv_sync2async_submit_task({"req_key": PICTURE, "prompt": "a red cup"})


def test_query_that_names_another_model_is_not_of_this_task(sdk: Any) -> None:  # noqa: ANN401  same
    task = sdk.cv_sync2async_submit_task({"req_key": PICTURE, "prompt": "a red cup"})["data"]["task_id"]
    with pytest.raises(Exception, match="50215"):
        sdk.cv_sync2async_get_result({"req_key": CLIP, "task_id": task})


def test_task_of_the_adapter_is_there_for_its_own_account_alone(sim: Simulator, sdk: Any) -> None:  # noqa: ANN401  same
    bench = made("jimeng", sim.url)
    outcome = bench.provider.submit(bench.job("a red cup", Kind.IMAGE))
    assert isinstance(outcome, Accepted)
    req_key, _, task = outcome.receipt.partition(":")
    told = sdk.cv_sync2async_get_result({"req_key": req_key, "task_id": task})["data"]
    assert told["status"] == "not_found", "the SDK's key is another account's"
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        seen = bench.provider.observe([outcome.receipt], Kind.IMAGE)[outcome.receipt]
        if isinstance(seen, Finished):
            break
        time.sleep(0.05)
    assert isinstance(seen, Finished)
    assert len(seen.outputs) == 1


def test_key_without_a_colon_ends_before_the_wire(sim: Simulator) -> None:
    bench = made("jimeng", sim.url)
    lame = PROVIDERS["jimeng"]("jimeng", bench.settings, "one-half", retries=Retries(reads=0), polling=Polling())
    outcome = lame.submit(bench.job())
    assert isinstance(outcome, NotAccepted)
    assert outcome.error.kind is FailureKind.PROVIDER_AUTH
    with pytest.raises(ProviderError, match="ACCESS:SECRET"):
        lame.check()
    assert "jimeng" not in sim.world.ledger.totals()
