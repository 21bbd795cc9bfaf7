"""Several credentials of one provider: each task stays with the one its job was bought with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from models import line, seats, store
from models.failures import FailureKind
from models.fields import Kind
from models.lifecycle import Error, Unknown
from models.settings import SettingsError
from providers import catalogue
from providers.breaker import Shared
from providers.gate import Dam
from providers.kv import connect
from providers.port import Accepted, Job, NotAccepted, Outcome
from tasks import waves
from tests.conftest import MakeSettings
from tests.scripted import Scripted, done
from tests.world import TOML, World

KEYS = ("K1", "K2", "K3")
LIST = TOML.replace('api_key_env = "DASHSCOPE_API_KEY"', 'api_key_env = "K1"\nmore_api_key_env = ["K2", "K3"]')
ENVIRON = {key: f"sk-{key.lower()}-secret" for key in KEYS}


@dataclass
class Accounts:
    """A gateway with three accounts at one vendor."""

    world: World
    at: dict[str, Scripted]

    def bought(self, count: int) -> list[UUID]:
        """Tasks that have been submitted."""
        ids = [self.world.add() for _ in range(count)]
        for id_ in ids:
            self.world.submit(id_)
        return ids

    def poll(self, seat: str) -> None:
        """One round of the chain of one seat, whatever is due being due now."""
        self.world.sql("update tasks set wake_at = now() where stage = 'generating'")
        with self.world.rt.db.unit_of_work() as uow:
            version = line.restart_wave(uow, seat, Kind.IMAGE)
        waves.round_of(self.world.rt, seat, Kind.IMAGE, version)


def _account(key: str) -> Scripted:
    """An account that knows nothing of another's jobs."""
    account = Scripted()
    mine: set[str] = set()

    def taken(job: Job) -> Outcome:
        receipt = f"{key}-{job.reference}"
        mine.add(receipt)
        return Accepted(receipt=receipt)

    account.on_submit = taken
    account.on_observe = lambda receipt: done() if receipt in mine else Unknown()
    return account


@pytest.fixture
def accounts(make_settings: MakeSettings) -> Iterator[Accounts]:
    """K1, K2 and K3, each in a gate of its own."""
    world = World.build(make_settings(LIST, **ENVIRON))
    at = {key: _account(key) for key in KEYS}
    world.rt.providers.update({f"wan:{key}": one for key, one in at.items()})
    world.rt.providers["wan"] = at["K1"]
    settings = world.rt.settings
    gates = Dam.build(Shared(connect(settings.env.redis_url)), settings).gates(settings.providers)
    object.__setattr__(world.rt, "gates", gates)
    yield Accounts(world=world, at=at)
    world.rt.db.close()


def test_o79_each_task_is_polled_with_the_key_that_bought_it(accounts: Accounts) -> None:
    world = accounts.world
    ids = accounts.bought(9)
    rows = [world.row(id_) for id_ in ids]
    assert sorted(row["credential"] for row in rows) == ["K1"] * 3 + ["K2"] * 3 + ["K3"] * 3
    assert all(row["receipt"].startswith(row["credential"]) for row in rows)
    # K2 is refused from now on; what it bought is asked about with it all the same, once it is mended.
    world.rt.gates["wan:K2"].dam.credentials.kill("wan", "K2", "provider_auth")
    later = accounts.bought(2)
    assert {world.row(id_)["credential"] for id_ in later} == {"K1", "K3"}
    world.rt.gates["wan:K2"].dam.credentials.revive("wan", "K2")
    for key in KEYS:
        accounts.poll(f"wan:{key}")
    assert {world.fetch(id_)["status"] for id_ in (*ids, *later)} == {"SUCCESS"}
    assert sum(len(account.submits) for account in accounts.at.values()) == 11
    dump = str([dict(world.row(id_)) for id_ in ids])
    assert not any(secret in dump for secret in ENVIRON.values())


