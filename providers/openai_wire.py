"""What goes to an OpenAI-shaped API and what its answers mean. No socket, no clock: providers/openai.py carries.

What is always sent, because it is priced or its default changes what was asked: `n`, `size`, `quality`,
`output_format` (png), `seconds`. There is no seed and no negative prompt. `Idempotency-Key` carries our reference: the
official service promises nothing for it, a gateway behind it (ours) honours it.

Sources, read 2026-11-30: openai/openai-openapi of 2026-08-21 [SPEC], Python package openai 3.57.0 [SDK], guides
error-codes and video-generation [DOC], reports of others [3P]; [U] not confirmed.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from PIL import Image, ImageOps

from models.contract import Kind
from models.failures import FAILURES
from models.failures import FailureKind as K
from models.lifecycle import (
    Canceled,
    Error,
    Failed,
    Finished,
    Missing,
    Observation,
    Output,
    Unreadable,
    Working,
)
from providers.http import Ask
from providers.inline import Picture, decoded, form, mapping, number, picture
from providers.media import PIXELS_MAX
from providers.openai_models import Model, model_of
from providers.port import Job
from providers.verdicts import Dialect, VendorError, clean, code_kind


class UnusableError(ValueError):
    """What was asked cannot be said to this vendor; the message says why and may be shown."""


def to_wire(job: Job) -> Ask:
    """The submit call of `job`. Raises KeyError for an unknown model, UnusableError for a picture."""
    model = model_of(job.model)
    if model is None:
        raise KeyError(job.model)
    if job.kind is Kind.VIDEO:
        return _clip(job, model)
    fields = _picture_fields(job.effective, model)
    if job.effective.get("image") is None:
        return _submit(job, "/images/generations", fields)
    return _edit(job, fields)


def _submit(job: Job, path: str, body: Mapping[str, object], files: Sequence[tuple[str, Picture]] = ()) -> Ask:
    headers = {"Idempotency-Key": job.reference} if job.reference else {}
    if not files:
        return Ask(operation="submit", method="POST", path=path, headers=headers, body=body)
    sent = form(body, files)
    headers["Content-Type"] = sent.content_type
    return Ask(operation="submit", method="POST", path=path, headers=headers, body=sent.body)


def _picture_fields(effective: Mapping[str, object], model: Model) -> dict[str, object]:
    fields: dict[str, object] = {"model": model.name} if model.name else {}
    fields |= {
        "prompt": effective["prompt"],
        "n": effective["image_count"],
        "size": f"{effective['width']}x{effective['height']}",
    }
    # A server of another kind may refuse words that only the vendor's own models know.
    return fields | ({"quality": model.quality, "output_format": "png"} if model.quality else {})


def _edit(job: Job, fields: Mapping[str, object]) -> Ask:
    """Files as a form where the picture is inline, else addresses as JSON; both are in the [SPEC]."""
    image, mask = job.effective["image"], job.effective.get("mask")
    inline, inline_mask = picture(image), picture(mask)
    if inline is not None and (mask is None or inline_mask is not None):
        files = [("image", inline)]
        if inline_mask is not None:
            files.append(("mask", transparent_where_white(inline_mask)))
        return _submit(job, "/images/edits", fields, files)
    if mask is not None:
        # Ours is white where the picture changes, the vendor's is transparent there: only bytes can be turned.
        raise UnusableError("With a mask, both image and mask must be given inline.")
    return _submit(job, "/images/edits", {**fields, "images": [{"image_url": _address(image, "image")}]})


def _clip(job: Job, model: Model) -> Ask:
    effective, frame = job.effective, job.effective.get("first_frame")
    pixels = model.bounds.frame_px(effective)
    if pixels is None:
        raise UnusableError("The model does not make this resolution in this ratio.")
    fields: dict[str, object] = {"model": model.name} if model.name else {}
    fields |= {"prompt": effective["prompt"], "seconds": str(effective["duration_s"]), "size": "{}x{}".format(*pixels)}
    inline = picture(frame)
    if inline is not None:
        return _submit(job, "/videos", fields, [("input_reference", inline)])
    if frame is not None:
        fields["input_reference"] = {"image_url": _address(frame, "first_frame")}
    return _submit(job, "/videos", fields)


def _address(reference: object, name: str) -> str:
    if isinstance(reference, str) and reference.lower().startswith(("http://", "https://")):
        return reference
    raise UnusableError(f"{name} must be a picture inline or an http address that the provider can reach.")


def transparent_where_white(mask: Picture) -> Picture:
    """Our mask (white on black: white changes) as the vendor wants it: a PNG whose transparent part changes.

    Raises UnusableError for what is no picture or has more pixels than a result may have.
    """
    try:
        with Image.open(io.BytesIO(mask.content), formats=["PNG", "JPEG", "WEBP"]) as opened:
            if opened.width * opened.height > PIXELS_MAX:
                raise UnusableError(f"mask has more than {PIXELS_MAX:,} pixels.")
            kept = ImageOps.invert(opened.convert("L"))
    except (OSError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as exc:
        raise UnusableError("mask is no picture that can be read.") from exc
    turned = Image.new("RGBA", kept.size)
    turned.putalpha(kept)
    out = io.BytesIO()
    turned.save(out, "PNG")
    return Picture(media_type="image/png", content=out.getvalue())


# [DOC] guide error-codes unless marked; `type` where there is no code, or an unknown one.
CODES: Mapping[str, K] = {
    **dict.fromkeys(
        # image_generation_user_error is a type; content_policy_violation is the older word [3P]
        ("moderation_blocked", "image_generation_user_error", "content_policy_violation", "content_filter"),
        K.CONTENT_FILTERED,
    ),
    **dict.fromkeys(("invalid_value", "unknown_parameter"), K.INVALID_PARAMETER),
    **dict.fromkeys(("invalid_api_key", "authentication_error"), K.PROVIDER_AUTH),
    **dict.fromkeys(("model_not_found", "permission_error"), K.MODEL_DENIED),  # "does not exist or you have no access"
    **dict.fromkeys(
        ("insufficient_quota", "credit_balance_exhausted", "billing_hard_limit_reached"),  # the last [3P]
        K.PROVIDER_QUOTA,
    ),
    **dict.fromkeys(("rate_limit_exceeded", "slow_down"), K.RATE_LIMITED),
    "server_is_overloaded": K.OVERLOADED,
    "server_error": K.SERVER_ERROR,
    "Not Found": K.PROVIDER_ERROR,  # the word of a router, not of the API: a wrong base_url
}
_OF_THE_JOB = frozenset({K.INVALID_PARAMETER, K.CONTENT_FILTERED, K.PROVIDER_AUTH, K.PROVIDER_QUOTA, K.MODEL_DENIED})


def error_of(fields: Mapping[str, object]) -> VendorError | None:
    """The error in an answer. A list of results and a clip's record are none: what they say is their own matter."""
    if isinstance(fields.get("data"), list) or (fields.get("id") and fields.get("status")):
        return None
    return _words_of(fields)


