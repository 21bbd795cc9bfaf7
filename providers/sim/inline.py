"""Results as bytes: for dialects that put a picture into their answer, or serve it from their own API.

May not know any dialect. Invariant: what a job was told about its file at submit (`wrong_bytes`, `huge_bytes`) holds
for bytes inside an answer as it does for a link.
"""

from __future__ import annotations

import base64

from providers.sim import directives, pictures
from providers.sim.faults import Fault
from providers.sim.files import FileStore
from providers.sim.ledger import Job
from providers.sim.wire import html_page

_STUB_MP4 = b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1mp41" + bytes(2_000)


def content(store: FileStore, job: Job, index: int, told: Fault) -> bytes:
    """Output `index` of a job, or the bytes that `told` puts in its place."""
    kind = told.wrong_bytes
    if told.huge_bytes is not None:
        return bytes(told.huge_bytes)
    if kind is None:
        return store.content(job.order, index)
    if kind in pictures.MEDIA_TYPES:
        return pictures.picture(directives.bare(job.order.prompt), job.order.seed, 256, 256, kind)
    return {
        "html": html_page(404).get_data(),
        "text": b"This is no picture.",
        "empty": b"",
        "mp4": _STUB_MP4,
    }[kind]


def as_base64(store: FileStore, job: Job, index: int) -> str:
    """The same as text for a JSON answer, as the job was told at its submit."""
    return base64.b64encode(content(store, job, index, job.fault)).decode()
