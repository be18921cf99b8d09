"""Playwright pages on the browsers of sessions. The only module that uses Playwright, which is loaded with the first page."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.aio import in_thread, run_shielded
from sandbox.errors import InstanceLost, RuntimeUnavailable

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

log = logging.getLogger(__name__)
CONNECT_S = 60.0
SECRET = "x-autoclave-secret"
_CLOSE_S = 10.0
_FIX = "pip install 'autoclave[browser]'; no browser need be downloaded"


def is_browser(address: str) -> bool:
    """True for the address of something that speaks the DevTools protocol."""
    return address.startswith(("ws+unix://", "ws://"))


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

    async def page(self, session: str, address: str) -> Page:
        """Return the first tab of the session's browser. Raises RuntimeUnavailable or InstanceLost."""
        lock = self._open.setdefault(session, asyncio.Lock())
        async with lock:
            browser = self._browsers.get(session)
            if browser is None or not browser.is_connected():
                browser = await self._connect(address)
                if self._open.get(session) is not lock:
                    await run_shielded(_quietly(browser.close(), "connection"))
                    raise InstanceLost("the session ended while its page was opened", fix="ask for a new session")
                self._browsers[session] = browser
        contexts = browser.contexts
        context = contexts[0] if contexts else await browser.new_context()
        return context.pages[0] if context.pages else await context.new_page()

    async def _connect(self, address: str) -> Browser:
        try:
            url, headers = await in_thread(resolve, address)
        except OSError as error:
            raise InstanceLost("the session's way to its browser was taken away", fix="ask for a new session") from error
        said: Exception | None = None
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
        raise InstanceLost(f"the session's browser does not answer: {str(said).splitlines()[0]}") from said

    async def _driver(self) -> Any:
        async with self._starting:
            if self._playwright is None:
                try:
                    from playwright.async_api import async_playwright
                except ImportError as error:
                    raise RuntimeUnavailable("Playwright is not installed", fix=_FIX) from error
                self._playwright = await async_playwright().start()
            return self._playwright

    async def forget(self, session: str) -> None:
        """End a session's connection, whatever state its browser is in."""
        self._open.pop(session, None)
        browser = self._browsers.pop(session, None)
        if browser is not None:
            await run_shielded(_quietly(browser.close(), "connection"))

    async def close(self) -> None:
        """End every connection and Playwright itself."""
        for session in list(self._open):
            await self.forget(session)
        playwright, self._playwright = self._playwright, None
        if playwright is not None:
            await run_shielded(_quietly(playwright.stop(), "driver"))


async def _quietly(ending: Any, what: str) -> None:
    """What is being thrown away may fail or hang on the way."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await ending
    except Exception as error:  # noqa: BLE001 - Playwright's errors have no common base that can be named without loading it
        log.warning("browser not left in order", extra={"event": "pages.close", "part": what, "reason": str(error)})
