"""One run from the beginning to the report."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from api.embedded import EmbeddedServers
from models import accounts, migrations
from models.db import Database
from models.intake import ASKED_S
from tests.chaos import evidence, plan, verdict
from tests.chaos.crowd import FINAL, Crowd
from tests.chaos.rig import House
from tests.chaos.watch import Watch
from tests.conftest import SECRET

_SETTLE_S = 75.0  # after the last blow, at most
_ASK_S = 25.0  # for the answers to questions about a TIMEOUT, at most
_ANSWER_S = 3.0  # for the last of them


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was done, how it ended, what held."""

    plan: plan.Plan
    seconds: dict[str, float]
    blows: Counter[str]
    clients: Counter[str]
    endings: Counter[str]
    jobs: int
    findings: Sequence[verdict.Finding]

    @property
    def held(self) -> bool:
        """Every invariant did."""
        return all(finding.held for finding in self.findings)

    def text(self, examples: int = 3) -> str:
        """The tables, and of each broken invariant some examples."""
        out = [f"chaos: seed {self.plan.seed}, {len(self.plan.wishes)} tasks, {self.jobs} upstream jobs, "]
        out[0] += ", ".join(f"{what} {s:.0f} s" for what, s in self.seconds.items())
        for title, counts in (("done to us", self.blows), ("asked", self.clients), ("ended", self.endings)):
            out += ["", f"{title}:", *_columns(f"{what} {n}" for what, n in sorted(counts.items()))]
        out += ["", "held:"]
        for finding in self.findings:
            said = f"BROKEN {len(finding.broken)} times" if finding.broken else "held"
            out.append(f"  {finding.name:<44} {finding.counted:>6}  {said}")
        for finding in self.findings:
            out += [f"\n--- {finding.name}: {one}" for one in finding.broken[:examples]]
        return "\n".join(out)


def _columns(cells: Iterable[str], width: int = 38, across: int = 3) -> list[str]:
    line = list(cells)
    return ["  " + "".join(f"{c:<{width}}" for c in line[i : i + across]).rstrip() for i in range(0, len(line), across)]


def run(seed: int, tasks: int, *, keep: bool = False, say: Callable[[str], None] = lambda _: None) -> Report:
    """Do it all. For the main thread. `keep` leaves logs and data where they are and says where."""
    drawn = plan.draw(seed, tasks)
    folders = [Path(tempfile.mkdtemp(prefix=f"weir-chaos-{name}-")) for name in ("data", "servers")]
    try:
        with EmbeddedServers(folders[1], durable=True) as servers:
            migrations.upgrade(servers.database_url)
            return _over(servers, folders, drawn, say)
    finally:
        if keep:
            say(f"kept: {', '.join(map(str, folders))}")
        else:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)


def _over(servers: EmbeddedServers, folders: Sequence[Path], drawn: plan.Plan, say: Callable[[str], None]) -> Report:
    keys = _keys(servers.database_url)
    clock = time.monotonic()
    seconds: dict[str, float] = {}

    def lap(what: str) -> None:
        nonlocal clock
        seconds[what] = time.monotonic() - clock
        clock = time.monotonic()
        say(f"{what}: {seconds[what]:.0f} s")

    with House(folders[0], servers) as house:
        house.provoke(drawn.rules)
        lap("starting")
        with Watch(servers.database_url) as watch, Crowd(house.live.url, keys, drawn.wishes, drawn.seed) as crowd:
            _break(house, drawn)
            lap("breaking")
            struck = _rule_hits(house)
            crowd.calm()
            house.calm()
            lap("mending")
            _settle(servers.database_url, crowd)
            lap("settling")
        ledger = house.live.sim("/_sim/ledger")
        logs = [*(folders[0] / "logs").glob("*.log*"), *(folders[1] / "logs").glob("*.log*")]
    seen = evidence.gather(servers.database_url, ledger, folders[0], logs)
    case = verdict.Case(
        evidence=seen,
        crowd=crowd,
        watch=watch,
        fallen=house.fallen,
        secrets=[SECRET, "sk-for-tests", *keys.values()],
    )
    blows = house.done + struck + Counter({"COMMITs cut": house.postgres.cuts})
    endings = Counter(f"{row['status']} {row['error_code'] or ''}".strip() for row in seen.tasks)
    endings += Counter({f"(most {what} at once)": n for what, n in watch.most.items()})
    return Report(
        plan=drawn, seconds=seconds, blows=blows, clients=crowd.done, endings=endings,
        jobs=len(seen.jobs), findings=verdict.judge(case),
    )  # fmt: skip


def _keys(database_url: str) -> dict[str, str]:
    with Database(database_url, pool=1) as database, database.unit_of_work() as uow:
        return {
            user: accounts.create_key(uow, SECRET, user=user, scopes=accounts.DEFAULT_SCOPES)[1] for user in plan.USERS
        }


def _break(house: House, drawn: plan.Plan) -> None:
    begin = time.monotonic()
    left = list(drawn.blows)
    while (now_s := time.monotonic() - begin) < drawn.breaking_s:
        house.tend()
        if left and left[0].at_s <= now_s:
            house.strike(left.pop(0))
        else:
            time.sleep(0.05)


def _rule_hits(house: House) -> Counter[str]:
    import requests  # noqa: PLC0415  one call

    rules = requests.get(f"{house.live.sim_url}/_sim/faults", timeout=10).json()
    hits: Counter[str] = Counter()
    for rule in rules:
        hits[f"vendor {rule['on']} {'+'.join(rule['do'])}"] += rule["hits"]
    return +hits


def _settle(database_url: str, crowd: Crowd) -> None:
    """Until every wish has its task and every task has ended; then those in doubt are asked about, once."""
    until = time.monotonic() + _SETTLE_S
    with Database(database_url, pool=1) as database:

        def live() -> int:
            with database.unit_of_work() as uow:
                return int(uow.scalar("select count(*) from tasks where status <> all(:final)", final=list(FINAL)))

        while time.monotonic() < until and (crowd.homeless() or live()):
            time.sleep(0.25)
        with database.unit_of_work() as uow:
            rows = uow.all("select idempotency_key as key from tasks where status = 'TIMEOUT' and not certain")
        crowd.repeat([int(row["key"].rpartition("-")[2]) for row in rows])
        if rows:
            time.sleep(1)
            _answered(database, time.monotonic() + _ASK_S)


def _answered(database: Database, until: float) -> None:
    """Until no question is due any more, by a caller's ring or by the sweep, and the last had time to be answered."""
    due = """select count(*) from tasks
              where status = 'TIMEOUT' and not certain and wake_at < now() + make_interval(secs => :soon_s)"""
    quiet_since = time.monotonic()
    while time.monotonic() < until and time.monotonic() - quiet_since < _ANSWER_S:
        with database.unit_of_work() as uow:
            if uow.scalar(due, soon_s=ASKED_S + 1):
                quiet_since = time.monotonic()
        time.sleep(0.25)


def main(seed: int, tasks: int, *, keep: bool) -> int:
    """Run and print; the exit code."""
    report = run(seed, tasks, keep=keep, say=lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
    print(report.text())  # noqa: T201  that is what it is for
    return 0 if report.held else 1
