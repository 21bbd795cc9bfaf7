"""When something periodic last began, by the database's clock: whoever runs it, on whatever host."""

from __future__ import annotations

from models.db import UnitOfWork


def mark(uow: UnitOfWork, name: str) -> None:
    """Note that it begins now."""
    uow.execute("insert into marks (name) values (:name) on conflict (name) do update set at = now()", name=name)


def age_s(uow: UnitOfWork, name: str) -> float | None:
    """Seconds since it last began; None: never."""
    seconds: float | None = uow.scalar(
        "select cast(extract(epoch from now() - at) as double precision) from marks where name = :name", name=name
    )
    return seconds
