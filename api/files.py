"""The bytes of results: /v1/tasks/{id}/outputs/{n} for whoever has the key, /files/{token} for whoever has the link.

Bytes come from vendors: they are served so that no browser runs them. Where the storage can sign, a short-lived link to
it is given instead; a local folder is streamed from here, in parts if asked.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from flask import Response, request
from itsdangerous import BadData
from werkzeug.exceptions import RequestedRangeNotSatisfiable

from api import auth, shapes
from api.errors import Problem, not_found
from api.openapi import TASK_ID, section, serves
from api.parts import parts
from models import ids, reads
from models.db import Row
from models.lifecycle import LIVE
from providers.storage import NotStoredError, StorageError

blp = section("outputs", "Results", "/v1/tasks")
links = section("files", "Results by signed link")

_INLINE = frozenset(("image/png", "image/jpeg", "image/webp", "image/avif", "image/gif", "video/mp4", "video/webm"))
_HARMLESS = {"Content-Security-Policy": "sandbox; default-src 'none'", "X-Content-Type-Options": "nosniff"}
_PLACE = {"in": "path", "name": "n", "required": True, "description": "0-based place", "schema": {"type": "integer"}}


@serves(blp, "/<task_id>/outputs/<int:n>", "getTaskOutput", TASK_ID, _PLACE)
def get_output(task_id: str, n: int) -> Response:
    """Get the bytes of one output."""
    with auth.signed_in("tasks:read") as (uow, caller):
        id_ = ids.decode("task", task_id)
        task = reads.etag_of(uow, caller.user_id, id_) if id_ else None
        if task is None or id_ is None:
            raise not_found()
        asset = reads.asset(uow, caller.user_id, id_, n) if n < 1000 else None
    if task["status"] in LIVE:
        raise Problem(
            "task-not-ready",
            f"The task is {task['status']}.",
            headers={"Retry-After": str(shapes.retry_after_s(task["type"]))},
            task_status=task["status"],
        )
    return _delivered(_still_there(asset))


@serves(links, "/files/<token>", "getFile")
def get_file(token: str) -> Response:
    """Get the bytes a signed link is for."""
    try:
        hexed, n, attempt = parts().links().loads(token, max_age=parts().settings.results.link_s)
        id_ = UUID(hex=hexed)
    except (BadData, ValueError, TypeError, AttributeError):
        raise Problem("not-found", "This link is not ours or has ended; ask the task for a new one.") from None
    with parts().db.unit_of_work() as uow:
        asset = reads.linked_asset(uow, id_, n, attempt)
    return _streamed(_still_there(asset))


def _still_there(asset: Row | None) -> Row:
    if asset is None:
        raise not_found()
    if asset["gone"]:
        when = asset["removed_at"] or asset["expires_at"]
        raise Problem("result-expired", "The result was removed; its record remains.", expired_at=shapes.moment(when))
    return asset


def _delivered(asset: Row) -> Response:
    """A redirect to where the bytes are, or the bytes."""
    link = parts().storage.signed_url(asset["key"], parts().settings.results.link_s)
    if link is None:
        return _streamed(asset)
    return Response(status=302, headers={"Location": link, "Cache-Control": "no-store"})


def _streamed(asset: Row) -> Response:
    etag = bytes(asset["sha256"]).hex()
    headers = {"Cache-Control": "private, no-cache", "Accept-Ranges": "bytes", "Vary": "Authorization, X-Api-Key"}
    if request.if_none_match.contains_weak(etag):
        response = Response(status=304, headers=headers)
        response.set_etag(etag)
        return response
    first, last = _span(asset["bytes"], etag)
    try:
        opened = parts().storage.open(asset["key"], first, last)
    except NotStoredError:
        raise Problem("result-expired", "The bytes are no longer in the storage.", expired_at=None) from None
    except StorageError:
        detail = "The storage does not answer."
        raise Problem("service-unavailable", detail, headers={"Retry-After": "5"}) from None
    part = first > 0 or last is not None
    stop = (last if last is not None else asset["bytes"] - 1) + 1
    response = Response(opened.chunks, status=206 if part else 200, headers=headers)
    response.headers.update(_described(asset))
    response.headers["Content-Length"] = str(stop - first)
    if part:
        response.headers["Content-Range"] = f"bytes {first}-{stop - 1}/{asset['bytes']}"
    response.set_etag(etag)
    return response


def _span(size: int, etag: str) -> tuple[int, int | None]:
    """First and last byte to send; last None: all. Several ranges at once are answered with the whole."""
    asked = request.range
    if asked is None or asked.units != "bytes" or len(asked.ranges) != 1:
        return 0, None
    if request.if_range.date is not None or request.if_range.etag not in (None, etag):
        return 0, None
    found = asked.range_for_length(size)
    if found is None:
        raise RequestedRangeNotSatisfiable(size)
    return found[0], found[1] - 1


def _described(asset: Row) -> Mapping[str, str]:
    kind = asset["media_type"]
    shown = "inline" if kind in _INLINE else "attachment"
    name = f"{ids.encode('task', asset['task_id'])}-{asset['n']}{mimetypes.guess_extension(kind) or ''}"
    return {"Content-Type": kind, "Content-Disposition": f'{shown}; filename="{name}"', **_HARMLESS}


def signed_outputs(row: Row, outputs: list[dict[str, object]]) -> list[dict[str, object]]:
    """The outputs with links that need no key: of the storage where it can sign, else of ours."""
    seconds = parts().settings.results.link_s
    until = shapes.moment(datetime.now(UTC) + timedelta(seconds=seconds))
    signed = []
    for n, (shown, stored) in enumerate(zip(outputs, row["outputs"], strict=True)):
        link = parts().storage.signed_url(stored["key"], seconds)
        if link is None:
            token: str = parts().links().dumps([row["id"].hex, n, row["attempt"]])
            link = shapes.address(f"/files/{token}")
        signed.append({**shown, "signed_url": link, "signed_url_expires_at": until})
    return signed
