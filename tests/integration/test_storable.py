"""Whatever a vendor says can be written."""

from __future__ import annotations

import pytest

from models import store
from models.db import Database
from models.lifecycle import Change, Reason, Status
from tests import factories


@pytest.mark.parametrize("text", ["im\0age", "half \ud800 pair"])
def test_text_that_postgresql_refuses_never_keeps_a_verdict_from_being_written(db: Database, text: str) -> None:
    with db.unit_of_work() as uow:
        id_ = factories.add_task(uow, Status.RUNNING)
        fields = {"error_code": "provider_error", "error_message": text, "upstream_usage": {text: [text]}}
        change = Change(reason=Reason.REFUSED, to=Status.FAILED, fields=fields, detail={"why": text})
        assert store.apply(uow, id_, 1, change) == 2
