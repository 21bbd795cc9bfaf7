"""Flower, in a real browser: a task is found by our id, and neither prompt nor key is to be seen."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser

from tests.live import Live, until

pytest_plugins = ["tests.browser"]


def test_flower_finds_a_task_by_our_id_and_shows_no_prompt_or_key(
    browser: Browser, database_url: str, redis_url: str, data_dir: Path
) -> None:
    with Live(database_url=database_url, redis_url=redis_url, data_dir=data_dir) as live:
        live.start("sim", "web", "flower", "worker_image")
        gateway = live.gateway()
        page = browser.new_context(http_credentials={"username": "weir", "password": "for-tests"}).new_page()
        page.goto(f"http://127.0.0.1:{live.environ['FLOWER_PORT']}/workers")
        until(lambda: "image@" in page.reload().text())  # type: ignore[union-attr]  # there is an answer
        task_id = gateway.post("/v1/tasks", {"prompt": "a fox nobody may read about"}).body["task_id"]
        until(lambda: gateway.get(f"/v1/tasks/{task_id}").body["status"] == "SUCCESS")
        root = f"http://127.0.0.1:{live.environ['FLOWER_PORT']}"
        page.goto(f"{root}/tasks")
        page.fill("input[type=search]", task_id)
        page.wait_for_selector(f"text={task_id}", timeout=15_000)
        seen = [page.content()]
        page.goto(f"{root}/task/{task_id}.1")
        assert "image.submit" in page.content()
        seen.append(page.content())
        page.goto(f"{root}/workers")
        seen.append(page.content())
    for secret in ("fox", gateway.key, "sk-for-tests", live.environ["WEIR_SECRET"]):
        assert not any(secret in text for text in seen)
