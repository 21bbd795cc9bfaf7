"""The signature on fal's callbacks: a key of this simulator's own, and the set in which it is published.

Source: the provider sheet of 2026-11-30. May not know jobs. Invariant: a new simulator has a new key, so that what one
has signed proves nothing to those who trust another.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_USER = "sim-user"


class Signer:
    """Signs bodies and shows its public key."""

    def __init__(self) -> None:
        """Make a key."""
        self._key = Ed25519PrivateKey.generate()

    def headers(self, request_id: str, body: bytes, at_s: float) -> Mapping[str, str]:
        """Return the headers that prove `body`, signed at `at_s` (seconds since the epoch)."""
        told = str(int(at_s))
        text = "\n".join([request_id, _USER, told, hashlib.sha256(body).hexdigest()])
        return {
            "X-Fal-Webhook-Request-Id": request_id,
            "X-Fal-Webhook-User-Id": _USER,
            "X-Fal-Webhook-Timestamp": told,
            "X-Fal-Webhook-Signature": self._key.sign(text.encode()).hex(),
        }

    def jwks(self) -> dict[str, object]:
        """Return the key set (RFC 8037)."""
        raw = self._key.public_key().public_bytes_raw()
        told = urlsafe_b64encode(raw).decode().rstrip("=")
        return {"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": "sim", "x": told}]}
