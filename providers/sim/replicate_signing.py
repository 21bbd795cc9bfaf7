"""The signature on Replicate's webhooks: a secret of this simulator's own, which its API gives to any token.

Source: the provider sheet of 2026-11-30. May not know jobs. Invariant: a new simulator has a new secret, so that what
one has signed proves nothing to those who trust another.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping


class Signer:
    """Signs bodies and tells its secret."""

    def __init__(self) -> None:
        """Make a secret."""
        self._key = secrets.token_bytes(24)

    @property
    def secret(self) -> str:
        """The secret as the API gives it."""
        return f"whsec_{base64.b64encode(self._key).decode()}"

    def headers(self, body: bytes, at_s: float) -> Mapping[str, str]:
        """Return the headers that prove `body`, signed at `at_s` (seconds since the epoch).

        The id is of the event, not of the call: it is the same when the same body is sent again.
        """
        name, told = f"msg_{hashlib.sha256(body).hexdigest()[:24]}", str(int(at_s))
        proof = hmac.digest(self._key, f"{name}.{told}.".encode() + body, hashlib.sha256)
        return {
            "webhook-id": name,
            "webhook-timestamp": told,
            "webhook-signature": f"v1,{base64.b64encode(proof).decode()}",
        }
