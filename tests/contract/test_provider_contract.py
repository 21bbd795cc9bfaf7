"""What every provider keeps, whoever is behind it. A new vendor is one entry in VENDORS (tests/contract/vendors.py)."""

from __future__ import annotations

import inspect as introspection
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from models.contract import Kind, resolve
from models.failures import FAILURES, FailureKind
from models.lifecycle import Canceled, Failed, Finished, Observation, Unknown, Unreadable, Working
from models.presets import Presets
from models.settings import Results, Settings
from providers import PROVIDERS
from providers.calls import recorded
from providers.fetch import Downloads
from providers.port import (
    Accepted,
    CancelAnswer,
    FindAnswer,
    NotAccepted,
    Outcome,
    Provider,
    Refused,
    Uncertain,
)
from providers.sim import Simulator
from tests.contract.raw_server import free_port
from tests.contract.vendors import KEY, VENDORS, Bench, made


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(image_s=(0, 0.02), video_s=(0, 0.02)) as running:
        yield running


@pytest.fixture(params=sorted(PROVIDERS))
def bench(request: pytest.FixtureRequest, sim: Simulator) -> Bench:
    sim.world.reset()  # a job that is stuck holds up all others, where the vendor works one by one
    return made(request.param, sim.url)


def test_every_adapter_is_in_this_suite() -> None:
    assert set(VENDORS) == set(PROVIDERS)


def test_provider_has_the_ports_verbs_and_no_other(bench: Bench) -> None:
    public = {name for name in dir(bench.provider) if not name.startswith("_")}
    assert public == {"name", "capabilities", "submit", "observe", "cancel", "find", "check", "result_headers"}
    for verb in ("submit", "observe", "cancel", "find", "check"):
        ours = introspection.signature(getattr(type(bench.provider), verb))
        assert list(ours.parameters) == list(introspection.signature(getattr(Provider, verb)).parameters)


def test_capabilities_agree_with_themselves(bench: Bench) -> None:
    can = bench.provider.capabilities
    assert {bounds.kind for bounds in can.models.values()} == can.kinds
    assert can.synchronous <= set(can.models)
    assert all(bounds.source for bounds in can.models.values())


@pytest.mark.parametrize("kind", Kind)
def test_job_comes_to_a_real_file(bench: Bench, sim: Simulator, kind: Kind, tmp_path: Path) -> None:
    if kind not in bench.vendor.models:
        pytest.skip("this vendor does not make that")
    job = bench.job(kind=kind)
    outcome = bench.provider.submit(job)
    assert isinstance(outcome, Accepted), outcome
    assert (outcome.finished is None) == bench.waits(kind)
    done = outcome.finished or bench.ended(outcome.receipt, kind)
    assert isinstance(done, Finished)
    (output,) = done.outputs
    with Downloads(Results(allowed_networks=()), tmp_path).fetched(
        replace(bench.settings, base_url=sim.url), output, kind, bench.provider.result_headers()
    ) as got:
        assert got.media.media_type.startswith(f"{kind.value}/")
        assert (got.media.duration_s is not None) == (kind is Kind.VIDEO)
        if kind is Kind.IMAGE:
            assert (got.media.width, got.media.height) == (job.effective["width"], job.effective["height"])


@pytest.mark.parametrize("kind", Kind)
def test_same_request_is_taken_by_every_vendor(bench: Bench, kind: Kind) -> None:
    if kind not in bench.vendor.models:
        pytest.skip("this vendor does not make that")
    asked: dict[str, object] = {"prompt": "a red cup", "size": "square", "mode": "fast", "seed": 7}
    asked = asked if kind is Kind.IMAGE else {"prompt": "a red cup spins"}
    bounds = bench.provider.capabilities.models[bench.vendor.models[kind]]
    presets = Presets.from_tables(Settings.load({}).presets)
    found = resolve(kind, asked, bounds, presets, strict=False, draw=lambda low, _: low + 7)
    outcome = bench.provider.submit(replace(bench.job(kind=kind), effective=found.effective))
    assert isinstance(outcome, Accepted), outcome
    if kind is Kind.IMAGE:
        assert found.effective["width"] == found.effective["height"]
        assert found.effective.get("seed", 7) == 7


def test_partial_result_names_what_is_missing(bench: Bench) -> None:
    count = bench.vendor.group
    if Kind.IMAGE not in bench.vendor.models or count == 1:
        pytest.skip("this vendor makes no group of images")
    done = bench.done("x [[sim: partial 1]]", Kind.IMAGE, image_count=count)
    assert isinstance(done, Finished)
    assert (len(done.outputs), len(done.missing)) == (1, count - 1)


