"""Queues with a rule: by priority, by turns, by rate, with retries."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Any


class Empty(LookupError):
    """There is nothing to take."""


class PriorityQueue:
    """Higher priorities first; among equals, who came first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, item: Any, priority: int = 0) -> None:
        heapq.heappush(self._heap, (-priority, self._count, item))
        self._count += 1

    def take(self) -> Any:
        if not self._heap:
            raise Empty("the queue is empty")
        return heapq.heappop(self._heap)[2]

    def peek(self) -> Any:
        if not self._heap:
            raise Empty("the queue is empty")
        return self._heap[0][2]

    def drain(self) -> list[Any]:
        """Take all that are there."""
        return [self.take() for _ in range(len(self))]


class RoundRobin:
    """One lane per customer; each gets a turn, whatever the length of its lane."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Any]] = {}
        self._turns: deque[str] = deque()

    def put(self, lane: str, item: Any) -> None:
        if lane not in self._lanes:
            self._lanes[lane] = deque()
            self._turns.append(lane)
        self._lanes[lane].append(item)

    def take(self) -> tuple[str, Any]:
        if not self._turns:
            raise Empty("the queue is empty")
        lane = self._turns.popleft()
        item = self._lanes[lane].popleft()
        if self._lanes[lane]:
            self._turns.append(lane)
        else:
            del self._lanes[lane]
        return lane, item

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Take until it is empty."""
        while self._turns:
            yield self.take()


class TokenBucket:
    """Lets through `rate` a second on average and `burst` at once."""

    def __init__(self, rate: float, burst: int, now: float = 0.0) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError("rate and burst must be positive")
        self.rate = rate
        self.burst = burst
        self._tokens = float(burst)
        self._at = now

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(float(self.burst), self._tokens + (now - self._at) * self.rate)
            self._at = now

    def allow(self, now: float, cost: int = 1) -> bool:
        """Take tokens if there are enough."""
        self._fill(now)
        if cost > self._tokens:
            return False
        self._tokens -= cost
        return True

    def wait(self, now: float, cost: int = 1) -> float:
        """Return the seconds until `cost` would pass, 0.0 for at once; what never fits is refused."""
        if cost > self.burst:
            raise ValueError("more than the bucket holds")
        self._fill(now)
        missing = cost - self._tokens
        return max(0.0, missing / self.rate)


def backoff(attempt: int, base: float = 1.0, factor: float = 2.0, ceiling: float = 60.0) -> float:
    """Return how long to wait before attempt 1, 2, 3 ...; the first is at once."""
    if attempt < 1:
        raise ValueError("attempts count from 1")
    if attempt == 1:
        return 0.0
    return min(ceiling, base * factor ** (attempt - 2))


def batches(items: list[Any], size: int) -> list[list[Any]]:
    """Cut into lists of `size`; the last may be shorter."""
    if size < 1:
        raise ValueError("a batch holds at least one item")
    return [items[start : start + size] for start in range(0, len(items), size)]
