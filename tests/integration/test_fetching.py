"""Bringing the bytes home: partial, unreachable, no picture at all, nowhere to put them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest

from models.failures import FailureKind
from models.lifecycle import Error, Failed, Finished, Missing, Output, Reason
from providers.storage import StorageError
from tasks import fetching
from tests.conftest import MakeSettings
from tests.scripted import done
from tests.world import TOML, World


@pytest.fixture
def world(make_settings: MakeSettings) -> Iterator[World]:
    """A gateway with room for a hundred."""
    made = World.build(make_settings(TOML))
    yield made
    made.rt.db.close()


def test_partial_result_is_priced_by_what_came(world: World) -> None:
    id_ = world.add(count=3)
    world.submit(id_)
    gone = Missing(kind=FailureKind.CONTENT_FILTERED, message="filtered")
    world.provider.on_observe = lambda _: Finished(outputs=done(2).outputs, missing=(gone,))
    world.poll()
    row = world.fetch(id_)
    assert (row["status"], row["partial"], row["cost_micros"], len(row["outputs"])) == ("SUCCESS", True, 200, 2)
    assert row["missing"][0]["code"] == "content_filtered"


def test_unreachable_result_is_fetched_again_and_never_generated_again(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: Finished(outputs=(Output(url="http://127.0.0.1:9/x.png"),))
    world.poll()
    for _ in range(world.rt.settings.retries.fetch_attempts - 1):
        row = world.fetch(id_)
        assert (row["status"], row["stage"]) == ("RUNNING", "fetching")
    row = world.fetch(id_)
    assert (row["status"], row["error_code"], row["cost_micros"]) == ("FAILED", "result_unavailable", 0)
    assert (row["risk"], len(world.provider.submits)) == (True, 1)


def test_storage_that_is_full_burns_no_try_and_loses_no_result(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    put_file = world.rt.storage.put_file

    def full(*_args: object) -> NoReturn:
        raise StorageError("no space left")

    world.rt.storage.put_file = full  # type: ignore[method-assign,assignment]  # as a full disk answers
    for _ in range(world.rt.settings.retries.fetch_attempts + 2):
        row = world.fetch(id_)
    assert (row["status"], row["stage"], row["fetch_tries"]) == ("RUNNING", "fetching", 0)
    world.rt.storage.put_file = put_file  # type: ignore[method-assign]  # room again
    assert world.fetch(id_)["status"] == "SUCCESS"


def test_page_instead_of_a_picture_is_no_result(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: Finished(outputs=(Output(content=b"<html>sorry</html>"),))
    world.poll()
    for _ in range(world.rt.settings.retries.fetch_attempts):
        row = world.fetch(id_)
    assert (row["status"], row["error_code"]) == ("FAILED", "result_invalid")


def _files(world: World) -> list[str]:
    return [*world.rt.storage.list("results")]


def test_nothing_is_left_of_a_result_that_was_stored_and_never_delivered(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    row = world.row(id_)
    items, error = fetching.bring(world.rt, row, row["upstream_outputs"])  # and then its process died
    assert (len(items), error, len(_files(world))) == (1, None, 1)
    world.sql("update tasks set deadline_at = now() - interval '1 second'")
    world.sweep()
    world.sql("update tasks set upstream_outputs = null")
    world.provider.on_observe = lambda _: Failed(error=Error(kind=FailureKind.CONTENT_FILTERED))
    assert world.reconcile(id_)["status"] == "FAILED"
    assert _files(world) == []


def test_file_of_a_delivered_result_outlives_a_second_fetch_that_comes_late(world: World) -> None:
    id_ = world.add()
    world.submit(id_)
    world.provider.on_observe = lambda _: done()
    world.poll()
    late = world.row(id_)
    assert world.fetch(id_)["status"] == "SUCCESS"
    change = fetching.ending(late, [], None, reason=Reason.FINISHED)
    assert fetching.finish(world.rt, late, change, [], []) is None
    assert len(_files(world)) == 1
