"""Probe: beat's look at every vendor, one harmless call every ten seconds. Three misses in a row end its new tasks.

What comes of it: an answer, whatever it says, is a hit; the network's or the vendor's own failure is a miss. A refused
credential is taken out by the gate that the call passes; one that is out is tried only when Credentials.trial says so,
and taken back when the call succeeds. A vendor that asked for a pause is left in peace. Safe when doubled.
"""

from __future__ import annotations

import logging

from models.failures import FAILURES, FailureKind
from providers.calls import side_by_side, within
from providers.gate import Gate
from providers.port import ProviderError
from tasks import app
from tasks.runtime import Runtime, runtime

log = logging.getLogger("weir.probe")

_CHECK_S = 5.0  # a vendor that needs longer for its smallest answer is as good as away
_ROUND_S = 7.0  # for all of them together; below beat's interval
_WIDTH = 8


@app.task(name="probe")
def probe() -> None:
    """One round over every provider whose turn it is."""
    probe_once(runtime())


def probe_once(rt: Runtime) -> dict[str, FailureKind | None]:
    """What each credential that was tried came to, by seat, None: well. Those whose turn it is not are left out."""
    seats = [seat for name, conf in rt.settings.providers.items() if conf.enabled for seat in rt.seats(name)]
    mine = [seat for seat in seats if rt.gates[seat].dam.health.prober(seat) and _may_ask(rt.gates[seat])]

    def one(seat: str) -> FailureKind | None:
        return _checked(rt, seat)

    found = side_by_side(one, mine, _WIDTH, _ROUND_S)
    return {seat: _told(rt.gates[seat], found.get(seat, FailureKind.READ_TIMEOUT)) for seat in mine}


def _may_ask(gate: Gate) -> bool:
    if gate.paused_s() > 0:
        return False
    credentials, mine = gate.dam.credentials, [gate.credential]
    return not credentials.dead(gate.provider, mine) or credentials.trial(gate.provider, mine) is not None


def _checked(rt: Runtime, seat: str) -> FailureKind | None:
    try:
        with within(_CHECK_S):
            rt.providers[seat].check()
    except ProviderError as exc:
        return exc.kind
    return None


def _told(gate: Gate, kind: FailureKind | None) -> FailureKind | None:
    """Tell the fleet."""
    dam, name = gate.dam, gate.provider
    first = gate.credential == gate.credentials[0]  # a vendor that is away is away for all: one of them counts
    before = dam.health.conditions([name])[name]
    if kind is None:
        dam.credentials.revive(name, gate.credential)
    if kind is None or not (FAILURES[kind].breaker or kind is FailureKind.HELD):
        if first:
            dam.health.hit(name)
        if not before.healthy:
            log.info("provider %s answers again", name)
    elif FAILURES[kind].breaker and first:
        dam.health.miss(name, kind)
        if before.healthy and not dam.health.conditions([name])[name].healthy:
            log.warning("provider %s does not answer (%s): new tasks go elsewhere or are refused", name, kind)
    if kind in (FailureKind.PROVIDER_AUTH, FailureKind.PROVIDER_QUOTA):
        log.warning("provider %s refuses the credential %s (%s): its tasks wait", name, gate.credential, kind)
    return kind
