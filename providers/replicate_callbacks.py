"""Callbacks of Replicate: whether the vendor signed one, and which prediction it is about.

The format is that of Standard Webhooks, with one secret for the account, which the API gives to the account's token.
It is asked for when the first callback comes and kept for a day; a callback that it does not fit asks for it anew, once
a minute at most, so that forgeries cannot make us knock at the vendor's door. It is written nowhere.

Source: replicate.com/docs, webhooks, read 2026-11-30.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook, WebhookVerificationError

from providers.http import Ask, Http
from providers.inline import mapping
from providers.port import Forged, ProviderError
from providers.replicate_wire import API

_SECRET_PATH = f"{API}/webhooks/default/secret"
_KEPT_S = 86_400.0
_AGAIN_S = 60.0


class Callbacks:
    """The reader of one account's callbacks. Thread-safe; asks for the secret on first use, after the fork."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._lock = threading.Lock()
        self._secret: Webhook | None = None
        self._asked_at = -_KEPT_S

    def read(self, headers: Mapping[str, str], body: bytes) -> str | None:
        """The prediction that a callback names; None where it names none. Raises Forged, also for what is old."""
        if not self._holds(headers, body):
            raise Forged("The callback's signature does not hold, or is more than five minutes old.")
        try:
            named = mapping(json.loads(body)).get("id")
        except ValueError:
            return None
        return named if isinstance(named, str) and named else None

    def _holds(self, headers: Mapping[str, str], body: bytes) -> bool:
        with self._lock:
            if self._age_s() >= _KEPT_S:
                self._refresh()
            if _verifies(self._secret, headers, body):
                return True
            if self._age_s() < _AGAIN_S:
                return False
            self._refresh()  # the account may have a new one
            return _verifies(self._secret, headers, body)

    def _age_s(self) -> float:
        return time.monotonic() - self._asked_at

    def _refresh(self) -> None:
        """Ask for the secret. Where it cannot be had, the old one stays."""
        self._asked_at = time.monotonic()
        try:
            told = self._http.once(Ask(operation="check", path=_SECRET_PATH)).fields.get("key")
            self._secret = Webhook(told) if isinstance(told, str) else self._secret
        except (ProviderError, ValueError, EmptyWebhookSecretError):  # ValueError: no base64
            return


def _verifies(secret: Webhook | None, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether the signature holds and is at most five minutes off, which the library checks."""
    if secret is None:
        return False
    try:
        secret.verify(body, dict(headers), json_parse=False)
    except (WebhookVerificationError, ValueError, OverflowError):  # ValueError: headers or a body in no form
        return False
    return True
