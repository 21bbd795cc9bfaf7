"""weir.js in a real Chromium, before a server of which each answer is known."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, Page, Route

pytest_plugins = ["tests.browser"]

_MODULE = Path(__file__).parents[2] / "api" / "static" / "weir.js"
_ORIGIN = "http://weir.test"


def _page(browser: Browser) -> Page:
    page = browser.new_page()
    page.route(f"{_ORIGIN}/", lambda route: route.fulfill(content_type="text/html", body="<!doctype html>"))
    script = _MODULE.read_text()
    page.route(f"{_ORIGIN}/weir.js", lambda route: route.fulfill(content_type="text/javascript", body=script))
    page.goto(f"{_ORIGIN}/")
    return page


def test_a_watch_goes_on_over_lost_and_unknown_answers_to_the_end(browser: Browser) -> None:
    page = _page(browser)
    asked: list[dict[str, str]] = []

    def answer(route: Route) -> None:
        asked.append(route.request.headers)
        match len(asked):
            case 1:
                route.fulfill(json={"status": "NEW_WORD"}, headers={"ETag": 'W/"1"'})
            case 2:
                route.fulfill(status=304)
            case 3:
                route.abort()
            case 4:
                route.fulfill(status=503)
            case _:
                route.fulfill(json={"status": "SUCCESS"})

    page.route(f"{_ORIGIN}/v1/tasks/t", answer)
    told = page.evaluate(
        "async () => { const told = []; const { watch } = await import('/weir.js');"
        "await watch('/v1/tasks/t', { key: 'k', onUpdate: (task) => told.push(task.status) }); return told; }"
    )
    assert told == ["NEW_WORD", "SUCCESS"]
    assert {headers["authorization"] for headers in asked} == {"Bearer k"}
    assert [headers.get("if-none-match") for headers in asked] == [None, *['W/"1"'] * 4]


def test_a_submit_keeps_its_key_over_its_tries(browser: Browser) -> None:
    page = _page(browser)
    keys: list[str] = []

    def answer(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) == 1:
            route.abort()
        else:
            route.fulfill(status=202, json={"id": "t"})

    page.route(f"{_ORIGIN}/v1/tasks", answer)
    task = page.evaluate("async () => (await import('/weir.js')).submit({ model: 'm' }, { key: 'k' })")
    assert task == {"id": "t"}
    assert len(keys) == 2
    assert len(set(keys)) == 1
