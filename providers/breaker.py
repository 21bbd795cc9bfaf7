"""When to leave a vendor alone: one circuit per (provider, operation), shared by every process through Redis.

    closed     calls go. More than half of at least ten calls of the last minute failed -> open
    open       nothing goes for `open_s` -> half open at the next question
    half open  exactly one call of the whole fleet, the probe, on a lease: a dead prober's place is given on.
               It succeeds -> closed, admitting 10, 30, 60 % of the calls for two seconds each, then all.
               It fails -> open, twice as long, up to two minutes. It says nothing -> the next call is the probe.

`next_state` is this rule as a pure function; `_ALLOW` and `_REPORT` are the same rule, atomic, in Redis and by its
clock; a test drives both with the same events and compares. A circuit that trips while it still ramps up was not
well: it opens twice as long, too. A user's error or a refusal counts neither way: counted as a success, a crowd of
bad prompts would hide that everything else fails.

When Redis is away every call is let through and counted (`Shared.bypassed`). May not: decide anything about tasks,
sleep, or block longer than the client's time-out. Every key has a time to live; losing one closes the circuit.
Measured (2 cores, local Valkey): allow 55 us, report with a full window 77 us; a bare PING takes 33.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeVar, cast

from models.failures import FAILURES, FailureKind
from providers.kv import Redis, RedisError

log = logging.getLogger("weir.shared")
OPERATIONS = ("submit_image", "submit_video", "observe", "fetch")  # pictures may be down and clips fine (O-73)
Name = Literal["closed", "open", "half_open"]
_SAID = {True: "well", False: "failed", None: "nothing"}  # what the end of a call says about the vendor
T = TypeVar("T")


class Shared:
    """What all processes share, seen from one of them; thread-safe. Never raises for what Redis does.

    `client`: bytes mode, with time-outs and without retries; None is a Redis that is always away. After a failure
    nobody asks for `quiet_s`, so that an outage costs one time-out a second and not one per call.
    """

    def __init__(self, client: Redis | None, *, quiet_s: float = 1.0) -> None:
        self.bypassed = 0  # questions that nobody answered, since this process began
        self._client, self._quiet_s = client, quiet_s
        self._quiet_until = self._complain_from = 0.0
        self._lock = threading.Lock()

    def run(self, lua: str, key: str, *args: str | int) -> list[int] | None:
        """What the script, sent again if forgotten, answers for its one key: whole numbers. None: Redis is away."""
        return self.ask(lambda client: [int(n) for n in client.register_script(lua)(keys=[key], args=args)])

    def ask(self, question: Callable[[Redis], T]) -> T | None:
        """What `question` returns for the client. None: Redis is away, or has been within `quiet_s`."""
        if self._client is not None and time.monotonic() >= self._quiet_until:
            try:
                return question(self._client)
            except (RedisError, OSError) as exc:
                self._failed(exc)
        with self._lock:
            self.bypassed += 1
        return None

    def look(self, keys: Iterable[str]) -> tuple[int, list[dict[str, str]]] | None:
        """The moment by Redis' clock in microseconds, and the hash at each of `keys`. None: Redis is away."""

        def read_all(client: Redis) -> tuple[int, list[dict[str, str]]]:
            pipe = client.pipeline(transaction=False)
            pipe.time()
            for key in keys:
                pipe.hgetall(key)
            (seconds, micros), *raws = pipe.execute()
            return seconds * 1_000_000 + micros, [{n.decode(): v.decode() for n, v in raw.items()} for raw in raws]

        return self.ask(read_all)

    def _failed(self, exc: Exception) -> None:
        now = time.monotonic()
        with self._lock:
            self._quiet_until = now + self._quiet_s
            if now < self._complain_from:
                return
            self._complain_from = now + 60.0
        log.warning("Redis is away (%s): calls to vendors go unpaced until it is back", type(exc).__name__)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The numbers of the rule. Raises ValueError when they do not fit together."""

    window_s: float = 60.0  # how far back the failure rate looks, in `buckets` steps: the oldest step leaves as a whole
    buckets: int = 12
    min_calls: int = 10  # fewer calls in the window say nothing
    trip_above: float = 0.5  # share of failures, in [0, 1)
    open_s: float = 10.0  # first opening
    open_max_s: float = 120.0  # longest
    lease_s: float = 60.0  # of a probe; above the longest time-out of a call, or two probes may run at once
    ramp: tuple[int, ...] = (10, 30, 60)  # percent of calls admitted after a recovery, one stage after another
    stage_s: float = 2.0

    def __post_init__(self) -> None:
        spans = (self.window_s / max(1, self.buckets), self.open_s, self.lease_s, self.stage_s)
        if min(spans) < 0.001 or self.open_max_s < self.open_s or min(self.buckets, self.min_calls) < 1:
            raise ValueError(f"times and counts must be above 0, open_max_s at least open_s: {self}")
        if not 0 <= self.trip_above < 1 or not all(0 < percent <= 100 for percent in self.ramp):
            raise ValueError(f"trip_above must be in [0, 1), every step of ramp in 1..100: {self}")

    @property
    def bucket_ms(self) -> int:
        """Length of one step of the window."""
        return ms(self.window_s) // self.buckets


def ms(seconds: float) -> int:
    """Whole milliseconds, the unit of the scripts."""
    return round(seconds * 1000)


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """All that Redis keeps of one circuit. Moments and spans in whole milliseconds; 0: never, none."""

    name: Name = "closed"
    since: int = 0  # when it took this name
    ends: int = 0  # open: when a probe may go; half open: when the probe's lease is over
    span: int = 0  # length of the present or last opening
    ramp: int = 0  # closed: when the ramp began
    seen: int = 0  # calls asked for since then
    kind: str = ""  # of the last failure
    counts: Mapping[str, int] = field(default_factory=dict)  # "well:<step of the window>" and "failed:<step>"


@dataclass(frozen=True, kw_only=True)
class Told:
    """A call ended. `ok` None: it says nothing about the vendor."""

    ok: bool | None
    probe: bool = False
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a call may go."""

    allowed: bool = True
    probe: bool = False  # it is the one: its end must be reported as that, whatever it was
    retry_after_s: float = 0.0  # not allowed before; callers add a jitter of their own


