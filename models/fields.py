"""PURE  The parameters of a request, one row each, and the checks that need no model.

FIELDS is the contract: Weir's own words, no vendor's. OPTIONS are the words that expand through
presets. A model narrows a row (models.bounds), it never widens one; the same check then runs with
the narrower row, so that what a caller is told and what a caller may send cannot differ.

Invariant: nothing is converted. A value either is what the row says or is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from models.samplers import Sampler


class Kind(StrEnum):
    """What is made; also the name of the queue."""

    IMAGE = "image"
    VIDEO = "video"


class Priority(StrEnum):
    """Class of a task among those that wait."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"


class Role(StrEnum):
    """What happens when a model lacks the parameter."""

    PROMPT = "prompt"  # every model takes it
    TUNING = "tuning"  # left out and named: switching vendors changes nothing for the business
    MAKING = "making"  # refused: what is made would be another thing


@dataclass(frozen=True, kw_only=True)
class FieldSpec:
    """One row of the contract.

    `type` is "string", "integer", "number" or "boolean". `minimum` and `maximum` are inclusive, in
    `unit`; `max_length` counts characters. `neutral` is the value that says the same as leaving the
    field out, on any model. `format` is "", "reference" (an image: URL, upload id or inline data)
    or "sampler" (other spellings are understood). `step` is the grid of the value, None for none.
    """

    name: str
    kinds: frozenset[Kind]
    type: str
    role: Role
    default: object = None
    minimum: float | None = None
    maximum: float | None = None
    max_length: int | None = None
    choices: tuple[str | int, ...] | None = None
    unit: str = ""
    doc: str = ""
    required: bool = False
    neutral: object = None
    format: str = ""
    step: int | None = None


@dataclass(frozen=True, kw_only=True)
class FieldError:
    """One thing wrong with one field: what errors[] of a problem carries.

    `pointer` is a JSON Pointer ("/width"); `code` is one of the per-field codes of the API;
    `nearest` holds legal values close to the one that was asked. No text of a prompt or a link is
    ever in `detail`.
    """

    pointer: str
    code: str
    detail: str
    allowed: Mapping[str, object] | None = None
    nearest: list[object] | None = None


