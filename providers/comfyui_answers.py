"""PURE  What a ComfyUI server says: refusals of a graph, where its jobs are, what became of one.

A finished job's record is its history entry. Whatever asked for it went in with the submit and comes back in there, so
that nothing has to be remembered here: how many images were asked, the seed, the node whose files count.

File names are a stranger's words: one that could lead anywhere but into the server's output folder is no result.

Source: the sheet of 2026-11-30, sections 3, 4 and 6, seen on a real 0.33.0 and 0.3.64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from models.contract import SEED_MAX, Kind
from models.failures import FAILURES
from models.failures import FailureKind as K
from models.lifecycle import Canceled, Error, Failed, Finished, Missing, Observation, Output, Unreadable, Working
from providers.verdicts import Dialect, VendorError, clean

_VALIDATION = (
    "no_prompt",
    "prompt_no_outputs",
    "missing_node_type",
    "invalid_prompt_id",
    "prompt_outputs_failed_validation",
)
CODES: Mapping[str, K] = dict.fromkeys(_VALIDATION, K.INVALID_PARAMETER)
ECHO = "weir"  # our key in `extra_data`, which the server keeps and tells back
_IMAGES_MAX = 64
_PICTURES = frozenset({"png", "jpg", "jpeg", "webp", "gif", "avif"})
_CLIPS = frozenset({"mp4", "webm", "mov", "mkv", "m4v"})
_NOT_WANTED = frozenset({"audio", "latents", "text", "animated"})  # keys of a node's output that hold no picture


def error_of(fields: Mapping[str, object]) -> VendorError | None:
    """The error in an answer: an object with a type (/prompt), a sentence (/api/jobs)."""
    error = fields.get("error")
    if isinstance(error, str) and error:
        return VendorError(None, error)
    if not isinstance(error, Mapping):
        return None
    code, message = error.get("type"), error.get("message")
    words = "; ".join(node_faults(fields.get("node_errors"))) or _sentence(message, error.get("details"))
    return VendorError(code if isinstance(code, str) and code else None, words)


DIALECT = Dialect(codes=CODES, error_of=error_of)


def node_faults(node_errors: object) -> list[str]:
    """What is wrong with each input, by its node: "KSampler (node 3): Value -1 smaller than min of 0: seed"."""
    found = []
    for node, about in node_errors.items() if isinstance(node_errors, Mapping) else ():
        kind, errors = _mapping(about).get("class_type"), _mapping(about).get("errors")
        for one in errors if isinstance(errors, list) else ():
            words = _sentence(_mapping(one).get("message"), _mapping(one).get("details"))
            found.append(f"{kind} (node {node}): {words}")
    return found


def _sentence(message: object, details: object) -> str:
    """Message and details in one, once: "Value not in list" and "scheduler: 'x' not in [...]" say the same."""
    first, rest = (part if isinstance(part, str) else "" for part in (message, details))
    if first == "Value not in list" and rest:
        return rest
    return f"{first}: {rest}" if first and rest and rest != first else first or rest


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was asked of a job, as it comes back with its record. `images` and `seed` None: not told."""

    images: int | None = None
    seed: int | None = None
    output: str = ""

    def echo(self) -> dict[str, object]:
        """What goes into `extra_data`."""
        told = {"images": self.images, "seed": self.seed, "output": self.output}
        return {ECHO: {name: value for name, value in told.items() if value not in (None, "")}}

    @classmethod
    def told(cls, entry: Mapping[str, object]) -> Asked:
        """Out of a history entry; nothing for a job that is not ours or a server that does not keep it."""
        prompt = entry.get("prompt")
        extra = _mapping(prompt[3]) if isinstance(prompt, list) and len(prompt) > 3 else {}
        found = _mapping(extra.get(ECHO))
        output = found.get("output")
        return cls(
            images=_whole(found.get("images"), 1, _IMAGES_MAX),
            seed=_whole(found.get("seed"), 0, SEED_MAX),
            output=output if isinstance(output, str) else "",
        )


def from_wire(entry: object, kind: Kind, view: str, secrets: tuple[str, ...] = ()) -> Observation:
    """What a history entry says of its job. Total. `view`: address of the server's /view."""
    record = _mapping(entry)
    status = _mapping(record.get("status"))
    word = status.get("status_str")
    if word == "success":
        return _finished(record, kind, view)
    if word == "error":
        return _ended(status, secrets)
    if isinstance(word, str) and word:
        return Working(word=clean(word)[:40])  # a word of later versions is no failure
    return Unreadable(error=Error(kind=K.UNREADABLE, message="The answer names no state."))


