"""What is removed, and when: result bytes, keys, whole tasks into the archive."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest

from models import ids
from providers.storage import NotStoredError
from tasks import retention
from tests.conftest import MakeSettings
from tests.scripted import done
from tests.world import TOML, World


@pytest.fixture
def world(make_settings: MakeSettings) -> Iterator[World]:
    """A gateway with room for a hundred."""
    made = World.build(make_settings(TOML))
    yield made
    made.rt.db.close()


def _succeeded(world: World, *, days_ago: int) -> UUID:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    world.fetch(id_)
    world.sql(
        "update tasks set finished_at = now() - make_interval(days => :days) where id = :id", id=id_, days=days_ago
    )
    world.sql(
        "update assets set expires_at = now() + make_interval(days => 30 - :days) where task_id = :id",
        id=id_,
        days=days_ago,
    )
    return id_


def _count(world: World, table: str) -> int:
    with world.rt.db.unit_of_work() as uow:
        return int(uow.scalar(f"select count(*) from {table}"))  # noqa: S608  a table's name, given by the test


def _keys(world: World, id_: UUID, *, days_ago: int, status: str = "SUCCESS") -> None:
    world.sql(
        """update tasks set idempotency_key = cast(id as text), fingerprint = 'x', status = :status,
                  error_code = case when :status = 'FAILED' then 'internal_error' end,
                  cost_micros = 0, finished_at = now() - make_interval(days => :days) where id = :id""",
        id=id_,
        days=days_ago,
        status=status,
    )


def test_results_are_removed_after_their_days_and_kept_before(world: World) -> None:
    old, young = _succeeded(world, days_ago=31), _succeeded(world, days_ago=29)
    key_of = {id_: world.row(id_)["outputs"][0]["key"] for id_ in (old, young)}
    world.sql("update tasks set idempotency_key = 'k', fingerprint = 'x' where id = :id", id=young)
    assert retention.run(world.rt)["results"] == 1
    with pytest.raises(NotStoredError):
        world.rt.storage.open(key_of[old])
    assert world.rt.storage.open(key_of[young]).size_bytes > 0


@pytest.mark.parametrize(("status", "kept", "gone"), [("SUCCESS", 29, 31), ("FAILED", 0, 2)])
def test_keys_are_forgotten_by_status(world: World, status: str, kept: int, gone: int) -> None:
    young, old = _succeeded(world, days_ago=0), _succeeded(world, days_ago=0)
    _keys(world, young, days_ago=kept, status=status)
    _keys(world, old, days_ago=gone, status=status)
    assert retention.run(world.rt)["keys"] == 1
    assert world.row(young)["idempotency_key"] is not None


def test_old_task_moves_into_the_archive_with_its_history(world: World) -> None:
    id_ = _succeeded(world, days_ago=31)
    assert retention.run(world.rt)["tasks"] == 1
    assert (_count(world, "tasks"), _count(world, "task_events"), _count(world, "assets")) == (0, 0, 0)
    (key,) = world.rt.storage.list("archive/")
    (line,) = gzip.decompress(b"".join(world.rt.storage.open(key).chunks)).splitlines()
    kept = json.loads(line)
    assert (kept["task"]["id"], kept["task"]["status"]) == (str(id_), "SUCCESS")
    assert [e["reason"] for e in kept["events"]][-1] == "finished"
    assert ids.encode("task", id_) in key


def test_task_that_may_have_cost_money_stays(world: World) -> None:
    id_ = _succeeded(world, days_ago=31)
    world.sql("update tasks set risk = true where id = :id", id=id_)
    assert "tasks" not in retention.run(world.rt)


def test_live_task_is_never_removed(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    retention.run(world.rt)
    assert world.row(id_)["status"] == "RUNNING"


def test_second_run_finds_nothing(world: World) -> None:
    _succeeded(world, days_ago=31)
    retention.run(world.rt)
    assert retention.run(world.rt).total() == 0


def test_runs_in_quiet_hours_and_once_a_day_otherwise(world: World) -> None:
    night, noon = datetime(2026, 11, 30, 2, tzinfo=UTC), datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert retention.due(world.rt, noon), "never ran"
    retention.run(world.rt)
    assert (retention.due(world.rt, night), retention.due(world.rt, noon)) == (True, False)
    world.sql("update marks set at = now() - interval '25 hours'")
    assert retention.due(world.rt, noon)
