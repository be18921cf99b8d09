"""Caches with a bound: least recently used, time to live, memoised calls."""

from __future__ import annotations

import functools
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class LRU:
    """Keeps the `size` entries used last."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError("a cache holds at least one entry")
        self.size = size
        self.hits = 0
        self.misses = 0
        self._items: OrderedDict[Hashable, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value and mark it as used."""
        if key not in self._items:
            self.misses += 1
            return default
        self.hits += 1
        self._items.move_to_end(key)
        return self._items[key]

    def put(self, key: Hashable, value: Any) -> Hashable | None:
        """Store it; return the key that had to go, None when there was room."""
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self.size:
            gone, _ = self._items.popitem(last=False)
            return gone
        return None

    def ratio(self) -> float:
        """Return the share of hits, 0.0 before the first call."""
        calls = self.hits + self.misses
        return self.hits / calls if calls else 0.0


class Expiring:
    """Keeps each entry for `ttl` seconds."""

    def __init__(self, ttl: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.ttl = ttl
        self._clock = clock
        self._items: dict[Hashable, tuple[float, Any]] = {}

    def put(self, key: Hashable, value: Any, ttl: float | None = None) -> None:
        """Store it, for its own time when one is given."""
        self._items[key] = (self._clock() + (self.ttl if ttl is None else ttl), value)

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value; one whose time is over is forgotten."""
        if key not in self._items:
            return default
        until, value = self._items[key]
        if self._clock() >= until:
            del self._items[key]
            return default
        return value

    def purge(self) -> int:
        """Forget all whose time is over; return how many."""
        now = self._clock()
        old = [key for key, (until, _) in self._items.items() if now >= until]
        for key in old:
            del self._items[key]
        return len(old)

    def __len__(self) -> int:
        return len(self._items)


def memoize(size: int = 128) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Remember the last `size` results by arguments. The cache is at the function's `cache`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        cache = LRU(size)
        missing = object()

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            key = (args, tuple(sorted(kwargs.items())))
            value = cache.get(key, missing)
            if value is missing:
                value = function(*args, **kwargs)
                cache.put(key, value)
            return value

        call.cache = cache  # type: ignore[attr-defined]
        return call

    return decorate
