"""The disk of a simulated ComfyUI: names that saving nodes choose, uploads, and who may be read.

May not know HTTP. Invariants: a name is given out once as long as its file is there; numbering looks at the disk, so a
deleted file's name comes again, as with the real server; nothing outside the three folders has a name.
"""

from __future__ import annotations

import posixpath
import random
import re
import string
import time
from dataclasses import dataclass

from providers.sim.ledger import Job

FOLDERS = ("output", "temp", "input")
_ANNOTATED = re.compile(r"(.*) \[(output|temp|input)\]")


class OutsideError(Exception):
    """A name leads out of its folder."""


@dataclass(frozen=True, slots=True)
class Made:
    """A file that a job made: output `index` of it."""

    job: Job
    index: int


Key = tuple[str, str, str]
"""(folder, subfolder, file name)."""


class Disk:
    """The files of one server. Not safe under threads by itself."""

    def __init__(self) -> None:
        """Start empty."""
        self.made: dict[Key, Made] = {}
        self.uploads: dict[Key, bytes] = {}

    def restart(self) -> None:
        """Wipe temp, as every start does."""
        self.made = {key: made for key, made in self.made.items() if key[0] != "temp"}
        self.uploads = {key: content for key, content in self.uploads.items() if key[0] != "temp"}

    def save(self, prefix: str, ending: str, made: list[Made], *, temp: bool) -> list[dict[str, str]]:
        """Write files under a prefix and return their names as in `outputs`. Raises OutsideError."""
        folder = "temp" if temp else "output"
        if temp:
            prefix = "ComfyUI_temp_" + "".join(random.choices(string.ascii_lowercase, k=5))  # noqa: S311 - a name
        path = _within(_expanded(prefix, made))
        subfolder, name = posixpath.split(path)
        number = self._last(folder, subfolder, name)
        found = []
        for one in made:
            number += 1
            filename = f"{name}_{number:05}_.{ending}"
            self.made[folder, subfolder, filename] = one
            found.append({"filename": filename, "subfolder": subfolder, "type": folder})
        return found

    def _last(self, folder: str, subfolder: str, name: str) -> int:
        form = re.compile(re.escape(name) + r"_(\d{5,})_\..*")
        numbers = [
            int(match[1])
            for place, under, filename in self.made
            if (place, under) == (folder, subfolder) and (match := form.fullmatch(filename))
        ]
        return max(numbers, default=0)

    def upload(self, folder: str, subfolder: str, name: str, content: bytes, *, overwrite: bool) -> str:
        """Keep an upload and return the name it got: same bytes keep it, others are renamed. Raises OutsideError."""
        subfolder = _within(subfolder) if subfolder else ""
        stem, dot, ending = posixpath.basename(name).rpartition(".")
        chosen, count = posixpath.basename(name), 0
        while not overwrite and self.uploads.get((folder, subfolder, chosen), content) != content:
            count += 1
            chosen = f"{stem} ({count}){dot}{ending}"
        self.uploads[folder, subfolder, chosen] = content
        return chosen

    def input_of(self, name: str) -> bytes | Made | None:
        """What LoadImage finds under a name such as `gw/a.png` or `a.png [temp]`; None for nothing."""
        match = _ANNOTATED.fullmatch(name)
        path, folder = (match[1], match[2]) if match else (name, "input")
        subfolder, filename = posixpath.split(path)
        key = (folder, subfolder, filename)
        return self.uploads.get(key) or self.made.get(key)


def _within(path: str) -> str:
    found = posixpath.normpath(path.replace("\\", "/"))
    if found.startswith(("/", "..")):
        raise OutsideError(path)
    return found


def is_within(subfolder: str) -> bool:
    """Whether a subfolder stays below its folder."""
    try:
        _within(subfolder)
    except OutsideError:
        return False
    return True


def _expanded(prefix: str, made: list[Made]) -> str:
    """The prefix with its %tokens% filled in."""
    now = time.localtime()
    tokens = {
        "year": f"{now.tm_year}",
        "month": f"{now.tm_mon:02}",
        "day": f"{now.tm_mday:02}",
        "hour": f"{now.tm_hour:02}",
        "minute": f"{now.tm_min:02}",
        "second": f"{now.tm_sec:02}",
    }
    if made:
        tokens |= {"width": str(made[0].job.order.width), "height": str(made[0].job.order.height)}
    return re.sub(r"%(\w+)%", lambda match: tokens.get(match[1], match[0]), prefix)
