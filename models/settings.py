"""Settings: the only reader of the environment and of weir.toml.

`Settings.load(os.environ)` gives one frozen tree, validated as a whole: every error is reported at once, each naming
the key, the value and the allowed range; an unknown key or an unknown variable with our prefix is an error with a
suggestion. Secrets and addresses come from the environment (`WEIR_*`, vendors' own names such as
`DASHSCOPE_API_KEY`), everything else from weir.toml. A file named by `WEIR_CONFIG` is laid over the shipped default
value by value; its `[providers]`, `[models]` and `[presets.*]` tables, where present, replace the shipped ones whole.

Nothing here is mutable and nothing here opens a connection.
"""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models import environment
from models.checked import build, suggest
from models.environment import Environment
from models.seats import alias
from models.workflows import WorkflowSettings

SHIPPED = Path(__file__).with_name("weir.toml")
_WHOLE = frozenset({"providers", "models"})  # replaced as one table, never merged key by key


class SettingsError(ValueError):
    """The settings are not valid; the message lists every fault, one per line."""


def _num(default: float, lo: float, hi: float, doc: str) -> typing.Any:  # noqa: ANN401  dataclass field idiom
    return field(default=default, metadata={"min": lo, "max": hi, "doc": doc})


def _text(default: str, doc: str, choices: tuple[str, ...] = ()) -> typing.Any:  # noqa: ANN401  same
    return field(default=default, metadata={"choices": choices, "doc": doc})


@dataclass(frozen=True, kw_only=True)
class Server:
    """The web process."""

    host: str = _text("127.0.0.1", "address the API listens on")
    port: int = _num(8000, 1, 65535, "TCP port of the API")
    processes: int = _num(1, 1, 64, "gunicorn worker processes")
    threads: int = _num(16, 1, 256, "threads per process")
    public_url: str = _text("", "base of absolute links, e.g. https://weir.example.com; empty: relative")
    trusted_proxies: int = _num(0, 0, 10, "how many proxies in front set X-Forwarded-*")


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Slots of the Celery workers that the Procfile starts."""

    slots: int = _num(16, 3, 4096, "threads in all: 75 % image, the rest video, one spare for any queue")

    def shares(self) -> tuple[int, int, int]:
        """Threads for (image, video, default): 16 gives (12, 3, 1); each at least 1."""
        image = min(self.slots - 2, self.slots * 3 // 4)
        return image, max(1, self.slots - image - 1), 1


@dataclass(frozen=True, kw_only=True)
class Caps:
    """Most tasks RUNNING at one moment; a slot is a RUNNING row."""

    total: int = _num(20, 1, 1_000_000, "all providers together")
    image: int = _num(15, 1, 1_000_000, "image tasks, all providers")
    video: int = _num(5, 1, 1_000_000, "video tasks, all providers")


@dataclass(frozen=True, kw_only=True)
class UserLimits:
    """Defaults for one user; single users may be given others."""

    running: int = _num(3, 1, 1_000_000, "tasks RUNNING at one moment")
    active: int = _num(20, 1, 1_000_000, "tasks PENDING or RUNNING at one moment")
    high_active: int = _num(5, 1, 1_000_000, "tasks of priority `high` PENDING or RUNNING at one moment, per API key")
    submits_per_minute: int = _num(60, 1, 1_000_000, "accepted or refused POST /v1/tasks a minute; replays are free")


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Seconds from acceptance to TIMEOUT; covers waiting, generating and fetching."""

    image_s: int = _num(900, 5, 86_400, "default for images")
    video_s: int = _num(1800, 5, 86_400, "default for videos")
    max_s: int = _num(86_400, 5, 86_400, "largest `deadline_s` a caller may ask")


@dataclass(frozen=True, kw_only=True)
class Retries:
    """Seconds-scale repeats; anything longer is a countdown in the row."""

    reads: int = _num(3, 0, 10, "repeats of a failed query inside one call, before it counts as no news")
    async_submit: int = _num(1, 0, 5, "repeats of a submit that was surely not sent, inside one call")
    sync_submit: int = _num(2, 0, 5, "the same for synchronous vendors")
    submit_attempts: int = _num(8, 1, 100, "claims of one task that the vendor surely did not accept, before FAILED")
    fetch_attempts: int = _num(5, 1, 100, "tries to fetch a finished result, before FAILED result_unavailable")
    reconcile_attempts: int = _num(5, 1, 100, "questions about a task after its TIMEOUT, the first after 60 s")


@dataclass(frozen=True, kw_only=True)
class PollPlan:
    """Seconds between two questions about one task: full-jitter exponential."""

    min_s: float = _num(1.0, 0.1, 600, "shortest wait")
    max_s: float = _num(15.0, 1, 3600, "longest wait")


