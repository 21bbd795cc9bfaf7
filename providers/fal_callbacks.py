r"""Callbacks of fal: whether the vendor signed one, and which request it is about.

The vendor signs `request id \n user id \n timestamp \n hex(SHA-256(body))` with Ed25519; its public keys are a JWKS
at an address of its own, which any server that copies the queue is expected to have below its base. Keys are fetched
when the first callback comes and kept for a day; one that fits none of them asks for fresh keys, once a minute at
most, so that forgeries cannot make us knock at the vendor's door.

Source: fal.ai/docs, webhooks, read 2026-11-30.
"""

from __future__ import annotations

import binascii
import dataclasses
import hashlib
import json
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from models.settings import ProviderSettings
from providers.fal_wire import DIALECT
from providers.http import Ask, Http
from providers.inline import mapping
from providers.port import Forged, ProviderError

_OWN_HOSTS = ("queue.fal.run", "queue.falrun.com")
_KEYS_AT = "https://rest.fal.ai"
_KEYS_PATH = "/.well-known/jwks.json"
_KEPT_S = 86_400.0  # at most 24 h [DOC]
_AGAIN_S = 60.0
_OFF_S = 300.0  # what a callback's time may differ from ours [DOC]
_HEADERS = tuple(f"x-fal-webhook-{name}" for name in ("request-id", "user-id", "timestamp", "signature"))


class Callbacks:
    """The reader of one provider's callbacks. Thread-safe; asks for keys on first use, after the fork."""

    def __init__(self, settings: ProviderSettings) -> None:
        own = urlsplit(settings.base_url).hostname in _OWN_HOSTS
        base_url = _KEYS_AT if own else settings.base_url
        # Without our credential: these keys are public, and the host is another.
        self._http = Http(dataclasses.replace(settings, base_url=base_url), DIALECT)
        self._lock = threading.Lock()
        self._keys: tuple[Ed25519PublicKey, ...] = ()
        self._asked_at = -_KEPT_S

    def read(self, headers: Mapping[str, str], body: bytes) -> str | None:
        """The request id that a callback names; None where it names none. Raises Forged.

        `find` makes a receipt of it: the body does not say which app it is of.
        """
        signed = [headers.get(name, "") for name in _HEADERS]
        request_id, user_id, told, signature = signed
        if not told.isdecimal() or len(told) > 12 or abs(time.time() - int(told)) > _OFF_S:
            raise Forged("The callback has no time, or one that is more than five minutes off.")
        text = "\n".join([request_id, user_id, told, hashlib.sha256(body).hexdigest()]).encode()
        try:
            proof = bytes.fromhex(signature)
        except ValueError:
            raise Forged("The callback's signature is none.") from None
        if not self._holds(proof, text):
            raise Forged("The callback's signature does not hold.")
        try:
            named = mapping(json.loads(body)).get("request_id")
        except ValueError:
            return None
        return named if isinstance(named, str) and named else None

    def _holds(self, proof: bytes, text: bytes) -> bool:
        with self._lock:
            if self._age_s() >= _KEPT_S:
                self._refresh()
            if any(_verifies(key, proof, text) for key in self._keys):
                return True
            if self._age_s() < _AGAIN_S:
                return False
            self._refresh()  # the vendor may have changed its keys
            return any(_verifies(key, proof, text) for key in self._keys)

    def _age_s(self) -> float:
        return time.monotonic() - self._asked_at

    def _refresh(self) -> None:
        """Ask for the keys. Where they cannot be had, the old ones stay."""
        self._asked_at = time.monotonic()
        try:
            found = self._http.once(Ask(operation="check", path=_KEYS_PATH)).fields.get("keys")
        except ProviderError:
            return
        self._keys = tuple(_usable(found if isinstance(found, list) else []))


def _usable(entries: list[object]) -> Iterator[Ed25519PublicKey]:
    """The Ed25519 keys of a JWKS (RFC 8037); entries of other kinds are passed over."""
    for entry in entries:
        told = mapping(entry).get("x")
        if mapping(entry).get("crv") != "Ed25519" or not isinstance(told, str):
            continue
        try:
            yield Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(told + "=" * (-len(told) % 4)))
        except (ValueError, binascii.Error):
            continue


def _verifies(key: Ed25519PublicKey, proof: bytes, text: bytes) -> bool:
    try:
        key.verify(proof, text)
    except InvalidSignature:
        return False
    return True
