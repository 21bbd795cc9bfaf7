"""The invariants, each a function over the evidence that names every task which breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from models import ids
from models.db import Row
from models.lifecycle import FINAL, LIVE
from tests.chaos.crowd import Crowd
from tests.chaos.evidence import Evidence
from tests.chaos.plan import CAPS, PHRASE
from tests.chaos.watch import Watch

_BEFORE = 0.5  # seconds by which a job may seem older than the claim it belongs to: two clocks


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One invariant: whether it held, over how many things, and what broke it."""

    name: str
    counted: int
    broken: Sequence[str]

    @property
    def held(self) -> bool:
        """Nothing broke it."""
        return not self.broken


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is judged."""

    evidence: Evidence
    crowd: Crowd
    watch: Watch
    fallen: Sequence[str]
    secrets: Sequence[str]


_Rule = Callable[[Row, Evidence], Iterator[str]]


def every_task_is_final(row: Row, _: Evidence) -> Iterator[str]:
    """No row is left live."""
    if row["status"] in LIVE:
        yield f"is {row['status']}, stage {row['stage']}"


def no_doubt_outlives_its_answer(row: Row, evidence: Evidence) -> Iterator[str]:
    """A TIMEOUT whose job we can name was asked about after its end, and does not stay when the vendor says it failed.

    One that the vendor calls done may stay, where the result is not to be had: that is asked again later.
    """
    job = {job["id"]: job for job in evidence.jobs_for(row)}.get(row["receipt"])
    if row["status"] != "TIMEOUT" or job is None:
        return
    later = [c for c in evidence.calls[row["id"]] if c["started_at"] > row["finished_at"] and c["verdict"] == "ok"]
    if not later:
        yield f"was not asked about after its end; the vendor says {job['state']}"
    elif job["state"] in ("FAILED", "CANCELED"):
        yield f"stays TIMEOUT although the vendor says {job['state']}"


def one_job_an_attempt(row: Row, evidence: Evidence) -> Iterator[str]:
    """The vendor accepted at most one job of each attempt, and the count of calls covers all of them."""
    jobs = evidence.jobs_for(row)
    begins = [e["at"].timestamp() for e in evidence.events[row["id"]] if e["reason"] in ("accepted", "restarted")]
    for n, begin in enumerate(begins):
        end = begins[n + 1] if n + 1 < len(begins) else float("inf")
        bought = [j for j in jobs if begin - _BEFORE <= j["created_at"] < end - _BEFORE]
        if len(bought) > 1:
            yield f"attempt {n + 1} bought {len(bought)} jobs"
    if len(begins) != row["attempt"]:
        yield f"{len(begins)} beginnings, attempt {row['attempt']}"
    if len(jobs) > row["upstream_call_count"]:
        yield f"{len(jobs)} jobs, upstream_call_count {row['upstream_call_count']}"


def the_receipt_names_its_own_job(row: Row, evidence: Evidence) -> Iterator[str]:
    """No task holds another's job."""
    if row["receipt"] is not None and row["receipt"] not in {job["id"] for job in evidence.jobs_for(row)}:
        yield f"its receipt {row['receipt']} is no job of its own"


def cost_is_what_was_delivered(row: Row, evidence: Evidence) -> Iterator[str]:
    """Price x outputs (x seconds), of SUCCESS and of nothing else."""
    due = 0
    if row["status"] == "SUCCESS":
        effective = row["effective"]
        units = effective["duration_s"] if row["type"] == "video" else effective["image_count"]
        delivered = len(evidence.assets[row["id"]])
        due = row["price_micros"] * (units if row["type"] == "video" else min(units, delivered))
        if not delivered or delivered != len(row["outputs"]):
            yield f"SUCCESS with {len(row['outputs'])} outputs and {delivered} assets"
    if row["cost_micros"] != due:
        yield f"costs {row['cost_micros']}, should be {due}"


def events_are_one_chain(row: Row, evidence: Evidence) -> Iterator[str]:
    """Versions rise one by one, each event begins where the last ended, and the row is where the last one ended."""
    events = [e for e in evidence.events[row["id"]] if e["reason"] != "late"]
    if not events or (events[0]["reason"], events[0]["version"]) != ("accepted", 1):
        yield "does not begin with `accepted`"
        return
    for one, two in pairwise(events):
        if two["version"] != one["version"] + 1 or two["from_status"] != one["to_status"]:
            yield f"v{one['version']} {one['to_status']} is followed by v{two['version']} from {two['from_status']}"
    last = events[-1]
    if (last["version"], last["to_status"]) != (row["version"], row["status"]):
        yield f"ends at v{last['version']} {last['to_status']}, the row is v{row['version']} {row['status']}"


def each_attempt_ends_once(row: Row, evidence: Evidence) -> Iterator[str]:
    """One ending for each attempt, and no other change of a final state than one reconciliation of it."""
    attempts: dict[int, list[str]] = {}
    for event in evidence.events[row["id"]]:
        if event["to_status"] in FINAL and event["reason"] != "late":
            attempts.setdefault(event["attempt"], []).append(event["reason"])
    for attempt in range(1, row["attempt"] + (row["status"] in FINAL)):
        first, *more = attempts.get(attempt, ["nothing"])
        if first in ("nothing", "reconciled") or more not in ([], ["reconciled"]):
            yield f"attempt {attempt} ended by {[first, *more]}"


