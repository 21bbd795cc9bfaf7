"""POST /v1/tasks/preview: what a submit would do, and nothing done."""

from __future__ import annotations

import pytest

from tests.service import FOX, Service

pytest_plugins = ("tests.service_fixtures",)


def ask(service: Service, body: object, who: str | None = None) -> tuple[int, dict[str, object]]:
    client = service.app.test_client()
    answer = client.post("/v1/tasks/preview", json=body, headers=service.signed(who))
    return answer.status_code, answer.get_json()


def test_it_says_what_the_submit_then_does(service: Service) -> None:
    body = {**FOX, "style": "anime", "size": "wide", "steps": 20, "image_count": 3, "seed": 5}
    status, told = ask(service, body)
    task = service.post(body).json
    assert status == 200
    assert {name: told[name] for name in ("type", "model", "provider", "input", "effective", "adjustments")} == {
        name: task[name] for name in ("type", "model", "provider", "input", "effective", "adjustments")
    }
    assert told["provider_model"] == "wan2.2-t2i-flash"
    assert told["price"] == {"micros": 300, "currency": "USD"}
    assert told["drawn_at_submit"] == []


def test_it_stores_nothing_rings_nobody_and_costs_no_submit(service: Service) -> None:
    before = service.post().headers["RateLimit"]
    rows, rung = service.count(), service.rung()
    for _ in range(3):
        assert ask(service, FOX)[0] == 200
    assert (service.count(), service.rung()) == (rows, rung)
    assert "r=999;" in before
    assert "r=998;" in service.post().headers["RateLimit"]


@pytest.mark.parametrize("seed", [None, -1])
def test_a_seed_of_chance_is_drawn_by_the_submit_only(service: Service, seed: int | None) -> None:
    _, told = ask(service, {**FOX, "seed": seed})
    assert (told["effective"]["seed"], told["drawn_at_submit"]) == (None, ["seed"])  # type: ignore[index]  # JSON


def test_it_names_every_provider_with_the_reason(service: Service) -> None:
    _, told = ask(service, FOX)
    assert told["routing"] == {
        "why": "first enabled",
        "candidates": [
            {"provider": "off", "model": "wan2.2-t2i-flash", "place": 1, "weight": 1, "price_micros": 100,
             "chosen": False, "reason": "it is switched off"},
            {"provider": "wan", "model": "wan2.2-t2i-flash", "place": 2, "weight": 1, "price_micros": 100,
             "chosen": True, "reason": "chosen"},
            {"provider": "spare", "model": "wan2.2-t2i-flash", "place": 3, "weight": 1, "price_micros": 100,
             "chosen": False, "reason": "behind the chosen one"},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [{"prompt": ""}, {**FOX, "width": 7, "steps": "3"}, {**FOX, "model": "pictur"}, {**FOX, "model": "asleep"},
     {**FOX, "provider": "nobody"}, {**FOX, "strict": True, "steps": 20}],
    ids=["blank", "faults", "model", "asleep", "provider", "strict"],
)  # fmt: skip
def test_what_a_submit_refuses_it_refuses_in_the_same_words(service: Service, body: dict[str, object]) -> None:
    status, told = ask(service, body)
    answer = service.post(body)
    told.pop("request_id"), told.pop("instance")
    said = {name: value for name, value in answer.json.items() if name not in ("request_id", "instance")}
    assert (status, told) == (answer.status_code, said)


def test_it_needs_the_right_to_submit_and_has_a_limit_of_its_own(service: Service) -> None:
    assert ask(service, FOX, who="wk_nobody")[0] == 401
    service.sql("update users set submits_per_minute = 1 where name = 'ann'")
    assert [ask(service, FOX)[0] for _ in range(11)] == [200] * 10 + [429]
    assert service.post().status_code == 202
