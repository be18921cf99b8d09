"""What is done on a page ends, answers in bounds, and tells a page that says no from a browser that is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox import pages
from sandbox.errors import InstanceLost
from sandbox.model import PageAction, PageDo, PageResult
from sandbox.pages import Pages

Error = pytest.importorskip("playwright.async_api").Error


class Connected:
    def is_connected(self) -> bool:
        return True


class Tab:
    """A page whose title is this long, or never comes."""

    url = "http://a/" + "u" * 5000

    def __init__(self, title: str | None = None, error: Exception | None = None, *, cookies: Exception | None = None) -> None:
        self._title, self._error, self._cookies = title, error, cookies
        self.context: Any = self
        self.browser = Connected()

    def locator(self, at: str) -> Any:
        return self

    @property
    def first(self) -> Any:
        return self

    async def inner_text(self, *, timeout: float) -> str:
        if self._error is not None:
            raise self._error
        return "x" * 20_000

    async def select_option(self, text: str, *, timeout: float) -> list[str]:
        return ["y" * 20_000]

    async def title(self) -> str:
        if self._title is None:
            await asyncio.Event().wait()
        return str(self._title)

    async def cookies(self, url: str) -> None:
        if self._cookies is not None:
            raise self._cookies


class Tabs(Pages):
    """Has one tab."""

    def __init__(self, tab: Any) -> None:
        super().__init__()
        self.tab = tab

    async def page(self, session: str, address: str) -> Any:
        return self.tab


@pytest.mark.parametrize("action", [PageAction(do=PageDo.LOOK), PageAction(do=PageDo.SELECT, at="select", text="y")])
async def test_what_an_action_answers_is_bounded_whatever_the_page_calls_itself(action: PageAction) -> None:
    done = await Tabs(Tab("t" * 20_000)).act("s", "ws://one", action)

    assert done.ok
    assert len(done.text) == pages.LONGEST
    if action.do is PageDo.LOOK:
        assert done.text.endswith("x" * 5000)


async def test_a_page_that_never_says_its_title_ends_the_action(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ACT_S", 0.05, raising=False)

    async with asyncio.timeout(5):
        done = await Tabs(Tab()).act("s", "ws://one", PageAction(do=PageDo.LOOK))

    assert done == PageResult(text="the page does not answer in 0.05 s", ok=False)


async def test_a_tab_that_closed_is_the_agents_matter_and_a_browser_that_does_not_answer_is_not() -> None:
    closed = Error("Locator.inner_text: Target page, context or browser has been closed\nCall log:")

    done = await Tabs(Tab(error=closed)).act("s", "ws://one", PageAction(do=PageDo.LOOK))
    assert done == PageResult(text=closed.message.partition("\n")[0], ok=False)
    with pytest.raises(InstanceLost, match="the session's browser is gone: Locator"):  # Playwright still calls it connected
        await Tabs(Tab(error=closed, cookies=closed)).act("s", "ws://one", PageAction(do=PageDo.LOOK))


async def test_a_cancelled_start_of_playwright_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = asyncio.Event(), []

    class Starting:
        async def start(self) -> Starting:
            begun.set()
            await asyncio.sleep(0.05)
            ended.append("started")
            return self

        async def stop(self) -> None:
            ended.append("stopped")

    monkeypatch.setattr("playwright.async_api.async_playwright", Starting)
    opened = Pages()
    asking = asyncio.create_task(opened.page("s", "ws://127.0.0.1:1"))
    await begun.wait()
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    await opened.close()
    assert ended == ["started", "stopped"]


@pytest.mark.parametrize("said", ["Page.goto: Page crashed", "Page.goto: net::ERR_ABORTED; maybe frame was detached?"])
async def test_a_tab_that_crashed_or_just_crashes_is_replaced_by_the_next_address(said: str) -> None:
    gone: list[str] = []

    class Crashed(Tab):
        async def goto(self, address: str, *, timeout: float) -> None:
            raise Error(said)

        async def close(self) -> None:
            gone.append("crashed")

        async def new_page(self) -> Any:
            return Fresh("fresh")

    class Fresh(Tab):
        async def goto(self, address: str, *, timeout: float) -> None:
            gone.append(address)

    tabs = Tabs(Crashed())
    tabs._tabs["s"] = tabs.tab

    done = await tabs.act("s", "ws://one", PageAction(do=PageDo.GOTO, at="http://b/"))

    assert done.ok
    assert isinstance(tabs._tabs["s"], Fresh), "it stays the session's, whatever other tabs there are"
    assert gone == ["crashed", "http://b/"]
