"""What of a browser that several share is the browser's own, while parts of it come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.browser import shared
from sandbox.ports import Sharing
from sandbox.resources.browser.cdp import connect

OWN, PART, GONE = "own", "part", "gone"
POPUP = "chrome://omnibox-popup.top-chrome/"
Target = dict[str, str]


def target(name: str, context: str, kind: str = "page", url: str = "about:blank") -> Target:
    return {"targetId": name, "browserContextId": context, "type": kind, "url": url}


class Browser:
    """Answers as Chromium does; its targets are other ones at each look, and the last look's for ever."""

    def __init__(self, *looks: list[Target], tells: bool = True) -> None:
        self._looks: Iterator[list[Target]] = iter(looks)
        self._now: list[Target] = []
        self._contexts = {"browserContextIds": [PART], **({"defaultBrowserContextId": OWN} if tells else {})}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = json.loads((await reader.readuntil(b"\0"))[:-1])
                writer.write(json.dumps({"id": asked["id"], "result": self._answer(asked["method"])}).encode() + b"\0")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, method: str) -> dict[str, Any]:
        if method == "Target.getTargets":
            self._now = next(self._looks, self._now)
        answers: dict[str, dict[str, Any]] = {
            "Target.getTargets": {"targetInfos": self._now},
            "Target.getBrowserContexts": self._contexts,
            "Browser.getWindowForTarget": {"bounds": {"width": 800, "height": 600, "windowState": "normal"}},
            "Storage.getCookies": {"cookies": []},
            "Relay.parts": {"parts": {"one": PART}, "changing": False, "spare": None, "commons": None},
            "Relay.commons": {"clipboard": [], "screens": []},
        }
        return answers.get(method, {})


async def read(browser: Browser, place: Path) -> dict[str, str]:
    server = await asyncio.start_unix_server(browser.serve, place / "cdp")
    try:
        async with asyncio.timeout(30), connect(str(place / "cdp")) as cdp:
            return await shared.read_shared(cdp, Sharing(own=None, names=frozenset({"one"})))
    finally:
        server.close()


FIRST = [target("a", OWN), target("b", PART), target("t", OWN, "tab")]


async def test_what_a_part_leaves_behind_for_a_moment_is_no_state_of_the_browser(tmp_path: Path) -> None:
    """Sixteen sessions at once gave false alarms: a window's popups outlive their context a little."""
    still = [target("c", GONE, "browser_ui", POPUP), target("d", GONE)]
    fields = await read(Browser([*FIRST, *still], [*FIRST, still[0]], FIRST), tmp_path)
    assert fields["targets"] == "1"
    assert not [name for name in fields if POPUP in name]


async def test_ends_of_other_parts_that_come_meanwhile_are_not_waited_for(tmp_path: Path) -> None:
    looks = [[*FIRST, target(str(number), GONE, "browser_ui", POPUP)] for number in range(100)]
    assert (await read(Browser(*looks), tmp_path))["targets"] == "1"


async def test_what_stays_without_a_context_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_LEAVING_S", 0.1)
    fields = await read(Browser([*FIRST, target("c", GONE, "browser_ui", POPUP)]), tmp_path)
    assert fields["targets"] == "2"


@pytest.mark.parametrize("tells", [True, False])
async def test_what_is_the_browsers_own_counts_at_once(tmp_path: Path, tells: bool) -> None:
    left = target("c", OWN if tells else GONE, "worker", "blob:x")
    assert (await read(Browser([*FIRST, left], FIRST, tells=tells), tmp_path))["targets"] == "2"
