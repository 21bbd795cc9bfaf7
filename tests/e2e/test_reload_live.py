"""SIGHUP to every live process: the next task differs, no process is another one, and a broken file ends none."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.live import Live, until

SERVED = ("web", "worker_default", "beat")
ASK = {"prompt": "a red fox", "style": "anime", "width": 512, "height": 512}


def _preset(live: Live, text: str) -> None:
    file = Path(live.environ["WEIR_CONFIG"])
    before = file.read_text(encoding="utf-8").partition("[presets")[0]
    file.write_text(f"{before}[presets.styles.anime]\n{text}\n", encoding="utf-8")


def _hang_up(live: Live) -> None:
    for name in SERVED:
        pid = live.pid(name)
        assert pid is not None, live.tails()
        os.kill(pid, signal.SIGHUP)


def test_a_signal_brings_the_new_preset_and_a_broken_file_ends_nobody(
    database_url: str, redis_url: str, data_dir: Path
) -> None:
    with Live(database_url=database_url, redis_url=redis_url, data_dir=data_dir, slots=(1, 1, 2)) as live:
        _preset(live, 'prompt = "{prompt}, anime"')
        live.start("sim", *SERVED)
        pids, gateway = [live.pid(name) for name in SERVED], live.gateway()
        loaded = gateway.get("/v1/status").body["settings"]["loaded_at"]

        _preset(live, 'prompt = "{prompt}, woodcut"')
        _hang_up(live)
        until(lambda: gateway.get("/v1/status").body["settings"]["loaded_at"] > loaded, within_s=10)
        task = gateway.post("/v1/tasks", ASK).body
        assert task["effective"]["prompt"] == "a red fox, woodcut"
        done = until(lambda: (t := gateway.get(f"/v1/tasks/{task['task_id']}").body)["status"] == "SUCCESS" and t)
        assert done["outputs"]
        until(lambda: "read anew" in live.log("worker_default"), within_s=20)

        _preset(live, "prompt = 5")
        _hang_up(live)
        until(lambda: gateway.get("/v1/status").body["settings"]["refused_at"], within_s=10)
        assert gateway.post("/v1/tasks", ASK).body["effective"]["prompt"] == "a red fox, woodcut"
        assert "presets.styles.anime.prompt" in live.log("web")
        assert "at its start only" in live.log("beat")
        assert [live.pid(name) for name in SERVED] == pids
