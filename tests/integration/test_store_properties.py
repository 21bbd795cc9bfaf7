"""Whatever happens to a few tasks, in whatever order, on a real database: the promises of the row hold after each step.

A worker is what it holds in memory: the row as it read it, the version it was given, the vendor's answer. It may use
either much later, twice, or never (it died). The vendor counts what it accepted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as limits
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from models import backoff, line, store, watch
from models.db import Database, Row, UnitOfWork
from models.failures import FailureKind
from models.lifecycle import (
    FINAL,
    LIVE,
    TRANSITIONS,
    Change,
    End,
    Error,
    Fetch,
    Ignore,
    Observation,
    Reason,
    Stage,
    Status,
    View,
    Wait,
    decide,
)
from tests import factories
from tests.factories import DONE, OBSERVATIONS, failed, succeeded, timed_out

CAP = 2
SETTINGS = factories.settings(providers={"sim": CAP})
POLICY = backoff.Policy(min_s=1, max_s=15)
LEGAL = {(t.start, t.reason, t.to) for t in TRANSITIONS}


@dataclass(frozen=True)
class Held:
    """What a worker has in its memory after a claim and after the call."""

    id: UUID
    version: int
    attempt: int
    answer: str = ""


ANSWERS = ["accepted", "accepted", "refused", "not taken", "lost", "died"]
AGE = st.sampled_from([0, 0, 0, 1, 2, 5])  # 0: the row as it is; n: as it was n changes ago


class Tasks(RuleBasedStateMachine):
    """Two or three tasks, their workers, the caller, the vendor and the sweep."""

    db: ClassVar[Database]
    tasks = Bundle("tasks")
    answers = Bundle("answers")  # a worker that knows what the call said

    def __init__(self) -> None:
        super().__init__()
        self.accepted: Counter[tuple[UUID, int]] = Counter()
        self.history: defaultdict[UUID, list[Row]] = defaultdict(list)
        self.dead = False

    def teardown(self) -> None:
        """Leave nothing to the next example."""
        with self.db.unit_of_work() as uow:
            uow.execute("delete from task_events")
            uow.execute("delete from tasks")

    # --- how anything is written ---

    def write(self, act: Callable[[UnitOfWork], int | None]) -> int | None:
        """Run `act` in a transaction; it leaves nothing when the process dies before the commit."""
        if not self.dead:
            with self.db.unit_of_work() as uow:
                return act(uow)
        self.dead = False
        with self.db.engine.connect() as connection:
            act(UnitOfWork(connection))
            connection.rollback()
        return None

    def apply(self, id_: UUID, version: int, change: Change) -> int | None:
        """Propose; a second time at once it must not move."""
        before = factories.row_of(self.db, id_)
        moved = self.write(lambda uow: store.apply(uow, id_, version, change))
        if moved is None:
            assert factories.row_of(self.db, id_) == before
        else:
            assert moved == before["version"] + 1 == version + 1
            assert self.write(lambda uow: store.apply(uow, id_, version, change)) is None
        return moved

    @rule()
    def the_next_writer_dies_before_its_commit(self) -> None:
        """Once."""
        self.dead = True

    # --- the caller ---

    @initialize(target=tasks)
    def first(self) -> UUID:
        """There is always one."""
        return self.add()

    @precondition(lambda self: sum(past[-1]["status"] in LIVE for past in self.history.values()) < 3)
    @rule(target=tasks)
    def submit(self) -> UUID:
        """POST."""
        return self.add()

    def add(self) -> UUID:
        """A new task and its `accepted` event."""
        with self.db.unit_of_work() as uow:
            values = factories.submission(factories.add_user(uow))
            assert store.insert(uow, values, {})
        id_: UUID = values["id"]
        return id_

    @rule(id_=tasks, age=AGE)
    def cancel(self, id_: UUID, age: int) -> None:
        """DELETE: at once while it waits, a wish while it runs."""
        look = self.seen(id_, age)
        if look["status"] == Status.PENDING:
            change = Change(reason=Reason.CANCELLED, to=Status.CANCELED, fields={"certain": True})
            self.apply(look["id"], look["version"], change)
        else:
            self.write(lambda uow: store.request_cancel(uow, look["id"]))

    @rule(id_=tasks, age=AGE)
    def repeat_the_key(self, id_: UUID, age: int) -> None:
        """A restart, if the failure was certain."""
        look = self.seen(id_, age)
        fields = {
            "attempt": look["attempt"] + 1, "receipt": None, "error_code": None, "certain": False, "progress": None,
            "cancel_requested_at": None, "lost_polls": 0, "empty_polls": 0, "failed_polls": 0,
        }  # fmt: skip
        moved = self.apply(
            look["id"], look["version"], Change(reason=Reason.RESTARTED, to=Status.PENDING, fields=fields)
        )
        assert moved is None or look["certain"]

    # --- the workers ---

    def seen(self, id_: UUID, age: int) -> Row:
        """The row as somebody reads it now, or read it `age` changes ago."""
        now = factories.row_of(self.db, id_)
        past = [now, *reversed(self.history[id_])]
        return past[age % len(past)]

    @rule(id_=tasks, steps=st.integers(1, 3))
    def all_goes_well(self, id_: UUID, steps: int) -> None:
        """Some of: claimed, accepted and received; polled and done; fetched."""
        for _ in range(steps):
            row = factories.row_of(self.db, id_)
            if row["stage"] == Stage.GENERATING:
                self.poll_row(row, DONE, 0.5)
            elif row["stage"] == Stage.FETCHING:
                self.apply(id_, row["version"], succeeded(Reason.FINISHED))
            elif (held := self.claim_at(id_, row["version"])) is not None:
                self.write_answer(self.answered(held, "accepted"))

    def claim_at(self, id_: UUID, version: int) -> Held | None:
        """Claim a task if it is still as the message says."""

        def act(uow: UnitOfWork) -> int | None:
            claimed = line.claim(uow, id_, version, SETTINGS, 60.0)
            return None if claimed is None else claimed.version

        moved = self.write(act)
        assert moved in (None, version + 1)
        return None if moved is None else Held(id_, moved, int(factories.row_of(self.db, id_)["attempt"]))

    @rule(target=answers, id_=tasks, age=AGE, answer=st.sampled_from(ANSWERS))
    def submit_message_comes(self, id_: UUID, age: int, answer: str) -> object:
        """Claim; then the vendor is called, once per claim, unless the worker dies first."""
        held = self.claim_at(id_, self.seen(id_, age)["version"])
        return multiple() if held is None or answer == "died" else self.answered(held, answer)

    def answered(self, held: Held, answer: str) -> Held:
        """What the vendor says, and counts."""
        if answer in ("accepted", "lost"):
            self.accepted[held.id, held.attempt] += 1
        return Held(held.id, held.version, held.attempt, answer)

    @rule(held=answers)
    def write_the_answer(self, held: Held) -> None:
        """Early, late or twice."""
        self.write_answer(held)

    def write_answer(self, held: Held) -> None:
        """Propose what the answer means."""
        receipt = f"r-{held.id}-{held.attempt}"
        change = {
            "accepted": Change(
                reason=Reason.OBSERVED,
                to=Status.RUNNING,
                fields={"stage": Stage.GENERATING, "receipt": receipt},
                wake_in_s=0,
            ),
            "refused": failed(FailureKind.INVALID_PARAMETER),
            "not taken": Change(reason=Reason.NOT_ACCEPTED, to=Status.PENDING, wake_in_s=0),
            "lost": failed(FailureKind.SUBMIT_UNCONFIRMED),
        }[held.answer]
        moved = self.apply(held.id, held.version, change)
        if moved is None and held.answer == "accepted":
            self.write(lambda uow: store.adopt_receipt(uow, held.id, held.attempt, receipt))

    @rule(id_=tasks, age=AGE, seen=st.sampled_from(OBSERVATIONS), jitter=st.floats(0, 0.99))
    def poll(self, id_: UUID, age: int, seen: Observation, jitter: float) -> None:
        """A round decides about a row as it read it."""
        self.poll_row(self.seen(id_, age), seen, jitter)

    def poll_row(self, look: Row, seen: Observation, jitter: float) -> None:
        """Decide, and do it."""
        with self.db.unit_of_work() as uow:
            now = uow.scalar("select now()")
        view = View(
            status=Status(look["status"]),
            stage=Stage(look["stage"]) if look["stage"] else None,
            deadline_at=look["deadline_at"],
            progress=look["progress"],
            poll_count=look["poll_count"],
            lost_polls=look["lost_polls"],
            empty_polls=look["empty_polls"],
            failed_polls=look["failed_polls"],
            cancel_requested=look["cancel_requested_at"] is not None,
        )
        match decide(view, seen, now, backoff.countdown(view.poll_count, POLICY, jitter)):
            case Wait(news=True) as wait:
                change = Change(
                    reason=Reason.OBSERVED, to=Status.RUNNING, fields={"progress": wait.progress}, wake_in_s=wait.wait_s
                )
                self.apply(look["id"], look["version"], change)
            case Wait() as wait:
                self.touch(look, wait)
            case Fetch():
                fields = {"stage": Stage.FETCHING, "upstream_outputs": [{}]}
                self.apply(
                    look["id"], look["version"], Change(reason=Reason.OBSERVED, to=Status.RUNNING, fields=fields)
                )
            case End(status=Status.CANCELED):
                change = Change(reason=Reason.CANCELLED, to=Status.CANCELED, fields={"certain": True})
                self.apply(look["id"], look["version"], change)
            case End(status=Status.TIMEOUT):
                self.apply(look["id"], look["version"], timed_out(look, Reason.DEADLINE))
            case End(error=Error(kind=kind)):
                self.apply(look["id"], look["version"], failed(kind))
            case End() | Ignore():
                pass

    def touch(self, look: Row, wait: Wait) -> None:
        """A poll without news: counted only on the row that was read."""
        before = factories.row_of(self.db, look["id"])
        touch = store.Touch(
            id=look["id"],
            version=look["version"],
            wait_s=wait.wait_s,
            failed_polls=wait.failed_polls,
            lost_polls=wait.lost_polls,
            empty_polls=wait.empty_polls,
        )
        self.write(lambda uow: store.touch(uow, [touch]))
        after = factories.row_of(self.db, look["id"])
        assert after["version"] == before["version"]
        if before["version"] != look["version"]:
            assert after == before

    @rule(id_=tasks, age=AGE, arrives=st.booleans())
    def fetch(self, id_: UUID, age: int, *, arrives: bool) -> None:
        """The bytes are here, or will not come; only while fetching."""
        look = self.seen(id_, age)
        if look["stage"] == Stage.FETCHING:
            change = succeeded(Reason.FINISHED) if arrives else failed(FailureKind.RESULT_UNAVAILABLE)
            self.apply(look["id"], look["version"], change)

    @rule(id_=tasks)
    def a_late_result_comes(self, id_: UUID) -> None:
        """It is written down and changes nothing."""
        before = factories.row_of(self.db, id_)
        self.write(lambda uow: store.note_late(uow, id_, {"what": "late"}))
        assert factories.row_of(self.db, id_) == before

    @rule(id_=tasks, age=AGE, truth=st.sampled_from(["done", "failed", "lost"]))
    def reconcile(self, id_: UUID, age: int, truth: str) -> None:
        """The vendor is asked after the end."""
        look = self.seen(id_, age)
        change = {
            "done": succeeded(Reason.RECONCILED),
            "failed": failed(FailureKind.UPSTREAM_LOST, Reason.RECONCILED),
            "lost": failed(FailureKind.UPSTREAM_LOST, Reason.RECONCILED),
        }[truth]
        self.apply(look["id"], look["version"], change)

    # --- the sweep ---

    @rule(id_=tasks)
    def the_deadline_comes(self, id_: UUID) -> None:
        """The sweep ends what is late, once."""
        with self.db.unit_of_work() as uow:
            uow.execute("update tasks set deadline_at = now() - interval '1 s' where id = :id", id=id_)
            late = watch.past_deadline(uow, 10)
            proposals = [
                store.Proposal(id=row["id"], version=row["version"], change=timed_out(row, Reason.DEADLINE))
                for row in late
            ]
            assert set(store.apply_all(uow, proposals)) == {row["id"] for row in late}

    @rule(id_=tasks, age=AGE, stuck=st.booleans())
    def its_wake_up_was_lost(self, id_: UUID, age: int, *, stuck: bool) -> None:
        """The sweep rings, or gives up on a row that stands still."""
        look = self.seen(id_, age)
        if look["status"] in LIVE:
            rung = Change(reason=Reason.REWOKEN, to=Status(look["status"]), wake_in_s=0)
            self.apply(id_, look["version"], timed_out(look, Reason.STUCK) if stuck else rung)

    # --- what must hold ---

    @invariant()
    def every_row_is_consistent(self) -> None:
        """finished_at, stage, cost and error say the same as the status."""
        with self.db.unit_of_work() as uow:
            rows = uow.all("select * from tasks")
            events = uow.all("select * from task_events order by id")
        assert sum(row["status"] == Status.RUNNING for row in rows) <= CAP
        for row in rows:
            assert (row["finished_at"] is not None) is (row["status"] in FINAL)
            assert (row["stage"] is not None) is (row["status"] == Status.RUNNING)
            assert row["cost_micros"] == (100 if row["status"] == Status.SUCCESS else 0)
            past = self.history[row["id"]]
            assert not past or row["version"] >= past[-1]["version"]
            if not past or row != past[-1]:
                past.append(row)
            self.tells_one_story(row, [e for e in events if e["task_id"] == row["id"] and e["reason"] != "late"])

    def tells_one_story(self, row: Row, events: list[Row]) -> None:
        """The events are a chain of legal transitions that ends at the row; each attempt ends once."""
        assert [e["version"] for e in events] == list(range(1, row["version"] + 1))
        assert [e["from_status"] for e in events] == [None, *(e["to_status"] for e in events[:-1])]
        assert events[-1]["to_status"] == row["status"]
        assert events[-1]["attempt"] == row["attempt"]
        assert {(e["from_status"], e["reason"], e["to_status"]) for e in events} <= LEGAL
        ends = [e for e in events if e["to_status"] in FINAL]
        first_ends = Counter(e["attempt"] for e in ends if e["reason"] != Reason.RECONCILED)
        second_ends = Counter(e["attempt"] for e in ends if e["reason"] == Reason.RECONCILED)
        assert all(n == 1 for n in (first_ends + second_ends - second_ends).values())
        assert all(n == 1 for n in second_ends.values())
        assert sum(e["to_status"] == Status.SUCCESS for e in ends) <= 1

    @invariant()
    def nothing_was_bought_twice(self) -> None:
        """No attempt was accepted twice, and none was begun after one that may still be paid for."""
        assert all(n == 1 for n in self.accepted.values())


@pytest.mark.timeout(400)  # it takes 20 s; finding the shortest way to a fault takes longer
def test_no_order_of_events_breaks_a_promise_of_the_row(db: Database) -> None:
    class Bound(Tasks):
        """Over this test's database."""

    Bound.db = db
    run_state_machine_as_test(
        Bound,
        settings=limits(
            max_examples=100,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