def verdict(kind: FailureKind | None) -> bool | None:
    """What the end of a call says about the vendor: None (no failure) -> well; a kind -> failed, or None: nothing."""
    return True if kind is None else False if FAILURES[kind].breaker else None


def next_state(circuit: Circuit, event: Told | None, now: int, rule: Rule) -> tuple[Circuit, Verdict]:
    """The rule: the circuit after `event` at `now` (ms); None: a call wants to go, and the verdict is for it.

    Pure and total. A clock that went back far ends whatever was being waited for.
    """
    if event is not None:
        return _told(circuit, event, now, rule), Verdict()
    if circuit.name == "closed":
        return _ramped(circuit, now, rule)
    is_open = circuit.name == "open"
    left = circuit.ends - now
    if 0 < left <= (circuit.span if is_open else ms(rule.lease_s)):
        hint = left if is_open else min(left, ms(rule.open_s))
        return circuit, Verdict(allowed=False, retry_after_s=hint / 1000)
    since = now if is_open else circuit.since
    probed = dataclasses.replace(circuit, name="half_open", since=since, ends=now + ms(rule.lease_s))
    return probed, Verdict(probe=True)


def admits_percent(circuit: Circuit, now: int, rule: Rule) -> int:
    """Share of calls that go at `now` (ms), in 0..100; a probe is not counted."""
    if circuit.name != "closed":
        return 0
    stage = (now - circuit.ramp) // ms(rule.stage_s)
    return rule.ramp[stage] if circuit.ramp and 0 <= stage < len(rule.ramp) else 100


