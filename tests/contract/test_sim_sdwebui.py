"""The simulator's WebUI dialect, asked as its clients ask, and our adapter against it."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

import pytest
import requests
from PIL import Image

from models.failures import FailureKind
from models.lifecycle import Finished
from providers.port import Accepted, Job, NotAccepted, Refused, Uncertain
from providers.sim import Simulator
from tests.contract.openai_jobs import inline, png
from tests.contract.sdwebui_jobs import LOGIN, adapter, job
from tests.contract.simulated import ledger, only_job, renewed, script

SMALL = {"prompt": "a red bicycle", "width": 64, "height": 64, "steps": 4, "sampler_name": "Euler a", "seed": 42}


@pytest.fixture(scope="module")
def vendor() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator


@pytest.fixture
def sim(vendor: Simulator) -> Simulator:
    return renewed(vendor, takes_s=0.02)


def post(sim: Simulator, path: str, body: object, server: str = "", **more: Any) -> requests.Response:  # noqa: ANN401
    return requests.post(f"{sim.url}/sdwebui{server}{path}", json=body, timeout=10, **more)


def get(sim: Simulator, path: str, server: str = "") -> Any:  # noqa: ANN401
    return requests.get(f"{sim.url}/sdwebui{server}{path}", timeout=5).json()


def draw(sim: Simulator, server: str = "", **more: object) -> requests.Response:
    return post(sim, "/sdapi/v1/txt2img", {**SMALL, **more}, server)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def info_of(answer: requests.Response) -> dict[str, Any]:
    assert answer.status_code == HTTPStatus.OK, answer.text
    found: dict[str, Any] = json.loads(answer.json()["info"])
    return found


# --- the dialect ---


def test_answer_has_pictures_the_request_and_a_text_with_the_seeds(sim: Simulator) -> None:
    answer = draw(sim, n_iter=2)
    first, second = (Image.open(io.BytesIO(base64.b64decode(image))) for image in answer.json()["images"])
    assert (first.size, first.text["seed"], second.text["seed"]) == ((64, 64), "42", "43")  # type: ignore[attr-defined]
    assert answer.json()["parameters"]["prompt"] == "a red bicycle"
    assert info_of(answer)["all_seeds"] == [42, 43]


def test_seed_that_was_drawn_is_told_by_info_only(sim: Simulator) -> None:
    answer = draw(sim, seed=-1)
    assert answer.json()["parameters"]["seed"] == -1
    assert info_of(answer)["all_seeds"][0] >= 0


def test_grid_comes_first_when_pictures_are_kept(sim: Simulator) -> None:
    answer = draw(sim, n_iter=2, save_images=True)
    assert (len(answer.json()["images"]), info_of(answer)["index_of_first_image"]) == (3, 1)


def test_pictures_can_be_left_out(sim: Simulator) -> None:
    assert draw(sim, send_images=False).json()["images"] == []


@pytest.mark.parametrize(
    ("server", "name", "schedule", "used"),
    [
        ("", "DPM++ 2M", "Karras", ("DPM++ 2M", "Karras")),
        ("", "DPM++ 2M Karras", None, ("DPM++ 2M", "Karras")),
        ("", "DPM++ 2M", "kARRAS", ("DPM++ 2M", "Automatic")),
        ("", "No Such", None, ("DPM++ 2M", "Automatic")),
        ("/forge", "HeunPP2", "Beta", ("HeunPP2", "Beta")),
        ("/v18", "DPM++ 2M Karras", None, ("DPM++ 2M Karras", None)),
    ],
)
def test_name_is_taken_taken_apart_or_replaced_in_silence(
    sim: Simulator, server: str, name: str, schedule: str | None, used: tuple[str, str | None]
) -> None:
    told = info_of(draw(sim, server, sampler_name=name, scheduler=schedule))
    assert (told["sampler_name"], told["extra_generation_params"].get("Schedule type")) == used


def test_old_server_refuses_a_name_and_has_no_schedules(sim: Simulator) -> None:
    answer = draw(sim, "/v18", sampler_name="No Such")
    assert (answer.status_code, answer.json()["error"]) == (404, "HTTPException")
    assert get(sim, "/sdapi/v1/schedulers", "/v18") == {"detail": "Not Found"}
    assert "DPM++ 2M Karras" in [one["name"] for one in get(sim, "/sdapi/v1/samplers", "/v18")]


def test_what_broke_is_told_in_two_styles(sim: Simulator) -> None:
    old, forge = (draw(sim, server, prompt="x [[sim: fail NansException]]") for server in ("", "/forge"))
    assert (old.status_code, old.json()["error"]) == (500, "NansException")
    assert (forge.status_code, forge.text) == (500, "Internal Server Error")


def test_schema_is_checked(sim: Simulator) -> None:
    answer = draw(sim, steps="20")
    assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert answer.json()["detail"][0]["loc"] == ["body", "steps"]


@pytest.mark.parametrize(
    ("images", "status"), [([], 404), (["https://h.example/a.png"], 500), (["AAAA"], 500), ([inline(png())], 200)]
)
def test_picture_to_start_from_is_looked_at(sim: Simulator, images: list[str], status: int) -> None:
    answer = post(sim, "/sdapi/v1/img2img", {**SMALL, "init_images": images})
    assert answer.status_code == status


def test_login_is_asked_for_where_it_is_set(sim: Simulator) -> None:
    body, path = SMALL, "/sdapi/v1/txt2img"
    assert post(sim, path, body, "/locked").headers["WWW-Authenticate"] == "Basic"
    assert post(sim, path, body, "/locked", auth=("operator", "wrong")).status_code == HTTPStatus.UNAUTHORIZED
    assert post(sim, path, body, "/locked", auth=("operator", "let-me-in")).status_code == HTTPStatus.OK


def test_one_job_at_a_time_in_the_order_of_arrival(sim: Simulator) -> None:
    def task(id_: str) -> dict[str, Any]:
        found: dict[str, Any] = post(sim, "/internal/progress", {"id_task": id_}).json()
        return found

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(draw, sim, prompt="x [[sim: slow 600]]", force_task_id="one")
        until(lambda: task("one")["active"])
        second = pool.submit(draw, sim, force_task_id="two")
        until(lambda: task("two")["queued"])
        assert get(sim, "/internal/pending-tasks") == {"size": 1, "tasks": ["two"]}
        assert task("two")["textinfo"] == "In queue: 1/1"
        assert get(sim, "/sdapi/v1/progress")["state"]["job_count"] == 1
        post(sim, "/sdapi/v1/interrupt", {})
        assert first.result().status_code == second.result().status_code == HTTPStatus.OK
    assert task("one")["completed"]
    assert task("two")["completed"]
    assert task("three")["textinfo"] == "Waiting..."
    assert get(sim, "/sdapi/v1/progress")["progress"] == 0


def test_interrupted_job_answers_like_a_finished_one(sim: Simulator) -> None:
    answers: list[requests.Response] = []
    thread = threading.Thread(target=lambda: answers.append(draw(sim, prompt="x [[sim: stuck]]")))
    thread.start()
    until(lambda: get(sim, "/sdapi/v1/progress")["state"]["job_count"] == 1)
    post(sim, "/sdapi/v1/interrupt", {})
    thread.join(5)
    assert len(answers[0].json()["images"]) == 1


def test_task_that_broke_looks_active_until_the_next_begins(sim: Simulator) -> None:
    draw(sim, prompt="x [[sim: fail]]", force_task_id="broken")
    assert post(sim, "/internal/progress", {"id_task": "broken"}).json()["active"]
    draw(sim)
    assert not post(sim, "/internal/progress", {"id_task": "broken"}).json()["active"]


# --- our adapter ---


def made(sim: Simulator, server: str = "", asked: Job | None = None) -> Finished:
    outcome = adapter(f"{sim.url}/sdwebui{server}").submit(asked or job(image_count=1))
    assert isinstance(outcome, Accepted), outcome
    assert outcome.finished is not None
    return outcome.finished


def seed_in(content: bytes | None) -> str:
    image = Image.open(io.BytesIO(content or b""))
    return str(image.text["seed"])  # type: ignore[attr-defined]  # a PNG


@pytest.mark.parametrize("server", ["", "/forge", "/v18"])
def test_every_generation_draws_with_the_sampler_that_was_asked(sim: Simulator, server: str) -> None:
    outputs = made(sim, server, job(image_count=2)).outputs
    assert [(output.place, output.seed, seed_in(output.content)) for output in outputs] == [
        (0, 42, "42"),
        (1, 43, "43"),
    ]
    params = only_job(sim)["params"]
    assert params["sampler"] == "DPM++ 2M Karras"
    assert (params["steps"], params["cfg_scale"], params["negative_prompt"]) == (20, 7.5, "blur")


def test_checkpoint_reaches_the_server(sim: Simulator) -> None:
    made(sim, asked=job("sdxl:juggernaut.safetensors", image_count=1))
    assert only_job(sim)["model"] == "juggernaut.safetensors"


def test_enlarged_picture_has_the_enlarged_size(sim: Simulator) -> None:
    (output,) = made(sim, asked=job(image_count=1, upscale_factor=2.0)).outputs
    assert Image.open(io.BytesIO(output.content or b"")).size == (1024, 1280)


def test_picture_from_a_picture_with_a_mask(sim: Simulator) -> None:
    made(sim, asked=job(image_count=1, image=inline(png()), mask=inline(png("L"))))
    params = only_job(sim)["params"]
    assert (params["references"], params["mask"]) == (1, True)


def test_each_of_two_users_gets_the_picture_of_his_own_seed(sim: Simulator) -> None:  # O-39
    with ThreadPoolExecutor(4) as pool:
        asked = [job(reference=f"task_{seed}.1", seed=seed, image_count=1) for seed in (7, 3141592653, 0, 99)]
        done = list(pool.map(lambda one: made(sim, asked=one), asked))
    seeds = [(one.outputs[0].seed, seed_in(one.outputs[0].content)) for one in done]
    assert seeds == [(7, "7"), (3141592653, "3141592653"), (0, "0"), (99, "99")]
    assert ledger(sim)["totals"]["sdwebui"]["submit"] == 4


@pytest.mark.parametrize(("server", "word"), [("", Refused), ("/forge", Uncertain)])
def test_job_that_broke_is_sure_only_in_the_servers_own_words(sim: Simulator, server: str, word: type) -> None:
    outcome = adapter(f"{sim.url}/sdwebui{server}").submit(job(prompt="x [[sim: fail]]"))
    assert isinstance(outcome, word)


def test_login_opens_and_a_wrong_one_waits(sim: Simulator) -> None:
    url = f"{sim.url}/sdwebui/locked"
    assert isinstance(adapter(url, LOGIN).submit(job(image_count=1)), Accepted)
    outcome = adapter(url, "operator:wrong").submit(job())
    assert isinstance(outcome, NotAccepted)
    assert outcome.error.kind is FailureKind.PROVIDER_AUTH


def test_answer_that_takes_too_long_is_doubt(sim: Simulator) -> None:
    outcome = adapter(f"{sim.url}/sdwebui", read_s=0.3).submit(job(prompt="x [[sim: hold 2]]", image_count=1))
    assert isinstance(outcome, Uncertain)
    assert outcome.error.kind is FailureKind.READ_TIMEOUT


def test_lists_that_fail_do_not_cost_a_submit(sim: Simulator) -> None:
    script(sim, "list", 1, html=True)
    outcome = adapter(f"{sim.url}/sdwebui").submit(job())
    assert isinstance(outcome, NotAccepted)
    assert ledger(sim)["totals"]["sdwebui"]["submit"] == 0
