"""What breaks says where and what kind, and never what it was about."""

from __future__ import annotations

import pytest

from models.db import Database
from tasks import StepFailedError, app


@app.task(name="tests.broken")
def broken(url: str) -> None:
    """Fail as a database does that quotes its statement."""
    with Database(url, pool=1) as db, db.unit_of_work() as uow:
        uow.execute("insert into users (id, name) values (cast(:prompt as uuid), 'x')", prompt="a secret prompt")


def test_error_of_a_celery_task_quotes_no_statement(database_url: str) -> None:
    with pytest.raises(StepFailedError) as caught:
        broken.apply(args=(database_url,), throw=True)
    assert "DataError in" in str(caught.value)
    assert "secret" not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
