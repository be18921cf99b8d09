"""The browser's tools over a real session: what a page shows and refuses comes back as text."""

from __future__ import annotations

from typing import Any

import pytest

from rollout.tools.browser import Click, Fill, Goto, Look, Select, Upload
from sandbox.settings import Settings
from sandbox.wiring import open_pool

pytestmark = [pytest.mark.browser, pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(600)]
FORM = "document.body.innerHTML = '<select><option>one</option><option>two</option></select><input type=file><button>Go</button>'"


async def test_pages_are_opened_read_filled_and_their_refusals_told(browsing: Any, settings: Settings, nothing_left: None) -> None:
    async with open_pool([browsing], size=1, settings=settings) as pool, pool.session("browsing", wait=300) as session:
        seen = await Goto().act(session, {"url": "http://portal.test/"})
        assert seen.ok
        assert seen.text.startswith("http://portal.test/\nportal\nHello")
        assert (await Look().act(session, {})).text == seen.text
        assert (await Fill().act(session, {"selector": "input[name=q]", "text": "order 17"})).ok
        page = await session.page()
        assert await page.locator("input[name=q]").input_value() == "order 17"

        await page.evaluate(FORM)
        await session.write_file("/tmp/note.txt", b"four")
        assert (await Select().act(session, {"selector": "select", "option": "two"})).text == "selected two"
        assert (await Upload().act(session, {"selector": "input", "path": "/tmp/note.txt"})).text == "note.txt, 4 bytes"
        assert await page.evaluate("document.querySelector('input').files[0].text()") == "four"
        assert (await Click().act(session, {"selector": "button"})).ok

        refused = await Goto().act(session, {"url": "http://nowhere.test/"})
        assert not refused.ok
        assert "net::" in refused.text
        assert not (await Upload().act(session, {"selector": "input", "path": "/tmp/no-such-file"})).ok
