"""Callbacks of fal: what the vendor signed is read, anything else is forged."""

from __future__ import annotations

import json
import time

import pytest
from pytest_httpserver import HTTPServer

from models.settings import ProviderSettings
from providers.fal_callbacks import Callbacks
from providers.port import CallbackReader, Forged
from providers.sim.fal_signing import Signer
from tests.contract.fal_jobs import ID, KEY, adapter

BODY = json.dumps({"request_id": ID, "gateway_request_id": "other", "status": "OK", "payload": {}}).encode()
JWKS = "/.well-known/jwks.json"


@pytest.fixture
def signer(httpserver: HTTPServer) -> Signer:
    signer = Signer()
    httpserver.expect_request(JWKS).respond_with_json(signer.jwks())
    return signer


@pytest.fixture
def read(httpserver: HTTPServer) -> CallbackReader:
    reader = adapter(httpserver.url_for("").rstrip("/")).capabilities.callback
    assert reader is not None
    return reader


def signed(signer: Signer, body: bytes = BODY, *, off_s: float = 0) -> dict[str, str]:
    """Headers as our route gives them: with lower-case names."""
    return {name.lower(): value for name, value in signer.headers(ID, body, time.time() + off_s).items()}


def test_signed_callback_names_its_request(signer: Signer, read: CallbackReader, httpserver: HTTPServer) -> None:
    assert [read(signed(signer), BODY) for _ in range(3)] == [ID] * 3
    assert len(httpserver.log) == 1
    assert KEY not in str(httpserver.log[0][0].headers)


@pytest.mark.parametrize("off_s", [-290, 290])
def test_clocks_may_differ_by_less_than_five_minutes(signer: Signer, read: CallbackReader, off_s: float) -> None:
    assert read(signed(signer, off_s=off_s), BODY) == ID


@pytest.mark.parametrize("body", [b"no json", b"[]", b"{}", b'{"request_id": 7}', b'{"request_id": ""}'])
def test_signed_callback_without_an_id_names_none(signer: Signer, read: CallbackReader, body: bytes) -> None:
    assert read(signed(signer, body), body) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"signature": "00" * 64},
        {"signature": "no hex"},
        {"signature": ""},
        {"user-id": "another"},
        {"request-id": "another"},
        {"timestamp": ""},
        {"timestamp": "-5"},
        {"timestamp": "1e9"},
        {"timestamp": "9" * 400},
    ],
)
def test_what_was_changed_after_signing_is_forged(
    signer: Signer, read: CallbackReader, changed: dict[str, str]
) -> None:
    with pytest.raises(Forged):
        read(signed(signer) | {f"x-fal-webhook-{name}": value for name, value in changed.items()}, BODY)


@pytest.mark.parametrize("off_s", [-310, 310])
def test_old_and_future_callbacks_are_forged(signer: Signer, read: CallbackReader, off_s: float) -> None:
    with pytest.raises(Forged):
        read(signed(signer, off_s=off_s), BODY)


def test_another_body_another_key_and_no_headers_are_forged(signer: Signer, read: CallbackReader) -> None:
    for headers, body in ((signed(signer), BODY + b" "), (signed(Signer()), BODY), ({}, BODY)):
        with pytest.raises(Forged):
            read(headers, body)


def test_forgeries_ask_for_keys_once_a_minute_at_most(read: CallbackReader, httpserver: HTTPServer) -> None:
    httpserver.expect_request(JWKS).respond_with_json(Signer().jwks())
    for _ in range(5):
        with pytest.raises(Forged):
            read(signed(Signer()), BODY)
    assert len(httpserver.log) == 1


def test_keys_that_changed_are_asked_for_again(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Signer(), Signer()
    for signer in (old, new):
        httpserver.expect_ordered_request(JWKS).respond_with_json(signer.jwks())
    reader = Callbacks(ProviderSettings(adapter="fal", base_url=httpserver.url_for("").rstrip("/")))
    assert reader.read(signed(old), BODY) == ID
    clock = time.monotonic() + 61
    monkeypatch.setattr("providers.fal_callbacks.time.monotonic", lambda: clock)
    assert reader.read(signed(new), BODY) == ID
    with pytest.raises(Forged):
        reader.read(signed(old), BODY)


@pytest.mark.parametrize("entry", [7, {"crv": "P-256", "x": "AA"}, {"crv": "Ed25519", "x": "AA"}, {"crv": "Ed25519"}])
def test_entry_that_is_no_key_spoils_no_other(httpserver: HTTPServer, read: CallbackReader, entry: object) -> None:
    signer = Signer()
    keys = signer.jwks()["keys"]
    assert isinstance(keys, list)
    httpserver.expect_request(JWKS).respond_with_json({"keys": [entry, *keys]})
    assert read(signed(signer), BODY) == ID


def test_without_keys_nothing_is_believed(httpserver: HTTPServer, read: CallbackReader) -> None:
    httpserver.expect_request(JWKS).respond_with_data("<html>", 503)
    with pytest.raises(Forged):
        read(signed(Signer()), BODY)
