"""Cases O-28 to O-32 and O-35: bringing results home, whole, once, and as what they are.

Left out, with the reason:

- O-28, ten minutes later: the vendor is gone altogether instead, which is harder.
- O-28 and O-32, no link of the vendor in a webhook: webhooks are not built.
- O-31, 5 MB in 120 s: the limits are a second, in the same order.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from PIL import Image

from providers.sim import Simulator
from tests.cases import FILM, FLARE, PLAIN, PRICE, WAVES, Case, bought, failed, playing
from tests.conftest import MakeSettings
from tests.contract.raw_server import Conn, RawServer
from tests.scripted import png

pytest_plugins = ("tests.cases_fixtures",)

V_PRICE = 5 * PRICE
LOOPBACK = '[results]\nallowed_networks = ["127.0.0.0/8"]\n'
HURRIED = "fetch_attempts = 2\n[results]\nfetch_s = 1.0\n"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_o28_our_link_lives_on_when_the_vendors_has_ended(case: Case) -> None:
    task_id = case.post(PLAIN)
    while case.row(task_id)["stage"] != "fetching":
        case.step(task_id)
    theirs = case.row(task_id)["upstream_outputs"][0]["url"]
    task = case.end(task_id)
    original = case.fetched_from(theirs)
    host = urlsplit(theirs).netloc
    case.sim.stop()
    got = case.file(task)
    assert (got.status_code, got.data) == (200, original)
    assert bought(task) == ("SUCCESS", PRICE)
    shown = json.dumps(task) + case.service.get(task["links"]["history"]).text
    assert host not in shown
    assert task["outputs"][0]["url"].startswith(task["links"]["self"])
    assert case.totals("dashscope")["submit"] == 1


def test_o29_a_long_signed_link_reaches_the_store_byte_for_byte(
    make_settings: MakeSettings, sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    query = "Expires=1796000000&Signature=aB%2fc%3d%3D+x&security-token=" + "CAIS%2B%2f" * 130 + "&last=1%7E"
    with (
        RawServer(_serve_picture) as store,
        playing(make_settings, sim, LOOPBACK) as case,
        caplog.at_level("DEBUG"),
    ):
        results = [{"url": f"{store.url}/a.png?{query}"}]
        body = {"request_id": "r", "output": {"task_id": "t", "task_status": "SUCCEEDED", "results": results}}
        case.script({"on": "query", "do": {"status": 200, "body": body}})
        task = case.play(PLAIN)
        assert bought(task) == ("SUCCESS", PRICE)
        (request,) = store.requests
        assert request.split(b"\r\n")[0] == f"GET /a.png?{query} HTTP/1.1".encode()
        assert case.totals("dashscope")["submit"] == 1
        ours = [record.getMessage() for record in caplog.records if record.name.startswith("weir")]
        assert not any("Signature=" in said or "security-token" in said for said in ours)


def _serve_picture(conn: Conn) -> None:
    if conn.request():
        conn.answer(png(), headers="Content-Type: image/png\r\n")


def test_o30_the_key_does_not_follow_a_redirect_to_the_store(make_settings: MakeSettings, sim: Simulator) -> None:
    elsewhere = f"localhost:{sim.url.rpartition(':')[2]}"
    with playing(make_settings, sim, LOOPBACK) as case:
        case.script({"on": "fetch", "do": {"redirect": f"http://{elsewhere}/files/moved/{{file}}"}})
        task = case.play(WAVES)
        totals = case.totals("openai")
        assert bought(task) == ("SUCCESS", PRICE)
        assert (totals["fetch"], totals["fetch_moved"], totals.get("fetch_with_credentials", 0)) == (1, 1, 0)
        assert totals["submit"] == 1


def test_o31_a_download_that_drips_is_cut_and_holds_up_nobody(make_settings: MakeSettings, sim: Simulator) -> None:
    with playing(make_settings, sim, HURRIED) as case:
        case.script({"on": "fetch", "match": {"prompt_contains": "slow"}, "do": {"drip_s": 0.2}})
        slow, quick = case.post({**PLAIN, "prompt": "a slow kite"}), case.post(PLAIN)
        for task_id in (slow, quick):
            while case.row(task_id)["stage"] != "fetching":
                case.step(task_id)
        with ThreadPoolExecutor(1) as pool:
            began = time.monotonic()
            cut = pool.submit(case.step, slow)
            assert bought(case.end(quick)) == ("SUCCESS", PRICE)
            assert not cut.done() or time.monotonic() - began > 1
            assert cut.result(5) == "RUNNING"
        task = case.end(slow)
        assert failed(task) == ("FAILED", "result_unavailable", 0)
        assert (task["outputs"], case.totals("dashscope")["submit"]) == ([], 2)


def test_o32_a_clip_cut_short_is_fetched_again_whole(case: Case) -> None:
    case.script({"on": "fetch", "times": 1, "do": {"cut_after": 400}})
    task_id = case.post(FILM)
    while case.row(task_id)["stage"] != "fetching":
        case.step(task_id)
    theirs = case.row(task_id)["upstream_outputs"][0]["url"]
    assert case.step(task_id) == "RUNNING"
    assert case.see(task_id)["outputs"] == []
    task = case.end(task_id)
    assert bought(task) == ("SUCCESS", V_PRICE)
    original = case.fetched_from(theirs)
    assert _digest(case.file(task).data) == task["outputs"][0]["sha256"] == _digest(original)
    assert case.totals("dashscope")["submit"] == 1


def test_o32_a_clip_that_is_always_cut_short_never_counts_as_whole(make_settings: MakeSettings, sim: Simulator) -> None:
    with playing(make_settings, sim, "fetch_attempts = 2\n") as case:
        case.script({"on": "fetch", "do": {"cut_after": 400}})
        task = case.play(FILM)
        assert failed(task) == ("FAILED", "result_unavailable", 0)
        assert (task["outputs"], case.totals("dashscope")["submit"], case.totals("dashscope")["fetch"]) == ([], 1, 2)
        assert case.service.sql("select * from assets") == []


@pytest.mark.parametrize("kind", ["jpeg", "webp", "png"])
def test_o35_bare_base64_is_stored_as_what_it_is(case: Case, kind: str) -> None:
    case.script({"on": "submit", "do": {"wrong_bytes": kind}})
    task = case.play(FLARE)
    assert bought(task) == ("SUCCESS", PRICE)
    got = case.file(task)
    assert got.headers["Content-Type"] == task["outputs"][0]["media_type"] == f"image/{kind}"
    assert f".{kind.replace('jpeg', 'jp')}" in got.headers["Content-Disposition"]
    assert Image.open(io.BytesIO(got.data)).format == kind.upper()
    assert case.totals("openai")["submit"] == 1


def test_o35_a_page_in_base64_is_no_picture(case: Case) -> None:
    case.script({"on": "submit", "do": {"wrong_bytes": "html"}})
    task = case.play(FLARE)
    assert failed(task) == ("FAILED", "result_invalid", 0)
    assert (task["outputs"], case.totals("openai")["submit"]) == ([], 1)
    assert case.service.sql("select * from assets") == []