@dataclass(frozen=True, kw_only=True)
class Polling:
    """How a wave asks."""

    image: PollPlan = field(default_factory=PollPlan)
    video: PollPlan = field(default_factory=lambda: PollPlan(min_s=3.0, max_s=30.0))
    tick_s: int = _num(1, 1, 30, "whole seconds between two list calls, where one call covers all")
    batch: int = _num(500, 1, 5000, "rows of one round")
    side_by_side: int = _num(8, 1, 64, "single queries at one moment within a round")
    round_s: float = _num(10.0, 1, 60, "longest round; what is not asked by then waits for the next")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The periodic look at every live row."""

    every_s: int = _num(15, 1, 300, "beat interval")
    grace_s: int = _num(10, 1, 300, "how late a wake-up may be before it counts as lost")
    stuck_s: int = _num(600, 10, 86_400, "untouched this long, though rung three times: TIMEOUT `stuck`")
    batch: int = _num(500, 1, 5000, "rows of one kind handled per sweep")


@dataclass(frozen=True, kw_only=True)
class Results:
    """Result bytes."""

    url: str = _text("", "obstore URL (s3://bucket/prefix, gs://, az://); empty: folder `results` in the data folder")
    link_s: int = _num(600, 10, 604_800, "lifetime of a signed link, seconds")
    retention_days: int = _num(30, 1, 3650, "days until the bytes and their records are removed")
    image_max_bytes: int = _num(64_000_000, 1024, 10**10, "largest image accepted from a vendor, bytes")
    video_max_bytes: int = _num(2_000_000_000, 1024, 10**11, "largest video accepted from a vendor, bytes")
    fetch_s: float = _num(120.0, 1, 3600, "time for one download in all, seconds")
    allowed_networks: tuple[str, ...] = field(
        default=(),
        metadata={"doc": "private networks results may come from, besides the provider's own host"},
    )


@dataclass(frozen=True, kw_only=True)
class Idempotency:
    """How long a key is remembered."""

    success_days: int = _num(30, 1, 3650, "after SUCCESS")
    ended_hours: int = _num(24, 1, 87_600, "after FAILED, CANCELED or TIMEOUT")
    live_hours: int = _num(48, 1, 87_600, "while the task lives")


@dataclass(frozen=True, kw_only=True)
class Retention:
    """When what has outlived its days is removed."""

    archive_days: int = _num(30, 1, 3650, "days after its end until a task moves into the archive in storage")
    quiet_from_hour: int = _num(1, 0, 24, "first hour (UTC) of the time in which removals run")
    quiet_to_hour: int = _num(5, 0, 24, "hour (UTC) at which that time ends; equal to the first: any hour once a day")


@dataclass(frozen=True, kw_only=True)
class BreakerSettings:
    """When a provider's circuit opens, per operation, and for how long."""

    window_s: float = _num(60.0, 1, 3600, "how far back the failure rate looks, seconds")
    min_calls: int = _num(10, 1, 10_000, "fewer calls in the window say nothing")
    failure_rate: float = _num(0.5, 0, 0.99, "above this share of failed calls it opens")
    open_s: float = _num(10.0, 1, 3600, "until the first probe, seconds; doubled while probes fail")
    open_max_s: float = _num(120.0, 1, 3600, "the longest of these waits; at least open_s")


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """One configured way to a vendor: an adapter, an address, a key, limits."""

    adapter: str = _text("", "which adapter speaks to it")
    base_url: str = _text("", "address without the API version, e.g. https://dashscope.aliyuncs.com")
    api_key_env: str = _text(
        "", "environment variable with the key, which must be set; ONE+TWO where a key is a pair; empty: it needs none"
    )
    more_api_key_env: tuple[str, ...] = field(
        default=(), metadata={"doc": "variables with further keys, each with limits of its own at the vendor"}
    )
    max_in_flight: int = _num(5, 1, 1_000_000, "RUNNING tasks at one moment")
    requests_per_minute: int = _num(
        600, 1, 10_000_000, "calls of any kind a minute that the vendor takes; a tenth is left unused"
    )
    connect_s: float = _num(4.0, 0.1, 60, "time-out of the connection, seconds")
    submit_read_s: float = _num(36.0, 1, 3600, "time-out of a submit's answer: the vendor's promise x 1.2")
    query_read_s: float = _num(12.0, 1, 600, "time-out of any other answer")
    list_call: bool = field(default=True, metadata={"doc": "use the vendor's list call where it has one"})
    resubmit: str = _text(
        "never", "`safe`: bills only what it returns, the same reference may be sent again", ("never", "safe")
    )
    result_hosts: tuple[str, ...] = field(
        default=(),
        metadata={"doc": "hosts besides its own that results may come from without the public-address check"},
    )
    enabled: bool = field(default=True, metadata={"doc": "false: routes nothing new; running tasks go on"})
    workflows: Mapping[str, WorkflowSettings] = field(
        default_factory=dict, metadata={"doc": "ComfyUI only: its graphs by the name of the model; empty: as shipped"}
    )

    @property
    def credentials(self) -> tuple[str, ...]:
        """Every credential as it is named here, the first first; empty: none is needed."""
        return tuple(name for name in (self.api_key_env, *self.more_api_key_env) if name)


