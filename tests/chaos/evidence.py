"""What is read at the end of a run: rows, the vendor's ledger, files, logs. Reads only."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

from models.db import Database, Row

_STORED = ("results", "held", "tmp")  # the folders of the data folder that storage and downloads write into


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All of it, indexed."""

    tasks: Sequence[Row]
    events: Mapping[UUID, Sequence[Row]]
    calls: Mapping[UUID, Sequence[Row]]
    assets: Mapping[UUID, Sequence[Row]]
    jobs: Sequence[Mapping[str, Any]]
    in_flight: Sequence[Mapping[str, Any]]
    files: Mapping[str, tuple[int, str]] = field(repr=False)  # key: (bytes, sha256)
    logs: Mapping[str, str] = field(repr=False)

    @cached_property
    def jobs_of(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The vendor's accepted jobs by prompt, oldest first; every wish has a prompt of its own."""
        found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for job in sorted(self.jobs, key=lambda job: job["created_at"]):
            found[job["prompt"]].append(job)
        return found

    def jobs_for(self, row: Row) -> Sequence[Mapping[str, Any]]:
        """The vendor's jobs for this task."""
        return self.jobs_of.get(row["effective"]["prompt"], ())

    def story(self, row: Row) -> str:
        """A task's whole history, for a report."""
        head = (
            f"{row['id']} {row['type']} {row['status']} {row['error_code']} v{row['version']} attempt {row['attempt']}"
            f" calls {row['upstream_call_count']} certain {row['certain']} risk {row['risk']} receipt {row['receipt']}"
            f" created {row['created_at']:%H:%M:%S.%f} deadline {row['deadline_at']:%H:%M:%S}"
        )
        lines = [head]
        lines += [
            f"  {e['at']:%H:%M:%S.%f} v{e['version']} {e['from_status']} -{e['reason']}-> {e['to_status']}"
            f" {e['stage'] or ''} {dict(e['detail'])}"
            for e in self.events[row["id"]]
        ]
        lines += [
            f"  {c['started_at']:%H:%M:%S.%f} {c['ms']} ms {c['operation']} {c['http_status']} {c['verdict']}"
            for c in self.calls[row["id"]]
            if c["operation"] != "observe"
            or c["verdict"] != "ok"
            or c["started_at"] > (row["finished_at"] or c["started_at"])
        ]
        lines += [
            f"  job {j['id']} at {j['created_at']:.2f} {j['state']} billed {j['billed']}" for j in self.jobs_for(row)
        ]
        return "\n".join(lines)


def gather(database_url: str, ledger: Mapping[str, Any], folder: Path, logs: Sequence[Path]) -> Evidence:
    """Read everything. The database by its own address, not through a proxy."""
    with Database(database_url, pool=1) as database, database.unit_of_work() as uow:
        calls = uow.all("select c.*, i as task_id from upstream_calls c, unnest(c.task_ids) i order by c.id")
        return Evidence(
            tasks=uow.all(
                "select t.*, u.name as user_name from tasks t join users u on u.id = t.user_id order by t.id"
            ),
            events=_by_task(uow.all("select * from task_events order by id")),
            calls=_by_task(calls),
            assets=_by_task(uow.all("select * from assets order by task_id, n")),
            jobs=ledger["accepted"],
            in_flight=ledger["in_flight"],
            files={path.relative_to(folder).as_posix(): _digest(path) for path in _files(folder)},
            logs={path.name: path.read_text(encoding="utf-8", errors="replace") for path in logs},
        )


def _by_task(rows: Sequence[Row]) -> Mapping[UUID, Sequence[Row]]:
    found: dict[UUID, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["task_id"]].append(row)
    return found


def _files(folder: Path) -> Sequence[Path]:
    return sorted(p for name in _STORED for p in (folder / name).rglob("*") if p.is_file())


def _digest(path: Path) -> tuple[int, str]:
    content = path.read_bytes()
    return len(content), hashlib.sha256(content).hexdigest()
