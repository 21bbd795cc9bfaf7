"""/metrics: counts of all processes of the host, and how the installation stands."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from models import marks
from models.lifecycle import Change, Reason, Status
from models.store import apply
from tests.service import FOX, Service, uuid_of

pytest_plugins = ["tests.service_fixtures"]


def _samples(service: Service) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    got = service.bare("/metrics")
    assert got.status_code == 200
    families = text_string_to_metric_families(got.text)
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def _key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return f"weir_{name}", frozenset(labels.items())


def test_scrape_tells_what_waits_and_what_was_counted(service: Service) -> None:
    ended = _key("tasks_finished_total", type="image", model="picture", provider="wan", status="CANCELED")
    posted = _key("http_requests_total", method="POST", route="/v1/tasks", code="202")
    replayed = _key("idempotent_replays_total", type="image")
    before = _samples(service)
    task_id = service.post(idem="one").json["task_id"]
    assert service.post(idem="one").status_code == 202
    service.post()
    with service.parts.db.unit_of_work() as uow:
        change = Change(reason=Reason.CANCELLED, to=Status.CANCELED, fields={"certain": True})
        assert apply(uow, uuid_of(task_id), 1, change) == 2
    from api import metrics  # noqa: PLC0415  as the fixture does

    metrics._known.clear()
    after = _samples(service)
    rise = {key: after[key] - before.get(key, 0.0) for key in (ended, posted, replayed)}
    assert rise == {ended: 1.0, posted: 3.0, replayed: 1.0}
    assert after[_key("tasks_open", type="image", provider="wan", status="PENDING")] == 1.0
    assert after[_key("breaker_state", provider="wan", operation="observe")] == 0.0
    assert after[_key("database_up")] == 1.0
    assert str(FOX["prompt"]) not in service.bare("/metrics").text


def test_metrics_are_shown_to_this_host_only(service: Service) -> None:
    answer = service.app.test_client().get("/metrics", environ_base={"REMOTE_ADDR": "192.0.2.7"})
    with answer:
        assert answer.status_code == 404


_OPERATIONS = Path(__file__).parents[2] / "docs" / "operations"


def test_dashboard_and_alerts_ask_for_series_that_exist(service: Service) -> None:
    dashboard = json.loads((_OPERATIONS / "dashboard.json").read_text(encoding="utf-8"))
    asked = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    asked += (_OPERATIONS / "alerts.yml").read_text(encoding="utf-8")
    with service.parts.db.unit_of_work() as uow:
        marks.mark(uow, "sweep")
    known = set(re.findall(r"^# TYPE (\S+) ", service.bare("/metrics").text, re.MULTILINE))
    wanted = {name.removesuffix("_bucket") for name in re.findall(r"\bweir_\w+", asked)}
    assert len(wanted) > 10
    assert wanted - known == set()


def test_promtool_finds_no_fault(service: Service, needs: Callable[[str], str]) -> None:
    promtool = needs("promtool")
    service.post()
    checks = (("rules", str(_OPERATIONS / "alerts.yml"), ""), ("metrics", "", service.bare("/metrics").text))
    for what, path, text in checks:
        command = [promtool, "check", what, *filter(None, [path])]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, done.stdout + done.stderr


def _child(folder: str, times: int) -> None:
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    from models import metrics  # noqa: PLC0415  in the child

    metrics.share(Path(folder))
    metrics.SWEEP_ACTIONS.labels("rewoken").inc(times)


@pytest.mark.parametrize("lives", [1, 3])
def test_count_goes_on_in_the_same_file_after_a_restart(data_dir: Path, lives: int) -> None:
    from models import metrics  # noqa: PLC0415  beside the child's

    fresh = multiprocessing.get_context("spawn")
    for _ in range(lives):
        child = fresh.Process(target=_child, args=(str(data_dir), 2))
        child.start()
        child.join(30)
        assert child.exitcode == 0
    found = metrics.counted(str(data_dir)).get_sample_value("weir_sweep_actions_total", {"action": "rewoken"})
    assert found == 2.0 * lives
    assert [path.name for path in data_dir.glob("*.db")] == ["counter_0.db"]