def _words_of(fields: Mapping[str, object]) -> VendorError | None:
    error = fields.get("error")
    if isinstance(error, str) and error:
        return VendorError(None, error)
    if isinstance(error, Mapping) and error:
        message = error.get("message")
        return VendorError(_code(error), message if isinstance(message, str) else "")
    detail = fields.get("detail") or fields.get("message")  # servers that copy the shape, not the errors
    if isinstance(detail, str):
        return VendorError(detail if detail == "Not Found" else None, detail)
    return None


def _code(error: Mapping[str, object]) -> str | None:
    """`code`; with its type before it where only the type says what it means; the type where there is no code."""
    code, kind = error.get("code"), error.get("type")
    words = [str(part) for part in (kind, code) if part and not isinstance(part, Mapping | list)]
    if code and (str(code) in CODES or kind not in CODES):
        return str(code)
    return ".".join(words) or None


DIALECT = Dialect(codes=CODES, error_of=error_of)


def pictures_from_wire(fields: Mapping[str, object], asked: int, secrets: tuple[str, ...] = ()) -> Finished | Failed:
    """What the answer to a picture's submit brings. `asked` images were asked for; `place` counts them from 0.

    Total. An answer without any entry is a failure, whatever its status was (cases.md O-20).
    """
    listed = fields.get("data")
    entries = [mapping(entry) for entry in listed][:asked] if isinstance(listed, list) else []
    if not entries:
        words = _words_of(fields) or VendorError(None)
        return Failed(error=_reason(words, secrets, "The provider answered without any image."))
    outputs: list[Output] = []
    missing: list[Missing] = []
    for place, entry in enumerate(entries):
        found = _entry(entry, place, secrets)
        if isinstance(found, Output):
            outputs.append(found)
        else:
            missing.append(found)
    missing += [_absent()] * (asked - len(entries))
    if not outputs:
        first = missing[0]
        return Failed(error=Error(kind=first.kind, message=first.message, upstream_code=first.upstream_code))
    return Finished(outputs=tuple(outputs), missing=tuple(missing), usage=_usage(fields))


