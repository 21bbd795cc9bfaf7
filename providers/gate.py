"""What stands before every call to a vendor: breaker, pace, pause, dead credential, ceiling; shared by the fleet.

    with behind(gate):           calls made inside pass this gate (providers/http.py and fetch.py ask for it)
    gate.hold_s("observe")       how long a call would be held now; takes nothing

A call that may not go is a ProviderError HELD: surely not sent, and the task waits. What a call came to is told to
the breaker, a 429 pauses the credential for everybody, a refused credential is taken out.

Keeps no state: all of it is in Redis, and without Redis everything goes (and is counted).
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.failures import FailureKind
from models.fields import Kind
from models.lifecycle import Observation
from models.seats import alias, seat_of
from models.settings import ProviderSettings, Settings
from providers.breaker import OPERATIONS, Breaker, Rule, Shared, verdict
from providers.pace import Credentials, Health, Pace, Places, Rate, RetryShare
from providers.port import CancelAnswer, Capabilities, FindAnswer, Job, Outcome, Provider, ProviderError

PATIENCE_S = 1.0  # how long a call may wait for its place in the bucket with a worker's thread in hand
PROBE_EVERY_S = 10.0  # between two probes of a provider's health
# Vendors count in seconds of their own, and calls bunch up on their way: 200 images at a limit of 20 a second met four
# answers 429 at exactly that rate, none at nine tenths of it (tests/bench/dam.py).
_BELOW = 0.9
_TRIAL_S = 30.0  # how long a task waits for a refused credential before it looks again
_REFUSED = frozenset({FailureKind.PROVIDER_AUTH, FailureKind.PROVIDER_QUOTA})


@dataclass(frozen=True, kw_only=True)
class Dam:
    """The shared parts of every gate of one process."""

    breaker: Breaker
    pace: Pace
    places: Places
    retries: RetryShare
    credentials: Credentials
    health: Health

    @classmethod
    def build(cls, shared: Shared, settings: Settings) -> Dam:
        """Over one Redis, or none."""
        rates = {name: Rate(per_minute=_BELOW * one.requests_per_minute) for name, one in settings.providers.items()}
        told = settings.breaker
        rule = Rule(
            window_s=told.window_s,
            min_calls=told.min_calls,
            trip_above=told.failure_rate,
            open_s=told.open_s,
            open_max_s=told.open_max_s,
        )
        return cls(
            breaker=Breaker(shared, rule),
            pace=Pace(shared, rates),
            places=Places(shared),
            retries=RetryShare(shared),
            credentials=Credentials(shared),
            health=Health(shared, every_s=PROBE_EVERY_S),
        )

    def gates(self, providers: Mapping[str, ProviderSettings]) -> dict[str, Gate]:
        """The gate of every seat. A credential goes by the name of its variable, else by the provider's."""
        found: dict[str, Gate] = {}
        for name, one in providers.items():
            credentials = tuple(alias(variable) for variable in one.credentials) or (name,)
            for credential in credentials:
                gate = Gate(provider=name, credential=credential, credentials=credentials, dam=self)
                found.setdefault(name, gate)
                if one.credentials:
                    found[seat_of(name, credential)] = gate
        return found


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Why a provider should be given nothing new, in words that follow "since", and for how many seconds at least."""

    why: str
    wait_s: float


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The gate of one provider and one credential (its alias: the name of the variable it is in)."""

    provider: str
    credential: str
    dam: Dam
    credentials: tuple[str, ...] = ()  # all that the provider has, this one among them

    def hold_s(self, operation: str, kind: Kind | None = None) -> float:
        """Seconds that a call of `operation` would be held now, 0.0: it may go. Takes and changes nothing.

        A submit is asked about with its `kind`.

        An open circuit that is due for its probe holds nobody: only a call can be the probe.
        """
        if self.dam.credentials.dead(self.provider, [self.credential]):
            return _TRIAL_S
        paused_s = self.paused_s()
        state = self.dam.breaker.states([self.provider]).get((self.provider, circuit(operation, kind)))
        return max(paused_s, (state.next_probe_s or 0.0) if state else 0.0)

    def refuses(self, kind: Kind) -> Hold | None:
        """Why a new task of `kind` should go elsewhere; None: it may come. Takes and changes nothing.

        A vendor that asked for a pause refuses nobody: its tasks wait. Nor does a circuit that is due for its probe.
        """
        credentials = self.credentials or (self.credential,)
        dead = self.dam.credentials.dead(self.provider, credentials)
        if len(dead) == len(credentials):
            return Hold(why=f"the vendor refuses its credential ({dead[credentials[0]]})", wait_s=_TRIAL_S)
        condition = self.dam.health.conditions([self.provider])[self.provider]
        if not condition.healthy:
            return Hold(why=f"it does not answer ({condition.why})", wait_s=PROBE_EVERY_S)
        state = self.dam.breaker.states([self.provider]).get((self.provider, circuit("submit", kind)))
        if state is not None and state.next_probe_s:
            return Hold(why=f"it is failing ({state.last_error})", wait_s=state.next_probe_s)
        return None

    def paused_s(self) -> float:
        """What is left of a pause that the vendor asked for; 0.0: none."""
        return self.dam.pace.standing(self.provider, self.credential).paused_for_s

    @contextlib.contextmanager
    def call(self, operation: str) -> Iterator[None]:
        """One wire call. Raises ProviderError HELD when it may not go; learns from how it ends.

        A fetch goes to other hosts than the API: only the breaker watches it. A check goes whatever is known of the
        credential: it is how one that was mended is found out.
        """
        if operation != "fetch":
            self._take_turn(refused=operation == "check")
        watched = circuit(operation, _kind.get())
        probe = self._pass_breaker(watched)
        try:
            with self._place(operation):
                yield
        except ProviderError as exc:
            self._learn(watched, exc, probe=probe)
            raise
        except BaseException:
            self._report(watched, ok=None, probe=probe)
            raise
        self._report(watched, ok=True, probe=probe)

    def _take_turn(self, *, refused: bool) -> None:
        if not refused and self.dam.credentials.dead(self.provider, [self.credential]):
            raise ProviderError(FailureKind.HELD, "The credential is out.", retry_after_s=_TRIAL_S)
        wait_s = self.dam.pace.take(self.provider, self.credential, patience_s=PATIENCE_S)
        if wait_s > PATIENCE_S:
            raise ProviderError(FailureKind.HELD, "The provider's pace is used up.", retry_after_s=wait_s)
        if wait_s > 0:
            time.sleep(wait_s)

    def _pass_breaker(self, operation: str) -> bool:
        if operation not in OPERATIONS:
            return False
        found = self.dam.breaker.allow(self.provider, operation)
        if not found.allowed:
            raise ProviderError(FailureKind.HELD, "The provider is failing.", retry_after_s=found.retry_after_s)
        return found.probe

    @contextlib.contextmanager
    def _place(self, operation: str) -> Iterator[None]:
        if operation == "fetch":
            yield
            return
        with self.dam.places.place(self.provider) as entered:
            if not entered:
                raise ProviderError(FailureKind.HELD, "Too many calls to the provider at once.", retry_after_s=1.0)
            yield

    def _learn(self, operation: str, exc: ProviderError, *, probe: bool) -> None:
        held = exc.kind is FailureKind.HELD
        self._report(operation, ok=None if held else verdict(exc.kind), probe=probe, kind=exc.kind)
        if exc.kind is FailureKind.RATE_LIMITED and operation != "fetch":
            self.dam.pace.pause(self.provider, self.credential, exc.retry_after_s, exc.kind)
        if exc.kind in _REFUSED and operation != "fetch":
            self.dam.credentials.kill(self.provider, self.credential, exc.kind)

    def _report(self, operation: str, *, ok: bool | None, probe: bool, kind: str = "") -> None:
        if operation in OPERATIONS:
            self.dam.breaker.report(self.provider, operation, ok=ok, probe=probe, kind=kind)


