"""A task that one vendor surely did not take goes to the next of its model; one that it may have taken goes nowhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from models.failures import FailureKind
from models.lifecycle import Error
from providers.port import NotAccepted, Outcome, Refused, Uncertain
from providers.sim import Simulator
from tests.cases import PLAIN, Case, playing
from tests.conftest import MakeSettings
from tests.scripted import Scripted

pytest_plugins = ("tests.cases_fixtures",)

MIXED = """
[models.mixed]
type = "image"
price_micros = 100
providers = [{ name = "wan", model = "wan2.2-t2i-flash" },
             { name = "ark", model = "doubao-seedream-4-0-250828" },
             { name = "webui", model = "sdxl", price_micros = 40 }]
"""
BODY: dict[str, object] = {**PLAIN, "model": "mixed", "steps": 20}


@pytest.fixture
def case(make_settings: MakeSettings, sim: Simulator) -> Iterator[Case]:
    """The usual gateway, with a model of three vendors."""
    with playing(make_settings, sim, MIXED) as made:
        yield made


def answers(case: Case, provider: str, outcome: Outcome) -> None:
    """Have a provider's submits come to this: what came of a call matters here, not how."""
    script = Scripted(provider)
    script.capabilities = case.world.rt.providers[provider].capabilities
    script.on_submit = lambda _: outcome
    case.world.rt.providers[provider] = script


def no(kind: FailureKind) -> NotAccepted:
    return NotAccepted(error=Error(kind=kind, message="no"))


