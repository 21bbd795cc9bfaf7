"""Cases O-01 to O-09, O-15, O-17 and O-18: what users send, from the POST to what the vendor got and the user sees.

What ends at the POST itself (O-10 to O-14, O-16) is in test_api_submit.py. Left out, with the reason:

- O-05, the upscaler's node: no shipped workflow of ComfyUI upscales; the seed of the graph itself is played.
- O-08, the text in a vendor's numbers: the adapter's own test in tests/contract/test_sim_openai.py plays it.
- O-17, bodies of 20 MB: a JSON body ends at 1 MB here, and larger pictures go by link or upload.
- O-18, pictures that come one by one: the vendor who does that says "working" meanwhile; a group is played.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator

import pytest

from providers.sim import Simulator
from providers.sim.ledger import Order
from tests.cases import FLARE, GRAPH, GROUP, PLAIN, PRICE, WEBUI, B, Case, bought, failed, playing
from tests.conftest import MakeSettings
from tests.scripted import png

pytest_plugins = ("tests.cases_fixtures",)

FLOOR_PX = 3_686_400
FLOORED = """
[models.floored]
type = "image"
providers = [{ name = "ark", model = "doubao-seedream-4-5-251128" }]
price_micros = 100
"""


@pytest.fixture
def case(make_settings: MakeSettings, sim: Simulator) -> Iterator[Case]:
    """The usual gateway, with a model that makes nothing small."""
    with playing(make_settings, sim, FLOORED) as made:
        yield made


def got(case: Case) -> Order:
    """What the one vendor understood of the one submit."""
    (job,) = case.sim.world.ledger.accepted(0)
    return job.order


def refusal(case: Case, body: dict[str, object], pointer: str) -> dict[str, object]:
    """The fault at a pointer of a 422 that left no row and reached nobody."""
    before = case.service.count()
    answer = case.service.post(body)
    assert answer.status_code == 422, answer.text
    assert (case.service.count(), list(case.sim.world.ledger.accepted(0))) == (before, [])
    found: dict[str, object] = next(row for row in answer.json["errors"] if row["pointer"] == pointer)
    return found


def test_o01_full_hd_is_off_the_grid_and_its_neighbour_is_not(case: Case) -> None:
    fault = refusal(case, {**FLARE, "width": 1920, "height": 1080}, "#/height")
    assert "16" in str(fault["detail"])
    assert fault["nearest"] == [1072, 1088]
    case.step(case.post({**FLARE, "width": 1920, "height": 1072}))
    assert (got(case).width, got(case).height) == (1920, 1072)


def test_o02_a_size_under_the_floor_is_refused_with_one_above_it_and_a_preset_finds_its_own(case: Case) -> None:
    body: dict[str, object] = {"model": "floored", "prompt": "a red kite over wheat"}
    answer = case.service.post({**body, "width": 720, "height": 1280})
    assert answer.status_code == 422
    told = " ".join(row["detail"] for row in answer.json["errors"])
    assert "3686400" in told.replace(",", "").replace(" ", "")
    assert all({"width": 1440, "height": 2560} in row["nearest"] for row in answer.json["errors"])
    task = case.play({**body, "size": "tall"})
    assert bought(task) == ("SUCCESS", PRICE)
    order = got(case)
    assert order.width * order.height >= FLOOR_PX
    assert order.width / order.height == pytest.approx(9 / 16, rel=0.05)


def test_o03_a_request_of_nothing_but_a_prompt_reaches_the_vendor_in_pixels(case: Case) -> None:
    task = case.play({"model": "seedream", "prompt": "a red kite over wheat", "image_count": 1})
    assert bought(task) == ("SUCCESS", PRICE)
    assert got(case).extra["size"] == "2048x2048"
    assert (task["outputs"][0]["width"], task["outputs"][0]["height"]) == (2048, 2048)


def test_o04_seeds_that_are_counted_up_wrap_at_the_edge(case: Case) -> None:
    task = case.play({**WEBUI, "seed": 2**32 - 1, "image_count": 4})
    assert bought(task) == ("SUCCESS", 4 * PRICE)
    assert (got(case).seed, got(case).n) == (2**32 - 1, 4)
    assert [output["seed"] for output in task["outputs"]] == [2**32 - 1, 0, 1, 2]
    assert case.totals("sdwebui")["submit"] == 1


def test_o05_a_seed_beyond_32_bits_is_refused_and_a_drawn_one_is_told_as_sent(case: Case) -> None:
    assert refusal(case, {**GRAPH, "seed": 2**64 - 1}, "#/seed")["code"] == "out_of_range"
    task = case.play({**GRAPH, "seed": -1})
    assert 0 <= got(case).seed < 2**32
    assert (task["effective"]["seed"], task["outputs"][0]["seed"]) == (got(case).seed, got(case).seed)


@pytest.mark.parametrize("seed", [-1, 0])
def test_o06_the_seed_is_told_as_it_was_sent_and_nought_is_one(case: Case, seed: int) -> None:
    task = case.play({**WEBUI, "seed": seed})
    sent = got(case).seed
    assert (sent == 0) if seed == 0 else (sent >= 0)
    assert (task["effective"]["seed"], task["outputs"][0]["seed"]) == (sent, sent)


@pytest.mark.parametrize("word", ["DPM++ 2M Karras", "dpmpp_2m_karras", "dpm++ 2m KARRAS"])
def test_o07_every_spelling_of_a_sampler_is_the_vendors_two_words(case: Case, word: str) -> None:
    assert bought(case.play({**WEBUI, "sampler": word})) == ("SUCCESS", PRICE)
    assert got(case).extra["sampler"] == "DPM++ 2M Karras"


def test_o08_a_number_in_quotes_is_no_number(case: Case) -> None:
    assert refusal(case, {**WEBUI, "steps": "20"}, "#/steps")["code"] == "invalid_type"


@pytest.mark.parametrize("words", [{}, {"negative_prompt": None}, {"negative_prompt": ""}], ids=["no", "null", "empty"])
@pytest.mark.parametrize("body", [PLAIN, GROUP, FLARE, GRAPH, WEBUI], ids=lambda body: str(body["model"]))
def test_o09_no_negative_prompt_is_none_whoever_draws(
    case: Case, body: dict[str, object], words: dict[str, object]
) -> None:
    task_id = case.post({**body, **words})
    assert case.step(task_id) in ("RUNNING", "SUCCESS")
    assert got(case).extra.get("negative_prompt") in (None, "")
    assert got(case).prompt == body["prompt"]


def test_o09_the_prompt_itself_is_not_optional(case: Case) -> None:
    assert refusal(case, {**PLAIN, "prompt": None}, "#/prompt")["code"] == "null_not_allowed"


def test_o15_a_vendors_word_with_a_nul_in_it_is_stored_without(case: Case) -> None:
    case.script({"on": "submit", "do": {"fail_message": "bad\0word", "fail": "InternalError"}})
    task = case.play(PLAIN)
    assert task["status"] == "FAILED"
    assert "\0" not in task["error"]["message"]
    assert task["error"]["message"].startswith("bad")
    assert task["cost"]["micros"] == 0


def test_o17_a_picture_that_outgrows_a_body_is_told_of_links_and_a_small_one_goes(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    large = base64.b64encode(b"x" * 800_000).decode()
    small = base64.b64encode(png(512, 512)).decode()
    with caplog.at_level(logging.DEBUG):
        answer = case.service.post({**WEBUI, "image": f"data:image/png;base64,{large}"})
        task_id = case.post({**WEBUI, "image": f"data:image/png;base64,{small}"})
        case.step(task_id)
    assert (answer.status_code, answer.json["max_bytes"]) == (413, 1_000_000)
    assert "third" in answer.json["detail"]
    assert "URL" in answer.json["detail"]
    assert got(case).extra["references"] == 1
    assert case.totals("sdwebui")["submit"] == 1
    assert small[:64] not in caplog.text


@pytest.mark.parametrize(("come", "partial"), [(4, False), (1, True)])
def test_o18_four_are_four_or_what_came_of_them(case: Case, come: int, partial: bool) -> None:  # noqa: FBT001
    case.script({"on": "submit", "do": {"partial": come}})
    task = case.play({**PLAIN, "image_count": 4})
    assert (bought(task), task["partial"]) == (("SUCCESS", come * PRICE), partial)
    assert (len(task["outputs"]), len(task["missing"])) == (come, 4 - come)
    assert case.totals("dashscope")["submit"] == 1


def test_o18_more_than_one_call_makes_is_refused_with_the_range(case: Case) -> None:
    fault = refusal(case, {**PLAIN, "image_count": 5}, "#/image_count")
    assert (fault["allowed"], fault["nearest"]) == ({"type": "integer", "min": 1, "max": 4}, [4])
    assert failed(case.see(case.post({**B, "model": "picture"})))[0] == "PENDING"
