"""Pages of sessions: in process and from another one, gone with their generation, and nothing of them in the next."""

from __future__ import annotations

import pytest

from envs.environment import LoadedEnvironment
from sandbox import ClearanceState, Depth, Pool
from sandbox.errors import RuntimeUnavailable, StaleGeneration
from sandbox.service import Server
from sandbox.settings import Settings
from sandbox.wiring import open_pool

pytestmark = [pytest.mark.namespaces, pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


async def test_a_page_dies_with_its_generation_and_the_next_session_has_nothing_of_it(
    settings: Settings, nothing_left: None, browsing: LoadedEnvironment
) -> None:
    from playwright.async_api import Error, async_playwright

    async with open_pool([browsing], settings=settings) as pool, async_playwright() as own:
        async with pool.session("browsing", wait=300, ttl=300) as first:
            page = await first.page()
            await page.goto("http://portal.test/")
            assert await page.title() == "portal"
            await page.evaluate("document.cookie = 'mine=1; max-age=999'; localStorage.setItem('mine', '1')")
            await page.context.new_page()
            assert await first.page() is page
            address = first.endpoint("web")
            borrowed = await own.chromium.connect_over_cdp(address)
            context = borrowed.contexts[0]
            assert {c["name"] for c in await context.cookies()} == {"mine", "theme"}
        with pytest.raises(StaleGeneration):
            await first.page()
        with pytest.raises(Error):
            await page.title()
        with pytest.raises(Error):
            await context.cookies()
        with pytest.raises(Error):
            await own.chromium.connect_over_cdp(address, timeout=5000)

        async with pool.session("browsing", wait=300, ttl=300) as second:
            page = await second.page()
            assert len(page.context.pages) == 1
            assert {c["name"] for c in await page.context.cookies()} == {"theme"}
            await page.goto("http://portal.test/")
            assert await page.evaluate("[localStorage.seen, localStorage.mine]") == ["yes", None]
            assert not borrowed.is_connected()
            with pytest.raises(Error):
                await own.chromium.connect_over_cdp(address, timeout=5000)
        found = await pool.cleared([first.trajectory_id, second.trajectory_id], timeout=300, depth=Depth.DEEP)
        assert {c.state for c in found.values()} == {ClearanceState.CLEARED}


async def test_a_page_of_a_pool_in_another_process(settings: Settings, nothing_left: None, browsing: LoadedEnvironment) -> None:
    async with open_pool([browsing], settings=settings) as pool, Server(pool, settings), Pool.connect(settings) as remote:
        async with remote.session("browsing", wait=300, ttl=300) as session:
            page = await session.page()
            await page.goto("http://other.test/")
            assert await page.title() == "portal"
            async with page.expect_download() as download:
                await page.evaluate("location.href = '/slow.bin'")
            assert (await download.value).suggested_filename == "file.bin"
            done = await session.run(["python3", "-c", REACH])
            assert done.text.strip() == "101", done
        await remote.cleared([session.trajectory_id], timeout=300)


REACH = """
import os, socket
path = os.environ["WEB_CDP"].removeprefix("ws+unix://").removesuffix(":/")
s = socket.socket(socket.AF_UNIX); s.connect(path)
lines = ["GET / HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: " + "A" * 22 + "==", "", ""]
s.sendall("\\r\\n".join(lines).encode())
print(s.recv(4096).split()[1].decode())
"""


async def test_an_environment_without_a_browser_has_no_page(settings: Settings, nothing_left: None) -> None:
    async with Pool.open(["repo"], size=1, settings=settings) as pool, pool.session("repo", wait=120) as session:
        with pytest.raises(RuntimeUnavailable, match="browser"):
            await session.page()
