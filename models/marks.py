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


def came_back(uow: UnitOfWork, name: str, by: str, within_s: float) -> str | None:
    """Note who did something periodic; who else does it too, None: nobody.

    One that was followed by another and is here again within so many seconds shares the work: a mere successor never
    sees its predecessor come back.
    """
    old = uow.one(
        """select detail ->> 'by' as by, detail ->> 'before' as before,
                  at > now() - make_interval(secs => :within_s) as recent from marks where name = :name""",
        name=name,
        within_s=within_s,
    )
    if old is not None and old["by"] == by:
        return None
    uow.execute(
        """insert into marks (name, detail) values (:name, jsonb_build_object('by', cast(:by as text)))
           on conflict (name) do update set at = now(),
               detail = jsonb_build_object('by', cast(:by as text), 'before', marks.detail ->> 'by')""",
        name=name,
        by=by,
    )
    return str(old["by"]) if old is not None and old["before"] == by and old["recent"] else None
