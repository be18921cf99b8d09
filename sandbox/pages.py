"""Playwright pages on the browsers of sessions, and what is done on them. The only module that uses Playwright, which is loaded
with the first page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.aio import in_thread, run_shielded
from sandbox.errors import InstanceLost, RuntimeUnavailable
from sandbox.model import EnvironmentSpec, PageAction, PageDo, PageResult
from sandbox.ports import Instance

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

log = logging.getLogger(__name__)
CONNECT_S = 60.0
SECRET = "x-autoclave-secret"
LONGEST = 8000  # characters of what an action answers
WAIT_MS = 10_000.0  # for an element
LOAD_MS = 20_000.0  # for a page
ACT_S = 40.0  # for all of an action: a page whose script never ends answers not even for its title
OPEN_S = 20.0  # for a tab
_SHOWN = 1000  # characters of an address, a title, an error
_CLOSE_S = 10.0
_FIX = "pip install 'autoclave[browser]'; no browser need be downloaded"


def is_browser(address: str) -> bool:
    """True for the address of something that speaks the DevTools protocol."""
    return address.startswith(("ws+unix://", "ws://"))


def browser_of(instance: Instance, spec: EnvironmentSpec, resource: str | None = None) -> tuple[str, str]:
    """Return an instance's browser (`resource`, where it has several) and the agent's address of it. Raises RuntimeUnavailable."""
    names = [resource] if resource else [r.name for r in spec.resources]
    found = next(((n, a) for n in names if is_browser(a := instance.endpoint(n))), None)
    if found is None:
        what = f"resource {resource} is no browser" if resource else "it has no browser resource"
        raise RuntimeUnavailable(f"no page in environment {spec.name}: {what}", fix="use an environment with a `browser` resource")
    return found


def resolve(address: str) -> tuple[str, dict[str, str]]:
    """Return what `connect_over_cdp` takes: the address, and the header with the secret that lies in a file where the browser is
    shared. Blocking."""
    url, _, secret_file = address.partition("#")
    return url, {SECRET: Path(secret_file).read_text().strip()} if secret_file else {}


class Pages:
    """One Playwright for all sessions of a pool, and one connection for each session that asked for a page."""

    def __init__(self) -> None:
        self._playwright: Any = None
        self._starting = asyncio.Lock()
        self._browsers: dict[str, Browser] = {}
        self._open: dict[str, asyncio.Lock] = {}  # of sessions that were not forgotten: one connection each
        self._tabs: dict[str, Page] = {}
        self._left: dict[str, str] = {}  # where the tab was whose connection was ended for a while

    async def page(self, session: str, address: str) -> Page:
        """Return the first tab of the session's browser: of several that a new connection finds, whose order is chance, the one
        that it had before, else the first by address. Raises RuntimeUnavailable or InstanceLost."""
        lock = self._open.setdefault(session, asyncio.Lock())
        async with lock:
            browser = self._browsers.get(session)
            if browser is None or not browser.is_connected():
                browser = await self._connect(address)
                if self._open.get(session) is not lock:
                    await run_shielded(_quietly(browser.close(), "connection"))
                    raise InstanceLost("the session ended, or was scored, while its page was opened", fix="ask for a new session")
                self._browsers[session] = browser
                self._tabs.pop(session, None)
            try:
                return await self._tab(session, browser, lock)
            except Exception as error:
                said = f"no tab in {OPEN_S:g} s" if isinstance(error, TimeoutError) else _said(error)
                raise InstanceLost(f"the session's browser opens no page: {said}", fix="ask for a new session") from error

    async def _tab(self, session: str, browser: Browser, lock: asyncio.Lock) -> Page:
        tab = self._tabs.get(session)
        if tab is None or tab.is_closed():
            async with asyncio.timeout(OPEN_S):
                contexts = browser.contexts
                context = contexts[0] if contexts else await browser.new_context()
                left = self._left.pop(session, None)
                tab = min(context.pages, key=lambda tab: (tab.url != left, tab.url), default=None) or await context.new_page()
            if self._open.get(session) is lock:
                self._tabs[session] = tab
        return tab

    async def act(self, session: str, address: str, action: PageAction) -> PageResult:
        """Do something on that tab. What a page refuses, or an element that is not there, is a result. Raises as `page` does."""
        page = await self.page(session, address)
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(ACT_S):
                if action.do is PageDo.GOTO:
                    page = await _goto(page, action.at)
                    if session in self._tabs:
                        self._tabs[session] = page
                done = await _act(page, action)
            return replace(done, text=done.text[:LONGEST])
        except TimeoutError:
            return PageResult(text=f"the page does not answer in {ACT_S:g} s", ok=False)
        except Exception as error:
            if not isinstance(error, Error) and "closed" not in str(error):
                raise
            said = _said(error)
            if not isinstance(error, Error) or ("closed" in said and not await _answers(page)):
                raise InstanceLost(f"the session's browser is gone: {said}", fix="ask for a new session") from error
            return PageResult(text=said, ok=False)

    async def _connect(self, address: str) -> Browser:
        try:
            url, headers = await in_thread(resolve, address)
        except OSError as error:
            raise InstanceLost("the session's way to its browser was taken away", fix="ask for a new session") from error
        said: BaseException = AssertionError()
        for _ in range(2):
            driver = await self._driver()
            try:
                browser: Browser = await driver.chromium.connect_over_cdp(url, timeout=CONNECT_S * 1000, headers=headers)
            except Exception as error:  # noqa: BLE001 - Playwright's driver ends with a bare Exception
                said = error
                if "closed" in str(error) and self._playwright is driver:
                    self._playwright = None  # its process has ended: a fresh one is tried once
                    continue
                break
            return browser
        raise InstanceLost(f"the session's browser does not answer: {_said(said)}") from said

    async def _driver(self) -> Any:
        async with self._starting:
            if self._playwright is None:
                try:
                    from playwright.async_api import async_playwright
                except ImportError as error:
                    raise RuntimeUnavailable("Playwright is not installed", fix=_FIX) from error
                await run_shielded(self._start(async_playwright()))  # half started, its process would be nobody's
            return self._playwright

    async def _start(self, playwright: Any) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                self._playwright = await playwright.start()
        except TimeoutError as error:
            raise RuntimeUnavailable(f"Playwright does not start in {CONNECT_S:g} s", fix=_FIX) from error

    async def forget(self, session: str, *, comes_back: bool = False) -> None:
        """End a session's connection, whatever state its browser is in. One that `comes_back` finds the tab again that it had."""
        self._open.pop(session, None)
        self._left.pop(session, None)
        tab = self._tabs.pop(session, None)
        if comes_back and tab is not None and not tab.is_closed():
            self._left[session] = tab.url
        browser = self._browsers.pop(session, None)
        if browser is not None:
            await run_shielded(_quietly(browser.close(), "connection"))

    async def close(self) -> None:
        """End every connection and Playwright itself."""
        for session in {*self._open, *self._left}:
            await self.forget(session)
        async with self._starting:  # one that starts just now ends, too
            playwright, self._playwright = self._playwright, None
        if playwright is not None:
            await run_shielded(_quietly(playwright.stop(), "driver"))


