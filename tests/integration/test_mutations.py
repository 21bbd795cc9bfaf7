"""The three rules that everything hangs on, taken away one by one: the invariants of the chaos run notice each.

Each scenario is played twice, over the code as it is and over code with the rule taken out for this one test.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from models import line, store
from models.db import UnitOfWork
from models.failures import FailureKind
from models.lifecycle import Error
from providers.port import Accepted, FindAnswer, Job, NotAccepted, Outcome, Provider, Refused, Uncertain
from tasks import submitting
from tasks.runtime import Runtime
from tests.chaos.evidence import Evidence
from tests.chaos.verdict import RULES
from tests.conftest import MakeSettings
from tests.world import TOML, World

LOST = Error(kind=FailureKind.READ_TIMEOUT, message="no answer")
NO = Error(kind=FailureKind.INVALID_PARAMETER, message="no")
ONE_JOB, FLAGGED = "at most one upstream job an attempt", "lost upstream money is flagged"


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Scene:
    """A gateway and a vendor that keeps a ledger of what it accepted."""

    world: World
    jobs: list[dict[str, Any]] = field(default_factory=list)

    def accept(self, job: Job) -> Accepted:
        """A job that the vendor takes, makes and bills."""
        made = {"id": f"r-{len(self.jobs)}", "prompt": job.effective["prompt"], "created_at": time.time()}
        self.jobs.append({**made, "state": "SUCCEEDED", "billed": 1})
        return Accepted(receipt=str(made["id"]))

    def again(self, id_: UUID) -> None:
        """The task's wake-up comes once more, if it waits for one."""
        self.world.sql("update tasks set wake_at = now() where id = :id and status = 'PENDING'", id=id_)
        self.world.submit(id_)

    def forgotten(self, id_: UUID) -> None:
        """The sweep finds a claim past every time-out of its call and has the vendor asked."""
        self.world.sql("update tasks set wake_at = now() - interval '1 h' where id = :id", id=id_)
        self.world.sweep()
        self.world.reconcile(id_)

    def broken(self) -> set[str]:
        """The names of the invariants that do not hold."""
        with self.world.rt.db.unit_of_work() as uow:
            events = defaultdict(list)
            for event in uow.all("select * from task_events order by id"):
                events[event["task_id"]].append(event)
            evidence = Evidence(
                tasks=uow.all("select * from tasks"),
                events=events,
                calls=defaultdict(list),
                assets=defaultdict(list),
                jobs=self.jobs,
                in_flight=[],
                files={},
                logs={},
            )
        live = "every accepted task is final"  # no scenario plays to the end
        return {name for name, rule in RULES.items() for row in evidence.tasks if any(rule(row, evidence))} - {live}


@pytest.fixture
def scene(make_settings: MakeSettings) -> Iterator[Scene]:
    """Everything works."""
    made = World.build(make_settings(TOML))
    yield Scene(made)
    made.rt.db.close()


# --- the fence: a change made for an older version does nothing ---


def _a_verdict_comes_after_its_task_was_submitted_anew(scene: Scene) -> None:
    """The first submit hangs so long that the vendor is asked, says "never got it", and gets it a second time."""
    id_ = scene.world.add()
    scene.world.provider.can(find=True)
    scene.world.provider.on_find = lambda _job: FindAnswer.ABSENT

    def slow(_job: Job) -> Outcome:
        scene.world.provider.on_submit = scene.accept
        scene.forgotten(id_)
        scene.again(id_)
        return Refused(error=NO)

    scene.world.provider.on_submit = slow
    scene.world.submit(id_)
    assert len(scene.jobs) == 1


def test_a_late_verdict_does_not_end_the_job_that_came_after_it(scene: Scene) -> None:
    _a_verdict_comes_after_its_task_was_submitted_anew(scene)
    assert scene.broken() == set()


