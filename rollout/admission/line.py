"""Places for a fixed number of holders, and a bounded line before them: higher priority first, first come first served within."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from rollout.errors import Saturated


class Line:
    """`limit` places. At most `waiting` callers stand in line; one more is refused at once with Saturated."""

    def __init__(self, name: str, *, limit: int, waiting: int) -> None:
        if limit < 1 or waiting < 0:
            raise ValueError(f"{name}: a limit of at least 1 and a line of at least 0 are needed, not {limit} and {waiting}")
        self.name = name
        self.limit = limit
        self.most_waiting = waiting
        self.held = 0
        self._heap: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        return sum(1 for entry in self._heap if not entry[2].done())

    @property
    def full(self) -> bool:
        return self.held >= self.limit and self.waiting >= self.most_waiting

    async def acquire(self, priority: float = 0) -> None:
        """Wait for a place; the caller's deadline bounds the wait."""
        if self.held < self.limit and not self.waiting:
            self.held += 1
            return
        if self.waiting >= self.most_waiting:
            raise Saturated(
                f"{self.name}: all {self.limit} places are taken and {self.most_waiting} wait",
                fix="admit less, or raise its limit where the dependency allows",
            )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, (-priority, next(self._numbers), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release()  # the place was handed over as the caller was cancelled
            raise

    def release(self) -> None:
        """Hand the place to the first in line, or take it back."""
        while self._heap:
            _, _, future = heapq.heappop(self._heap)
            if not future.done():
                future.set_result(None)
                return
        self.held -= 1
