"""A deadline by the given clock, so that tests can let time pass; with the machine's clock it is an ordinary timeout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox.clock import SystemClock
from sandbox.ports import Clock


@asynccontextmanager
async def deadline(clock: Clock, seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Raise TimeoutError from the block when `seconds` have passed on `clock`."""
    if isinstance(clock, SystemClock):
        async with asyncio.timeout(seconds) as scope:
            yield scope
        return
    async with asyncio.timeout(None) as scope:
        timer = asyncio.create_task(_expire(clock, seconds, scope))
        try:
            yield scope
        finally:
            timer.cancel()


async def _expire(clock: Clock, seconds: float, scope: asyncio.Timeout) -> None:
    await clock.sleep(seconds)
    if not scope.expired():
        scope.reschedule(asyncio.get_running_loop().time())