def success_has_its_bytes(row: Row, evidence: Evidence) -> Iterator[str]:
    """Every asset of a SUCCESS is a file of the size and hash that the record names."""
    if row["status"] != "SUCCESS":
        return
    for asset in evidence.assets[row["id"]]:
        found = evidence.files.get(asset["key"])
        if found != (asset["bytes"], asset["sha256"].hex()):
            yield f"output {asset['n']}: recorded {asset['bytes']} bytes, stored {found and found[0]}"


def lost_money_is_flagged(row: Row, evidence: Evidence) -> Iterator[str]:
    """What the vendor bills and we did not deliver is a risk that the operator sees."""
    if row["status"] == "SUCCESS" or row["status"] in LIVE or row["risk"]:
        return
    billed = [job for job in evidence.jobs_for(row) if job["billed"]]
    if billed:
        yield f"{row['status']} {row['error_code']}: {len(billed)} billed jobs, no risk flag"


def a_wish_to_cancel_is_not_overheard(row: Row, evidence: Evidence) -> Iterator[str]:
    """Nothing is bought after its owner asked to cancel it, in the same attempt."""
    asked = row["cancel_requested_at"]
    late = [j for j in evidence.jobs_for(row) if asked is not None and j["created_at"] > asked.timestamp() + 8]
    if late:
        yield f"{len(late)} jobs were bought more than 8 s after the cancel was asked for"


RULES: Mapping[str, _Rule] = {
    "every accepted task is final": every_task_is_final,
    "no TIMEOUT outlives the vendor's answer": no_doubt_outlives_its_answer,
    "at most one upstream job an attempt": one_job_an_attempt,
    "receipts name their own job": the_receipt_names_its_own_job,
    "cost = delivered x price, on SUCCESS only": cost_is_what_was_delivered,
    "events are one chain": events_are_one_chain,
    "one ending an attempt": each_attempt_ends_once,
    "SUCCESS has its bytes": success_has_its_bytes,
    "lost upstream money is flagged": lost_money_is_flagged,
    "nothing is bought after a cancel": a_wish_to_cancel_is_not_overheard,
}


def judge(case: Case) -> list[Finding]:
    """Every invariant, in the order of the report."""
    evidence = case.evidence
    findings = []
    for name, rule in RULES.items():
        broken = [f"{said}\n{evidence.story(row)}" for row in evidence.tasks for said in rule(row, evidence)]
        findings.append(Finding(name=name, counted=len(evidence.tasks), broken=broken))
    findings += [
        Finding(name="one task a key, one key a task", counted=len(case.crowd.memories), broken=list(_keys(case))),
        Finding(name="caps held at every look", counted=case.watch.looks, broken=case.watch.exceeded),
        Finding(name="the vendor's own count of jobs at once", counted=_most(evidence), broken=list(_flood(evidence))),
        Finding(name="no file without its record", counted=len(evidence.files), broken=list(_orphans(evidence))),
        Finding(name="no prompt, key or link in a log", counted=len(evidence.logs), broken=list(_leaks(case))),
        Finding(name="no client saw what it should not", counted=len(case.crowd.memories), broken=case.crowd.odd),
        Finding(name="no process ended by itself", counted=len(case.evidence.logs), broken=case.fallen),
    ]
    return findings


def _keys(case: Case) -> Iterator[str]:
    rows = {row["idempotency_key"]: ids.encode("task", row["id"]) for row in case.evidence.tasks}
    if len(rows) != len(case.evidence.tasks):
        yield f"{len(case.evidence.tasks)} rows, {len(rows)} keys"
    for memory in case.crowd.memories.values():
        if memory.task_ids != {rows.get(memory.wish.key)}:
            yield f"{memory.wish.key}: told {sorted(memory.task_ids)}, row {rows.get(memory.wish.key)}"


def _most(evidence: Evidence) -> int:
    return max((int(line["most_in_flight"]) for line in evidence.in_flight), default=0)


def _flood(evidence: Evidence) -> Iterator[str]:
    """A job that we have lost sight of runs on at the vendor and is in nobody's count: so many may be above the cap."""
    lost = sum(1 for row in evidence.tasks for job in evidence.jobs_for(row) if _abandoned(row, job))
    if _most(evidence) > CAPS["provider"] + lost:
        yield f"{_most(evidence)} at once, cap {CAPS['provider']}, {lost} abandoned"


def _abandoned(row: Row, job: Mapping[str, Any]) -> bool:
    return bool(row["status"] != "SUCCESS" or row["receipt"] != job["id"])


def _orphans(evidence: Evidence) -> Iterator[str]:
    known = {asset["key"] for assets in evidence.assets.values() for asset in assets}
    by_id = {ids.encode("task", row["id"]): row for row in evidence.tasks}
    for key in sorted(evidence.files.keys() - known):
        row = next((by_id[part] for part in key.split("/") if part in by_id), None)
        yield f"{key}\n{evidence.story(row) if row is not None else 'of no task'}"


def _leaks(case: Case) -> Iterator[str]:
    words = {
        "a prompt": PHRASE,
        "a signed link": "&Signature=",
        **{f"secret {n}": s for n, s in enumerate(case.secrets)},
    }
    for log, text in case.evidence.logs.items():
        for what, word in words.items():
            if word in text:
                place = next(line for line in text.splitlines() if word in line)
                yield f"{log} holds {what}: {place[:300]}"
