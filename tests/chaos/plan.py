"""PURE  Everything a run draws, from its seed alone: what clients ask, what the vendor does wrong, what is broken when.

No clock, socket or process. The same seed and size give the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

SHORT_S, LONG_S = 18.0, 70.0  # seconds in which things break, for few and for many tasks
USERS = ("ada", "ben", "cleo", "dan", "eve")
PHRASE = "porcelain heron"  # in every prompt; no log of the run may hold it

# Small enough that all of them bind at some moment, large enough that the run gets through.
CAPS = {"total": 30, "image": 24, "video": 8, "provider": 26, "user": 9}

# Times are short so that whatever is lost is found while the run lasts. `connect_s`, the read times and the repeats
# decide how long a claim without a receipt is believed (tasks.submitting.budget_s).
TOML = f"""
[caps]
total = {CAPS["total"]}
image = {CAPS["image"]}
video = {CAPS["video"]}
[users]
running = {CAPS["user"]}
active = 1000
submits_per_minute = 100000
[retries]
reads = 1
async_submit = 1
sync_submit = 0
fetch_attempts = 4
[polling]
round_s = 3.0
[polling.image]
min_s = 0.5
max_s = 2.0
[polling.video]
min_s = 0.5
max_s = 2.0
[sweep]
every_s = 2
grace_s = 2
stuck_s = 25
[results]
fetch_s = 2.0
[providers.wan]
adapter = "dashscope"
base_url = "{{sim}}/dashscope"
api_key_env = "DASHSCOPE_API_KEY"
max_in_flight = {CAPS["provider"]}
requests_per_minute = 1000000
connect_s = 1.0
submit_read_s = 2.0
query_read_s = 1.5
"""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One intention of one user, with all that the client will do about it."""

    number: int
    user: str
    key: str
    body: Mapping[str, object]
    at_s: float
    doubled_s: float | None  # a second click so many seconds after the first
    cancel_s: float | None  # a change of mind so many seconds after the task was accepted
    looks: bool  # whether its owner ever asks for it; tasks nobody looks at end as well
    repeats: int  # how often its owner repeats the key of a failure

    @property
    def prompt(self) -> str:
        """What the vendor's ledger knows it by."""
        return str(self.body["prompt"])


