"""Taking turns at a shared instance: many work on parts of it at once, or one on all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turn:
    """Who wants the whole goes before those who come after it. Not re-entrant; the deadline of a wait is the caller's."""

    def __init__(self) -> None:
        self._change = asyncio.Condition()
        self._parts = 0
        self._wholes = 0  # waiting or working
        self._whole = False

    @asynccontextmanager
    async def part(self) -> AsyncIterator[None]:
        async with self._change:
            await self._change.wait_for(lambda: not self._wholes)
            self._parts += 1
        try:
            yield
        finally:
            self._parts -= 1
            await self._tell()

    @asynccontextmanager
    async def whole(self) -> AsyncIterator[None]:
        self._wholes += 1
        try:
            async with self._change:
                await self._change.wait_for(lambda: not self._whole and not self._parts)
                self._whole = True
            try:
                yield
            finally:
                self._whole = False
        finally:
            self._wholes -= 1
            await self._tell()

    async def _tell(self) -> None:
        async with self._change:
            self._change.notify_all()
