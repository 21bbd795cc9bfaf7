"""How few calls a round takes at an OpenAI-shaped server."""

from __future__ import annotations

import json

import pytest

from models.contract import Kind
from providers.calls import recorded
from tests.contract.openai_jobs import adapter
from tests.contract.raw_server import Conn, RawServer


class Account:
    """A vendor's clips and its listing, newest first, as one script."""

    def __init__(self, clips: list[str], *, list_status: int = 200, endless: bool = False) -> None:
        self.clips, self.list_status, self.endless = clips, list_status, endless

    def __call__(self, conn: Conn) -> None:
        while request := conn.request():
            target = request.split(b" ")[1].decode()
            path, _, query = target.partition("?")
            status, body = (200, self.page(query)) if path == "/v1/videos" else self.one(path.rpartition("/")[2])
            if path == "/v1/videos" and self.list_status != 200:
                status, body = self.list_status, {"error": {"message": "no", "code": None}}
            conn.answer(json.dumps(body).encode(), f"{status} x", close=False)

    def one(self, receipt: str) -> tuple[int, dict[str, object]]:
        if receipt not in self.clips:
            return 404, {"error": {"message": "no such video", "type": "invalid_request_error", "code": None}}
        return 200, {"id": receipt, "object": "video", "status": "in_progress", "progress": 50}

    def page(self, query: str) -> dict[str, object]:
        after = query.partition("after=")[2]
        begin = self.clips.index(after) + 1 if after and not self.endless else 0
        shown = self.clips[begin : begin + 100]
        data = [self.one(clip)[1] for clip in shown]
        return {"object": "list", "data": data, "has_more": self.endless or begin + 100 < len(self.clips)}


def _round(account: Account, asked: list[str], *, list_call: bool = True) -> tuple[dict[str, str], int]:
    with RawServer(account) as server, recorded() as calls:
        seen = adapter(server.url, list_call=list_call).observe(asked, Kind.VIDEO)
    assert {receipt for call in calls for receipt in call.receipts} == set(asked)
    return {receipt: type(one).__name__ for receipt, one in seen.items()}, len(calls)


def test_round_takes_one_page_of_the_listing() -> None:
    clips = [f"video_{n}" for n in range(60)]
    assert _round(Account(clips), clips[:50]) == (dict.fromkeys(clips[:50], "Working"), 1)


def test_round_turns_pages_only_while_that_saves_calls() -> None:
    clips = [f"video_{n}" for n in range(450)]
    wanted = [*clips[:3], *clips[110:113], clips[440]]
    seen, calls = _round(Account(clips), wanted)
    assert seen == dict.fromkeys(wanted, "Working")
    assert calls == 3  # two pages, and the one that is left by its id


def test_listing_that_turns_in_a_circle_ends() -> None:
    clips = [f"video_{n}" for n in range(5)]
    seen, calls = _round(Account(clips, endless=True), [*clips, *(f"video_x{n}" for n in range(8))])
    assert sorted(set(seen.values())) == ["Unknown", "Working"]
    assert calls == 2 + 8


@pytest.mark.parametrize("status", [400, 404, 405])
def test_server_without_a_listing_is_asked_one_by_one(status: int) -> None:
    clips = [f"video_{n}" for n in range(5)]
    assert _round(Account(clips, list_status=status), clips) == (dict.fromkeys(clips, "Working"), 6)


@pytest.mark.parametrize("status", [429, 500])
def test_listing_that_fails_is_no_news_and_no_storm(status: int) -> None:
    clips = [f"video_{n}" for n in range(5)]
    assert _round(Account(clips, list_status=status), clips) == (dict.fromkeys(clips, "Unreadable"), 1)


def test_listing_can_be_switched_off() -> None:
    clips = [f"video_{n}" for n in range(5)]
    assert _round(Account(clips), clips, list_call=False) == (dict.fromkeys(clips, "Working"), 5)
