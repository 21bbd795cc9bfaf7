"""Retention: beat's hourly Celery task. Removes what has outlived its days, in batches, in the quiet hours.

Results' bytes first, then keys, then whole tasks into the archive: compressed JSON lines in our own storage. Nothing
is held while storage works, and every step can be cut and run again: bytes go before their record says so, and a task
goes only after its line is kept (a repeat writes the same lines under another name at worst).
"""

from __future__ import annotations

import gzip
import logging
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from models import ids, marks, retention
from providers.storage import result_folder
from tasks import app
from tasks.runtime import Runtime, runtime

log = logging.getLogger("weir.retention")

RUN_S = 30.0  # of one run: the sweep shares its workers
_A_DAY_S = 86_400.0


@app.task(name="retention")
def retain() -> None:
    """One run, if it is the hour for it."""
    rt = runtime()
    if due(rt, datetime.now(UTC)):
        done = run(rt)
        if done["tasks"] or done["results"]:
            retain.apply_async(queue="default", countdown=30, expires=3600)  # there may be more
        log.info("retention: %s", ", ".join(f"{what} {n}" for what, n in sorted(done.items())) or "nothing to do")


def due(rt: Runtime, now: datetime) -> bool:
    """Within the quiet hours, or when no run was seen for a day (an installation that sleeps at night)."""
    conf = rt.settings.retention
    if conf.quiet_from_hour <= now.hour < conf.quiet_to_hour:
        return True
    with rt.db.unit_of_work() as uow:
        since_s = marks.age_s(uow, "retention")
    return since_s is None or since_s > _A_DAY_S


def run(rt: Runtime) -> Counter[str]:
    """How many of each thing were removed. Two runs at once do the same work twice and harm nothing."""
    done: Counter[str] = Counter()
    batch = rt.settings.sweep.batch
    until = time.monotonic() + RUN_S
    while time.monotonic() < until:
        before = done.total()
        done["results"] += _results(rt, batch)
        with rt.db.unit_of_work() as uow:
            done["keys"] += retention.forget_expired_keys(uow, rt.settings, batch)
        done["tasks"] += _archive(rt, batch)
        if done.total() == before:
            break
    with rt.db.unit_of_work() as uow:
        # two days later than their tasks, whose archive lines hold them
        done["calls"] += retention.forget_calls(uow, rt.settings.retention.archive_days + 2, 100 * batch)
        marks.mark(uow, "retention")
    return +done


def _results(rt: Runtime, limit: int) -> int:
    with rt.db.unit_of_work() as uow:
        rows = retention.expired_results(uow, limit)
    if rows:
        rt.storage.delete([row["key"] for row in rows])
        with rt.db.unit_of_work() as uow:
            retention.note_removed(uow, rows)
    return len(rows)


def _archive(rt: Runtime, limit: int) -> int:
    with rt.db.unit_of_work() as uow:
        chosen = retention.to_archive(uow, rt.settings.retention.archive_days, limit)
        lines = retention.archive_lines(uow, chosen) if chosen else []
    if not chosen:
        return 0
    with rt.db.unit_of_work() as uow:
        remains = retention.without_result(uow, chosen)
    for row in remains:
        rt.storage.clear(result_folder(ids.encode("task", row["id"]), None, row["created_at"]))
    content = gzip.compress("\n".join([*lines, ""]).encode(), mtime=0)
    rt.storage.put_bytes(_archive_key(chosen, datetime.now(UTC)), content, "application/gzip")
    with rt.db.unit_of_work() as uow:
        return retention.forget_tasks(uow, chosen)


def _archive_key(chosen: Sequence[UUID], now: datetime) -> str:
    return f"archive/{now:%Y/%m}/{ids.encode('task', min(chosen))}.{len(chosen)}.jsonl.gz"
