"""What was asked of vendors: one line per call, a batch query one line with all the ids it asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from models.db import UnitOfWork, as_json


@dataclass(frozen=True, kw_only=True)
class CallLine:
    """One upstream call. `started_at_s` unix seconds, `ms` milliseconds, `error` cleaned and at most 200 characters."""

    task_ids: Sequence[UUID]
    provider: str
    operation: str
    started_at_s: float
    ms: int
    verdict: str
    http_status: int | None = None
    request_id: str | None = None
    error: str | None = None


def record_calls(uow: UnitOfWork, lines: Sequence[CallLine]) -> None:
    """Write the lines in one statement."""
    if not lines:
        return
    rows = [{**vars(line), "task_ids": [str(i) for i in line.task_ids]} for line in lines]
    uow.execute(
        """insert into upstream_calls
                  (task_ids, provider, operation, started_at, ms, verdict, http_status, request_id, error)
           select array(select cast(x as uuid) from jsonb_array_elements_text(w.task_ids) x), w.provider, w.operation,
                  to_timestamp(w.started_at_s), w.ms, w.verdict, w.http_status, w.request_id, w.error
             from jsonb_to_recordset(cast(:rows as jsonb)) as w(
                  task_ids jsonb, provider text, operation text, started_at_s double precision, ms int, verdict text,
                  http_status smallint, request_id text, error text)""",
        rows=as_json(rows),
    )