def circuit(operation: str, kind: Kind | None) -> str:
    """The breaker's name for what a call does: submits of pictures and of clips have a circuit each."""
    return f"submit_{kind or Kind.IMAGE}" if operation == "submit" else operation


_gate: contextvars.ContextVar[Gate | None] = contextvars.ContextVar("gate", default=None)
_kind: contextvars.ContextVar[Kind | None] = contextvars.ContextVar("kind", default=None)


@contextlib.contextmanager
def behind(gate: Gate, kind: Kind | None = None) -> Iterator[None]:
    """Calls made in this context, threads of side_by_side included, pass `gate`. `kind`: of what is submitted."""
    tokens = _gate.set(gate), _kind.set(kind)
    try:
        yield
    finally:
        _gate.reset(tokens[0])
        _kind.reset(tokens[1])


@contextlib.contextmanager
def passing(operation: str) -> Iterator[None]:
    """One wire call through the gate around, if there is one. As Gate.call."""
    gate = _gate.get()
    if gate is None:
        yield
        return
    with gate.call(operation):
        yield


def provider_in_call() -> str:
    """The provider whose gate is around this call; `none` outside any gate, as in `weir providers test`."""
    gate = _gate.get()
    return "none" if gate is None else gate.provider


def may_retry() -> bool:
    """Whether one more retry is within the provider's share of the fleet; no gate: yes."""
    gate = _gate.get()
    return gate is None or gate.dam.retries.take(gate.provider)


def earn_retry() -> None:
    """A call that earns a tenth of a retry."""
    gate = _gate.get()
    if gate is not None:
        gate.dam.retries.earn(gate.provider)


class Gated:
    """A provider all of whose calls pass its gate."""

    def __init__(self, provider: Provider, gate: Gate) -> None:
        self.name, self.gate, self._provider = provider.name, gate, provider
        self.capabilities: Capabilities = provider.capabilities

    def submit(self, job: Job) -> Outcome:
        """As the port says."""
        with behind(self.gate, job.kind):
            return self._provider.submit(job)

    def observe(self, receipts: Sequence[str], kind: Kind) -> Mapping[str, Observation]:
        """As the port says."""
        with behind(self.gate):
            return self._provider.observe(receipts, kind)

    def cancel(self, job: Job) -> CancelAnswer:
        """As the port says."""
        with behind(self.gate):
            return self._provider.cancel(job)

    def find(self, job: Job) -> str | FindAnswer:
        """As the port says."""
        with behind(self.gate):
            return self._provider.find(job)

    def check(self) -> None:
        """As the port says."""
        with behind(self.gate):
            self._provider.check()

    def result_headers(self) -> Mapping[str, str]:
        """As the port says."""
        return self._provider.result_headers()