@dataclass(frozen=True, kw_only=True)
class Blow:
    """One thing that is broken. `lasts_s` where it is mended after a while; `target` where there are several."""

    at_s: float
    act: str
    target: str = ""
    lasts_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A whole run."""

    seed: int
    wishes: Sequence[Wish]
    rules: Sequence[Mapping[str, object]]
    blows: Sequence[Blow]
    breaking_s: float


def draw(seed: int, tasks: int) -> Plan:
    """The plan of a seed for so many tasks."""
    dice = random.Random(seed)
    breaking_s = min(LONG_S, max(SHORT_S, tasks * 0.25))
    return Plan(
        seed=seed,
        wishes=[_wish(dice, seed, n, breaking_s) for n in range(tasks)],
        rules=list(_rules(dice)),
        blows=sorted(_blows(dice, breaking_s), key=lambda blow: blow.at_s),
        breaking_s=breaking_s,
    )


def _wish(dice: random.Random, seed: int, number: int, breaking_s: float) -> Wish:
    # Shorter than a lost round of polls takes to be noticed, or longer: both ends are to be seen.
    deadline_s = dice.choice([8, *[round(breaking_s * 0.4 + 17)] * 9])
    body: dict[str, object] = {
        "prompt": f"a {PHRASE} no. {seed}-{number:04d}",
        "seed": number,
        "deadline_s": deadline_s,
    }
    if dice.random() < 0.15:
        body |= {"type": "video"}
    else:
        body |= {"width": 512, "height": 512, "image_count": dice.choice([1, 1, 1, 2, 4])}
    return Wish(
        number=number,
        user=dice.choice(USERS),
        key=f"chaos-{seed}-{number}",
        body=body,
        at_s=dice.uniform(0, breaking_s * 0.85),
        doubled_s=dice.choice([0.0, 0.02, 0.3, 2.0]) if dice.random() < 0.2 else None,
        cancel_s=dice.uniform(0, 4) if dice.random() < 0.1 else None,
        looks=dice.random() < 0.5,
        repeats=dice.choice([0, 1, 2]),
    )


# --- what the vendor does wrong: operation, share of its calls, the fault ---

_VENDOR: tuple[tuple[str, float, Mapping[str, object]], ...] = (
    ("submit", 0.05, {"status": 429, "retry_after": "1"}),
    ("submit", 0.03, {"status": 429}),
    ("submit", 0.02, {"status": 503}),
    ("submit", 0.01, {"html": True}),
    ("submit", 0.01, {"html": True, "accepted": True}),
    ("submit", 0.01, {"status": 504, "html": True, "accepted": True}),
    ("submit", 0.015, {"lost_answer": "reset"}),
    ("submit", 0.015, {"lost_answer": "close"}),
    ("submit", 0.015, {"hold_s": 4}),
    ("submit", 0.01, {"half_json": True}),
    ("submit", 0.01, {"cut_after": 20}),
    ("submit", 0.01, {"reset": True}),
    ("submit", 0.01, {"status": 200, "code": "InternalError.Algo", "message": "try again"}),
    ("submit", 0.02, {"status": 400, "code": "DataInspectionFailed"}),
    ("submit", 0.01, {"stuck": "PENDING"}),
    ("submit", 0.01, {"stuck": "RUNNING"}),
    ("submit", 0.01, {"status_word": "PONDERING"}),
    ("submit", 0.04, {"fail": "InternalError.Algo"}),
    ("submit", 0.02, {"fail": "DataInspectionFailed"}),
    ("submit", 0.03, {"partial": 1}),
    ("submit", 0.01, {"partial": 0}),
    ("submit", 0.02, {"no_payload": True}),
    ("submit", 0.01, {"expired_link": True}),
    ("submit", 0.01, {"redirect": "/files/moved/{file}"}),
    ("submit", 0.01, {"redirect": "http://127.0.0.1:9/{file}"}),
    ("submit", 0.01, {"wrong_bytes": "html"}),
    ("submit", 0.01, {"wrong_bytes": "empty"}),
    ("submit", 0.02, {"wrong_bytes": "webp"}),
    ("submit", 0.01, {"content_type": "text/html"}),
    ("submit", 0.06, {"slow_s": 8}),
    ("query", 0.03, {"status": 429, "retry_after": "1"}),
    ("query", 0.03, {"html": True}),
    ("query", 0.02, {"half_json": True}),
    ("query", 0.02, {"reset": True}),
    ("query", 0.01, {"hold_s": 3}),
    ("query", 0.02, {"status": 200, "code": "InternalError", "message": "no"}),
    ("query", 0.02, {"status_word": "ALMOST"}),
    ("query", 0.02, {"unknown_job": True}),
    ("query", 0.02, {"no_payload": True}),
    ("query", 0.01, {"drip_s": 0.05}),
    ("list", 0.04, {"status": 429}),
    ("list", 0.04, {"html": True}),
    ("list", 0.03, {"half_json": True}),
    ("list", 0.03, {"reset": True}),
    ("list", 0.02, {"hold_s": 3}),
    ("fetch", 0.03, {"status": 503}),
    ("fetch", 0.03, {"cut_after": 100}),
    ("fetch", 0.03, {"reset": True}),
    ("fetch", 0.02, {"drip_s": 0.2}),
    ("fetch", 0.02, {"expired_link": True}),
    ("fetch", 0.02, {"wrong_bytes": "text"}),
    ("fetch", 0.01, {"hold_s": 4}),
    ("cancel", 0.1, {"reset": True}),
    ("cancel", 0.1, {"html": True, "accepted": True}),
    ("cancel", 0.1, {"hold_s": 3}),
)


def _rules(dice: random.Random) -> Iterator[Mapping[str, object]]:
    """Every fault of the table, each with its share turned up or down and dice of its own."""
    for on, share, do in dice.sample(_VENDOR, len(_VENDOR)):
        yield {
            "on": on,
            "probability": round(share * dice.uniform(0.3, 1.7), 4),
            "seed": dice.randrange(2**31),
            "do": dict(do),
        }


# --- what is broken in our own house: act, targets, how long it lasts at least and at most, weight ---

WORKERS = ("worker_image", "worker_image_2", "worker_video", "worker_default")
_HOUSE: tuple[tuple[str, tuple[str, ...], float, float, int], ...] = (
    ("kill", WORKERS, 0.2, 3.0, 4),
    ("kill", ("web",), 0.2, 1.0, 2),
    ("kill", ("beat", "beat_2"), 1.0, 6.0, 1),
    ("deploy", (*WORKERS, "web"), 2.0, 6.0, 2),
    ("freeze", (*WORKERS, "web"), 1.0, 7.0, 2),
    ("flush", ("",), 0, 0, 2),
    ("purge", ("image", "video", "default"), 0, 0, 2),
    ("valkey_lost", ("",), 0.3, 2.0, 1),
    ("postgres_stop", ("",), 4.0, 4.0, 1),
    ("postgres_kill", ("",), 0.3, 1.0, 1),
    ("commit_cut", ("before", "after"), 2.0, 4.0, 4),
    ("cut", ("postgres", "valkey", "sim"), 0, 0, 4),
    ("delay", ("postgres", "valkey", "sim"), 1.0, 3.0, 2),
    ("refuse", ("postgres", "valkey", "sim"), 0.5, 2.0, 2),
    ("black_hole", ("valkey", "sim"), 1.0, 3.0, 1),
    ("half_answer", ("postgres", "valkey", "sim"), 1.0, 2.0, 1),
    ("forget", ("",), 0, 0, 1),
)
_RARE = {"postgres_stop": 2, "postgres_kill": 2, "forget": 1, "valkey_lost": 3}  # of one run at most
_EVERY_S = 1.6


def _blows(dice: random.Random, breaking_s: float) -> Iterator[Blow]:
    """One of each kind, as far as there is time for it, then more of them by weight."""
    wanted = dice.sample(_HOUSE, len(_HOUSE))
    if dice.random() < 0.6:  # it ends most of what is under way, and a short run has little else
        wanted = [kind for kind in wanted if kind[0] != "forget"]
    weights = [kind[4] for kind in _HOUSE]
    left = dict(_RARE)
    at_s = 2.0
    while at_s < breaking_s:
        act, targets, low, high, _ = wanted.pop() if wanted else dice.choices(_HOUSE, weights)[0]
        if act in left:
            left[act] -= 1
        if left.get(act, 0) < 0:
            continue
        yield Blow(at_s=at_s, act=act, target=dice.choice(targets), lasts_s=dice.uniform(low, high))
        at_s += dice.uniform(0.5, 1.5) * _EVERY_S
