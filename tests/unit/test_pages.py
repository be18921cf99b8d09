"""Playwright's connections to the browsers of sessions: one each, and none for a session that has ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.errors import InstanceLost
from sandbox.pages import Pages


class Tab:
    """One tab of it."""

    def __init__(self, url: str) -> None:
        self.url, self.closed = url, False

    def is_closed(self) -> bool:
        return self.closed


class Connected:
    """A browser as Playwright gives it."""

    def __init__(self) -> None:
        self.closed = False
        self.pages = [Tab("about:blank")]

    @property
    def contexts(self) -> list[Connected]:
        return [self]

    def is_connected(self) -> bool:
        return not self.closed

    async def new_page(self) -> Any:
        await asyncio.sleep(0)
        self.pages.append(Tab("about:blank"))
        return self.pages[-1]

    async def close(self) -> None:
        self.closed = True


class Slow(Pages):
    """Connects when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on, self.asked = asyncio.Event(), asyncio.Event()
        self.made: list[Connected] = []
        self.tabs = ["about:blank"]

    async def _connect(self, address: str) -> Any:
        self.asked.set()
        await self.go_on.wait()
        self.made.append(Connected())
        self.made[-1].pages = [Tab(url) for url in self.tabs]
        return self.made[-1]


async def test_pages_that_are_asked_for_at_once_share_a_connection() -> None:
    pages = Slow()
    asking = [asyncio.create_task(pages.page("s", "ws://one")) for _ in range(3)]
    await pages.asked.wait()
    pages.go_on.set()

    found = await asyncio.gather(*asking)

    assert [*map(id, found)] == [id(pages.made[0].pages[0])] * 3
    assert len(pages.made) == 1
    await pages.close()
    assert pages.made[0].closed


async def test_two_that_ask_where_no_tab_is_open_open_one() -> None:
    slow = Slow()
    slow.tabs = []
    slow.go_on.set()

    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(slow.page("s", "ws://one")) for _ in range(2)]

    assert asking[0].result() is asking[1].result()
    assert len(slow.made[0].pages) == 1


async def test_a_session_keeps_its_tab_in_whatever_order_the_next_connection_finds_them() -> None:
    slow = Slow()
    slow.go_on.set()
    one: Any = await slow.page("s", "ws://one")
    one.url = "http://b/"
    slow.made[0].pages.insert(0, Tab("http://a/"))
    assert await slow.page("s", "ws://one") is one

    await slow.forget("s", comes_back=True)
    slow.tabs = ["http://c/", "http://a/", "http://b/"]
    again: Any = await slow.page("s", "ws://one")
    assert again.url == "http://b/"
    again.closed = True
    slow.made[1].pages.pop()
    assert (await slow.page("s", "ws://one")).url == "http://a/"
    await slow.forget("s")
    assert (await slow.page("s", "ws://one")).url == "http://a/"


@pytest.mark.parametrize("ends", ["forget", "close"])
async def test_a_session_that_ends_while_its_page_is_opened_keeps_no_connection(ends: str) -> None:
    pages = Slow()
    asking = asyncio.create_task(pages.page("s", "ws://one"))
    await pages.asked.wait()
    await (pages.forget("s") if ends == "forget" else pages.close())
    pages.go_on.set()

    with pytest.raises(InstanceLost, match="the session ended, or was scored, while its page was opened"):
        await asking
    assert [browser.closed for browser in pages.made] == [True]


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_browser_that_opens_no_tab_is_lost(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.pages.OPEN_S", 0.05, raising=False)
    slow = Slow()
    slow.go_on.set()
    await slow.page("s", "ws://one")
    slow.made[0].pages.pop().closed = True

    async def new_page() -> None:
        if hangs:
            await asyncio.Event().wait()
        raise RuntimeError("BrowserContext.new_page: Target page, context or browser has been closed")

    slow.made[0].new_page = new_page  # type: ignore[method-assign]

    async with asyncio.timeout(5):
        with pytest.raises(InstanceLost, match="opens no page"):
            await slow.page("s", "ws://one")