def _ended(status: Mapping[str, object], secrets: tuple[str, ...]) -> Observation:
    """Interrupted, or why it failed. Files that were made before do not count: the graph did not come to its end."""
    for name, about in _messages(status):
        if name == "execution_interrupted":
            return Canceled()
        if name == "execution_error":
            return Failed(error=_reason(about, secrets))
    return Failed(error=Error(kind=K.PROVIDER_ERROR, message=FAILURES[K.PROVIDER_ERROR].message))


def _messages(status: Mapping[str, object]) -> Iterator[tuple[object, Mapping[str, object]]]:
    messages = status.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, list) and len(message) == 2:
            yield message[0], _mapping(message[1])


def _reason(about: Mapping[str, object], secrets: tuple[str, ...]) -> Error:
    """The node and the first line of its exception; the rest are traces and dumps of tensors and prompts."""
    text = about.get("exception_message")
    lines = [line.strip(" *\t") for line in text[:2000].splitlines()] if isinstance(text, str) else []
    first = next((line for line in lines if line), FAILURES[K.PROVIDER_ERROR].message)
    code = clean(about.get("exception_type"), secrets)[:100]
    where = f"{about.get('node_type')} (node {about.get('node_id')}): " if about.get("node_type") else ""
    return Error(kind=K.PROVIDER_ERROR, message=clean(where + first, secrets), upstream_code=code or None)


def _finished(record: Mapping[str, object], kind: Kind, view: str) -> Finished:
    asked = Asked.told(record)
    files = list(_files(record.get("outputs"), asked.output))
    wanted = [one for one in files if one.is_a(kind)]
    most = (asked.images or _IMAGES_MAX) if kind is Kind.IMAGE else 1
    outputs, missing = [], []
    for place, one in enumerate(wanted[:most]):
        if one.safe:
            outputs.append(Output(url=one.url(view), place=place, seed=asked.seed))
        else:
            missing.append(Missing(kind=K.RESULT_INVALID, message="The workflow names a file outside its folder."))
    if files and not wanted:
        message = f"The workflow saved {len(files)} files, none of them {_A[kind]}."
        return Finished(outputs=(), missing=(Missing(kind=K.RESULT_INVALID, message=message),))
    lacking = (asked.images or 1) - len(outputs) - len(missing) if outputs and kind is Kind.IMAGE else 0
    missing += [Missing(kind=K.RESULT_MISSING, message=FAILURES[K.RESULT_MISSING].message)] * lacking
    return Finished(outputs=tuple(outputs), missing=tuple(missing))


_A = {Kind.IMAGE: "a picture", Kind.VIDEO: "a clip"}


@dataclass(frozen=True, kw_only=True)
class _File:
    name: str
    folder: str
    type: str

    def is_a(self, kind: Kind) -> bool:
        """By its ending; the bytes are looked at when they are fetched. A name without one may be anything."""
        ending = self.name.rpartition(".")[2].lower()
        other = _CLIPS if kind is Kind.IMAGE else _PICTURES
        return ending in (_PICTURES if kind is Kind.IMAGE else _CLIPS) or (not self.safe and ending not in other)

    @property
    def safe(self) -> bool:
        """Whether it lies in the output folder, whoever reads the name: Linux, Windows or a proxy on the way."""
        folders = self.folder.replace("\\", "/").split("/") if self.folder else []
        signs = self.name + self.folder
        return (
            self.type == "output"
            and signs.isprintable()
            and not any(sign in signs for sign in ":%")
            and not any(sign in self.name for sign in "/\\")
            and self.name not in ("", ".", "..")
            and not any(folder in ("", ".", "..") for folder in folders)
        )

    def url(self, view: str) -> str:
        named = {"filename": self.name, "subfolder": self.folder, "type": self.type}
        return f"{view}?{urlencode(named, quote_via=quote)}"


def _files(outputs: object, only: str) -> Iterator[_File]:
    """Every file that was saved, whatever its node calls the list (`images`, `gifs`, `videos` ...), no preview."""
    for node, made in outputs.items() if isinstance(outputs, Mapping) else ():
        if only and node != only:
            continue
        for key, listed in _mapping(made).items():
            if key in _NOT_WANTED or not isinstance(listed, list):
                continue
            for item in listed:
                name, folder = _mapping(item).get("filename"), _mapping(item).get("subfolder")
                where = _mapping(item).get("type")
                if isinstance(name, str) and where != "temp":
                    folder = folder if isinstance(folder, str) else ""
                    yield _File(name=name, folder=folder, type=where if isinstance(where, str) else "")


def _whole(value: object, low: int, high: int) -> int | None:
    ours = isinstance(value, int) and not isinstance(value, bool)
    return value if ours and isinstance(value, int) and low <= value <= high else None


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