@dataclass(frozen=True, kw_only=True)
class Route:
    """One provider that can make a model."""

    name: str = _text("", "a key of [providers]")
    model: str = _text("", "the vendor's name of the model")
    order: int = _num(0, 0, 1000, "place in the order, from 1; routes of one place share; 0: its place in the list")
    weight: int = _num(1, 1, 1000, "share among providers of the same place in the order")
    price_micros: int = _num(-1, -1, 10**12, "price by this route, in place of the model's; -1: the model's")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """A model as callers name it."""

    type: str = _text("image", "what it makes", ("image", "video"))
    providers: tuple[Route, ...] = field(default=(), metadata={"doc": "in order of preference"})
    prefer: str = _text(
        "weight", "among routes of one place: by `weight`, or the cheapest `price`", ("weight", "price")
    )
    price_micros: int = _num(0, 0, 10**12, "per image, or per second of video, in millionths of the currency")
    currency: str = _text("USD", "ISO 4217 code")
    default: bool = field(default=False, metadata={"doc": "used when a request of its type names no model"})
    title: str = _text("", "one line for people")

    def price_of(self, route: Route) -> int:
        """Micros per image or second by one of its routes."""
        return self.price_micros if route.price_micros < 0 else route.price_micros


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set. Field names equal the keys of weir.toml; `env` is the environment's part."""

    server: Server = field(default_factory=Server)
    workers: Workers = field(default_factory=Workers)
    caps: Caps = field(default_factory=Caps)
    users: UserLimits = field(default_factory=UserLimits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    retries: Retries = field(default_factory=Retries)
    polling: Polling = field(default_factory=Polling)
    sweep: Sweep = field(default_factory=Sweep)
    results: Results = field(default_factory=Results)
    idempotency: Idempotency = field(default_factory=Idempotency)
    retention: Retention = field(default_factory=Retention)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict)
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    presets: Mapping[str, object] = field(default_factory=dict)
    env: Environment = field(default_factory=Environment)

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Settings:
        """Settings from `environ` and the files it names.

        Raises SettingsError listing every fault of both at once.
        """
        errors: list[str] = []
        tables = _read(SHIPPED, errors)
        config = environ.get("WEIR_CONFIG", "")
        if config:
            tables = _overlay(tables, _read(Path(config), errors))
        settings = build(cls, tables, "", errors)
        assert isinstance(settings, Settings)
        credentials = {name for one in settings.providers.values() for name in one.credentials}
        env = environment.read(environ, credentials, errors)
        errors += _cross_checks(settings)
        if errors:
            raise SettingsError("\n".join(errors))
        return dataclasses.replace(settings, env=env)

    def missing_keys(self) -> list[str]:
        """A sentence for each enabled provider whose key the environment does not give."""
        return [
            f"{key.replace('+', ' or ')} is not set: the provider {name} needs it (providers.{name}.api_key_env)"
            for name, provider in self.providers.items()
            for key in provider.credentials
            if provider.enabled and key not in self.env.vendor_keys
        ]

    def vendor_variables(self) -> dict[str, str]:
        """The variables that vendors' keys came in, with their values."""
        found: dict[str, str] = {}
        for name, key in self.env.vendor_keys.items():
            variables = name.split("+")
            found |= dict(zip(variables, key.split(":", len(variables) - 1), strict=False))
        return found


def _read(path: Path, errors: list[str]) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        errors.append(f"WEIR_CONFIG: cannot read {str(path)!r}: {exc.strerror}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        errors.append(f"{path.name}: not valid TOML: {exc}")
    return {}


def _overlay(base: dict[str, object], top: Mapping[str, object], path: str = "") -> dict[str, object]:
    """`top` laid over `base`; the tables in _WHOLE and each kind of preset are replaced, not merged."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        whole = (not path and key in _WHOLE) or path == "presets"
        if isinstance(value, dict) and isinstance(below, dict) and not whole:
            merged[key] = _overlay(below, value, key)
        else:
            merged[key] = value
    return merged


def _cross_checks(settings: Settings) -> list[str]:
    """Faults that only show when two values are seen together."""
    faults = []
    for name, model in settings.models.items():
        if not model.providers:
            faults.append(f"models.{name}.providers: names no provider")
        faults += [
            f"models.{name}.providers: unknown provider {route.name!r}{suggest(route.name, settings.providers)}"
            for route in model.providers
            if route.name not in settings.providers
        ]
    for kind in ("image", "video"):
        defaults = [n for n, m in settings.models.items() if m.type == kind and m.default]
        if len(defaults) > 1:
            faults.append(f"models: more than one default for {kind}: {', '.join(defaults)}")
    if settings.breaker.open_max_s < settings.breaker.open_s:
        faults.append(f"breaker.open_max_s: must be at least open_s, {settings.breaker.open_s:g}")
    faults += [f"providers.{name}.base_url: is empty" for name, p in settings.providers.items() if not p.base_url]
    faults += [f"providers.{name}: a name must not contain a colon" for name in settings.providers if ":" in name]
    faults += [
        f"providers.{name}.more_api_key_env: needs api_key_env, and no credential twice"
        for name, p in settings.providers.items()
        if p.more_api_key_env and (not p.api_key_env or len({alias(c) for c in p.credentials}) < len(p.credentials))
    ]
    return faults
