"""PURE  The signature of a request to Volcengine's gateway (HMAC-SHA256 over hash, host, date and query).

Like its well-known relative of another cloud, but: the secret goes in as it is, without a prefix and undecoded although
it looks like base64, and the scope ends in `request`. What is signed are the bytes that are sent: JSON must not be
written anew afterwards.

Source: the signer of the official Python SDK volcengine 1.0.229 [SDK], whose output for four requests is in
tests/contract/test_jimeng_signing.py [SDK-run]; volcengine.com/docs/6369/67268 [docs]; read 2026-11-30.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

REGION, SERVICE = "cn-north-1", "cv"  # [SDK]
_ALGORITHM = "HMAC-SHA256"
_CONTENT_TYPE = "application/json"


@dataclass(frozen=True, kw_only=True)
class Credential:
    """An access key and its secret; `token` only for a temporary pair."""

    access: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)

    @classmethod
    def read(cls, key: str) -> Credential | None:
        """The credential in `ACCESS:SECRET` or `ACCESS:SECRET:TOKEN`; None for anything else."""
        access, secret, token, *more = [*(part.strip() for part in key.split(":")), "", ""]
        if any(more) or not access or not secret:
            return None
        return cls(access=access, secret=secret, token=token)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A POST to be signed. `host` as the header says it: with its port, unless that is the usual one."""

    host: str
    query: Mapping[str, str]
    body: bytes = field(repr=False)
    path: str = "/"


def signed_headers(call: Call, credential: Credential, date: str) -> dict[str, str]:
    """All headers that the gateway asks of `call`, the signature among them.

    `date` is now in UTC as YYYYMMDDTHHMMSSZ; the gateway refuses one that is too far from its own clock
    (InvalidTimestamp; how far is written nowhere).
    """
    digest = hashlib.sha256(call.body).hexdigest()
    head = {"Content-Type": _CONTENT_TYPE, "Host": call.host, "X-Content-Sha256": digest, "X-Date": date}
    if credential.token:
        head["X-Security-Token"] = credential.token
    names = ";".join(sorted(name.lower() for name in head))
    scope = f"{date[:8]}/{REGION}/{SERVICE}/request"
    text = "\n".join((_ALGORITHM, date, scope, hashlib.sha256(canonical(call, head).encode()).hexdigest()))
    signature = hmac.new(signing_key(credential.secret, scope), text.encode(), hashlib.sha256).hexdigest()
    signed = f"Credential={credential.access}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**head, "Authorization": f"{_ALGORITHM} {signed}"}


def canonical(call: Call, head: Mapping[str, str]) -> str:
    """The request in the one spelling that both sides hash."""
    lower = {name.lower(): value for name, value in head.items()}
    query = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(call.query.items()))
    block = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower))
    path = quote(call.path, safe="/-_.~") or "/"
    return "\n".join(("POST", path, query, block, ";".join(sorted(lower)), lower["x-content-sha256"]))


def signing_key(secret: str, scope: str) -> bytes:
    """The key of one day, region and service: the secret, hashed with one part of the scope after the other."""
    key = secret.encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
