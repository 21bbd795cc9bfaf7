"""API keys that are limited to models."""

from __future__ import annotations

import pytest

from models import accounts
from tests.service import FOX, TOML, Service
from tests.shell import MakeShell

pytest_plugins = ("tests.service_fixtures",)


def limited(service: Service, *models: str) -> str:
    with service.parts.db.unit_of_work() as uow:
        return accounts.create_key(uow, service.parts.settings.env.secret, user="ann", models=models)[1]


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks/preview"])
def test_another_model_is_forbidden_and_the_answer_says_which_are_not(service: Service, path: str) -> None:
    key = limited(service, "picture")
    client = service.app.test_client()
    answer = client.post(path, json={**FOX, "type": "video", "model": "clip"}, headers=service.signed(key))
    assert (answer.status_code, answer.get_json()["code"]) == (403, "model_not_allowed")
    assert answer.get_json()["models"] == ["picture"]
    assert service.count() == 0


def test_its_own_models_and_their_default_go_as_ever(service: Service) -> None:
    key = limited(service, "picture", "clip")
    assert service.post(who=key).json["model"] == "picture"
    assert service.post({**FOX, "model": "picture"}, who=key).status_code == 202


def test_without_the_default_a_model_is_to_be_named_and_no_other_is_offered(service: Service) -> None:
    key = limited(service, "asleep")
    (fault,) = service.post(who=key).json["errors"]
    assert (fault["pointer"], fault["code"], fault["allowed"]) == ("#/model", "required", {"values": ["asleep"]})
    unknown = service.post({**FOX, "model": "pictur"}, who=key).json
    assert unknown["errors"][0]["allowed"] == {"values": ["asleep"]}


def test_it_sees_its_own_models_only(service: Service) -> None:
    key = limited(service, "clip")
    assert [one["model"] for one in service.get("/v1/models", who=key).json["data"]] == ["clip"]
    assert service.get("/v1/models/clip", who=key).status_code == 200
    assert service.get("/v1/models/picture", who=key).status_code == 404
    assert len(service.get("/v1/models").json["data"]) == 3


def test_the_shell_makes_and_lists_them(make_shell: MakeShell) -> None:
    shell = make_shell(TOML)
    assert "did you mean 'picture'?" in shell.refused(
        "keys", "create", "--user", "shop", "--models", "clip,pictur", code=2
    )
    shell.weir("keys", "create", "--user", "shop", "--models", "clip, picture")
    shell.weir("keys", "create", "--user", "shop")
    assert [row["models"] for row in shell.weir("keys", "list")] == [None, ["clip", "picture"]]


def test_a_limited_key_begins_no_other_models_task_anew(service: Service) -> None:
    task_id = service.made(idem="k1")
    service.become(task_id, "FAILED", certain=True, error_code="provider_rejected")
    key = limited(service, "clip")
    refused = service.post(idem="k1", who=key)
    assert (refused.status_code, refused.json["code"]) == (403, "model_not_allowed")
    assert service.get(f"/v1/tasks/{task_id}").json["attempt"] == 1
    assert service.post(idem="k1").json["attempt"] == 2
