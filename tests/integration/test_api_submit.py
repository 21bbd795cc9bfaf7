"""POST /v1/tasks: what is accepted, what is refused and how, and that neither waits for anybody."""

from __future__ import annotations

import gzip
import json
import logging
import time
from io import BytesIO

import pytest

from models.settings import Settings
from tests.conftest import MakeSettings
from tests.service import FOX, TOML, Got, Service, running, uuid_of

pytest_plugins = ("tests.service_fixtures",)


def errors(answer: Got) -> dict[str, str]:
    """Of a validation problem, each pointer's code."""
    found = answer.json
    assert answer.status_code == 422, found
    assert found["code"] in ("validation_error", "unknown_model")
    return {row["pointer"]: row["code"] for row in found["errors"]}


def test_a_new_task_is_accepted_with_its_place_and_the_time_to_ask_again(service: Service) -> None:
    answer = service.post({"prompt": "一只狐狸", "order_id": "单-1", "metadata": {"job": "42"}, "priority": "high"})
    task = answer.json
    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/v1/tasks/{task['task_id']}" == task["links"]["self"]
    assert 1 <= int(answer.headers["Retry-After"]) <= 30
    assert (task["status"], task["version"], task["attempt"], task["reused"]) == ("PENDING", 1, 1, False)
    assert (task["model"], task["provider"], task["order_id"], task["priority"]) == ("picture", "wan", "单-1", "high")
    assert task["input"] == {"prompt": "一只狐狸"}
    assert task["effective"]["seed"] >= 0
    assert task["cost"] == {"micros": 0, "currency": "USD"}
    assert task["metadata"] == {"job": "42"}
    assert "狐狸" in answer.text  # readable in a terminal


def test_what_a_later_price_cannot_change_is_in_the_row(service: Service) -> None:
    id_ = uuid_of(service.made({"type": "video", "prompt": "a boat", "duration_s": 10, "deadline_s": 600}))
    row = service.sql("select * from tasks where id = :id", id=id_)[0]
    assert (row["price_micros"], row["currency"], row["deadline_s"], row["provider_model"]) == (
        1000, "USD", 600, "wan2.5-t2v-preview",
    )  # fmt: skip
    assert row["effective"]["duration_s"] == 10


def test_the_first_enabled_provider_is_chosen_and_a_pinned_one_wins(service: Service) -> None:
    assert service.post().json["provider"] == "wan"
    assert service.post({**FOX, "provider": "spare"}).json["provider"] == "spare"
    assert errors(service.post({**FOX, "provider": "nobody"})) == {"#/provider": "not_one_of"}
    assert errors(service.post({**FOX, "type": "video", "provider": "spare"})) == {"#/provider": "not_one_of"}


@pytest.mark.parametrize("body", [{"provider": "off"}, {"model": "asleep"}])
def test_a_model_without_an_enabled_provider_is_a_503(service: Service, body: dict[str, object]) -> None:
    answer = service.post({**FOX, **body})
    assert (answer.status_code, answer.json["code"]) == (503, "capacity_exhausted")
    assert answer.json["upstream_name"] == "off"
    assert answer.headers["Retry-After"]
    assert service.count() == 0


def test_the_wake_up_names_the_row_and_no_prompt(service: Service) -> None:
    task_id = service.made()
    assert service.rung() == [f"{task_id}.1"]
    raw = b"".join(service.messages())
    assert b"fox" not in raw


