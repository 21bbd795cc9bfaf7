"""What is looked at while a run goes on: how many tasks are RUNNING, against every cap, ten times a second."""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType
from typing import Self

from models.db import TRANSIENT, Database
from tests.chaos.plan import CAPS

_EVERY_S = 0.1
_SQL = """
select count(*) as total,
       count(*) filter (where type = 'image') as image,
       count(*) filter (where type = 'video') as video,
       (select coalesce(max(n), 0) from (
            select count(*) as n from tasks where status = 'RUNNING' group by provider) p) as provider,
       (select coalesce(max(n), 0) from (
            select count(*) as n from tasks where status = 'RUNNING' group by user_id) u) as "user"
  from tasks where status = 'RUNNING'
"""


class Watch:
    """A thread with a connection of its own that goes round the proxies."""

    def __init__(self, database_url: str) -> None:
        """Nothing is looked at before `with`."""
        self.looks = 0
        self.missed = 0  # looks at a database that was away
        self.most: Counter[str] = Counter()
        self._database = Database(database_url, pool=1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def exceeded(self) -> list[str]:
        """The caps that did not hold at some moment."""
        return [f"{name}: {self.most[name]} of {cap}" for name, cap in CAPS.items() if self.most[name] > cap]

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            try:
                with self._database.unit_of_work() as uow:
                    row = uow.one(_SQL)
            except TRANSIENT:
                self.missed += 1
                continue
            assert row is not None  # an aggregate always gives a row
            self.looks += 1
            for name, count in row.items():
                self.most[name] = max(self.most[name], count)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop looking."""
        self._stop.set()
        self._thread.join(10)
        self._database.close()
