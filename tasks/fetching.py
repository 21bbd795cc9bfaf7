"""Fetch: bring the bytes home. A stage of its own, retried by itself, that never generates again.

Each output is streamed to a temporary file, measured, and stored under a key made of task id and place, so that a
second run writes the same object. SUCCESS is committed only when the bytes are in our storage.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import UUID

from models import backoff, ids, pricing, risks, store
from models.contract import image_seeds
from models.db import TRANSIENT, Row
from models.failures import FAILURES, FailureKind
from models.fields import Kind
from models.lifecycle import FINAL, Change, Error, Finished, Missing, Output, Reason, Stage, Status
from providers.calls import recorded, within
from providers.port import Call, ProviderError
from providers.storage import StorageError, result_folder
from tasks import bell, moves
from tasks.runtime import Runtime

log = logging.getLogger("weir.fetch")

_RETRY = backoff.Policy(min_s=1.0, max_s=30.0)
_RUNG_S = 15.0  # how long a fetch that was rung may wait for a worker before it is looked at
_STORING_S = 180.0  # on top of a download's own limit: putting it into a slow store
_NO_DEADLINE_S = 86_400.0  # a late result has none; the download's own limit holds
STARTS_MAX = 3  # fetches of one task that may end with their process before the task ends
_HELD = "held:"  # an output whose bytes came with the answer and wait in our own storage

Item = dict[str, object]  # one entry of upstream_outputs: {"url", "place", "seed"} and, once stored, {"stored": {...}}


def begin(rt: Runtime, row: Row, finished: Finished, receipt: str | None = None) -> Change:
    """The change that says: the vendor is done, these outputs are to be fetched.

    Bytes that came with the answer are put into storage first, so that they are as durable as a link.
    """
    items: list[Item] = []
    for n, output in enumerate(finished.outputs):
        url = output.url
        if output.content is not None:
            url = _HELD + f"held/{ids.encode('task', row['id'])}/{row['attempt']}.{n}"
            rt.storage.put_bytes(url.removeprefix(_HELD), output.content, "application/octet-stream")
        items.append({"url": url, "place": n if output.place is None else output.place, "seed": output.seed})
    fields: dict[str, object] = {
        "stage": Stage.FETCHING,
        "upstream_outputs": items,
        "missing": [_missing_wire(m) for m in finished.missing],
        "upstream_usage": dict(finished.usage),
        "failed_polls": 0,
        "lost_polls": 0,
        "empty_polls": 0,
        "rings": 0,
        "fetch_tries": 0,
        "fetch_starts": 0,
        "fetch_until": None,
    }
    if receipt is not None:
        fields["receipt"] = receipt
    return Change(
        reason=Reason.OBSERVED,
        to=Status.RUNNING,
        fields=fields,
        wake_in_s=_RUNG_S,
        detail={"outputs": len(items), "missing": len(finished.missing)},
    )


def _missing_wire(missing: Missing) -> dict[str, object]:
    return {
        "code": missing.kind,
        "message": missing.message or FAILURES[missing.kind].message,
        "upstream_code": missing.upstream_code,
        "billed": False,
    }


def _lost(missing: Missing) -> dict[str, object]:
    """An output that the vendor has made, and bills, and that we could not bring home."""
    return {**_missing_wire(missing), "billed": True}


def fetch(rt: Runtime, id_: UUID, version: int) -> None:
    """Fetch what a finished task has upstream, and end it; or say when it is tried again."""
    with rt.db.unit_of_work() as uow:
        row = store.get(uow, id_)
    if row is None or row["version"] != version or row["stage"] != Stage.FETCHING:
        return
    try:
        with under_way(rt, row):
            starts = start(rt, row)
            if starts is None:
                return
            if starts > STARTS_MAX:
                _give_up(rt, row)
            else:
                _fetched(rt, row, version)
    except _SupersededError:
        return


def _fetched(rt: Runtime, row: Row, version: int) -> None:
    kind, id_ = Kind(row["type"]), row["id"]
    with recorded() as calls:
        items, error = bring(rt, row, row["upstream_outputs"])
    left = rt.settings.retries.fetch_attempts - row["fetch_tries"] - 1
    if error is not None and (FAILURES[error.kind].waits or (FAILURES[error.kind].retryable and left > 0)):
        wait_s = backoff.countdown(row["fetch_tries"], _RETRY, rt.jitter())
        change = _later(row, items, error, wait_s)
        moved = rt.persist(lambda: moves.apply(rt, row, version, change, calls), _STORING_S)
        if moved is not None:
            bell.ring(kind, "fetch", id_, moved, wait_s)
        return
    change = ending(row, items, error, reason=Reason.FINISHED)
    if finish(rt, row, change, items, calls) is not None:
        moves.wake_next(rt)


def start(rt: Runtime, row: Row) -> int | None:
    """Note that a fetch begins, before it does; how many have begun since one came back, None: the row moved on."""
    with rt.db.unit_of_work() as uow:
        return store.begin_fetch(uow, row["id"], row["version"], rt.settings.results.fetch_s + _STORING_S)


@contextmanager
def under_way(rt: Runtime, row: Row) -> Iterator[None]:
    """A fetch, its start included: one that ends in an error has come back, and is no reason to give up.

    Nor to keep others out: a start whose COMMIT was cut may hold the row for minutes, and nobody would be at work.
    """

    def came_back() -> None:
        with rt.db.unit_of_work() as uow:
            store.fetch_came_back(uow, row["id"], row["version"])

    try:
        yield
    except Exception:
        with suppress(*TRANSIENT):
            rt.persist(came_back, _STORING_S)
        raise


def _give_up(rt: Runtime, row: Row) -> None:
    """End a task whose result ends whoever fetches it: its bytes, or what reads them, are poison."""
    error = Error(kind=FailureKind.INTERNAL, message=f"Fetching its result ended {STARTS_MAX} workers in a row.")
    log.error("task %s: fetching its result ended %d workers in a row", ids.encode("task", row["id"]), STARTS_MAX)
    lost = _lost(Missing(kind=error.kind, message=error.message))
    items = [item if "stored" in item else {**item, "error": lost} for item in row["upstream_outputs"]]
    if finish(rt, row, ending(row, items, error, reason=Reason.FINISHED), items, []) is not None:
        moves.wake_next(rt)


def _later(row: Row, items: Sequence[Item], error: Error, wait_s: float) -> Change:
    return Change(
        reason=Reason.OBSERVED,
        to=Status.RUNNING,
        fields={
            "stage": Stage.FETCHING,
            "upstream_outputs": list(items),
            "fetch_tries": row["fetch_tries"] + (not FAILURES[error.kind].waits),
            "fetch_starts": 0,
            "fetch_until": None,
            "last_error": error.message or FAILURES[error.kind].message,
            "rings": 0,
        },
        wake_in_s=wait_s + _RUNG_S,
        detail={"code": error.kind, "wait_s": round(wait_s, 1)},
    )


class _SupersededError(Exception):
    """The row has moved on: whoever moved it fetches, or nobody needs to."""


def _at_work(rt: Runtime, row: Row) -> None:
    """Say that one more output is being fetched, so that nobody starts a second fetch. Raises when the row moved on."""
    if row["status"] != Status.RUNNING:
        return  # a late result has no lease: its task has ended, and the sweep asks minutes apart
    with rt.db.unit_of_work() as uow:
        if not store.extend(uow, row["id"], row["version"], rt.settings.results.fetch_s + _STORING_S):
            raise _SupersededError


def bring(rt: Runtime, row: Row, items: Sequence[Item]) -> tuple[list[Item], Error | None]:
    """Fetch each output that is not stored yet; the entries as they stand now, and the last error if any failed."""
    brought: list[Item] = []
    error: Error | None = None
    for n, item in enumerate(items):
        if "stored" in item:
            brought.append(item)
            continue
        _at_work(rt, row)
        try:
            stored = _bring_one(rt, row, n, str(item["url"]))
        except ProviderError as exc:
            error = exc.error()
            brought.append({**item, "error": _lost(Missing(kind=exc.kind, message=str(exc)))})
        else:
            brought.append({**{k: item[k] for k in ("url", "place", "seed")}, "stored": stored})
    return brought, error


def _bring_one(rt: Runtime, row: Row, n: int, url: str) -> dict[str, object]:
    """Fetch and store one output. Raises ProviderError; trouble of our own disk or store is worth another try, too."""
    try:
        return _stored(rt, row, n, url)
    except (StorageError, OSError) as exc:
        message = f"The result could not be stored ({type(exc).__name__})."
        raise ProviderError(FailureKind.STORAGE, message) from exc


def _stored(rt: Runtime, row: Row, n: int, url: str) -> dict[str, object]:
    kind = Kind(row["type"])
    output = Output(url=url)
    if url.startswith(_HELD):
        output = Output(content=b"".join(rt.storage.open(url.removeprefix(_HELD)).chunks))
    left_s = (row["deadline_at"] - row["now"]).total_seconds() if row["status"] == Status.RUNNING else _NO_DEADLINE_S
    conf, headers = rt.settings.providers[row["provider"]], rt.providers[row["seat"]].result_headers()
    with rt.gate(row["provider"]), within(left_s), rt.downloads.fetched(conf, output, kind, headers) as got:
        key = f"{_folder(row)}/{n}.{got.media.extension}"
        rt.storage.put_file(key, got.file, got.media.media_type)
        return {
            "key": key,
            "media_type": got.media.media_type,
            "width": got.media.width,
            "height": got.media.height,
            "duration_s": got.media.duration_s,
            "bytes": got.bytes,
            "sha256": got.sha256,
        }


def _folder(row: Row) -> str:
    return result_folder(ids.encode("task", row["id"]), row["attempt"], row["created_at"])


def ending(row: Row, items: Sequence[Item], error: Error | None, *, reason: Reason) -> Change:
    """SUCCESS with what is stored, partial where something is missing; FAILED when nothing is. Pure."""
    outputs = [_output(row, item) for item in items if "stored" in item]
    missing = [*row["missing"], *(item["error"] for item in items if "stored" not in item)]
    if not outputs:
        lost = error or Error(kind=FailureKind.RESULT_MISSING)
        change = moves.failed(lost, reason=Reason.REFUSED if reason is Reason.FINISHED else reason)
        # The vendor has made it and bills it, whatever kept it from us: never to be bought again by a repeated key.
        lost_fields = {**change.fields, "upstream_outputs": None, "certain": False, "risk": True}
        return Change(**{**vars(change), "fields": lost_fields})
    kind, effective = Kind(row["type"]), row["effective"]
    asked = effective.get("image_count", 1) if kind is Kind.IMAGE else 1
    return Change(
        reason=reason,
        to=Status.SUCCESS,
        fields={
            "outputs": [{"n": n, **output} for n, output in enumerate(outputs)],
            "missing": missing,
            "partial": bool(missing) or len(outputs) < asked,
            "cost_micros": pricing.cost_micros(kind, effective, row["price_micros"], len(outputs)),
            "certain": True,
            "risk": any(one.get("billed") for one in missing),
            "progress": None,
            "upstream_outputs": None,
            "error_code": None,
            "error_message": None,
            "upstream_code": None,
        },
        detail={"outputs": len(outputs), "missing": len(missing)},
    )


def _output(row: Row, item: Item) -> dict[str, object]:
    stored = item["stored"]
    assert isinstance(stored, dict)  # written by _bring_one
    seed, place = item["seed"], int(str(item["place"]))
    if seed is None and "seed" in row["effective"]:
        seed = image_seeds(row["effective"]["seed"], place + 1)[place]
    return {**{k: v for k, v in stored.items() if k != "key"}, "seed": seed, "key": stored["key"]}


def finish(rt: Runtime, row: Row, change: Change, items: Sequence[Item], calls: Sequence[Call]) -> int | None:
    """Write an ending with the records of its files, in one transaction; None when someone else ended it first."""
    stored = [item["stored"] for item in items if "stored" in item]
    left_s = max(30.0, (row["deadline_at"] - row["now"]).total_seconds())

    def write() -> int | None:
        with rt.db.unit_of_work() as uow:
            moved = store.apply(uow, row["id"], row["version"], change)
            if moved is not None and change.to is Status.SUCCESS:
                store.record_assets(uow, [_asset(rt, row, n, s) for n, s in enumerate(stored)])  # type: ignore[arg-type]
            moves.record(uow, row, calls)
        return moved

    moved = rt.persist(write, left_s)
    let_go(rt, row)
    return moved


def let_go(rt: Runtime, row: Row) -> None:
    """Delete what an attempt that is over leaves behind: bytes held until the end, and without a SUCCESS its files.

    Nothing while the attempt may still come to a SUCCESS. What stays, since a process or the store fails right here,
    is removed when the task is archived.
    """
    with rt.db.unit_of_work() as uow:
        there = store.get(uow, row["id"])
    if there is None or (there["attempt"] == row["attempt"] and not _over(there)):
        return
    urls = [str(item["url"]) for item in row["upstream_outputs"] or ()]
    with suppress(StorageError):
        rt.storage.delete([url.removeprefix(_HELD) for url in urls if url.startswith(_HELD)])
        if there["attempt"] != row["attempt"] or there["status"] != Status.SUCCESS:
            rt.storage.clear(_folder(row))


def _over(row: Row) -> bool:
    return row["status"] in FINAL and not risks.settleable(row)


def _asset(rt: Runtime, row: Row, n: int, stored: Item) -> dict[str, object]:
    return {
        **{k: stored[k] for k in ("key", "media_type", "bytes", "width", "height", "duration_s")},
        "task_id": row["id"],
        "n": n,
        "attempt": row["attempt"],
        "sha256": bytes.fromhex(str(stored["sha256"])),
        "retention_days": rt.settings.results.retention_days,
    }