def _refused_port(_: str) -> str:
    return f"http://127.0.0.1:{free_port()}"


SUBMITS: dict[str, tuple[str, type[Outcome], FailureKind]] = {
    "429 1 9": ("429 1 9", NotAccepted, FailureKind.RATE_LIMITED),
    "lost answer": ("lost-answer", Uncertain, FailureKind.UNREADABLE),
    "reset": ("reset", Uncertain, FailureKind.UNREADABLE),
    "half": ("half", Uncertain, FailureKind.UNREADABLE),
    "page": ("502", Uncertain, FailureKind.SERVER_ERROR),
    "page after accepting": ("accepted-504", Uncertain, FailureKind.SERVER_ERROR),
    "filtered": ("reject", Refused, FailureKind.CONTENT_FILTERED),
    "wrong": ("reject InvalidParameter", Refused, FailureKind.INVALID_PARAMETER),
}


@pytest.mark.parametrize("what", Kind)
@pytest.mark.parametrize("name", SUBMITS)
def test_submit_never_raises_and_its_word_fits_the_failure(bench: Bench, name: str, what: Kind) -> None:
    if what not in bench.vendor.models:
        pytest.skip("this vendor does not make that")
    directive, word, kind = SUBMITS[name]
    if kind is FailureKind.CONTENT_FILTERED and not bench.vendor.moderates:
        pytest.skip("this vendor takes every prompt")
    with recorded() as calls:
        outcome = bench.provider.submit(bench.job(f"x [[sim: {directive}]]", what))
    assert isinstance(outcome, word)
    assert not isinstance(outcome, Accepted)
    assert outcome.error.kind is kind
    # A question that costs nothing, such as which samplers there are, may come before.
    assert [call.verdict for call in calls if call.operation == "submit"] == [kind.value]
    assert FAILURES[kind].certain == (word is not Uncertain)


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_vendor_that_is_away_is_never_an_exception(name: str) -> None:
    bench = made(name, _refused_port(name))
    outcome = bench.provider.submit(bench.job())
    assert isinstance(outcome, NotAccepted)
    assert outcome.error.kind is FailureKind.NOT_SENT
    seen = bench.provider.observe([f"r-{n}" for n in range(12)], bench.kind)
    if bench.waits(bench.kind):
        assert {type(one) for one in seen.values()} == {Unreadable}
    answer = CancelAnswer.UNCLEAR if bench.provider.capabilities.cancel else CancelAnswer.REFUSED
    assert bench.provider.cancel(replace(bench.job(), receipt="r")) is answer
    assert bench.provider.find(bench.job()) in (FindAnswer.LATER, FindAnswer.UNCLEAR)


@pytest.mark.parametrize(
    ("directive", "kind"),
    [("fail", FailureKind.PROVIDER_ERROR), ("filtered", FailureKind.CONTENT_FILTERED)],
)
def test_failed_job_has_a_reason_and_the_vendors_code(bench: Bench, directive: str, kind: FailureKind) -> None:
    if kind is FailureKind.CONTENT_FILTERED and not bench.vendor.moderates:
        pytest.skip("this vendor takes every prompt")
    failed = bench.ended(bench.receipt(f"x [[sim: {directive}]]"))
    assert isinstance(failed, Failed)
    assert failed.error.kind is kind
    assert failed.error.upstream_code
    assert failed.error.message


@pytest.mark.parametrize(
    ("directive", "kind"),
    [("fail", FailureKind.PROVIDER_ERROR), ("filtered", FailureKind.CONTENT_FILTERED)],
)
def test_failure_that_comes_at_once_is_no_acceptance(bench: Bench, directive: str, kind: FailureKind) -> None:
    what = next((what for what in bench.vendor.models if not bench.waits(what)), None)
    if what is None or (kind is FailureKind.CONTENT_FILTERED and not bench.vendor.moderates):
        pytest.skip("this vendor answers no submit with such a failure")
    outcome = bench.provider.submit(bench.job(f"x [[sim: {directive}]]", what))
    assert not isinstance(outcome, Accepted)
    # What a vendor made nothing of is sure only where its own words say so.
    assert outcome.error.kind is kind or isinstance(outcome, Uncertain)
    assert outcome.error.upstream_code