@asynccontextmanager
async def open_pages() -> AsyncIterator[Pages]:
    """Pages for as long as the block runs."""
    pages = Pages()
    try:
        yield pages
    finally:
        await pages.close()


async def _act(page: Page, action: PageAction) -> PageResult:
    there = page.locator(action.at).first  # looked for when it is used
    match action.do:
        case PageDo.CLICK:
            await there.click(timeout=WAIT_MS)
        case PageDo.FILL:
            await there.fill(action.text, timeout=WAIT_MS)
            return PageResult(text="filled")
        case PageDo.SELECT:
            chosen = await there.select_option(action.text, timeout=WAIT_MS)
            return PageResult(text=f"selected {', '.join(chosen)}")
        case PageDo.UPLOAD:
            file: Any = {"name": action.text, "mimeType": "application/octet-stream", "buffer": action.data}
            await there.set_input_files(file, timeout=WAIT_MS)
            return PageResult(text=f"{action.text}, {len(action.data)} bytes")
    text = await page.locator("body").inner_text(timeout=WAIT_MS)
    return PageResult(text=f"{page.url[:_SHOWN]}\n{(await page.title())[:_SHOWN]}\n{text}")


async def _goto(page: Page, address: str) -> Page:
    """A tab that crashed goes nowhere any more: another one takes its place, as it does for a person who types an address."""
    from playwright.async_api import Error

    try:
        await page.goto(address, timeout=LOAD_MS)
    except Error as error:
        if not any(word in _said(error) for word in ("crashed", "frame was detached")):  # it says the latter while it crashes
            raise
        crashed, page = page, await page.context.new_page()
        await crashed.close()
        await page.goto(address, timeout=LOAD_MS / 2)
    return page


async def _answers(page: Page) -> bool:
    """Ask the browser for something: Playwright may not have heard yet that its connection ended, and never hears of its driver."""
    browser = page.context.browser
    if browser is None or not browser.is_connected():
        return False
    try:
        async with asyncio.timeout(_CLOSE_S):
            await page.context.cookies("http://localhost/")
    except Exception as error:  # noqa: BLE001 - however it does not answer
        log.debug("no answer", extra={"event": "pages.gone", "reason": _said(error)})
        return False
    return True


def _said(error: BaseException) -> str:
    """The first line of what Playwright says; it may quote an address or a selector of any length."""
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:_SHOWN]


async def _quietly(ending: Any, what: str) -> None:
    """What is being thrown away may fail or hang on the way."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await ending
    except Exception as error:  # noqa: BLE001 - Playwright's errors have no common base that can be named without loading it
        log.warning("browser not left in order", extra={"event": "pages.close", "part": what, "reason": str(error)})
