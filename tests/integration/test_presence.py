"""Which workers are there, over a real Valkey; that real workers say so is e2e's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from providers.breaker import Shared
from providers.kv import Redis, connect
from providers.presence import Crew, Presence, Worker, crews
from tests.conftest import MakeSettings
from tests.live import until
from tests.service import TOML, Service, running

pytest_plugins = ("tests.service_fixtures",)

IMAGE = Worker(name="image@h", queues=["image"], slots=12)
SPARE = Worker(name="default@h", queues=["default", "image", "video"], slots=1)


@pytest.fixture
def client(redis_url: str) -> Iterator[Redis]:
    found = connect(redis_url)
    assert found is not None
    yield found
    found.close()


def test_workers_are_counted_at_each_queue_they_take_from(client: Redis) -> None:
    presence = Presence(Shared(client))
    for worker in (IMAGE, SPARE, IMAGE):
        presence.note(worker)
    assert presence.workers() == [SPARE, IMAGE]
    assert crews([SPARE, IMAGE], ("image", "video", "default")) == {
        "image": Crew(workers=2, slots=13),
        "video": Crew(workers=1, slots=1),
        "default": Crew(workers=1, slots=1),
    }
    presence.gone(SPARE)
    assert presence.workers() == [IMAGE]


def test_a_worker_that_says_nothing_is_forgotten(client: Redis) -> None:
    Presence(Shared(client), lasts_s=0.05).note(IMAGE)
    until(lambda: Presence(Shared(client)).workers() == [], within_s=5)
    Presence(Shared(client)).note(SPARE)
    assert 0 < client.pttl("weir:workers") <= 30_000


def test_a_worker_that_began_anew_with_more_slots_counts_once(client: Redis) -> None:
    more = Worker(name=IMAGE.name, queues=["image"], slots=24)
    for worker in (IMAGE, more):
        Presence(Shared(client)).note(worker)
    assert Presence(Shared(client)).workers() == [more]


def test_the_status_shows_them_by_queue(service: Service) -> None:
    service.parts.presence.note(IMAGE)
    assert service.get("/v1/status").json["workers"] == [
        {"queue": "image", "workers": 1, "slots": 12},
        {"queue": "video", "workers": 0, "slots": 0},
        {"queue": "default", "workers": 0, "slots": 0},
    ]


def test_without_redis_nobody_can_tell(make_settings: MakeSettings) -> None:
    for service in running(make_settings(TOML, WEIR_REDIS_URL="redis://127.0.0.1:9/0")):
        assert service.get("/v1/status").json["workers"] is None
