"""Steps on a page that do not end are an action that could not be done, and no fault of the check."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from envs import destructive
from sandbox.model import BrowserAction, DestructiveAction, PageAction, PageDo, PageResult, PageStep
from sandbox.ports import Instance


class World:
    """An instance with a browser, and the pages of it: one that refuses to answer."""

    ended = False

    def endpoint(self, resource: str) -> str:
        return "ws://here"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[World]:
        try:
            yield self
        finally:
            self.ended = True

    async def act(self, session: str, address: str, action: PageAction) -> PageResult:
        await asyncio.Event().wait()
        raise AssertionError


async def test_steps_that_do_not_end_are_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    world: Any = World()
    monkeypatch.setattr(destructive, "open_pages", world.open)
    monkeypatch.setattr(destructive, "LIMIT_S", 0.05)
    steps = (PageStep(action=PageAction(do=PageDo.CLICK, at="a")),)
    action = DestructiveAction(name="a", resource="web", browser=BrowserAction(steps=steps))

    said = await destructive.act(cast("Instance", world), action)

    assert said == "its steps did not end within 0.05 s"
    assert world.ended
