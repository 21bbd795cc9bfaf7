"""Jimeng's signature: the four vectors that the vendor's own signer gave, and that signer itself."""

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.jimeng_signing import Call, Credential, canonical, signed_headers, signing_key

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # old code: escapes that Python no longer knows
    from volcengine.auth.SignerV4 import SignerV4
    from volcengine.base.Request import Request
    from volcengine.Credentials import Credentials

ACCESS, SECRET, DATE = "AKTESTEXAMPLE0001", "U0VDUkVURVhBTVBMRTAwMDE=", "20261130T120000Z"
HOST = "visual.volcengineapi.com"
SUBMIT = {"Action": "CVSync2AsyncSubmitTask", "Version": "2022-08-31"}
QUERY = {"Action": "CVSync2AsyncGetResult", "Version": "2022-08-31"}
CUP = b'{"req_key":"jimeng_t2i_v40","prompt":"a red cup","width":2048,"height":2048}'
ASKED = b'{"req_key":"jimeng_t2i_v40","task_id":"7392616336519610409","req_json":"{\\"return_url\\":true}"}'
CHINESE = '{"req_key":"jimeng_t2i_v31","prompt":"红色杯子"}'.encode()
TOKEN = "STSTOKENEXAMPLE=="
# name -> call, token, hash of the canonical request, signature
VECTORS = {
    "submit": (
        Call(host=HOST, query=SUBMIT, body=CUP),
        "",
        "c98f801821672f60a54b2518f1f4946f5ff2edd8c121afa77672e6b07906bbca",
        "0ca81e8b7a47e0f59105e2e22bf028566f17960bd5128496f6dab852dda2287a",
    ),
    "query with a token": (
        Call(host=HOST, query=QUERY, body=ASKED),
        TOKEN,
        "ab8546071ffa0bcca81481d2aa2545071a923cb121704341adef1ea10a88d01e",
        "d30d16c240189bf286477fb6c49add8739a40c88bbc68dc4d391d7c6af803588",
    ),
    "host with a port": (
        Call(host="127.0.0.1:18080", query=SUBMIT, body=CUP),
        "",
        "e34d9b7f49ed79be412848caa783dc48b06668b075fbcae9fa3d68b7d0d25a55",
        "aaf53422d4e91787d9a90f08194cda749d88a35cd73b232e73e02d6df5d0f4a0",
    ),
    "body in UTF-8": (
        Call(host=HOST, query=SUBMIT, body=CHINESE),
        "",
        "152d5bc138f83f750659754b987c6ee76c657d2a1264a46f343756403328598d",
        "382714437fac536a41d16f190088789b62b8553955f9dccd8baf7bc4c908c351",
    ),
}


def test_bodies_of_the_vectors_are_the_sheets() -> None:
    assert [len(CUP), len(ASKED), len(CHINESE)] == [76, 95, 52]


@pytest.mark.parametrize("name", VECTORS)
def test_signature_is_the_vendors_own(name: str) -> None:
    call, token, hashed, signature = VECTORS[name]
    headers = signed_headers(call, Credential(access=ACCESS, secret=SECRET, token=token), DATE)
    signed = {key: value for key, value in headers.items() if key != "Authorization"}
    assert hashlib.sha256(canonical(call, signed).encode()).hexdigest() == hashed
    names = "content-type;host;x-content-sha256;x-date" + (";x-security-token" if token else "")
    assert headers["Authorization"] == (
        f"HMAC-SHA256 Credential={ACCESS}/20261130/cn-north-1/cv/request, SignedHeaders={names}, Signature={signature}"
    )


def test_key_is_the_secret_hashed_part_by_part() -> None:
    chain = {
        "20261130": "471a18baace65fea4c7f5382e1c12810e4b08419c997f7d83da6f9dae3a8d14c",
        "20261130/cn-north-1": "dab79189f52a0774c35e15d9002c5459f87baf0c94aca49a277592dfd71bedf5",
        "20261130/cn-north-1/cv": "4da3bc192bab5bbf2b9851b10dc93e81885084c65bf43d4cb8297f27b6ca2d55",
        "20261130/cn-north-1/cv/request": "e36ceb8f04cdb45b6a396dbf2eb30a46f86bb363b2ede461babf753e40434c55",
    }
    assert {scope: signing_key(SECRET, scope).hex() for scope in chain} == chain


def test_canonical_request_of_the_sheet() -> None:
    call = VECTORS["submit"][0]
    digest = "9daa493e9f35d122fdc4e6c9c4c494ae56e7029ddfa49a28cee7fbbdf54620d3"
    headers = signed_headers(call, Credential(access=ACCESS, secret=SECRET), DATE)
    del headers["Authorization"]
    assert canonical(call, headers).splitlines() == [
        "POST",
        "/",
        "Action=CVSync2AsyncSubmitTask&Version=2022-08-31",
        "content-type:application/json",
        f"host:{HOST}",
        f"x-content-sha256:{digest}",
        f"x-date:{DATE}",
        "",
        "content-type;host;x-content-sha256;x-date",
        digest,
    ]


def by_the_sdk(call: Call, credential: Credential) -> str:
    """The header that the vendor's signer makes, at its own time."""
    asked = Request()
    asked.method, asked.path, asked.host = "POST", call.path, call.host
    asked.query, asked.body = OrderedDict(call.query), call.body.decode()
    asked.headers = OrderedDict({"Host": call.host, "Content-Type": "application/json"})
    secret = Credentials(credential.access, credential.secret, "cv", "cn-north-1", credential.token)
    SignerV4.sign(asked, secret)
    ours = signed_headers(call, credential, asked.headers["X-Date"])
    assert ours == {name: asked.headers[name] for name in ours}
    return str(asked.headers["Authorization"])


_WORD = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
_ASCII = st.text("abcXYZ0189+/=_-", min_size=1, max_size=40)


@given(_WORD, st.dictionaries(_WORD, _WORD, max_size=3), _ASCII, _ASCII, st.just("") | _ASCII)
def test_any_request_is_signed_as_the_sdk_does(
    body: str, more: dict[str, str], access: str, secret: str, token: str
) -> None:
    call = Call(host="127.0.0.1:8800", path="/jimeng/", query={**more, **SUBMIT}, body=body.encode())
    assert by_the_sdk(call, Credential(access=access, secret=secret, token=token)).startswith("HMAC-SHA256 ")


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("a:b", Credential(access="a", secret="b")),
        (" a : b=\n", Credential(access="a", secret="b=")),
        ("a:b:c", Credential(access="a", secret="b", token="c")),
        ("", None),
        ("ab", None),
        (":b", None),
        ("a:", None),
        ("a:b:c:d", None),
    ],
)
def test_credential_is_two_parts_or_three(key: str, found: Credential | None) -> None:
    assert Credential.read(key) == found


def test_credential_does_not_show_itself() -> None:
    shown = repr(Credential.read("access-1:secret-2:token-3"))
    assert not any(part in shown for part in ("access-1", "secret-2", "token-3"))
