"""When to ask again: the poll plan of each row, learned from how long others took, and the tick of a listing chain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from models import learning, pollplan
from models.db import Row, UnitOfWork
from models.fields import Kind
from tasks.runtime import Runtime

_PAGE = 100  # tasks on one page of a vendor's list
_EXTRA_LISTS = 1  # waiting and running tasks are listed apart


def bucket_of(row: Row) -> str:
    """The bucket in which this row's duration counts."""
    effective = row["effective"]
    sides = [effective.get("width"), effective.get("height")]
    pixels = prod(sides) if all(isinstance(side, int) for side in sides) else None
    length = effective.get("duration_s") if row["type"] == Kind.VIDEO else None
    return pollplan.bucket(row["provider"], row["provider_model"], pixels=pixels, length_s=length)


@dataclass(frozen=True, kw_only=True)
class Pacer:
    """What is known of the rows of one round."""

    rt: Runtime
    provider: str
    kind: Kind
    known: dict[str, pollplan.Histogram]

    @classmethod
    def load(cls, rt: Runtime, uow: UnitOfWork, provider: str, kind: Kind, rows: Iterable[Row]) -> Pacer:
        """With the histograms of these rows' buckets, in one read."""
        known = learning.load(uow, {bucket_of(row) for row in rows})
        return cls(rt=rt, provider=provider, kind=kind, known=known)

    def wait_s(self, row: Row) -> float:
        """Seconds to the next question about `row`. Slowest where the vendor calls back."""
        hist, jitter = self.known.get(bucket_of(row), pollplan.EMPTY), self.rt.jitter()
        elapsed_s = (row["now"] - (row["claimed_at"] or row["now"])).total_seconds()
        left_s = (row["deadline_at"] - row["now"]).total_seconds()
        if row["calls_back"]:
            return pollplan.callback_wait_s(hist, elapsed_s, self._plan(), jitter=jitter, left_s=left_s)
        return pollplan.next_wait_s(
            hist, elapsed_s, self._plan(), poll_count=row["poll_count"], jitter=jitter, left_s=left_s
        )

    def _plan(self) -> pollplan.Plan:
        usual = pollplan.IMAGE if self.kind is Kind.IMAGE else pollplan.VIDEO
        return pollplan.Plan(policy=self.rt.policy(self.kind), queries=usual.queries, lag_s=usual.lag_s)

    def tick_s(self, in_flight: int) -> int:
        """Whole seconds between two rounds of a chain that lists, stretched before the vendor's rate runs out."""
        conf = self.rt.settings.providers[self.provider]
        together = pollplan.EMPTY
        for hist in self.known.values():
            together = pollplan.merge(together, hist)
        tick = pollplan.tick_s(
            in_flight,
            pollplan.mean_s(together),
            page_size=_PAGE,
            queries_per_s=conf.requests_per_minute / 60,
            jitter=self.rt.jitter(),
            extra_calls=_EXTRA_LISTS,
        )
        return max(self.rt.settings.polling.tick_s, tick)

    @staticmethod
    def learn(uow: UnitOfWork, rows: Sequence[Row]) -> None:
        """Count how long these rows took, which were just found done; in the round's own transaction.

        A vendor does not say when it ended: the middle between the last look that found it working and this one.
        """
        took_s: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            if row["claimed_at"] is not None:
                noticed = (row["updated_at"] - row["now"]).total_seconds() / 2
                took_s[bucket_of(row)].append((row["now"] - row["claimed_at"]).total_seconds() + noticed)
        learning.learn(uow, took_s)
