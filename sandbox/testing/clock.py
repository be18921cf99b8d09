"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta


class FakeClock:
    """`advance` moves time and wakes who slept until then, in order."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._passed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._slept = 0
        self.asleep: set[asyncio.Task[object] | None] = set()  # the tasks that wait for this clock

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return self._passed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slept += 1
        heapq.heappush(self._sleepers, (self._passed + seconds, self._slept, future))
        task = asyncio.current_task()
        self.asleep.add(task)
        try:
            await future
        finally:
            self.asleep.discard(task)

    async def advance(self, seconds: float) -> None:
        """Move time on, waking each sleeper at its own moment, and let what they do begin."""
        end = self._passed + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self._passed = max(self._passed, due)
            if not future.done():
                future.set_result(None)
            await asyncio.sleep(0)
        self._passed = end
        for _ in range(5):
            await asyncio.sleep(0)
