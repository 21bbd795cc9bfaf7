"""The simulator's script: rules that are posted, and directives in a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

import pytest
import requests

from providers import sim as package
from providers.sim import Simulator
from providers.sim.directives import FORMS
from providers.sim.faults import ACTIONS
from tests.contract.simulated import AUTH, Body, accepted, link, output, query, renewed, script, submit, submitted


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0)


def test_rule_strikes_as_often_as_told(sim: Simulator) -> None:
    script(sim, "query", times=2, status=503)
    assert [query(sim, "x").status_code for _ in range(4)] == [503, 503, 200, 200]


def test_rule_lets_the_first_calls_pass(sim: Simulator) -> None:
    sim.world.faults.add([{"on": "query", "after": 2, "times": 1, "do": {"status": 503}}])
    assert [query(sim, "x").status_code for _ in range(4)] == [200, 200, 503, 200]


def test_rule_with_a_probability_repeats_itself_by_its_seed(sim: Simulator) -> None:
    runs = []
    for _ in range(2):
        sim.world.faults.clear()
        sim.world.faults.add([{"on": "query", "probability": 0.5, "seed": 4, "do": {"status": 503}}])
        runs.append([query(sim, "x").status_code for _ in range(20)])
    assert (runs[0] == runs[1], set(runs[0])) == (True, {200, 503})


def test_rule_strikes_the_prompt_it_names(sim: Simulator) -> None:
    sim.world.faults.add([{"match": {"prompt_contains": "blue"}, "do": {"status": 503}}])
    assert [submit(sim, p).status_code for p in ("a red cup", "a blue cup")] == [200, 503]


def test_rule_about_a_prompt_strikes_the_queries_of_its_job(sim: Simulator) -> None:
    red, blue = submitted(sim, "a red cup"), submitted(sim, "a blue cup")
    sim.world.faults.add([{"on": "query", "match": {"prompt_contains": "blue"}, "do": {"status": 503}}])
    assert [query(sim, one).status_code for one in (red, blue)] == [200, 503]


def test_rule_strikes_the_model_it_names(sim: Simulator) -> None:
    sim.world.faults.add([{"match": {"model": "sim-image"}, "do": {"status": 503}}])
    assert submit(sim).status_code == HTTPStatus.SERVICE_UNAVAILABLE


def test_rule_strikes_lists_and_cancels(sim: Simulator) -> None:
    script(sim, "list", status=503)
    script(sim, "cancel", status=504)
    listed = requests.get(f"{sim.dashscope}/tasks", headers=AUTH, timeout=5)
    canceled = requests.post(f"{sim.dashscope}/tasks/x/cancel", headers=AUTH, timeout=5)
    assert (listed.status_code, canceled.status_code) == (503, 504)


def test_first_rule_that_strikes_wins(sim: Simulator) -> None:
    script(sim, "query", times=1, status=503)
    script(sim, "query", status=500)
    assert [query(sim, "x").status_code for _ in range(2)] == [503, 500]


def test_rule_strikes_no_more_than_told_under_threads(sim: Simulator) -> None:
    script(sim, "query", times=5, status=503)
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda _: query(sim, "x").status_code, range(40)))
    assert seen.count(503) == 5


def test_rules_are_shown_with_their_counters(sim: Simulator) -> None:
    script(sim, "query", times=1, status=503)
    query(sim, "x")
    (rule,) = requests.get(f"{sim.url}/_sim/faults", timeout=5).json()
    assert (rule["do"], rule["seen"], rule["hits"]) == ({"status": 503}, 1, 1)


def test_rules_are_taken_away(sim: Simulator) -> None:
    script(sim, "query", status=503)
    requests.delete(f"{sim.url}/_sim/faults", timeout=5)
    assert query(sim, "x").status_code == HTTPStatus.OK


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"on": "query"}, "the body is dict"),
        ([7], "rule 0: a rule is 7"),
        ([{"on": "quer", "do": {"reset": True}}], "on is 'quer'; allowed: any, submit, query"),
        ([{"do": {}}], "do is {}"),
        ([{"do": {"rest": True}}], "unknown part 'rest'; allowed: latency_s"),
        ([{"do": {"status": 99}}], "do.status is 99; allowed: an HTTP status, 200 to 599"),
        ([{"do": {"reset": 1}}], "do.reset is 1; allowed: true, false"),
        ([{"do": {"code": "X"}}], "do.code is 'X' without do.status"),
        ([{"on": "list", "do": {"partial": 1}}], "do.partial has no meaning on 'list'; it is for: submit"),
        ([{"dialect": "arc", "do": {"reset": True}}], "dialect is 'arc'; allowed: null, ark, "),
        ([{"times": 0, "do": {"reset": True}}], "times is 0"),
        ([{"match": {"prompt": "x"}, "do": {"reset": True}}], "match has the unknown part 'prompt'"),
        ([{"do": {"reset": True}}, {"do": {"reset": 1}}], "rule 1: "),
    ],
)
def test_bad_rule_is_refused_with_what_is_wrong(sim: Simulator, sent: object, said: str) -> None:
    answer = requests.post(f"{sim.url}/_sim/faults", json=sent, timeout=5)
    assert (answer.status_code, said in answer.json()["message"]) == (400, True), answer.text


def test_bad_rule_takes_its_neighbours_with_it(sim: Simulator) -> None:
    sent = [{"do": {"reset": True}}, {"do": {"reset": 1}}]
    requests.post(f"{sim.url}/_sim/faults", json=sent, timeout=5)
    assert sim.world.faults.as_json() == []


def test_every_action_is_explained_in_the_package() -> None:
    assert [name for name in ACTIONS if f"`{name}`" not in str(package.__doc__)] == []


@pytest.mark.parametrize(
    ("directive", "seen"),
    [
        ("fail", {"task_status": "FAILED", "code": "InternalError.Algo"}),
        ("fail Arrearage", {"task_status": "FAILED", "code": "Arrearage"}),
        ("filtered", {"task_status": "FAILED", "code": "DataInspectionFailed"}),
        ("stuck", {"task_status": "RUNNING"}),
        ("stuck PENDING", {"task_status": "PENDING"}),
        ("slow 600", {"task_status": "PENDING"}),
        ("word DOZING", {"task_status": "DOZING"}),
        ("no-payload", {"task_status": "SUCCEEDED"}),
        ("partial 0", {"task_status": "FAILED", "code": "DataInspectionFailed"}),
        ("poll-word DOZING", {"task_status": "DOZING"}),
        ("poll-unknown", {"task_status": "UNKNOWN"}),
    ],
)
def test_directive_decides_what_a_query_says(sim: Simulator, directive: str, seen: Body) -> None:
    got = output(sim, submitted(sim, f"a cup [[sim: {directive}]]"))
    assert {name: got.get(name) for name in seen} == seen


@pytest.mark.parametrize(
    ("directive", "statuses", "jobs"),
    [
        ("429 2", [429, 429, 200], 1),
        ("503", [503, 200, 200], 2),
        ("reject", [400, 400, 400], 0),
        ("accepted-524", [524, 200, 200], 3),
    ],
)
def test_directive_decides_what_submits_say(sim: Simulator, directive: str, statuses: list[int], jobs: int) -> None:
    prompt = f"a cup [[sim: {directive}]]"
    assert ([submit(sim, prompt).status_code for _ in range(3)], accepted(sim)) == (statuses, jobs)


def test_directive_429_carries_its_retry_after(sim: Simulator) -> None:
    assert submit(sim, "a cup [[sim: 429 1 7]]").headers["Retry-After"] == "7"


def test_directive_lost_answer_strikes_the_first_submit(sim: Simulator) -> None:
    prompt = "a cup [[sim: lost-answer]]"
    with pytest.raises(requests.ConnectionError):
        submit(sim, prompt)
    assert (submit(sim, prompt).status_code, accepted(sim)) == (200, 2)


def test_directive_about_polls_strikes_the_first_queries_of_its_job(sim: Simulator) -> None:
    task_id = submitted(sim, "a cup [[sim: poll-502 2]]")
    assert [query(sim, task_id).status_code for _ in range(3)] == [502, 502, 200]


def test_directive_about_files_strikes_the_first_download(sim: Simulator) -> None:
    address = link(sim, "a cup [[sim: file-404]]")
    assert [requests.get(address, timeout=5).status_code for _ in range(2)] == [404, 200]


def test_directives_work_together(sim: Simulator) -> None:
    submitted(sim, "a cup [[sim: slow 600]] [[sim: partial 1]]", n=2)
    (job,) = sim.world.ledger.accepted(0)
    assert (round(job.ends_at - job.created_at), job.good) == (600, 1)


@pytest.mark.parametrize("directive", ["sleep 3", "slow", "slow soon", "slow -1", "partial 1 2", "429 0", ""])
def test_bad_directive_is_refused_and_named(sim: Simulator, directive: str) -> None:
    answer = submit(sim, f"a cup [[sim: {directive}]]")
    assert (answer.status_code, "directive" in answer.json()["message"]) == (400, True)


def test_every_directive_is_explained_in_the_package() -> None:
    explained = re.sub(r"[A-Z]+", "", str(package.__doc__))
    assert [name for name in FORMS if not re.search(rf"`{name}\b", explained)] == []