def events(case: Case, task_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = case.service.get(f"/v1/tasks/{task_id}/history").json["events"]
    return found


def test_the_next_one_that_can_make_it_does_and_all_that_is_said_of_it_is_true(case: Case) -> None:
    answers(case, "wan", no(FailureKind.RATE_LIMITED))
    task_id = case.post(BODY)
    asked = case.see(task_id)
    assert case.step(task_id) == "PENDING"
    moved = case.see(task_id)
    assert (moved["provider"], moved["input"]) == ("webui", asked["input"])
    assert "steps" not in asked["effective"]
    assert moved["effective"]["steps"] == 20
    assert moved["effective"]["seed"] == asked["effective"]["seed"]
    assert ([a["field"] for a in asked["adjustments"]], moved["adjustments"]) == (["steps"], [])
    told = events(case, task_id)[-1]
    assert (told["reason"], told["detail"]["provider"], told["detail"]["code"]) == (
        "not_accepted", "webui", "provider_rate_limited",
    )  # fmt: skip
    ark, webui = told["detail"]["candidates"]
    assert ark["reason"].startswith("it cannot make this: ")
    assert webui["reason"] == "chosen"
    assert {"steps", "cfg_scale", "sampler"} <= set(told["detail"]["changed"])
    ended = case.end(task_id)
    assert (ended["status"], ended["cost"]["micros"], ended["upstream_call_count"]) == ("SUCCESS", 40, 1)
    assert (case.totals("sdwebui")["accepted"], case.totals("dashscope")["accepted"]) == (1, 0)


def test_a_chance_seed_is_kept(case: Case) -> None:
    answers(case, "wan", no(FailureKind.OVERLOADED))
    task_id = case.post({**BODY, "seed": -1})
    seed = case.see(task_id)["effective"]["seed"]
    case.step(task_id)
    assert (case.see(task_id)["provider"], case.see(task_id)["effective"]["seed"]) == ("webui", seed)


@pytest.mark.parametrize("kind", [FailureKind.RATE_LIMITED, FailureKind.OVERLOADED, FailureKind.NOT_SENT])
def test_each_is_tried_once_and_then_it_waits_with_the_last(case: Case, kind: FailureKind) -> None:
    for name in ("wan", "webui"):
        answers(case, name, no(kind))
    task_id = case.post(BODY)
    for provider in ("webui", "webui", "webui"):
        assert case.step(task_id) == "PENDING"
        assert case.see(task_id)["provider"] == provider
    row = case.row(task_id)
    assert (row["tried"], row["upstream_call_count"], row["risk"]) == (["wan"], 0, False)


@pytest.mark.parametrize(
    "outcome",
    [
        Uncertain(error=Error(kind=FailureKind.READ_TIMEOUT)),
        Refused(error=Error(kind=FailureKind.CONTENT_FILTERED)),
        Refused(error=Error(kind=FailureKind.INVALID_PARAMETER)),
    ],
    ids=["uncertain", "content", "parameter"],
)
def test_a_doubt_or_a_final_no_goes_nowhere(case: Case, outcome: Outcome) -> None:
    answers(case, "wan", outcome)
    task_id = case.post(BODY)
    assert case.step(task_id) == "FAILED"
    assert (case.see(task_id)["provider"], case.totals("sdwebui")["submit"]) == ("wan", 0)


def test_a_doubt_from_before_keeps_it_where_it_is(case: Case) -> None:
    answers(case, "wan", no(FailureKind.RATE_LIMITED))
    task_id = case.post(BODY)
    case.world.sql("update tasks set risk = true")
    assert case.step(task_id) == "PENDING"
    assert case.see(task_id)["provider"] == "wan"


@pytest.mark.parametrize("more", [{"provider": "wan"}, {"model": "graph"}], ids=["pinned", "only one"])
def test_nothing_else_may_or_can_make_it(case: Case, more: dict[str, object]) -> None:
    body = {**BODY, **more}
    name = "wan" if "provider" in more else "studio"
    answers(case, name, no(FailureKind.RATE_LIMITED))
    task_id = case.post(body)
    assert case.step(task_id) == "PENDING"
    assert case.see(task_id)["provider"] == name


def test_strict_holds_for_the_next_one_too(case: Case) -> None:
    answers(case, "wan", no(FailureKind.RATE_LIMITED))
    body = {**BODY, "strict": True, "provider": None, "negative_prompt": "rain"}
    del body["steps"]
    task_id = case.post(body)
    assert case.row(task_id)["strict"]
    case.step(task_id)
    assert case.see(task_id)["provider"] == "webui"


def test_a_restart_may_try_all_of_them_again(case: Case) -> None:
    answers(case, "wan", no(FailureKind.RATE_LIMITED))
    answers(case, "webui", Refused(error=Error(kind=FailureKind.INVALID_PARAMETER)))
    task_id = case.post(BODY, idem="k-1")
    case.step(task_id)
    assert case.step(task_id) == "FAILED"
    assert case.service.post(BODY, idem="k-1").json["attempt"] == 2
    assert (case.row(task_id)["tried"], case.row(task_id)["provider"]) == ([], "webui")


def test_what_waits_for_a_provider_that_fails_goes_to_the_next_as_well(case: Case) -> None:
    task_id = case.post(BODY)
    breaker = case.service.parts.dam.breaker
    for _ in range(10):
        breaker.report("wan", "submit_image", ok=False, probe=False, kind="provider_server_error")
    assert case.step(task_id) == "PENDING"
    assert (case.see(task_id)["provider"], events(case, task_id)[-1]["reason"]) == ("webui", "deferred")
    assert case.end(task_id)["status"] == "SUCCESS"


def test_what_waits_for_a_provider_that_is_switched_off_is_moved_on_by_the_sweep(case: Case) -> None:
    task_id, pinned = case.post(BODY), case.post({**BODY, "provider": "wan"})
    rt = case.world.rt
    off = dataclasses.replace(rt.settings.providers["wan"], enabled=False)
    settings = dataclasses.replace(rt.settings, providers={**rt.settings.providers, "wan": off})
    case.world.rt = dataclasses.replace(rt, settings=settings)
    case.world.sql("update tasks set rung_at = now() - interval '2 minutes'")
    assert case.world.sweep()["moved_on"] == 1
    assert "moved_on" not in case.world.sweep()  # once a minute
    assert (case.step(task_id), case.step(pinned)) == ("PENDING", "PENDING")
    assert (case.see(task_id)["provider"], case.see(pinned)["provider"]) == ("webui", "wan")
    assert case.end(task_id)["status"] == "SUCCESS"