def _entry(entry: Mapping[str, object], place: int, secrets: tuple[str, ...]) -> Output | Missing:
    """One of `data`: bytes, or a link where a server still gives one, or the reason of this one."""
    content, url = decoded(entry.get("b64_json")), entry.get("url")
    if content is not None:
        return Output(content=content, place=place)
    if isinstance(url, str) and url:
        inside = decoded(url) if url[:5].lower() == "data:" else None
        return Output(url=None if inside else url, content=inside, place=place)
    words = _words_of(entry)
    if words is not None:
        error = _reason(words, secrets, "")
        return Missing(kind=error.kind, message=error.message, upstream_code=error.upstream_code)
    if entry.get("b64_json"):
        return Missing(kind=K.RESULT_INVALID, message="The provider delivered an image that is no base64.")
    return _absent()


def _absent() -> Missing:
    return Missing(kind=K.RESULT_MISSING, message=FAILURES[K.RESULT_MISSING].message)


def _reason(words: VendorError, secrets: tuple[str, ...], fallback: str) -> Error:
    """The vendor's words about one job or image, as an error: ours to mend, or the provider's failure."""
    kind = code_kind(words.code, CODES)
    kind = kind if kind in _OF_THE_JOB else K.PROVIDER_ERROR
    return Error(
        kind=kind or K.PROVIDER_ERROR,
        message=clean(words.message, secrets) or fallback or FAILURES[kind or K.PROVIDER_ERROR].message,
        upstream_code=clean(words.code, secrets)[:100] or None,
    )


def _usage(fields: Mapping[str, object]) -> dict[str, object]:
    usage = mapping(fields.get("usage"))
    return {name: found for name, value in usage.items() if (found := number(value)) is not None}


def clip_from_wire(fields: Mapping[str, object], base_url: str, secrets: tuple[str, ...] = ()) -> Observation:
    """What a clip's record says. Total: a record without a state is Unreadable.

    `base_url` is where its content is fetched from. [SPEC] knows four words; others add their own, and an unknown one
    is "not yet" until the deadline.
    """
    word, id_ = fields.get("status"), fields.get("id")
    if not isinstance(word, str) or not word:
        return Unreadable(error=Error(kind=K.UNREADABLE, message="The answer names no state."))
    match word:
        case "completed":
            if not isinstance(id_, str) or not id_:
                return Finished(outputs=())
            seconds = number(fields.get("seconds"))
            usage = {} if seconds is None else {"seconds": seconds}
            return Finished(outputs=(Output(url=_content_url(base_url, id_), place=0),), usage=usage)
        case "failed":
            return Failed(error=_reason(_words_of(fields) or VendorError(None), secrets, ""))
        case "cancelled" | "canceled":  # no word of the [SPEC], but no other meaning either [3P]
            return Canceled()
        case _:  # queued, in_progress, and what others add: pending, processing, expired [3P]
            percent = number(fields.get("progress"))
            return Working(
                progress=None if percent is None else min(1.0, max(0.0, percent / 100)), word=clean(word)[:40]
            )


def clip_path(receipt: str) -> str:
    """Where one clip is asked about, below the versioned base."""
    return f"/videos/{quote(receipt, safe='')}"


def _content_url(base_url: str, receipt: str) -> str:
    return base_url + clip_path(receipt) + "/content"
