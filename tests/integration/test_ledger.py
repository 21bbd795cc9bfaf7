"""Upstream calls: one line each, found by every task it asked about."""

from __future__ import annotations

from uuid import uuid4

from models import ledger
from models.db import Database
from models.ledger import CallLine

LINE = CallLine(
    task_ids=[uuid4()], provider="sim", operation="submit", started_at_s=1_700_000_000.25, ms=12, verdict="ok"
)


def test_a_batch_query_is_one_line_that_each_of_its_tasks_finds(db: Database) -> None:
    first, second = uuid4(), uuid4()
    with db.unit_of_work() as uow:
        ledger.record_calls(uow, [CallLine(**{**vars(LINE), "task_ids": [first, second]}), LINE])
        for id_ in (first, second):
            found = uow.all("select task_ids from upstream_calls where task_ids @> array[cast(:id as uuid)]", id=id_)
            assert [list(row["task_ids"]) for row in found] == [[first, second]]


def test_a_line_comes_back_as_it_went_in(db: Database) -> None:
    full = CallLine(
        **{**vars(LINE), "http_status": 429, "request_id": "r'1", "error": 'say "no" \u6f22', "verdict": "x"}
    )
    with db.unit_of_work() as uow:
        ledger.record_calls(uow, [full])
        row = uow.one("select *, extract(epoch from started_at)::float as started_at_s from upstream_calls")
    assert row is not None
    assert {name: row[name] for name in vars(full)} == {**vars(full), "task_ids": list(full.task_ids)}


def test_what_is_not_known_stays_null(db: Database) -> None:
    with db.unit_of_work() as uow:
        ledger.record_calls(uow, [LINE])
        row = uow.one("select http_status, request_id, error from upstream_calls")
    assert row is not None
    assert set(row.values()) == {None}


def test_a_call_about_no_task_is_recorded_too(db: Database) -> None:
    with db.unit_of_work() as uow:
        ledger.record_calls(uow, [CallLine(**{**vars(LINE), "task_ids": []})])
        assert uow.scalar("select cardinality(task_ids) from upstream_calls") == 0


def test_no_lines_are_no_statement(db: Database) -> None:
    with db.unit_of_work() as uow:
        ledger.record_calls(uow, [])
        assert uow.scalar("select count(*) from upstream_calls") == 0
