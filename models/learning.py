"""How long tasks took, by bucket of provider, model and size or length: what the poll plan learns from (pollplan)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from models import pollplan
from models.db import UnitOfWork


def load(uow: UnitOfWork, buckets: Iterable[str]) -> dict[str, pollplan.Histogram]:
    """The histograms of these buckets; one that nothing is known of is EMPTY."""
    wanted = sorted(set(buckets))
    rows = uow.all("select bucket, counts from durations where bucket = any(:wanted)", wanted=wanted)
    known = {row["bucket"]: pollplan.load(row["counts"]) for row in rows}
    return {bucket: known.get(bucket, pollplan.EMPTY) for bucket in wanted}


def learn(uow: UnitOfWork, took_s: Mapping[str, Sequence[float]]) -> None:
    """Add durations, in seconds, to their buckets. Rows are locked in order, so that two rounds wait, not deadlock."""
    for bucket in sorted(took_s):
        uow.execute(
            "insert into durations (bucket, counts) values (:bucket, '{}') on conflict (bucket) do nothing",
            bucket=bucket,
        )
        counts = uow.scalar("select counts from durations where bucket = :bucket for update", bucket=bucket)
        hist = pollplan.load(counts)
        for duration_s in took_s[bucket]:
            hist = pollplan.observe(hist, duration_s)
        uow.execute(
            "update durations set counts = :counts, updated_at = now() where bucket = :bucket",
            bucket=bucket,
            counts=pollplan.dump(hist),
        )
