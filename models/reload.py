"""Settings that are read anew while a process runs: when their file changes, or when SIGHUP asks.

    live = Live(make, os.environ)
    live.current()      what `make` made of the settings that hold now; looks at the file, at most every two seconds

What hangs on settings is one immutable value, made anew as a whole and put in the place of the old one; whoever works
with the old one goes on with it. A file with any fault is refused as a whole, with a log line that lists every fault,
and the old settings stay. There is no thread: whoever asks for the value looks at the file, and a signal only asks for
a look.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

from models.settings import Settings, SettingsError

log = logging.getLogger("weir.settings")

T = TypeVar("T")

LOOK_EVERY_S = 2.0  # one stat() of the file
# What a process has built on or listens on; a change of it waits for a restart.
_AT_START: Mapping[str, tuple[str, ...]] = {
    "server": (),  # whole
    "workers": (),
    "results": ("url",),
    "sweep": ("every_s",),
    "env": ("database_url", "redis_url", "broker_url", "secret", "flower_auth", "data_dir", "log_level"),
}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """When this process last took settings over, and when it last refused some since; None: it did not."""

    loaded_at: datetime
    refused_at: datetime | None = None


class Live(Generic[T]):
    """What a process makes of its settings, kept up to date. Thread-safe."""

    def __init__(
        self,
        make: Callable[[Settings, T | None], T],
        environ: Mapping[str, str],
        settings: Settings | None = None,
        *,
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        """`make` gives the value of some settings, from the one before where there is one. `settings`: read already.

        Raises SettingsError, at the start only.
        """
        self._make, self._environ, self._every_s = make, environ, every_s
        self._lock = threading.Lock()
        self._asked = False
        self._seen = self._signature()
        self._look_at = time.monotonic() + every_s
        self._settings = settings or Settings.load(environ)
        self._value = make(self._settings, None)
        self.standing = Standing(loaded_at=datetime.now(UTC))

    def current(self) -> T:
        """The value of the settings that hold now."""
        if (self._asked or time.monotonic() >= self._look_at) and self._lock.acquire(blocking=False):
            try:  # whoever comes meanwhile has the old value, and waits for nobody
                self._look()
            finally:
                self._lock.release()
        return self._value

    def hurry(self) -> None:
        """Read everything anew at the next `current`, changed or not. Safe in a signal's handler."""
        self._asked = True

    def _signature(self) -> tuple[int, int, int] | None:
        """Tells two contents of the file apart without reading it; None: there is none, or it cannot be seen."""
        path = self._environ.get("WEIR_CONFIG", "")
        try:
            found = Path(path).stat() if path else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino) if found else None

    def _being_written(self, seen: tuple[int, int, int] | None) -> bool:
        """Whether the file changed a moment ago: cut off anywhere it may be valid, and mean something else."""
        return seen is not None and 0 <= time.time() - seen[0] / 1e9 < self._every_s

    def _look(self) -> None:
        asked, self._asked = self._asked, False
        self._look_at = time.monotonic() + self._every_s
        seen = self._signature()
        if not asked and (seen == self._seen or self._being_written(seen)):
            return
        self._seen = seen
        try:
            read = Settings.load(self._environ)
            if self._signature() != seen:  # written to meanwhile: what was read may be half of it
                self._seen = None
                return
            settings, waiting = at_run_time(self._settings, read)
            value = self._value if settings == self._settings else self._make(settings, self._value)
        except (SettingsError, ValueError) as exc:  # presets say ValueError
            self.standing = dataclasses.replace(self.standing, refused_at=datetime.now(UTC))
            listed = "\n  ".join(str(exc).splitlines())
            log.error("The settings are not valid; those of %s stay:\n  %s", self.standing.loaded_at, listed)  # noqa: TRY400  a trace tells nothing more
            return
        if waiting:
            log.warning("These settings change with a restart only: %s", ", ".join(waiting))
        log.info("The settings were read anew%s", "" if settings != self._settings else "; nothing changed")
        self._settings, self._value = settings, value
        self.standing = Standing(loaded_at=datetime.now(UTC))


def at_run_time(old: Settings, new: Settings) -> tuple[Settings, list[str]]:
    """`new` with what cannot change at run time as it was in `old`, and the names of what would have."""
    waiting: list[str] = []
    kept: dict[str, object] = {}
    for table, named in _AT_START.items():
        before, after = getattr(old, table), getattr(new, table)
        names = named or tuple(field.name for field in dataclasses.fields(before))
        same = {name: getattr(before, name) for name in names}
        waiting += [f"{table}.{name}" for name, value in same.items() if getattr(after, name) != value]
        kept[table] = dataclasses.replace(after, **same)
    return dataclasses.replace(new, **kept), waiting  # type: ignore[arg-type]  # tables of Settings by their names
