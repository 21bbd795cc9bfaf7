"""The API over real servers, called through Flask's client: no socket of its own, everything behind it real."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from models import accounts, ids

if TYPE_CHECKING:
    from flask import Flask
    from werkzeug.datastructures import Headers
    from werkzeug.test import TestResponse

    from api.parts import Parts
    from models.db import Row
    from models.settings import Settings

TOML = """
[providers.wan]
adapter = "dashscope"
base_url = "http://127.0.0.1:9"
api_key_env = "DASHSCOPE_API_KEY"
max_in_flight = 100
[providers.spare]
adapter = "dashscope"
base_url = "http://127.0.0.1:9"
api_key_env = "DASHSCOPE_API_KEY"
[providers.off]
adapter = "dashscope"
base_url = "http://127.0.0.1:9"
api_key_env = "DASHSCOPE_API_KEY"
enabled = false
[models.picture]
type = "image"
providers = [{ name = "off", model = "wan2.2-t2i-flash" }, { name = "wan", model = "wan2.2-t2i-flash" },
             { name = "spare", model = "wan2.2-t2i-flash" }]
price_micros = 100
default = true
[models.clip]
type = "video"
providers = [{ name = "wan", model = "wan2.5-t2v-preview" }]
price_micros = 1000
default = true
[models.asleep]
type = "image"
providers = [{ name = "off", model = "wan2.2-t2i-flash" }]
[users]
submits_per_minute = 1000
"""
FOX: Mapping[str, object] = {"prompt": "a red fox in snow"}


@dataclass(frozen=True, kw_only=True)
class Got:
    """An answer, read."""

    status_code: int
    headers: Headers
    data: bytes

    @property
    def text(self) -> str:
        """As text."""
        return self.data.decode()

    @property
    def json(self) -> Any:  # noqa: ANN401  whatever it is
        """As JSON, strictly."""
        return json.loads(self.data)


def read(response: TestResponse) -> Got:
    """The whole answer; files behind it are closed."""
    with response:
        return Got(status_code=response.status_code, headers=response.headers, data=response.get_data())


@dataclass
class Service:
    """One app, two users, and a way behind the scenes."""

    app: Flask
    parts: Parts
    ann: str
    bob: str

    def post(self, body: object = FOX, *, idem: str | None = None, who: str | None = None, **headers: str) -> Got:
        """POST /v1/tasks; `idem` is the Idempotency-Key."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if idem is not None:
            named["Idempotency-Key"] = idem
        client = self.app.test_client()
        return read(client.post("/v1/tasks", json=body, headers={**self.signed(who), **named}))

    def raw(self, content: bytes, **headers: str) -> Got:
        """POST /v1/tasks with these very bytes."""
        named = {"Content-Type": "application/json"} | {n.replace("_", "-"): v for n, v in headers.items()}
        return read(self.app.test_client().post("/v1/tasks", data=content, headers={**self.signed(), **named}))

    def call(self, method: str, path: str, *, who: str | None = None, **headers: str) -> Got:
        """Any request with a key."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return read(self.app.test_client().open(path, method=method, headers={**self.signed(who), **named}))

    def bare(self, path: str, method: str = "GET", **headers: str) -> Got:
        """Any request without a key."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return read(self.app.test_client().open(path, method=method, headers=named))

    def get(self, path: str, *, who: str | None = None, **headers: str) -> Got:
        """GET with a key."""
        return self.call("GET", path, who=who, **headers)

    def signed(self, who: str | None = None) -> dict[str, str]:
        """The header of a user's key."""
        return {"Authorization": f"Bearer {who or self.ann}"}

    def made(self, body: object = FOX, **more: Any) -> str:  # noqa: ANN401  post's own
        """The id of a new task."""
        answer = self.post(body, **more)
        assert answer.status_code == 202, answer.text
        return str(answer.json["task_id"])

    def sql(self, statement: str, **values: object) -> list[Row]:
        """Look or set a scene behind the API's back."""
        with self.parts.db.unit_of_work() as uow:
            result = uow.execute(statement, **values)
            return [dict(row) for row in result.mappings()] if result.returns_rows else []

    def count(self) -> int:
        """How many task rows there are."""
        return int(self.sql("select count(*) as n from tasks")[0]["n"])

    def rung(self) -> list[str]:
        """The Celery ids of the messages in the broker, in no order."""
        return [str(json.loads(message)["headers"]["id"]) for message in self.messages()]

    @staticmethod
    def messages() -> list[bytes]:
        """Every message in the broker, raw."""
        from tasks import app  # noqa: PLC0415  after the fixture has set its broker

        with app.connection_for_write() as connection:
            channel: Any = connection.default_channel  # the Redis transport's, which has a client
            keys = [key for key in channel.client.scan_iter() if channel.client.type(key) == b"list"]
            return [raw for key in keys for raw in channel.client.lrange(key, 0, -1)]

    def become(self, task_id: str, status: str, **columns: object) -> None:
        """Put a task into a state that workers would bring it to."""
        final = status in ("SUCCESS", "FAILED", "TIMEOUT", "CANCELED")
        values: dict[str, object] = {
            "stage": "generating" if status == "RUNNING" else None,
            "error_code": "provider_error" if status in ("FAILED", "TIMEOUT") else None,
            "certain": status in ("SUCCESS", "CANCELED"),
            **columns,
        }
        sets = ", ".join(f"{name} = :{name}" for name in values)
        finished = "now()" if final else "null"
        self.sql(
            f"""update tasks set status = :status, version = version + 1, finished_at = {finished}, {sets}
                 where id = :id""",  # noqa: S608  names of this file
            status=status,
            id=uuid_of(task_id),
            **values,
        )


def uuid_of(task_id: str) -> UUID:
    """The id behind a task's name."""
    found = ids.decode("task", task_id)
    assert found is not None
    return found


def running(settings: Settings) -> Iterator[Service]:
    """A Service over `settings`, closed afterwards."""
    from api import create_app  # noqa: PLC0415  the unit tier never gets here
    from api.parts import parts  # noqa: PLC0415  same
    from tasks import app as celery  # noqa: PLC0415  same

    celery.conf.update(broker_url=settings.env.broker_url)
    app = create_app(settings)
    with app.app_context():
        made = parts()
    with made.db.unit_of_work() as uow:
        keys = [accounts.create_key(uow, settings.env.secret, user=user)[1] for user in ("ann", "bob")]
    yield Service(app=app, parts=made, ann=keys[0], bob=keys[1])
    made.close()
