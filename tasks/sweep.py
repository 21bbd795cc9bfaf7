"""The sweep: beat's one Celery task. Ends what is past its time, rings for what nobody serves, forgets what expired.

Safe when doubled (an advisory lock lets one run at a time, and every change is guarded), bounded per run, and it
passes over rows that somebody is changing right now. What it rings is rung after the commit.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from celery import Task

from models import line, marks, metrics, store, watch
from models.db import Row, UnitOfWork
from models.failures import FailureKind
from models.fields import Kind
from models.lifecycle import Change, Error, Reason, Stage, Status
from tasks import app, bell, moves
from tasks.runtime import Runtime, runtime

log = logging.getLogger("weir.sweep")

RINGS = 3  # times a row is rung before it may count as stuck
Ring = Callable[[], None]


@app.task(name="sweep", bind=True)
def sweep(task: Task, *, by_beat: bool = False) -> None:  # type: ignore[type-arg]  # generic in the stubs only
    """One sweep, unless one is running or has just been: a heap of old messages is worth no more than one."""
    rt = runtime()
    if by_beat:
        watch_beats(rt, str(task.request.origin))
    done = sweep_once(rt, apart_s=rt.settings.sweep.every_s / 3)
    if done:
        log.info("sweep: %s", ", ".join(f"{what} {n}" for what, n in sorted(done.items())))


def watch_beats(rt: Runtime, beat: str) -> None:
    """Say so when two beats are at work. Each sweep is guarded, so they do no harm; nobody meant it so."""
    with rt.db.unit_of_work() as uow:
        other = marks.came_back(uow, "beat", beat, 3 * rt.settings.sweep.every_s)
    if other is not None:
        log.warning("two beats are at work, %s and %s: stop one of them", beat, other)


def sweep_once(rt: Runtime, *, apart_s: float = 0.0) -> Counter[str]:
    """How many of each thing were done; empty when there was nothing to do.

    Nothing is done while another sweep is running, or when the last one began less than `apart_s` seconds ago.
    """
    done: Counter[str] = Counter()
    rings: list[Ring] = []
    with rt.db.unit_of_work() as uow:
        if not watch.try_sweep_lock(uow) or _just_done(uow, apart_s):
            return done
        marks.mark(uow, "sweep")
        _expire(rt, uow, done)
        _rewake(rt, uow, done, rings)
        _restart_waves(rt, uow, done, rings)
        _reconcile(rt, uow, done, rings)
        _cancel(rt, uow, done, rings)
        _move_on(rt, uow, done, rings)
    for action, n in done.items():
        metrics.SWEEP_ACTIONS.labels(action).inc(n)
    for ring in rings:
        ring()
    moves.wake_next(rt)
    return +done


def _just_done(uow: UnitOfWork, apart_s: float) -> bool:
    since_s = marks.age_s(uow, "sweep")
    return since_s is not None and since_s < apart_s


def _expire(rt: Runtime, uow: UnitOfWork, done: Counter[str]) -> None:
    """Past the deadline -> TIMEOUT. A freed slot is given on by the ring of the waiting line at the end."""
    late = watch.past_deadline(uow, rt.settings.sweep.batch)
    error = Error(kind=FailureKind.DEADLINE)
    done["timed_out"] += len(_apply(uow, late, lambda row: moves.timed_out(row, error, Reason.DEADLINE)))


def _apply(uow: UnitOfWork, rows: Sequence[Row], change: Callable[[Row], Change]) -> dict[object, int]:
    moved = store.apply_all(uow, [store.Proposal(id=r["id"], version=r["version"], change=change(r)) for r in rows])
    return dict(moved.items())


def _rewake(rt: Runtime, uow: UnitOfWork, done: Counter[str], rings: list[Ring]) -> None:
    """RUNNING rows whose wake-up was lost: ring again, or give up on one that did not move though rung three times."""
    conf = rt.settings.sweep
    rows = watch.overdue(uow, conf.grace_s, conf.batch)
    stuck = [r for r in rows if r["rings"] >= RINGS and r["untouched_s"] >= conf.stuck_s]
    error = Error(kind=FailureKind.STUCK)
    done["stuck"] += len(_apply(uow, stuck, lambda row: moves.timed_out(row, error, Reason.STUCK)))
    lost = [r for r in rows if r not in stuck]
    moved = _apply(uow, lost, lambda row: _rung(row, conf.every_s))
    for row in lost:
        version = moved.get(row["id"])
        if version is None:
            continue
        done["rewoken"] += 1
        step = {Stage.SUBMITTING: "reconcile", Stage.FETCHING: "fetch"}.get(row["stage"])
        if step is not None:  # a generating row is served by its wave, which _restart_waves sees to
            rings.append(_ring(row, step, version))


def _rung(row: Row, every_s: int) -> Change:
    """Rung: it has two sweeps' time to move, then four, eight ... A generating row is due at once.

    What waits in a long queue is not lost, and each ring makes the one before it stale. A generating row's new round
    would pass it over.
    """
    return Change(
        reason=Reason.REWOKEN,
        to=Status.RUNNING,
        fields={"stage": row["stage"], "rings": row["rings"] + 1},
        wake_in_s=0.0 if row["stage"] == Stage.GENERATING else every_s * 2.0 ** (1 + min(row["rings"], 8)),
        detail={"rings": row["rings"] + 1},
    )


def _ring(row: Row, step: str, version: int) -> Ring:
    return lambda: bell.ring(row["type"], step, row["id"], version)


def _restart_waves(rt: Runtime, uow: UnitOfWork, done: Counter[str], rings: list[Ring]) -> None:
    for row in line.lost_waves(uow, rt.settings.sweep.grace_s):
        seat, kind = row["seat"], Kind(row["type"])
        version = line.restart_wave(uow, seat, kind)
        done["waves_restarted"] += 1
        rings.append(lambda p=seat, k=kind, v=version: bell.ring_wave(p, k, v))  # type: ignore[misc]


def _reconcile(rt: Runtime, uow: UnitOfWork, done: Counter[str], rings: list[Ring]) -> None:
    for row in watch.to_reconcile(uow, rt.settings.retries.reconcile_attempts, rt.settings.sweep.batch):
        done["reconciling"] += 1
        rings.append(_ring(row, "reconcile", row["version"]))


def _cancel(rt: Runtime, uow: UnitOfWork, done: Counter[str], rings: list[Ring]) -> None:
    """Wishes to cancel that the vendor has not answered: the wake-up was lost, or the answer could not be read."""
    for row in watch.unanswered_cancels(uow, rt.settings.sweep.grace_s, rt.settings.sweep.batch):
        done["cancels_rung"] += 1
        rings.append(_ring(row, "cancel", row["version"]))


def _move_on(rt: Runtime, uow: UnitOfWork, done: Counter[str], rings: list[Ring]) -> None:
    """Tasks that wait for a provider that was switched off or taken out: rung, so that submit finds them another."""
    on = {name for name, one in rt.settings.providers.items() if one.enabled}
    off = sorted({provider for provider, _ in line.waiting_lines(uow)} - on)
    if not off:
        return
    made = [name for name, model in rt.settings.models.items() if on & {route.name for route in model.providers}]
    for row in watch.stranded(uow, off, made, rt.settings.sweep.batch):
        done["moved_on"] += 1
        rings.append(_ring(row, "submit", row["version"]))
