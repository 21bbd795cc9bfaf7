"""Settings that are read anew: taken over as a whole or not at all."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from models.reload import Live
from models.settings import Settings, SettingsError

FIRST = "[caps]\ntotal = 7\n"
Seen = list[tuple[Settings, Settings | None]]


class Process:
    """A file, and a value made of it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "weir.toml"
        self.file.write_text(FIRST)
        self.made: Seen = []
        self.live = Live(self.make, {"WEIR_CONFIG": str(self.file)}, every_s=0.0)

    def make(self, settings: Settings, before: Settings | None) -> Settings:
        if settings.caps.total == 13:
            raise SettingsError("thirteen is not taken here")
        self.made.append((settings, before))
        return settings

    def write(self, text: str) -> Settings:
        self.file.write_text(text)
        return self.live.current()


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


def test_a_changed_file_is_taken_over_and_the_old_value_lives_on(process: Process) -> None:
    old = process.live.current()
    new = process.write("[caps]\ntotal = 70\n")
    assert (old.caps.total, new.caps.total) == (7, 70)
    assert process.made == [(old, None), (new, old)]
    assert process.live.current() is new


def test_what_did_not_change_is_not_made_anew(process: Process) -> None:
    old = process.live.current()
    assert process.live.current() is old
    assert process.write(FIRST + "# a word\n") is old
    assert len(process.made) == 1


def test_a_broken_file_is_refused_as_a_whole_and_every_fault_is_said_once(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    old = process.live.current()
    broken = "[caps]\ntotal = 70\nimage = 'many'\n[users]\nrunnin = 3\n"
    with caplog.at_level(logging.INFO, "weir.settings"):
        assert process.write(broken) is old
        assert process.live.current() is old
    (line,) = caplog.messages
    assert "caps.image: must be int" in line
    assert "users.runnin: unknown key; did you mean 'running'?" in line
    assert process.live.standing.refused_at is not None
    assert process.write("[caps]\ntotal = 8\n").caps.total == 8
    assert process.live.standing.refused_at is None


@pytest.mark.parametrize("text", ["[caps", "[caps]\ntotal = 13\n", "[models.x]\nproviders = [{ name = 'nobody' }]\n"])
def test_neither_is_one_that_nothing_can_be_made_of(process: Process, text: str) -> None:
    old = process.live.current()
    assert process.write(text) is old


def test_a_file_that_vanishes_leaves_what_was(process: Process) -> None:
    old = process.live.current()
    process.file.unlink()
    assert process.live.current() is old
    assert process.live.standing.refused_at is not None
    assert process.write("[caps]\ntotal = 9\n").caps.total == 9


def test_what_needs_a_restart_stays_and_is_said(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    new = process.write(
        "[caps]\ntotal = 70\n[server]\nport = 9\n[workers]\nslots = 9\n[sweep]\nevery_s = 9\nbatch = 9\n"
    )
    assert (new.server.port, new.workers.slots, new.sweep.every_s) == (8000, 16, 15)
    assert (new.caps.total, new.sweep.batch) == (70, 9)
    assert "server.port, workers.slots, sweep.every_s" in caplog.text


def test_between_two_looks_nothing_is_read_unless_a_signal_asks(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.live = Live(process.make, {"WEIR_CONFIG": str(process.file)}, every_s=3600)
    assert process.write("[caps]\ntotal = 70\n").caps.total == 7
    process.live.hurry()
    assert process.live.current().caps.total == 70


def test_at_the_start_a_broken_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text("[cap]\n")
    with pytest.raises(SettingsError, match="did you mean 'caps'"):
        Live(lambda settings, _: settings, {"WEIR_CONFIG": str(file)})


def test_a_file_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.live = Live(process.make, {"WEIR_CONFIG": str(process.file)}, every_s=5.0)
    old = process.live.current()
    process.file.write_text("")  # an editor has emptied it and is about to write
    process.live._look_at = 0.0
    assert process.live.current() is old
    process.file.write_text("[caps]\ntotal = 70\n")
    long_ago = process.file.stat().st_mtime - 10
    os.utime(process.file, (long_ago, long_ago))
    process.live._look_at = 0.0
    assert process.live.current().caps.total == 70