def test_every_fault_is_named_at_once_and_nothing_is_kept(service: Service) -> None:
    answer = service.post({
        "prompt": "x", "width": "512", "steps": 20.0, "image_count": True, "typ": "image", "deadline_s": 1,
        "priority": "urgent", "metadata": {"a": 1, "b/c": "x" * 501}, "callback_url": "https://a.example/x",
        "strict": "yes", "order_id": "a\nb",
    })  # fmt: skip
    found = errors(answer)
    assert found == {
        "#/width": "invalid_type", "#/steps": "invalid_type", "#/image_count": "invalid_type", "#/typ": "unknown_field",
        "#/deadline_s": "out_of_range", "#/priority": "not_one_of", "#/metadata/a": "invalid_type",
        "#/metadata/b~1c": "too_long", "#/callback_url": "unknown_field", "#/strict": "invalid_type",
        "#/order_id": "invalid_format",
    }  # fmt: skip
    assert [row["pointer"] for row in answer.json["errors"]] == sorted(found)
    by_pointer = {row["pointer"]: row for row in answer.json["errors"]}
    assert "type" in by_pointer["#/typ"]["detail"]
    assert by_pointer["#/deadline_s"]["allowed"]["max"] == 86400
    assert "not supported yet" in by_pointer["#/callback_url"]["detail"]
    assert service.count() == 0


def test_an_unknown_model_is_answered_with_the_closest(service: Service) -> None:
    answer = service.post({**FOX, "model": "pictur", "steps": "1"})
    assert answer.json["code"] == "unknown_model"
    assert answer.json["did_you_mean"][0] == "picture"
    assert errors(answer) == {"#/model": "not_one_of", "#/steps": "invalid_type"}


def test_a_model_of_the_other_type_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    for body in [{"model": "clip"}, {"type": "video", "model": "picture"}]:
        with subtests.test(body=body):
            assert errors(service.post({**FOX, **body})) == {"#/model": "inconsistent"}


def test_a_type_that_is_none_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    for value in [3, "audio", [], {}]:
        with subtests.test(value=value):
            assert "#/type" in errors(service.post({**FOX, "type": value}))


def test_null_is_absent_where_a_field_may_be_absent(service: Service) -> None:
    optional = ("negative_prompt", "seed", "width", "model", "provider", "order_id", "metadata", "callback_url",
                "deadline_s", "priority", "strict", "idempotency_key", "style", "type")  # fmt: skip
    task = service.post({**FOX, **dict.fromkeys(optional)}).json
    assert task["input"] == dict(FOX)
    assert errors(service.post({"prompt": None})) == {"#/prompt": "null_not_allowed"}
    assert errors(service.post({})) == {"#/prompt": "required"}


# --- O-01 to O-18 as far as DashScope's bounds let them be asked ---


def test_o01_a_size_off_the_grid_or_out_of_range_names_its_neighbours(service: Service) -> None:
    answer = service.post({**FOX, "width": 4096, "height": 1080})
    assert "#/width" in errors(answer)
    assert {row["pointer"]: row for row in answer.json["errors"]}["#/width"]["nearest"]
    assert service.count() == 0


def test_o03_presets_become_sizes_of_the_model(service: Service) -> None:
    for size in ("square", "portrait", "landscape", "wide", "tall", "hd"):
        effective = service.post({**FOX, "size": size}).json["effective"]
        assert 512 <= effective["width"] <= 1440
        assert "size" not in effective


def test_o05_a_seed_in_range_is_kept_as_it_is(service: Service, subtests: pytest.Subtests) -> None:
    for seed in [0, 2147483647]:
        with subtests.test(seed=seed):
            assert service.post({**FOX, "seed": seed}).json["effective"]["seed"] == seed


def test_o05_a_seed_out_of_range_is_refused(service: Service, subtests: pytest.Subtests) -> None:
    for seed in [-2, 2**31, 2**64 - 1]:
        with subtests.test(seed=seed):
            assert errors(service.post({**FOX, "seed": seed})) == {"#/seed": "out_of_range"}


def test_o06_minus_one_is_drawn_and_reported(service: Service) -> None:
    assert service.post({**FOX, "seed": -1}).json["effective"]["seed"] >= 0


def test_o07_a_sampler_nobody_knows_is_refused_and_a_known_spelling_is_left_out_with_a_word(service: Service) -> None:
    assert errors(service.post({**FOX, "sampler": "dpm_9000"})) == {"#/sampler": "not_one_of"}
    task = service.post({**FOX, "sampler": "DPM++ 2M Karras"}).json
    assert [(note["field"], note["code"]) for note in task["adjustments"]] == [("sampler", "left_out")]
    assert errors(service.post({**FOX, "sampler": "DPM++ 2M Karras", "strict": True}))["#/sampler"]


