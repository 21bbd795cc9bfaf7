"""The demo of `weir up`: one image and one video through the HTTP API, as any caller would, into files."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.cli_http import Gateway, GatewayError

if TYPE_CHECKING:
    from api.up_setup import Plan
    from models.settings import Settings

_WITHIN_S = 180.0
_LOOK_S = 0.5
_PROMPTS = {
    "image": "a red fox in fresh snow, morning light",
    "video": "waves rolling over a weir at dusk",
}
_FINAL = ("SUCCESS", "FAILED", "TIMEOUT", "CANCELED")
_SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "video/mp4": ".mp4"}


@dataclass
class Outcome:
    """What became of one task; `file` None: nothing was delivered, `reason` says why."""

    type: str
    task_id: str = ""
    seen: str = ""  # the last status that was read
    seconds: float = 0.0
    file: Path | None = None
    reason: str = ""

    def as_json(self) -> dict[str, object]:
        """As a part of the line that --json prints."""
        file = str(self.file) if self.file else None
        told = {"type": self.type, "task_id": self.task_id, "status": self.seen, "seconds": self.seconds}
        return told | {"file": file, "reason": self.reason}


def run(gateway: Gateway, plan: Plan, check: Callable[[], None]) -> list[Outcome]:
    """Submit both, follow both, fetch both; `check` is called between looks and may raise."""
    start = time.monotonic()
    outcomes = []
    for kind, prompt in _PROMPTS.items():
        skipped = why_skip(kind, plan.settings, plan.simulated, may_buy=plan.options.may_buy)
        outcomes.append(Outcome(type=kind, reason=skipped) if skipped else _submit(gateway, kind, prompt))
        outcome = outcomes[-1]
        plan.say("Demo", " ".join(filter(None, (kind, outcome.task_id, outcome.seen or outcome.reason))))
    waiting = [outcome for outcome in outcomes if not outcome.reason]
    while waiting and time.monotonic() < start + _WITHIN_S:
        check()
        plan.echo_logs()
        for outcome in list(waiting):
            if _look(gateway, outcome, plan):
                outcome.seconds = round(time.monotonic() - start, 1)
                waiting.remove(outcome)
                plan.say("Demo", f"{outcome.type} {outcome.file or outcome.reason}, {outcome.seconds} s")
        # One's own machine may be asked twice a second; a caller elsewhere would keep to Retry-After.
        time.sleep(_LOOK_S)
    for outcome in waiting:
        outcome.reason = f"not finished in {_WITHIN_S:.0f} s"
        plan.say("Demo", f"{outcome.type} {outcome.task_id} {outcome.reason}")
    return outcomes


def why_skip(kind: str, settings: Settings, simulated: Container[str], *, may_buy: bool) -> str:
    """Why the demo should not make a `kind`, or "": only what the providers in `simulated` make costs nothing."""
    model = next((one for one in settings.models.values() if one.type == kind and one.default), None)
    if model is None:
        return f"skipped: no default model for {kind} tasks is configured"
    routes = [route.name for route in model.providers if settings.providers[route.name].enabled]
    sellers = [name for name in routes if name not in simulated]
    if sellers and not may_buy:
        return f"skipped: {', '.join(sellers)} would be paid for it; `weir up --demo --yes` buys it"
    return ""


def _submit(gateway: Gateway, kind: str, prompt: str) -> Outcome:
    body = {"type": kind, "prompt": prompt} | ({"duration_s": 5} if kind == "video" else {})
    try:
        answer = gateway.post("/v1/tasks", body, {"Idempotency-Key": f"demo-{secrets.token_hex(8)}"})
    except GatewayError as exc:
        return Outcome(type=kind, reason=exc.message)
    return Outcome(type=kind, task_id=answer.body["task_id"], seen=answer.body["status"])


def _look(gateway: Gateway, outcome: Outcome, plan: Plan) -> bool:
    """Ask once; whether the task has ended, its file fetched."""
    try:
        answer = gateway.get(f"/v1/tasks/{outcome.task_id}")
        task = answer.body
        if task["status"] != outcome.seen:
            outcome.seen = task["status"]
            plan.say("Demo", f"{outcome.type} {outcome.task_id} {outcome.seen}")
        if outcome.seen not in _FINAL:
            return False
        if outcome.seen == "SUCCESS":
            outcome.file = _fetch(gateway, task, plan.data / "demo")
        else:
            outcome.reason = f"{outcome.seen}: {(task.get('error') or {}).get('message', 'no reason given')}"
    except GatewayError as exc:
        outcome.reason = exc.message
    return True


def _fetch(gateway: Gateway, task: dict[str, Any], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    output = task["outputs"][0]
    target = folder / f"{task['task_id']}{_SUFFIXES.get(output['media_type'], '.bin')}"
    gateway.download(output["url"], target)
    return target
