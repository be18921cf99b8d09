"""Who waits for a namespace, in which order, and the hand-over that the receiver confirms.

A request that is cancelled or times out at the very moment of the hand-over must not take the namespace with it: `offer` says
whether the waiter accepted, and a waiter that accepted and was then cancelled gives the namespace back.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from sandbox.errors import AutoclaveError, LimitReached
from sandbox.ports import Clock

T = TypeVar("T")


class Waiter(Generic[T]):
    """One request that waits. `wants` is what it would best be given; `promised` is what is being made so for it.

    `awaits_leases` is False where it waits for what is on its way only, and not for somebody's lease to end.
    """

    __slots__ = ("_future", "awaits_leases", "key", "promised", "wants")

    def __init__(self, key: tuple[float, int], wants: Any = None, *, awaits_leases: bool = True) -> None:
        self.key = key
        self.wants = wants
        self.awaits_leases = awaits_leases
        self.promised: T | None = None
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def __lt__(self, other: Waiter[T]) -> bool:
        return self.key < other.key

    @property
    def gone(self) -> bool:
        return self._future.done()

    def offer(self, thing: T) -> bool:
        """Hand `thing` over; False when the waiter has left, so that the next one is asked."""
        if self._future.done():
            return False
        self._future.set_result(thing)
        return True

    def fail(self, error: AutoclaveError) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    async def received(self, give_back: Callable[[T], None]) -> T:
        """Wait for the hand-over. The caller's deadline is an `asyncio.timeout` around this call."""
        try:
            return await self._future
        except asyncio.CancelledError:
            if self._future.done() and not self._future.cancelled() and self._future.exception() is None:
                give_back(self._future.result())
            self._future.cancel()
            raise


class WaitingLine(Generic[T]):
    """A bounded priority line: higher priority first, first come first served within, and ageing.

    A request's rank is `priority + waited / ageing_s`. Everyone ages at the same pace, so the order between two requests never
    changes and `joined / ageing_s - priority` can be a heap's fixed key.
    """

    def __init__(self, *, clock: Clock, limit: int, ageing_s: float) -> None:
        self._clock = clock
        self._limit = limit
        self._ageing_s = ageing_s
        self._heap: list[Waiter[T]] = []
        self._joined = 0

    def __len__(self) -> int:
        return sum(not waiter.gone for waiter in self._heap)

    def join(self, priority: int = 0, *, wants: Any = None, since: float | None = None, awaits_leases: bool = True) -> Waiter[T]:
        """Take a place, as one that waits since then (monotonic; now by default); raise LimitReached when the line is full."""
        if len(self._heap) >= self._limit:
            self._sweep()
            if len(self._heap) >= self._limit:
                raise LimitReached(
                    f"{self._limit} requests wait already (limits.queue)",
                    fix="ask again later, or open the pool with a larger size",
                )
        self._joined += 1
        joined = self._clock.monotonic() if since is None else since
        key = (joined / self._ageing_s - priority, self._joined)
        waiter: Waiter[T] = Waiter(key, wants, awaits_leases=awaits_leases)
        heapq.heappush(self._heap, waiter)
        return waiter

    def promise(self, thing: T) -> Waiter[T] | None:
        """Say for whom `thing` is being made ready: the first in order that has no promise yet. It is an aim, not a claim."""
        open_ones = [waiter for waiter in self._heap if waiter.promised is None and not waiter.gone]
        if not open_ones:
            return None
        first = min(open_ones)
        first.promised = thing
        return first

    def hand(self, thing: T) -> bool:
        """Offer `thing` to whom it was promised, else in order until someone accepts; False when nobody waits."""
        for waiter in self._heap:
            if waiter.promised is thing and waiter.offer(thing):
                return True
        while self._heap:
            if heapq.heappop(self._heap).offer(thing):
                return True
        return False

    def fail_all(self, error: AutoclaveError, *, only: Callable[[Waiter[T]], bool] = lambda _: True) -> None:
        """Tell all who wait, or `only` those, that nothing will come."""
        for waiter in sorted(self._heap):  # in order: who asks again at once keeps it
            if only(waiter):
                waiter.fail(error)
        self._sweep()

    def _sweep(self) -> None:
        self._heap = [waiter for waiter in self._heap if not waiter.gone]
        heapq.heapify(self._heap)