def _ramped(circuit: Circuit, now: int, rule: Rule) -> tuple[Circuit, Verdict]:
    """By counting, not by chance: of n calls at p percent, n * p / 100 rounded up go, the first one always."""
    percent = admits_percent(circuit, now, rule)
    if percent == 100:
        return circuit, Verdict()
    n, stage = circuit.seen + 1, ms(rule.stage_s)
    goes = -(-n * percent // 100) > -(-(n - 1) * percent // 100)
    wait_s = 0.0 if goes else (stage - (now - circuit.ramp) % stage) / 1000
    return dataclasses.replace(circuit, seen=n), Verdict(allowed=goes, retry_after_s=wait_s)


def _told(circuit: Circuit, told: Told, now: int, rule: Rule) -> Circuit:
    kind = (told.kind if told.ok is False else "") or circuit.kind
    if told.probe and circuit.name == "half_open":
        if told.ok is None:
            return dataclasses.replace(circuit, ends=now)
        if told.ok:
            return Circuit(since=now, span=circuit.span, ramp=now, kind=kind)
        return _opened(circuit, now, rule, kind, again=True)
    if told.ok is None:
        return circuit
    counts = in_window(circuit, now, rule)
    mine = f"{_SAID[told.ok]}:{now // rule.bucket_ms}"
    counts[mine] = counts.get(mine, 0) + 1
    counted = dataclasses.replace(circuit, counts=counts, kind=kind)
    calls, failures = totals(counts)
    if circuit.name == "closed" and calls >= rule.min_calls and failures > calls * rule.trip_above:
        ramping = circuit.ramp > 0 and 0 <= now - circuit.ramp < ms(rule.stage_s) * len(rule.ramp)
        return _opened(counted, now, rule, kind, again=ramping)
    return counted


def _opened(circuit: Circuit, now: int, rule: Rule, kind: str, *, again: bool) -> Circuit:
    span = min(2 * circuit.span, ms(rule.open_max_s)) if again else ms(rule.open_s)
    return Circuit(name="open", since=now, ends=now + span, span=span, kind=kind, counts=circuit.counts)


def in_window(circuit: Circuit, now: int, rule: Rule) -> dict[str, int]:
    """The counts of the window that ends at `now` (ms)."""
    ages = {name: now // rule.bucket_ms - int(name.partition(":")[2]) for name in circuit.counts}
    return {name: count for name, count in circuit.counts.items() if 0 <= ages[name] < rule.buckets}


def totals(counts: Mapping[str, int]) -> tuple[int, int]:
    """(calls, failures)."""
    return sum(counts.values()), sum(count for name, count in counts.items() if name.startswith("failed"))


# Each answers {now, allowed, probe, wait}, all in ms. A closed circuit that does not ramp up is read only.
_ALLOW = """
local lease, open, stage, ttl = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
-- ARGV[5...]: percent admitted in each stage of the ramp
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local got = redis.call('HMGET', KEYS[1], 'name', 'ends', 'span', 'ramp')
local name, ends, span, ramp = got[1], tonumber(got[2]), tonumber(got[3]), tonumber(got[4] or 0)
if not name or name == 'closed' then
  local percent = ramp > 0 and now >= ramp and tonumber(ARGV[5 + math.floor((now - ramp) / stage)] or 100)
  if not percent or percent == 100 then return {now, 1, 0, 0} end
  local n = redis.call('HINCRBY', KEYS[1], 'seen', 1)
  if math.ceil(n * percent / 100) > math.ceil((n - 1) * percent / 100) then return {now, 1, 0, 0} end
  return {now, 0, 0, stage - (now - ramp) % stage}
end
local left, longest = ends - now, name == 'open' and span or lease
if left > 0 and left <= longest then
  if name == 'half_open' then left = math.min(left, open) end
  return {now, 0, 0, left}
end
-- the time is over, or the lease of a prober that never came back: this caller is the probe
redis.call('HSET', KEYS[1], 'name', 'half_open', 'ends', now + lease)
if name == 'open' then redis.call('HSET', KEYS[1], 'since', now) end
redis.call('PEXPIRE', KEYS[1], ttl)
return {now, 1, 1, 0}
"""

# The hash holds the fields of Circuit, its counts as 'well:<step>' and 'failed:<step>'. Answers {now}.
_REPORT = """
local said, probe, kind = ARGV[1], ARGV[2] == '1', ARGV[3]  -- said: well, failed, nothing
local bucket, buckets, min_calls = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local trip_above, open, open_max = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local ramp_length, ttl = tonumber(ARGV[10]), tonumber(ARGV[11])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local c, flat = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do c[flat[i]] = flat[i + 1] end
local name = c.name or 'closed'
local function keep(...)
  redis.call('HSET', KEYS[1], ...)
  redis.call('PEXPIRE', KEYS[1], ttl)
end
local function trip(again)
  local span = again and math.min(2 * c.span, open_max) or open
  keep('name', 'open', 'since', now, 'ends', now + span, 'span', span, 'ramp', 0, 'seen', 0)
end

if said == 'failed' and kind ~= '' then keep('kind', kind) end
if probe and name == 'half_open' then
  if said == 'nothing' then
    keep('ends', now)
  elseif said == 'failed' then
    trip(true)
  else  -- a new window: what failed before the recovery must not trip it again
    redis.call('DEL', KEYS[1])
    keep('name', 'closed', 'since', now, 'span', c.span, 'ramp', now, 'kind', c.kind or '')
  end
  return {now}
end
if said == 'nothing' then return {now} end
local last, sum = math.floor(now / bucket), {well = 0, failed = 0}
for name_, value in pairs(c) do
  local which, step = string.match(name_, '^(%a+):(%d+)$')
  if which then
    step = tonumber(step)
    if last - buckets < step and step <= last then sum[which] = sum[which] + value
    else redis.call('HDEL', KEYS[1], name_) end
  end
end
sum[said] = sum[said] + 1
redis.call('HINCRBY', KEYS[1], said .. ':' .. string.format('%d', last), 1)
redis.call('PEXPIRE', KEYS[1], ttl)
local calls = sum.well + sum.failed
if name == 'closed' and calls >= min_calls and sum.failed > calls * trip_above then
  local ramp = tonumber(c.ramp or 0)
  trip(ramp > 0 and now >= ramp and now - ramp < ramp_length)
end
return {now}
"""


@dataclass(frozen=True, kw_only=True)
class State:
    """One circuit as an operator sees it.

    A POST may be turned away while `next_probe_s` is above 0. At 0 a call must come, since only a call is a probe.
    """

    name: Name
    since_at: datetime | None  # None: closed for as long as anybody remembers
    last_error: str  # kind of the last failure, "" for none
    failure_rate: float  # of the window, in [0, 1]
    calls: int  # in the window
    next_probe_s: float | None  # None: closed
    admits_percent: int  # below 100 while it recovers


class Breaker:
    """The circuits of every provider. Thread-safe; holds no state but counters."""

    def __init__(self, shared: Shared, rule: Rule | None = None) -> None:
        rule = rule or Rule()
        self._shared, self._rule = shared, rule
        lease, first, longest, stage = map(ms, (rule.lease_s, rule.open_s, rule.open_max_s, rule.stage_s))
        ramp = stage * len(rule.ramp)
        ttl = 2 * (ms(rule.window_s) + longest + lease + ramp)  # well past everything a circuit may be waiting for
        self._asking = (lease, first, stage, ttl, *rule.ramp)
        self._telling = (rule.bucket_ms, rule.buckets, rule.min_calls, repr(rule.trip_above), first, longest, ramp, ttl)

    def allow(self, provider: str, operation: str) -> Verdict:
        """Whether one call of `operation` (one of OPERATIONS) may go now. Redis away: it may."""
        found = self._shared.run(_ALLOW, _key(provider, operation), *self._asking)
        if found is None:
            return Verdict()
        _, allowed, probe, wait = found
        return Verdict(allowed=bool(allowed), probe=bool(probe), retry_after_s=wait / 1000)

    def report(self, provider: str, operation: str, *, ok: bool | None, probe: bool, kind: str = "") -> None:
        """Say how an allowed call ended; see `verdict` for `ok`. `kind`: of the failure, shown to the operator.

        A probe that never went out, too, must be reported (`ok` None), else its place is free only after the lease.
        """
        self._shared.run(_REPORT, _key(provider, operation), _SAID[ok], int(probe), kind[:64], *self._telling)

    def states(self, providers: Iterable[str]) -> dict[tuple[str, str], State]:
        """Every circuit of `providers`, changing none. Redis away: none at all."""
        wanted = [(provider, operation) for provider in providers for operation in OPERATIONS]
        found = self._shared.look(_key(*pair) for pair in wanted)
        if found is None:
            return {}
        now, raws = found
        return {pair: describe(read(raw), now // 1000, self._rule) for pair, raw in zip(wanted, raws, strict=True)}

    def reset(self, provider: str, operation: str | None = None) -> bool:
        """Close a circuit, or all of a provider's, and forget its window. False: Redis is away."""
        keys = [_key(provider, one) for one in ((operation,) if operation else OPERATIONS)]
        return self._shared.ask(lambda client: client.delete(*keys)) is not None


def _key(provider: str, operation: str) -> str:
    if operation not in OPERATIONS:
        raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, is {operation!r}")
    return f"weir:breaker:{provider}:{operation}"


def read(fields: Mapping[str, str]) -> Circuit:
    """The circuit that a hash holds; an empty one is closed."""
    numbers = {name: int(fields.get(name, 0)) for name in ("since", "ends", "span", "ramp", "seen")}
    counts = {name: int(value) for name, value in fields.items() if ":" in name}
    name = cast("Name", fields.get("name", "closed"))
    return Circuit(name=name, kind=fields.get("kind", ""), counts=counts, **numbers)


def describe(circuit: Circuit, now: int, rule: Rule) -> State:
    """The circuit at `now` (ms) for people."""
    calls, failures = totals(in_window(circuit, now, rule))
    return State(
        name=circuit.name,
        since_at=datetime.fromtimestamp(circuit.since / 1000, UTC) if circuit.since else None,
        last_error=circuit.kind,
        failure_rate=failures / calls if calls else 0.0,
        calls=calls,
        next_probe_s=None if circuit.name == "closed" else max(0, circuit.ends - now) / 1000,
        admits_percent=admits_percent(circuit, now, rule),
    )
