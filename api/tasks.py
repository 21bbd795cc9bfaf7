"""/v1/tasks: submit, get, list, cancel, history. Each view reads the request, calls one plain function, answers.

A task that belongs to somebody else is answered exactly as one that does not exist.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from flask import Response, request

from api import admission, auth, bodies, limits, listing, shapes
from api.errors import Problem, not_found
from api.files import signed_outputs
from api.keys import Key, read_key
from api.openapi import TASK_ID, section, serves
from api.parts import parts
from models import ids, reads, store
from models.db import Row, UnitOfWork
from models.lifecycle import FINAL, Status
from tasks import bell, moves

blp = section("tasks", "Generation tasks", "/v1/tasks")

_HISTORY_LINES = 1000
_CANCEL_ROUNDS = 5  # a task that moves between look and change is looked at again
_RING_AGAIN_S = 10  # a repeated cancel asks the vendor again only if the first may have been lost
_CACHE = {"Cache-Control": "private, no-cache", "Vary": "Authorization, X-Api-Key, Prefer"}


@serves(blp, "", "createTask")
def create_task() -> Response:
    """Submit a task."""
    auth.presented()  # whoever has no key at all is not read at all
    body, key, refused = _read()  # before a connection is taken: the caller's pace must not hold one
    with auth.signed_in("tasks:write") as (uow, caller):
        known = admission.recall(uow, caller, key)
    if refused is not None:
        limits.spend(caller)
        raise refused
    made = admission.submit(caller, body, key, known)
    final = made.row["status"] in FINAL
    headers = {"Location": shapes.place(made.row), **shapes.polling_headers(made.row["status"], made.row["type"])}
    if made.reused:
        headers["Idempotent-Replayed"] = "true"
    return shapes.answer(shapes.task(made.row, reused=made.reused), 200 if final else 202, headers)


@serves(blp, "/preview", "previewTask")
def preview_task() -> Response:
    """Say what a submit would do, and do nothing."""
    auth.presented()
    body, _, refused = _read()
    caller = auth.caller("tasks:write")
    if refused is not None:
        limits.spend_preview(caller)
        raise refused
    wish, seed_open = admission.preview(caller, body)
    return shapes.answer(shapes.preview(wish, seed_open=seed_open))


def _read() -> tuple[dict[str, object], Key | None, Problem | None]:
    """The body and its key, or why they cannot be read."""
    try:
        body = bodies.read_object()
        return body, read_key(request.headers.get("Idempotency-Key"), body), None
    except Problem as exc:
        return {}, None, exc


@serves(blp, "", "listTasks")
def list_tasks() -> Response:
    """List tasks, newest first."""
    with auth.signed_in("tasks:read") as (uow, caller):
        page = listing.read_page(caller.user_id)
        rows = list(reads.tasks(uow, caller.user_id, page.filters, before=page.before, limit=page.limit + 1))
    more, rows = len(rows) > page.limit, rows[: page.limit]
    cursor = listing.next_cursor(caller.user_id, page, rows[-1]["id"]) if more else None
    payload = {"data": [shapes.task(row) for row in rows], "has_more": more, "next_cursor": cursor}
    headers = dict(_CACHE)
    if cursor is not None:
        headers["Link"] = listing.next_link(page, cursor)
    return shapes.answer(payload, 200, headers)


@serves(blp, "/<task_id>", "getTask", TASK_ID)
def get_task(task_id: str) -> Response:
    """Get a task."""
    with auth.signed_in("tasks:read") as (uow, caller):
        signed, id_ = _flag("signed"), _id(task_id)
        if request.if_none_match and not signed:
            head = _owned(reads.etag_of(uow, caller.user_id, id_))
            if request.if_none_match.contains_weak(_tag(head["version"], cancel=head["cancel"])):
                return _tagged(Response(status=304), head["version"], head["cancel"], head)
        row = _owned(reads.task(uow, caller.user_id, id_))
        position, eta_s = shapes.standing(uow, row)
    body = shapes.task(row, queue_position=position, eta_s=eta_s)
    if signed:  # such a link ends soon, so that no cache may keep it
        body["outputs"] = signed_outputs(row, shapes.outputs(row))
        return shapes.answer(body, 200, shapes.polling_headers(row["status"], row["type"], eta_s))
    return _tagged(shapes.answer(body), row["version"], row["cancel_requested_at"] is not None, row, eta_s)


def _tag(version: int, *, cancel: bool) -> str:
    """A cancel request does not raise the version, so the tag says both."""
    return f"{version}c" if cancel else str(version)


def _tagged(response: Response, version: int, cancel: bool, row: Row, eta_s: int | None = None) -> Response:  # noqa: FBT001  row's own values
    response.headers.update(_CACHE)
    response.headers.update(shapes.polling_headers(row["status"], row["type"], eta_s))
    response.set_etag(_tag(version, cancel=cancel), weak=True)
    return response


def _flag(name: str) -> bool:
    """A query parameter that is 1 or absent; every other parameter is refused."""
    for given, value in request.args.items(multi=True):
        if given != name:
            fault = {"parameter": given[:64], "detail": "there is no such parameter", "code": "unknown_field"}
        elif value not in ("0", "1"):
            allowed = {"values": ["0", "1"]}
            fault = {"parameter": name, "detail": "must be 0 or 1", "code": "not_one_of", "allowed": allowed}  # type: ignore[dict-item]
        else:
            continue
        raise Problem("validation-error", "1 parameter is not valid", errors=[fault])
    return request.args.get(name) == "1"


def _id(task_id: str) -> UUID:
    found = ids.decode("task", task_id)
    if found is None:
        raise not_found()
    return found


def _owned(row: Row | None) -> Row:
    if row is None:
        raise not_found()
    return row


@serves(blp, "/<task_id>", "cancelTask", TASK_ID)
def cancel_task(task_id: str) -> Response:
    """Cancel a task."""
    caller = auth.caller("tasks:write")
    id_ = _id(task_id)
    for _ in range(_CANCEL_ROUNDS):
        with parts().db.unit_of_work() as uow:
            row = _owned(reads.task(uow, caller.user_id, id_))
            asked = _cancel(uow, row)
            if asked is not None:
                row = _owned(reads.task(uow, caller.user_id, id_))
        if asked is not None:
            headers = shapes.polling_headers(row["status"], row["type"])
            return shapes.answer(shapes.task(row), asked, headers)
    raise Problem(
        "service-unavailable", "The task is changing; try again.", headers={"Retry-After": "1"}
    )  # five transitions between as many looks: not seen, but a loop must end


def _cancel(uow: UnitOfWork, row: Row) -> int | None:
    """One try to cancel the task as it is now: the status to answer with, or None: it moved, look again."""
    status = Status(row["status"])
    if status is Status.CANCELED:
        return 200
    if status in FINAL:
        raise Problem("task-not-cancellable", f"The task has ended as {status}.", task_status=status)
    if status is Status.PENDING:
        return None if store.apply(uow, row["id"], row["version"], moves.canceled(row)) is None else 200
    provider = parts().providers.get(row["provider"])
    if provider is None or not provider.capabilities.cancel:
        detail = f"The task runs on {row['provider']}, which cannot stop what it began."
        raise Problem("cancel-unsupported", detail, provider=row["provider"])
    if not store.request_cancel(uow, row["id"]):
        return None
    before = row["cancel_requested_at"]
    if before is None or (row["now"] - before).total_seconds() > _RING_AGAIN_S:
        uow.after_commit(partial(bell.ring, row["type"], "cancel", row["id"], row["version"]))
    return 202


@serves(blp, "/<task_id>/history", "getTaskHistory", TASK_ID)
def get_history(task_id: str) -> Response:
    """Get everything that happened to a task."""
    with auth.signed_in("tasks:read") as (uow, caller):
        row = _owned(reads.task(uow, caller.user_id, _id(task_id)))
        told = shapes.history(
            row,
            reads.events(uow, row["id"], _HISTORY_LINES),
            reads.calls(uow, row["id"], _HISTORY_LINES),
            reads.wake_at(uow, row["id"]),
        )
    return shapes.answer(told, 200, _CACHE)