def test_o79_tasks_of_a_key_that_was_taken_out_end_and_are_told(
    accounts: Accounts, caplog: pytest.LogCaptureFixture
) -> None:
    world = accounts.world
    ids = accounts.bought(3)
    del world.rt.providers["wan:K2"]
    for key in KEYS:
        accounts.poll(f"wan:{key}")
    assert "nobody can ask about the image tasks of wan:K2" in caplog.text
    world.sql("update tasks set deadline_at = now() - interval '1 second' where stage = 'generating'")
    world.sweep()
    statuses = {world.row(id_)["credential"]: world.row(id_)["status"] for id_ in ids}
    assert statuses["K2"] == "TIMEOUT"
    assert world.reconcile(next(i for i in ids if world.row(i)["credential"] == "K2"))["risk"] is True


def test_a_doubtful_task_goes_back_to_the_account_that_may_have_it(accounts: Accounts) -> None:
    world = accounts.world
    lost = NotAccepted(error=Error(kind=FailureKind.READ_TIMEOUT))
    for account in accounts.at.values():
        account.on_submit = lambda _: lost
    (id_,) = accounts.bought(1)
    row = world.row(id_)
    assert (row["status"], row["risk"]) == ("PENDING", True)
    others = [world.add() for _ in range(4)]
    for key, account in accounts.at.items():
        account.on_submit = lambda job, key=key: Accepted(receipt=f"{key}-{job.reference}")  # type: ignore[misc]
    for other in others:
        world.submit(other)
    world.sql("update tasks set wake_at = now() where id = :id", id=id_)
    assert world.submit(id_)["credential"] == row["credential"]


def test_all_keys_refused_is_a_refusal_and_one_is_not(accounts: Accounts) -> None:
    gate = accounts.world.rt.gates["wan"]
    for key in KEYS[:2]:
        gate.dam.credentials.kill("wan", key, "provider_auth")
    assert gate.refuses(Kind.IMAGE) is None
    gate.dam.credentials.kill("wan", "K3", "provider_quota")
    held = gate.refuses(Kind.IMAGE)
    assert held is not None
    id_ = accounts.world.add()
    assert accounts.world.submit(id_)["status"] == "PENDING", "it waits, and burns nothing"
    assert accounts.world.row(id_)["upstream_call_count"] == 0


def test_lost_chain_of_one_key_is_restarted_by_itself(accounts: Accounts) -> None:
    accounts.bought(3)
    with accounts.world.rt.db.unit_of_work() as uow:
        uow.execute("update waves set wake_at = now() - interval '1 minute' where provider = 'wan:K3'")
    assert accounts.world.sweep()["waves_restarted"] == 1


def test_a_key_of_two_variables_is_both_of_them(make_settings: MakeSettings) -> None:
    toml = TOML.replace('api_key_env = "DASHSCOPE_API_KEY"', 'api_key_env = "VOLC_ACCESSKEY+VOLC_SECRETKEY"')
    pair = {"VOLC_ACCESSKEY": "AK", "VOLC_SECRETKEY": "SK:with:colons"}
    settings = make_settings(toml, **pair)
    assert settings.env.vendor_keys == {"VOLC_ACCESSKEY+VOLC_SECRETKEY": "AK:SK:with:colons"}
    assert settings.vendor_variables() == pair
    (missing,) = make_settings(toml, VOLC_ACCESSKEY="AK").missing_keys()
    assert missing.startswith("VOLC_ACCESSKEY or VOLC_SECRETKEY is not set")
    assert set(catalogue(settings)) == {"wan", "wan:VOLC_ACCESSKEY"}


@pytest.mark.parametrize("more", ['["K1"]', '["K2", "K2"]'])
def test_the_same_key_twice_is_a_fault(make_settings: MakeSettings, more: str) -> None:
    with pytest.raises(SettingsError, match="no credential twice"):
        make_settings(LIST.replace('["K2", "K3"]', more), **ENVIRON)


@pytest.mark.parametrize(("provider", "credential"), [("wan", None), ("wan", "K2")])
def test_seat_is_the_word_of_the_database_too(accounts: Accounts, provider: str, credential: str | None) -> None:
    seat = seats.seat_of(provider, credential)
    assert (seats.provider_of(seat), seats.credential_of(seat)) == (provider, credential)
    id_ = accounts.world.add()
    accounts.world.sql("update tasks set credential = :credential where id = :id", credential=credential, id=id_)
    with accounts.world.rt.db.unit_of_work() as uow:
        row = store.get(uow, id_)
    assert row is not None
    assert row["seat"] == seat