def test_without_the_version_fence_it_does_and_is_noticed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    fences = (" and b.version = w.version", " and t.version = w.version")
    assert all(store._APPLY.count(fence) == 1 for fence in fences)
    unfenced = store._APPLY
    for fence in fences:
        unfenced = unfenced.replace(fence, "")
    monkeypatch.setattr(store, "_APPLY", unfenced)
    _a_verdict_comes_after_its_task_was_submitted_anew(scene)
    assert FLAGGED in scene.broken()


# --- the claim: durable before the vendor hears of the task ---


def _a_worker_dies_after_the_vendor_accepted(scene: Scene) -> None:
    id_ = scene.world.add()

    def deadly(job: Job) -> Outcome:
        scene.accept(job)
        scene.world.provider.on_submit = scene.accept
        raise Killed

    scene.world.provider.on_submit = deadly
    with pytest.raises(Killed):
        scene.world.submit(id_)
    scene.again(id_)
    scene.forgotten(id_)


class _OpenClaims:
    """Claims whose transaction stays open across the call, and is committed with what came of it."""

    def __init__(self) -> None:
        self._held: AbstractContextManager[UnitOfWork] | None = None
        self._settle = submitting.settle

    def claim(self, rt: Runtime, id_: UUID, version: int) -> line.Claimed | None:
        """As submitting._claim, without the commit."""
        self._held = rt.db.unit_of_work()
        uow = self._held.__enter__()
        return line.claim(uow, id_, version, rt.settings, submitting.budget_s(rt, "wan"))

    def settle(self, *told: Any) -> None:  # noqa: ANN401  as submitting.settle, whatever that takes
        """The commit, too late; then as submitting.settle."""
        assert self._held is not None
        self._held.__exit__(None, None, None)
        self._settle(*told)

    def dies(self) -> None:
        """What the server does for a client that is gone."""
        assert self._held is not None
        self._held.__exit__(Killed, Killed(), None)


def test_a_worker_that_dies_after_the_vendor_accepted_does_not_buy_twice(scene: Scene) -> None:
    _a_worker_dies_after_the_vendor_accepted(scene)
    assert scene.broken() == set()
    assert len(scene.jobs) == 1


def test_without_a_claim_committed_before_the_call_it_does_and_is_noticed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = _OpenClaims()
    monkeypatch.setattr(submitting, "_claim", claims.claim)
    monkeypatch.setattr(submitting, "settle", claims.settle)
    again = scene.again

    def after_the_death(id_: UUID) -> None:
        claims.dies()
        again(id_)

    monkeypatch.setattr(scene, "again", after_the_death)
    _a_worker_dies_after_the_vendor_accepted(scene)
    assert ONE_JOB in scene.broken()


# --- the unknown outcome: asked about, never sent again ---


def _an_answer_is_lost_after_the_vendor_accepted(scene: Scene) -> None:
    id_ = scene.world.add()

    def silent(job: Job) -> Outcome:
        scene.accept(job)
        scene.world.provider.on_submit = scene.accept
        return Uncertain(error=LOST)

    scene.world.provider.on_submit = silent
    scene.world.submit(id_)
    scene.again(id_)


def test_a_lost_answer_does_not_buy_twice_and_is_flagged(scene: Scene) -> None:
    _an_answer_is_lost_after_the_vendor_accepted(scene)
    assert scene.broken() == set()
    assert len(scene.jobs) == 1


@pytest.mark.parametrize("error", [LOST, Error(kind=FailureKind.NOT_SENT)], ids=["as doubt", "as never sent"])
def test_with_a_resubmit_in_its_place_it_does_and_is_noticed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: Error
) -> None:
    def resubmit(*_: object) -> Outcome:
        return NotAccepted(error=error)

    same: Callable[[Runtime, Provider, Any, Uncertain], Outcome | None] = submitting.ask
    monkeypatch.setattr(submitting, same.__name__, resubmit)
    _an_answer_is_lost_after_the_vendor_accepted(scene)
    assert ONE_JOB in scene.broken()