def test_result_that_came_with_the_submit_is_not_asked_for(bench: Bench) -> None:
    for what in bench.vendor.models:
        if not bench.waits(what):
            job = bench.job(kind=what)
            with recorded() as calls:
                outcome = bench.provider.submit(job)
                made = len(calls)
                assert bench.provider.observe(["ref-lost"], what) == {"ref-lost": Unknown()}
            assert isinstance(outcome, Accepted)
            assert job.reference in outcome.receipt  # nothing else is sure to be unique
            assert len(calls) == made


@pytest.mark.parametrize(
    ("directive", "seen"),
    [
        ("poll-502", Unreadable),
        ("poll-half", Unreadable),
        ("poll-reset", Unreadable),
        ("poll-429 1 9", Unreadable),
    ],
)
def test_broken_answer_to_a_query_is_no_news(bench: Bench, directive: str, seen: type[Observation]) -> None:
    receipt = bench.receipt(f"x [[sim: {directive}]] [[sim: stuck]]")
    assert isinstance(bench.seen(receipt), seen)
    assert isinstance(bench.seen(receipt), Working)


def test_unknown_word_is_working(bench: Bench) -> None:
    seen = bench.seen(bench.receipt("x [[sim: word POSTPROCESSING]]"))
    assert isinstance(seen, Working)
    assert seen.word == "POSTPROCESSING"


def test_job_nobody_knows_is_unknown_and_working_ones_are_told_apart(bench: Bench) -> None:
    alive = [bench.receipt("x [[sim: stuck]]") for _ in range(7)]
    seen = bench.provider.observe([*alive, "no-such-job", *alive], bench.kind)
    assert seen.keys() == {*alive, "no-such-job"}
    assert isinstance(seen["no-such-job"], Unknown)
    assert all(isinstance(seen[receipt], Working) for receipt in alive)


def test_nothing_to_ask_is_no_call(bench: Bench) -> None:
    with recorded() as calls:
        assert bench.provider.observe([], bench.kind) == {}
    assert calls == []


def test_round_of_many_takes_few_calls_where_the_vendor_can_list(bench: Bench) -> None:
    alive = [bench.receipt("x [[sim: stuck]]") for _ in range(12)]
    with recorded() as calls:
        bench.provider.observe(alive, bench.kind)
    assert all(call.operation == "observe" for call in calls)
    assert {receipt for call in calls for receipt in call.receipts} == set(alive)
    if bench.provider.capabilities.list_call:
        assert len(calls) < len(alive) / 2


def test_cancel_stops_what_waits_and_no_other(bench: Bench) -> None:
    if not bench.provider.capabilities.cancel:
        pytest.skip("this vendor cannot cancel")
    first, second = (
        bench.receipt("x [[sim: stuck PENDING]]"),
        bench.receipt("x [[sim: stuck PENDING]]"),
    )
    assert bench.provider.cancel(replace(bench.job(), receipt=first)) is CancelAnswer.CONFIRMED
    assert isinstance(bench.seen(first), Canceled | Unknown)  # some keep no record of what never ran
    assert isinstance(bench.seen(second), Working)
    assert bench.provider.cancel(replace(bench.job(), receipt=first)) is not CancelAnswer.CONFIRMED


def test_cancel_that_comes_too_late_is_refused(bench: Bench) -> None:
    if not bench.provider.capabilities.cancel:
        pytest.skip("this vendor cannot cancel")
    receipt = bench.receipt()
    bench.ended(receipt)
    assert bench.provider.cancel(replace(bench.job(), receipt=receipt)) is CancelAnswer.REFUSED


def test_find_says_what_it_can(bench: Bench) -> None:
    job = bench.job("x [[sim: lost-answer]]")
    bench.provider.submit(job)
    found = bench.provider.find(job)
    if bench.provider.capabilities.find:
        assert isinstance(found, str)
        assert not isinstance(found, FindAnswer)
    else:
        assert found is FindAnswer.UNCLEAR


def test_submits_side_by_side_are_jobs_of_their_own(bench: Bench) -> None:
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda n: bench.receipt(f"cup {n} [[sim: stuck]]"), range(24)))
    assert len(set(receipts)) == 24


def test_key_shows_nowhere(bench: Bench) -> None:
    with recorded() as calls:
        outcomes = [bench.provider.submit(bench.job(f"x [[sim: {what}]]")) for what in ("502", "reject", "reset")]
    for shown in (bench.provider, bench.provider.capabilities, outcomes, calls, bench.job()):
        assert KEY not in repr(shown)
        assert "[[sim" not in repr(shown)  # the prompt


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_building_opens_no_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection at construction")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    made(name, "http://vendor.example")