class Invalid(Exception):  # noqa: N818  a refusal, not an error of ours
    """The request is not valid; `errors` names every field at once."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = in_order(errors)
        named = ", ".join(f"{error.pointer} {error.code}" for error in self.errors)
        super().__init__(f"{len(self.errors)} fields are not valid: {named}")


MAX_ERRORS = 50
SEED_MAX = 2**32 - 1
_TEXT_MAX = 32_000  # characters; the longest prompt any vendor takes
_REFERENCE_MAX = 1_000_000  # characters; inline images live inside a JSON body of 1 MB, larger ones are uploaded
_BOTH = frozenset({Kind.IMAGE, Kind.VIDEO})
_IMAGE = frozenset({Kind.IMAGE})
_VIDEO = frozenset({Kind.VIDEO})
_I, _N, _S = "integer", "number", "string"


def _table(*rows: FieldSpec) -> Mapping[str, FieldSpec]:
    return MappingProxyType({row.name: row for row in rows})


def _reference(name: str, kinds: frozenset[Kind], doc: str) -> FieldSpec:
    return FieldSpec(
        name=name,
        kinds=kinds,
        type=_S,
        role=Role.MAKING,
        max_length=_REFERENCE_MAX,
        format="reference",
        doc=doc + ": https URL, file_... id of an upload, or inline data:image/...;base64,",
    )


FIELDS: Mapping[str, FieldSpec] = _table(
    FieldSpec(
        name="prompt",
        kinds=_BOTH,
        type=_S,
        role=Role.PROMPT,
        max_length=_TEXT_MAX,
        required=True,
        unit="characters",
        doc="what to make",
    ),
    FieldSpec(
        name="negative_prompt",
        kinds=_BOTH,
        type=_S,
        role=Role.TUNING,
        max_length=_TEXT_MAX,
        default="",
        neutral="",
        unit="characters",
        doc="what to keep out",
    ),
    FieldSpec(
        name="width",
        kinds=_IMAGE,
        type=_I,
        role=Role.MAKING,
        default=1024,
        minimum=64,
        maximum=16384,
        unit="px",
        doc="width of each image",
    ),
    FieldSpec(
        name="height",
        kinds=_IMAGE,
        type=_I,
        role=Role.MAKING,
        default=1024,
        minimum=64,
        maximum=16384,
        unit="px",
        doc="height of each image",
    ),
    FieldSpec(
        name="steps",
        kinds=_IMAGE,
        type=_I,
        role=Role.TUNING,
        default=30,
        minimum=1,
        maximum=150,
        doc="denoising steps: more is slower and finer",
    ),
    FieldSpec(
        name="cfg_scale",
        kinds=_IMAGE,
        type=_N,
        role=Role.TUNING,
        default=7.5,
        minimum=0,
        maximum=30,
        doc="how closely to follow the prompt",
    ),
    FieldSpec(
        name="sampler",
        kinds=_IMAGE,
        type=_S,
        role=Role.TUNING,
        default=Sampler.EULER_A.value,
        choices=tuple(sampler.value for sampler in Sampler),
        max_length=64,
        format="sampler",
        doc="sampling method and schedule; spellings such as 'DPM++ 2M Karras' are understood",
    ),
    FieldSpec(
        name="seed",
        kinds=_BOTH,
        type=_I,
        role=Role.TUNING,
        default=-1,
        minimum=-1,
        maximum=SEED_MAX,
        doc="-1 or absent: one is drawn, sent and reported",
    ),
    FieldSpec(
        name="image_count",
        kinds=_IMAGE,
        type=_I,
        role=Role.MAKING,
        default=1,
        minimum=1,
        maximum=64,
        unit="images",
        doc="images of one task; never more than the model makes in one job",
    ),
    FieldSpec(
        name="upscale_factor",
        kinds=_BOTH,
        type=_N,
        role=Role.MAKING,
        default=1,
        minimum=1,
        maximum=8,
        neutral=1,
        unit="times",
        doc="how much larger each side is made after generating; `upscale` sets it",
    ),
    _reference("image", _IMAGE, "picture to start from"),
    _reference("mask", _IMAGE, "what of `image` to change, white on black"),
    _reference("first_frame", _VIDEO, "picture the video starts with"),
    _reference("last_frame", _VIDEO, "picture the video ends with"),
    FieldSpec(
        name="duration_s",
        kinds=_VIDEO,
        type=_I,
        role=Role.MAKING,
        default=5,
        minimum=1,
        maximum=60,
        unit="s",
        doc="length of the video",
    ),
    FieldSpec(
        name="resolution",
        kinds=_VIDEO,
        type=_S,
        role=Role.MAKING,
        default="720p",
        max_length=16,
        doc="quality tier such as 480p, 720p, 1080p",
    ),
    FieldSpec(
        name="ratio",
        kinds=_VIDEO,
        type=_S,
        role=Role.MAKING,
        default="16:9",
        max_length=16,
        doc="width to height such as 16:9",
    ),
    FieldSpec(
        name="fps",
        kinds=_VIDEO,
        type=_I,
        role=Role.TUNING,
        default=24,
        minimum=1,
        maximum=120,
        unit="frames/s",
        doc="frames per second",
    ),
    FieldSpec(
        name="audio",
        kinds=_VIDEO,
        type="boolean",
        role=Role.MAKING,
        default=False,
        neutral=False,
        doc="make sound as well",
    ),
)
"""Every parameter of a request; `effective` of a task has these names and no others."""

OPTIONS: Mapping[str, FieldSpec] = _table(
    *(
        FieldSpec(name=name, kinds=_BOTH, type=_S, role=role, max_length=64, doc=doc)
        for name, role, doc in (
            ("style", Role.MAKING, "look, as the operator defined it"),
            ("mode", Role.TUNING, "fast or careful"),
            ("size", Role.MAKING, "shape; always becomes a size that the model can make"),
            ("upscale", Role.MAKING, "enlargement after generating"),
        )
    )
)
"""Words that expand through presets. Their choices come from the configuration."""


def pointer(name: str) -> str:
    """JSON Pointer to a top-level field (RFC 6901); a name longer than any of ours is cut."""
    return "/" + name[:64].replace("~", "~0").replace("/", "~1")


def in_order(errors: Iterable[FieldError]) -> tuple[FieldError, ...]:
    """Sorted by pointer, each pointer and code once, at most 50."""
    once = {(error.pointer, error.code): error for error in errors}
    return tuple(once[key] for key in sorted(once))[:MAX_ERRORS]
