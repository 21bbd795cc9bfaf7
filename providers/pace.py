"""How fast the whole fleet may call a vendor, kept in Redis and by its clock; none of it is worth money.

    Pace         per credential: a bucket of requests, and a pause that everybody obeys when the vendor asks for one
    Places       per provider: calls at one moment, each on a lease, so that a dead process gives its places back
    RetryShare   per provider: at most a tenth of all calls are retries, with a small reserve
    Credentials  which ones the vendor refuses
    Health       misses in a row, and who of the fleet probes next

A credential is known here by its alias only: the name of its environment variable, or a short hash.

When Redis is away, everything is let through and counted (`Shared.bypassed`); losing a key does the same for one
provider. Every key has a time to live. May not: sleep, raise for what Redis does, or know a vendor's words.
Measured (2 cores, local Valkey): take 66 us, enter and leave 98 us, earn 6 us, alive of three 70 us; a bare PING 33.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from providers.breaker import Shared, ms
from providers.kv import Redis

PAUSE_MAX_S = 3600.0  # longest pause that a vendor's word is believed for; the task's deadline rules above that
PAUSE_DEFAULT_S = 1.0  # when the vendor says "slow down" and no more
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|h-[0-9a-f]{12}")


def alias(credential: str) -> str:
    """What a credential is called in Redis: a variable's name as it is, anything else as a short hash."""
    if len(credential) <= 64 and _VARIABLE.fullmatch(credential):
        return credential
    return "h-" + hashlib.sha256(credential.encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Requests a minute (above 0), and how many (1 or more) may go at once after a quiet time.

    In any span of T minutes at most `burst + per_minute * T` go. `burst` 0: what a tenth of a second brings, at
    least 1, since vendors count by the second.
    """

    per_minute: float = 600.0
    burst: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.per_minute < math.inf and self.burst >= 0):
            raise ValueError(f"per_minute must be above 0 and burst at least 0: {self}")

    @property
    def gap_us(self) -> int:
        """Microseconds between two requests, rounded up."""
        return math.ceil(60e6 / self.per_minute)

    @property
    def at_once(self) -> int:
        """The burst that holds."""
        return self.burst or max(1, int(self.per_minute / 600))


@dataclass(frozen=True, kw_only=True)
class Spread:
    """What follows a pause, so that fifty who waited do not arrive as one. Microseconds."""

    for_us: int = 5_000_000  # so long after it, calls go one by one ...
    gap_us: int = 100_000  # ... at least so far apart
    line_us: int = 60_000_000  # how far behind the first in line anybody is told to come back


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """All that Redis keeps of one credential's pace, in microseconds of its clock; 0: never."""

    due: int = 0  # when the bucket is full again: each request moves it by one gap
    line: int = 0  # what the last one who was sent away was told
    pause: int = 0  # nothing goes before
    why: str = ""


def taken(bucket: Bucket, now: int, n: int, rate: Rate, spread: Spread, patience: int) -> tuple[Bucket, int]:
    """PURE  The bucket after a question for `n` requests at `now` (us), and the wait: up to `patience`, they are taken.

    Whoever is sent away has taken nothing; each is told a moment of its own, one gap behind the one before, so that
    they come back as a line. `n` above the burst waits for a full bucket and leaves it in debt. What is further ahead
    than an hour comes from a clock that went back, and is forgotten.
    """
    furthest = now + round(PAUSE_MAX_S * 1e6)
    due, pause = (0 if at > furthest else at for at in (bucket.due, bucket.pause))
    gap, room = n * rate.gap_us, max(0, rate.at_once - n) * rate.gap_us
    if pause and now < pause + spread.for_us:
        gap, room = n * max(rate.gap_us, spread.gap_us), 0
    earliest = max(due - room, pause, now)
    if earliest <= now + patience:
        due = max(due, earliest) + gap
        return Bucket(due=due, line=bucket.line, pause=pause, why=bucket.why), earliest - now
    line = max(bucket.line + gap, earliest)
    line = line if line <= earliest + spread.line_us else earliest
    return Bucket(due=due, line=line, pause=pause, why=bucket.why), line - now


# `taken` in Redis. Answers {now, wait}, in us.
_TAKE = """
for i, number in ipairs(ARGV) do ARGV[i] = tonumber(number) end
local n, rate_gap, burst, spread, spread_gap, line_max, furthest, patience = unpack(ARGV)
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local got = redis.call('HMGET', KEYS[1], 'due', 'line', 'pause')
local due, line, pause = tonumber(got[1] or 0), tonumber(got[2] or 0), tonumber(got[3] or 0)
if due > now + furthest then due = 0 end
if pause > now + furthest then pause = 0 end
local gap, room = n * rate_gap, math.max(0, burst - n) * rate_gap
if pause > 0 and now < pause + spread then gap, room = n * math.max(rate_gap, spread_gap), 0 end
local earliest = math.max(due - room, pause, now)
local wait = earliest - now
if wait <= patience then
  due = math.max(due, earliest) + gap
else
  line = math.max(line + gap, earliest)
  if line > earliest + line_max then line = earliest end
  wait = line - now
end
local function whole(us) return string.format('%.0f', us) end
redis.call('HSET', KEYS[1], 'due', whole(due), 'line', whole(line), 'pause', whole(pause))
local last = math.max(due, line, pause + spread, now)
redis.call('PEXPIRE', KEYS[1], math.ceil((last - now) / 1000) + 60000)
return {now, wait}
"""

# The longer of two pauses holds. Answers {how long it now is}, in us.
_PAUSE = """
local asked, why, spread, furthest = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local pause = tonumber(redis.call('HGET', KEYS[1], 'pause') or 0)
if pause > now + furthest or pause < now + asked then
  pause = now + asked
  redis.call('HSET', KEYS[1], 'pause', string.format('%.0f', pause), 'why', why)
end
local ttl = math.ceil((pause - now + spread) / 1000) + 60000
if redis.call('PTTL', KEYS[1]) < ttl then redis.call('PEXPIRE', KEYS[1], ttl) end
return {pause - now}
"""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A credential's pause."""

    paused_for_s: float = 0.0  # what is left of it; 0.0: none
    why: str = ""


class Pace:
    """The pace of every credential. `rates`: by provider; one that is not in it has Rate()."""

    def __init__(self, shared: Shared, rates: Mapping[str, Rate] | None = None, spread: Spread | None = None) -> None:
        self._shared, self._rates, self._spread = shared, rates or {}, spread or Spread()

    def take(self, provider: str, credential: str, n: int = 1, *, patience_s: float = 0.0) -> float:
        """Ask for `n` (1 or more) requests. The answer in seconds: up to `patience_s`, they are taken; wait, and go.

        More: nothing is taken, come back then. Who can only come back in whole seconds should have one of patience.
        """
        rate, spread = self._rates.get(provider, Rate()), self._spread
        ruled = (rate.gap_us, rate.at_once, spread.for_us, spread.gap_us, spread.line_us, round(PAUSE_MAX_S * 1e6))
        found = self._shared.run(_TAKE, _key("pace", provider, credential), max(1, n), *ruled, round(patience_s * 1e6))
        return found[1] / 1e6 if found else 0.0

    def pause(self, provider: str, credential: str, seconds: float | None, why: str = "") -> float:
        """Let the fleet make no request with `credential` for `seconds`, at most an hour; a longer pause stays.

        None or no number: the vendor named none, a second. Returns what is now left of the pause. `why`: a
        FailureKind's value, shown to the operator.
        """
        if seconds is None or not math.isfinite(seconds):
            seconds = PAUSE_DEFAULT_S
        asked_us = round(min(PAUSE_MAX_S, max(0.0, seconds)) * 1e6)
        ruled = (asked_us, why[:64], self._spread.for_us, round(PAUSE_MAX_S * 1e6))
        found = self._shared.run(_PAUSE, _key("pace", provider, credential), *ruled)
        return found[0] / 1e6 if found else 0.0

    def standing(self, provider: str, credential: str) -> Standing:
        """The pause of one credential, changing nothing."""
        found = self._shared.look([_key("pace", provider, credential)])
        if found is None:
            return Standing()
        now, (fields,) = found
        left = int(fields.get("pause", 0)) - now
        return Standing(paused_for_s=left / 1e6, why=fields.get("why", "")) if left > 0 else Standing()

    def resume(self, provider: str, credential: str) -> None:
        """End a pause at once: the operator knows better."""
        self._shared.ask(lambda client: client.delete(_key("pace", provider, credential)))


def _key(what: str, provider: str, credential: str) -> str:
    return f"weir:{what}:{provider}:{alias(credential)}"


def _first(shared: Shared, key: str, span_ms: int) -> bool | None:
    """Whether the caller is the first to ask within `span_ms`. None: Redis is away."""
    return shared.ask(lambda client: bool(client.set(key, 1, nx=True, px=span_ms)))


# A set of tokens by the end of their lease, ms. Asked again with a token that is in it, it says yes. Answers {entered}.
_ENTER = """
local token, limit, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZSCORE', KEYS[1], token) then return {1} end
if redis.call('ZCARD', KEYS[1]) >= limit then return {0} end
redis.call('ZADD', KEYS[1], now + lease, token)
if redis.call('PTTL', KEYS[1]) < lease then redis.call('PEXPIRE', KEYS[1], lease) end
return {1}
"""


class Places:
    """Calls to one provider at one moment, over the whole fleet. `lease_s`: above the longest time-out of a call.

    After a flush the calls under way are forgotten, so that for their length up to twice `limit` may run.
    """

    def __init__(self, shared: Shared, *, limit: int = 100, lease_s: float = 120.0) -> None:
        self._shared, self._limit, self._lease_ms = shared, limit, ms(lease_s)

    def enter(self, provider: str) -> str | None:
        """A token for one call, to be given to `leave`; None: no place is free. Redis away: a token for none."""
        token = secrets.token_hex(8)
        found = self._shared.run(_ENTER, f"weir:calls:{provider}", token, self._limit, self._lease_ms)
        return token if found is None or found[0] else None

    def leave(self, provider: str, token: str) -> None:
        """Give a place back; a second time changes nothing."""
        self._shared.ask(lambda client: client.zrem(f"weir:calls:{provider}", token))

    @contextlib.contextmanager
    def place(self, provider: str) -> Iterator[bool]:
        """Hold a place inside, if there was one: whether the call may go."""
        token = self.enter(provider)
        try:
            yield token is not None
        finally:
            if token is not None:
                self.leave(provider, token)


def spent(left: int, calls: int, cost: int, full: int) -> tuple[int, bool]:
    """What is left of a budget, in calls, after `calls` more and a wish for `cost`; and whether it was met."""
    earned = min(full, left + calls)
    return (earned - cost, True) if earned >= cost else (earned, False)


# `spent` in Redis. Answers {met}.
_SPEND = """
local calls, cost, full, ttl = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local left = math.min(full, tonumber(redis.call('GET', KEYS[1]) or full) + calls)
local met = left >= cost
if met then left = left - cost end
redis.call('SET', KEYS[1], left, 'PX', ttl)
return {met and 1 or 0}
"""


class RetryShare:
    """How many of a provider's calls may be retries: one in `calls_per_retry`, and `reserve` after a quiet time.

    First calls are counted here and told to Redis in lots, so that they cost no question each.
    """

    def __init__(self, shared: Shared, *, calls_per_retry: int = 10, reserve: int = 10) -> None:
        self._shared, self._cost, self._full = shared, calls_per_retry, calls_per_retry * reserve
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def earn(self, provider: str) -> None:
        """Count one first call."""
        with self._lock:
            self._calls[provider] += 1
        if self._calls[provider] >= self._cost:
            self._spend(provider, 0)

    def take(self, provider: str) -> bool:
        """Whether one retry may be made; it is then spent."""
        return self._spend(provider, self._cost)

    def _spend(self, provider: str, cost: int) -> bool:
        with self._lock:
            calls = self._calls.pop(provider, 0)
        found = self._shared.run(_SPEND, f"weir:retries:{provider}", calls, cost, self._full, 3_600_000)
        return found is None or bool(found[0])


class Credentials:
    """Which credentials a vendor refuses (401, 402, 403), so that no task is burnt on them.

    A refused one is out for `dead_s` or until it is revived. Every `trial_every_s` one caller of the fleet is given
    it to try with a call that costs nothing.
    """

    def __init__(self, shared: Shared, *, dead_s: float = 86_400.0, trial_every_s: float = 300.0) -> None:
        self._shared, self._dead_ms, self._trial_ms = shared, ms(dead_s), ms(trial_every_s)

    def kill(self, provider: str, credential: str, reason: str) -> None:
        """Take a credential out. `reason`: a FailureKind's value or a status."""

        def mark(client: Redis) -> bool:
            pipe = client.pipeline(transaction=True)
            pipe.hset(_key("dead", provider, credential), "why", reason[:64])
            pipe.pexpire(_key("dead", provider, credential), self._dead_ms)
            pipe.set(_key("trial", provider, credential), 1, px=self._trial_ms)
            return bool(pipe.execute())

        self._shared.ask(mark)

    def dead(self, provider: str, credentials: Sequence[str]) -> dict[str, str]:
        """Those of `credentials` that are out, each with its reason."""
        found = self._shared.look(_key("dead", provider, one) for one in credentials)
        hashes = found[1] if found else [{} for _ in credentials]
        return {one: fields["why"] for one, fields in zip(credentials, hashes, strict=True) if fields}

    def alive(self, provider: str, credentials: Sequence[str]) -> list[str]:
        """Those of `credentials` that may be given to new tasks, in their order. Redis away: all."""
        out = self.dead(provider, credentials)
        return [one for one in credentials if one not in out]

    def trial(self, provider: str, credentials: Sequence[str]) -> str | None:
        """A dead credential to try now; it then goes to nobody else for an interval. End it with revive or kill."""
        dead = self.dead(provider, credentials)
        return next((one for one in dead if _first(self._shared, _key("trial", provider, one), self._trial_ms)), None)

    def revive(self, provider: str, credential: str) -> None:
        """Take a credential back in: it worked, or the operator says so."""
        keys = (_key("dead", provider, credential), _key("trial", provider, credential))
        self._shared.ask(lambda client: client.delete(*keys))


# ARGV: why, time to live in ms. Answers {misses in a row}. `since`: unix ms of the first of them.
_MISS = """
local t = redis.call('TIME')
redis.call('HSETNX', KEYS[1], 'since', t[1] * 1000 + math.floor(t[2] / 1000))
redis.call('HSET', KEYS[1], 'why', ARGV[1])
local misses = redis.call('HINCRBY', KEYS[1], 'misses', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {misses}
"""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What the probes say of one provider."""

    healthy: bool = True
    misses: int = 0  # in a row
    why: str = ""
    missing_s: float = 0.0  # since the first of them


class Health:
    """Misses in a row: `out_after` put a provider out of routing, one hit or six intervals of nothing back in."""

    def __init__(self, shared: Shared, *, out_after: int = 3, every_s: float = 10.0) -> None:
        self._shared, self._out_after, self._every_ms = shared, out_after, ms(every_s)

    def prober(self, provider: str) -> bool:
        """Whether the caller is the one of the fleet to probe now; true once per interval, or a fifth of it early.

        So whoever asks once per interval, and a moment early, loses none. Redis away: everyone.
        """
        return _first(self._shared, f"weir:prober:{provider}", self._every_ms * 4 // 5) is not False

    def miss(self, provider: str, why: str = "") -> None:
        """A probe came to nothing. `why`: a FailureKind's value."""
        self._shared.run(_MISS, f"weir:health:{provider}", why[:64], 6 * self._every_ms)

    def hit(self, provider: str) -> None:
        """A probe, or any call, was answered."""
        self._shared.ask(lambda client: client.delete(f"weir:health:{provider}"))

    def conditions(self, providers: Iterable[str]) -> dict[str, Condition]:
        """Every one of `providers`. Redis away: all healthy."""
        names = list(providers)
        found = self._shared.look(f"weir:health:{name}" for name in names)
        now, hashes = found or (0, [{} for _ in names])
        return {name: self._condition(fields, now) for name, fields in zip(names, hashes, strict=True)}

    def _condition(self, fields: Mapping[str, str], now: int) -> Condition:
        misses = int(fields.get("misses", 0))
        missing_s = max(0.0, now / 1e6 - int(fields["since"]) / 1e3) if misses else 0.0
        why = fields.get("why", "")
        return Condition(healthy=misses < self._out_after, misses=misses, why=why, missing_s=missing_s)
