"""Steps on a page: which count as done where they do not end, or end the browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from envs import destructive
from sandbox.errors import InstanceLost
from sandbox.model import BrowserAction, DestructiveAction, PageAction, PageDo, PageResult, PageStep
from sandbox.ports import Instance


class World:
    """An instance with a browser, and the pages of it: one that refuses to answer."""

    ended = False
    lost = False

    def endpoint(self, resource: str) -> str:
        return "ws://here"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[World]:
        try:
            yield self
        finally:
            self.ended = True

    async def page(self, session: str, address: str) -> None:
        if self.lost:
            raise InstanceLost("the session's browser does not answer")

    async def act(self, session: str, address: str, action: PageAction) -> PageResult:
        if action.do is PageDo.GOTO:
            raise InstanceLost("the session's browser is gone")
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


@pytest.mark.parametrize(("lost", "said"), [(False, None), (True, "the session's browser does not answer")])
async def test_steps_that_end_the_browser_are_done_and_those_that_never_reached_one_are_not(
    monkeypatch: pytest.MonkeyPatch, lost: bool, said: str | None
) -> None:
    world: Any = World()
    world.lost = lost
    monkeypatch.setattr(destructive, "open_pages", world.open)
    steps = (PageStep(action=PageAction(do=PageDo.GOTO, at="chrome://crash")),)
    action = DestructiveAction(name="a", resource="web", browser=BrowserAction(steps=steps))

    assert await destructive.act(cast("Instance", world), action) == said
