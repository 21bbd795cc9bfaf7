"""`check`: one harmless call that says whether a provider can be reached and takes our credential."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pytest_httpserver import HTTPServer

from models.failures import FailureKind
from models.settings import Polling, Retries
from providers import PROVIDERS
from providers.calls import recorded
from providers.port import ProviderError
from providers.sim import Simulator
from tests.contract.raw_server import free_port
from tests.contract.vendors import KEY, VENDORS, made

_ANY = re.compile("/.*")


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(image_s=(0, 0.02), video_s=(0, 0.02)) as running:
        yield running


def _fault(name: str, url: str) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        made(name, url).provider.check()
    return caught.value


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_check_is_one_call_that_makes_nothing(name: str, sim: Simulator) -> None:
    sim.world.reset()
    with recorded() as calls:
        made(name, sim.url).provider.check()
    assert [(call.operation, call.verdict, call.receipts) for call in calls] == [("check", VENDORS[name].check, ())]
    assert all(counts["submit"] == counts["accepted"] == 0 for counts in sim.world.ledger.totals().values())


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_check_of_a_vendor_that_is_away_says_so(name: str) -> None:
    assert _fault(name, f"http://127.0.0.1:{free_port()}").kind is FailureKind.NOT_SENT


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, FailureKind.PROVIDER_AUTH), (402, FailureKind.PROVIDER_QUOTA), (403, FailureKind.PROVIDER_AUTH)],
)
@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_check_with_a_refused_credential_says_so_and_shows_it_nowhere(
    name: str, status: int, kind: FailureKind, httpserver: HTTPServer
) -> None:
    httpserver.expect_request(_ANY).respond_with_json({"message": f"no {KEY}"}, status)
    fault = _fault(name, httpserver.url_for("").rstrip("/"))
    assert fault.kind is kind
    assert KEY not in str(fault)


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_check_is_asked_once_whatever_comes(name: str, httpserver: HTTPServer) -> None:
    httpserver.expect_request(_ANY).respond_with_data("<html>", 502)
    assert _fault(name, httpserver.url_for("").rstrip("/")).kind is FailureKind.SERVER_ERROR
    assert len(httpserver.log) == 1


@pytest.mark.parametrize("name", ["ark", "dashscope"])
def test_check_needs_no_list_where_lists_are_not_to_be_asked_for(name: str, sim: Simulator) -> None:
    sim.world.reset()
    sim.world.faults.add([{"on": "list", "do": {"status": 403}}])
    bench = made(name, sim.url)
    settings = replace(bench.settings, list_call=False)
    with recorded() as calls:
        PROVIDERS[name](name, settings, KEY, retries=Retries(), polling=Polling()).check()
    assert [call.operation for call in calls] == ["check"]


@pytest.mark.parametrize("status", [404, 405])
def test_server_of_openais_shape_without_a_list_of_models_is_there(status: int, httpserver: HTTPServer) -> None:
    httpserver.expect_request(_ANY).respond_with_data("<html>", status)
    made("openai", httpserver.url_for("").rstrip("/")).provider.check()