def test_o10_o11_o13_what_is_not_one_json_object_is_a_400(service: Service, subtests: pytest.Subtests) -> None:
    for content, said in [
        (b'{"prompt": "x", "cfg_scale": NaN}', "NaN"),
        (b'{"prompt": "x", "cfg_scale": -Infinity}', "Infinity"),
        (b'{"prompt": "x", "prompt": "y"}', "prompt"),
        (b'{"prompt": "x", "metadata": {"a": "1", "a": "2"}}', "'a'"),
        (b"", "not JSON"),
        (b"null", "object"),
        (b"[]", "object"),
        (b'"x"', "object"),
        (b'{"prompt": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "not JSON"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not JSON"),
    ]:
        with subtests.test(content=content, said=said):
            answer = service.raw(content)
            assert (answer.status_code, answer.json["code"]) == (400, "malformed_request")
            assert said in answer.json["detail"]
            assert service.count() == 0


def test_o10_a_number_beyond_floats_is_a_422(service: Service) -> None:
    assert errors(service.raw(b'{"prompt": "x", "cfg_scale": 1e999}'))["#/cfg_scale"]


def test_o12_another_media_type_is_a_415(service: Service, subtests: pytest.Subtests) -> None:
    for kind in ["text/plain", "application/x-www-form-urlencoded", "", "application/json; charset=gbk"]:
        with subtests.test(kind=kind):
            answer = service.raw(json.dumps(FOX).encode(), Content_Type=kind)
            assert (answer.status_code, answer.json["code"]) == (415, "unsupported_media_type")
            assert answer.headers["Accept"] == "application/json"
            assert service.count() == 0


def test_other_spellings_of_json_are_read(service: Service, subtests: pytest.Subtests) -> None:
    for kind in ["application/json; charset=utf-8", "application/merge-patch+json"]:
        with subtests.test(kind=kind):
            assert service.raw(json.dumps(FOX).encode(), Content_Type=kind).status_code == 202


def test_o14_a_compressed_body_is_a_415_and_not_echoed(service: Service, subtests: pytest.Subtests) -> None:
    for content in [gzip.compress(json.dumps(FOX).encode()), json.dumps(FOX).encode()]:
        with subtests.test(content=content):
            answer = service.raw(content, Content_Encoding="gzip")
            assert answer.status_code == 415
            assert "fox" not in answer.text


def test_o15_text_that_cannot_be_stored_is_a_422(service: Service, subtests: pytest.Subtests) -> None:
    for text in ["a\0b", "\ud800"]:
        for field in ["prompt", "order_id", "model", "provider", "priority"]:
            with subtests.test(text=text, field=field):
                assert f"#/{field}" in errors(service.post({**FOX, field: text}))


def test_o15_metadata_that_cannot_be_stored_is_a_422(service: Service, subtests: pytest.Subtests) -> None:
    for metadata in [{"k\0": "v"}, {"k": "v\0"}, {"": "v"}, {"k" * 41: "v"}, {"\ud800": "v"}, [], "x"]:
        with subtests.test(metadata=metadata):
            found = errors(service.post({**FOX, "metadata": metadata}))
            assert all(pointer.startswith("#/metadata") for pointer in found)


def test_an_unknown_field_with_half_a_surrogate_pair_is_answered_in_utf8(service: Service) -> None:
    answer = service.raw(b'{"prompt": "x", "\\ud800": 1}')
    assert errors(answer) == {"#/?": "unknown_field"}


def test_o16_lengths_are_counted_in_characters(service: Service) -> None:
    assert service.post({"prompt": "狐" * 800}).status_code == 202
    answer = service.post({"prompt": "狐" * 10_000})
    assert errors(answer) == {"#/prompt": "too_long"}
    assert "800" in answer.json["errors"][0]["detail"]
    assert "10000" in answer.json["errors"][0]["detail"]


def test_o16_a_body_above_the_bound_is_a_413_before_it_is_read(service: Service) -> None:
    began = time.monotonic()
    answer = service.raw(b'{"prompt": "' + b"x" * 5_000_000 + b'"}')
    assert (answer.status_code, answer.json["code"]) == (413, "payload_too_large")
    assert answer.json["max_bytes"] == 1_000_000
    assert "third" in answer.json["detail"]
    assert time.monotonic() - began < 1


def test_o16_a_body_in_chunks_is_bounded_too(service: Service) -> None:
    whole = json.dumps(FOX).encode()
    for content, status in ((whole + b" " * (1_000_000 - len(whole)), 202), (whole + b" " * 1_000_000 + b"x", 413)):
        answer = service.app.test_client().post(
            "/v1/tasks",
            headers={**service.signed(), "Content-Type": "application/json", "Transfer-Encoding": "chunked"},
            input_stream=BytesIO(content),
            environ_overrides={"wsgi.input_terminated": True},
        )
        assert answer.status_code == status


def test_o18_more_images_than_the_model_makes_are_refused(service: Service) -> None:
    answer = service.post({**FOX, "image_count": 64})
    assert errors(answer) == {"#/image_count": "out_of_range"}
    assert answer.json["errors"][0]["allowed"]["max"] == 4


# --- rates and caps ---


@pytest.fixture
def strict_settings(make_settings: MakeSettings) -> Settings:
    return make_settings(TOML.replace("submits_per_minute = 1000", "submits_per_minute = 3\nactive = 2"))


def test_a_rate_that_is_used_up_is_a_429_and_replays_stay_free(strict_settings: Settings) -> None:
    for service in running(strict_settings):
        first = service.post(idem="a")
        assert first.headers["RateLimit-Policy"] == '"active";q=2;qu="concurrent-requests", "create";q=3;w=60'
        assert '"create";r=2;t=' in first.headers["RateLimit"]
        assert service.post({}).status_code == 422  # counted, or guessing would be free
        assert service.raw(b"{").status_code == 400  # same
        refused = service.post()
        assert (refused.status_code, refused.json["code"]) == (429, "rate_limited")
        assert refused.json["violated_policies"] == ["create"]
        assert int(refused.headers["Retry-After"]) >= 1
        again = service.post(idem="a")
        assert (again.status_code, again.json["task_id"]) == (202, first.json["task_id"])
        assert '"create";r=0' in again.headers["RateLimit"]
        assert service.post(who=service.bob).status_code == 202
        assert service.count() == 2


def test_the_cap_of_live_tasks_is_a_429_and_leaves_no_row(strict_settings: Settings) -> None:
    for service in running(strict_settings):
        first = service.made()
        service.made()
        refused = service.post(idem="k")
        assert (refused.status_code, refused.json["code"]) == (429, "too_many_active_tasks")
        assert (refused.json["active"], refused.json["limit"]) == (2, 2)
        assert refused.json["violated_policies"] == ["active"]
        assert service.count() == 2
        service.sql("delete from tasks where id = :id", id=uuid_of(first))
        service.parts.kv._client.flushall()  # type: ignore[union-attr]  # the minute's rate, not what is tested here
        assert service.post(idem="k").status_code == 202  # a refusal is not remembered


def test_without_redis_nothing_is_limited_and_nothing_waits(make_settings: MakeSettings) -> None:
    toml = TOML.replace("submits_per_minute = 1000", "submits_per_minute = 1")
    for service in running(make_settings(toml, WEIR_REDIS_URL="redis://127.0.0.1:9/0")):
        began = time.monotonic()
        answers = [service.post(idem=f"k{n}") for n in range(3)]
        assert [answer.status_code for answer in answers] == [202] * 3
        assert "create" not in answers[0].headers.get("RateLimit", "")
        assert service.parts.kv.bypassed == 3
        assert time.monotonic() - began < 2


def test_no_log_line_holds_a_prompt_or_a_key(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    service.post(idem="secret-key-1")
    service.post({"prompt": "a red fox in snow", "width": "x"})
    service.sql("alter table tasks rename to hidden")
    assert service.post(idem="secret-key-2").status_code == 500
    assert "fox" not in caplog.text
    assert service.ann not in caplog.text
