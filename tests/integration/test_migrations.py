"""The migrations make what models/tables.py describes, both ways, and the schema refuses each bad row by name."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from alembic import command
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from models import migrations, tables
from models.db import Database, UnitOfWork
from models.lifecycle import Stage, Status
from tests import factories

_CATALOGUE = """
select 'column' as what, table_name || '.' || column_name as name,
       concat_ws(' ', data_type, udt_name, is_nullable, column_default, is_identity) as text
  from information_schema.columns where table_schema = 'public'
union all
select 'index', indexname, indexdef from pg_indexes where schemaname = 'public'
union all
select 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
  from pg_constraint where connamespace = 'public'::regnamespace
"""


def catalogue(url: str) -> dict[tuple[str, str], str]:
    """Every column, index and constraint of a database as PostgreSQL itself writes it."""
    with Database(url) as db, db.unit_of_work() as uow:
        rows = uow.all(_CATALOGUE)
    return {(r["what"], r["name"]): r["text"] for r in rows if "alembic_version" not in r["name"]}


def test_an_empty_database_comes_to_the_newest_revision(empty_database_url: str) -> None:
    assert migrations.current(empty_database_url)[0] is None
    migrations.upgrade(empty_database_url)
    here, newest = migrations.current(empty_database_url)
    assert here == newest
    assert newest is not None


def test_alembic_finds_no_difference_between_tables_and_database(database_url: str) -> None:
    migrations.check(database_url)


def test_the_migrated_schema_is_the_described_one_to_the_letter(database_url: str, empty_database_url: str) -> None:
    engine = create_engine(make_url(empty_database_url).set(drivername="postgresql+psycopg2"))
    tables.METADATA.create_all(engine)
    engine.dispose()
    assert catalogue(database_url) == catalogue(empty_database_url)


def test_down_and_up_again_gives_the_same_schema(database_url: str) -> None:
    before = catalogue(database_url)
    command.downgrade(migrations.config(database_url), "base")
    assert catalogue(database_url) == {}
    migrations.upgrade(database_url)
    assert catalogue(database_url) == before


def test_an_upgrade_of_the_newest_revision_changes_nothing(db: Database, database_url: str) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow)
    before = catalogue(database_url)
    migrations.upgrade(database_url)
    assert catalogue(database_url) == before
    assert factories.row_of(db, id_)["status"] == "PENDING"


def test_two_upgrades_at_once_both_succeed(empty_database_url: str) -> None:
    code = "import os; from models import migrations; migrations.upgrade(os.environ['URL'])"
    environ = {**os.environ, "URL": empty_database_url}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    errors = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    here, newest = migrations.current(empty_database_url)
    assert here == newest


P, RUN, OK, FAILED = Status.PENDING, Status.RUNNING, Status.SUCCESS, Status.FAILED
BAD_TASKS: list[tuple[str, Status, dict[str, Any]]] = [
    ("tasks_stage_known_check", RUN, {"stage": "thinking"}),
    ("tasks_stage_iff_running_check", P, {"stage": Stage.GENERATING}),
    ("tasks_stage_iff_running_check", RUN, {"stage": None}),
    ("tasks_stage_iff_running_check", OK, {"stage": Stage.FETCHING}),
    ("tasks_finished_iff_final_check", P, {"finished_at": timedelta()}),
    ("tasks_finished_iff_final_check", RUN, {"finished_at": timedelta()}),
    *(("tasks_finished_iff_final_check", s, {"finished_at": None}) for s in (OK, FAILED, Status.TIMEOUT)),
    ("tasks_finished_iff_final_check", Status.CANCELED, {"finished_at": None}),
    ("tasks_type_known_check", P, {"type": "audio"}),
    ("tasks_counters_positive_check", P, {"version": 0}),
    ("tasks_counters_positive_check", P, {"attempt": 0}),
    ("tasks_money_not_negative_check", OK, {"cost_micros": -1}),
    ("tasks_money_not_negative_check", P, {"price_micros": -1}),
    *(
        ("tasks_cost_only_for_success_check", s, {"cost_micros": 1})
        for s in (P, RUN, FAILED, Status.TIMEOUT, Status.CANCELED)
    ),
    ("tasks_error_iff_failed_check", FAILED, {"error_code": None}),
    ("tasks_error_iff_failed_check", Status.TIMEOUT, {"error_code": None}),
    *(("tasks_error_iff_failed_check", s, {"error_code": "stuck"}) for s in (P, RUN, OK, Status.CANCELED)),
    ("tasks_key_with_fingerprint_check", P, {"idempotency_key": "k"}),
    ("tasks_user_id_fkey", P, {"user_id": "00000000-0000-0000-0000-000000000000"}),
    ("tasks_key_id_fkey", P, {"key_id": "00000000-0000-0000-0000-000000000000"}),
]


def refused_by(db: Database, write: Any) -> str:  # noqa: ANN401  a function of a UnitOfWork
    """The name of the constraint that refuses what `write` does."""
    with pytest.raises(IntegrityError) as caught, db.unit_of_work() as uow:
        write(uow)
    return str(caught.value.orig.diag.constraint_name)  # type: ignore[union-attr]  # psycopg2's own


@pytest.mark.parametrize(("name", "status", "columns"), BAD_TASKS)
def test_a_bad_task_is_refused_by_name(db: Database, name: str, status: Status, columns: dict[str, Any]) -> None:
    assert refused_by(db, lambda uow: factories.add_task(uow, status, **columns)) == name


def test_an_unknown_status_is_refused_by_name(db: Database) -> None:
    def write(uow: UnitOfWork) -> None:
        factories.add_task(uow)
        uow.execute("update tasks set status = 'DONE'")

    assert refused_by(db, write) == "tasks_status_known_check"


def test_every_check_of_the_schema_has_its_bad_row(db: Database) -> None:
    with db.unit_of_work() as uow:
        rows = uow.all("select conname from pg_constraint where contype = 'c' and conname like 'tasks%'")
    tried = {name for name, _, _ in BAD_TASKS if name.endswith("_check")} | {"tasks_status_known_check"}
    assert {row["conname"] for row in rows} == tried


def test_a_task_of_every_status_is_accepted(db: Database) -> None:
    with db.unit_of_work() as uow:
        for status in Status:
            factories.add_task(uow, status)
        assert uow.scalar("select count(*) from tasks") == len(Status)


def twice(uow: UnitOfWork, **columns: Any) -> None:  # noqa: ANN401  columns of tasks
    """Two tasks of one user that share these."""
    factories.add_task(uow, **columns)
    factories.add_task(uow, **columns)


def test_one_key_of_one_user_and_order_is_one_task(db: Database) -> None:
    same = {"order_id": "o", "idempotency_key": "k", "fingerprint": b"f"}
    assert refused_by(db, lambda uow: twice(uow, **same)) == "tasks_idempotency_key"


def test_one_receipt_of_one_provider_is_one_task(db: Database) -> None:
    same = {"status": Status.SUCCESS, "receipt": "r"}
    assert refused_by(db, lambda uow: twice(uow, **same)) == "tasks_receipt_key"


def test_one_name_is_one_user(db: Database) -> None:
    def write(uow: UnitOfWork) -> None:
        for _ in range(2):
            factories.add_user(uow, "ann", running_limit=1)

    assert refused_by(db, write) == "users_name_key"


def test_one_version_of_a_task_is_announced_once(db: Database) -> None:
    def write(uow: UnitOfWork) -> None:
        id_ = factories.add_task(uow)
        for _ in range(2):
            factories.add_delivery(uow, id_)

    assert refused_by(db, write) == "webhook_deliveries_once"


def test_a_removed_task_takes_its_records_along(db: Database) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow)
        factories.add_delivery(uow, id_)
        uow.execute("delete from tasks where id = :id", id=id_)
        assert uow.scalar("select count(*) from webhook_deliveries") == 0
