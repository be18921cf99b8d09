"""Faults that a test scripts: which step fails, how often, and which one waits for a gate."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque


class Faults:
    """Steps: `build`, `derive`, `start`, `restore`, `reset_in_place`, `revoke`, `close`, `snapshot`, `run`, `quiesce`, `score`."""

    def __init__(self) -> None:
        self._errors: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self._gates: dict[str, asyncio.Event] = {}
        self.calls: defaultdict[str, int] = defaultdict(int)

    def fail(self, step: str, error: Exception, *, times: int = 1) -> None:
        """Let the next `times` calls of `step` raise `error`."""
        self._errors[step].extend([error] * times)

    def mend(self, step: str) -> None:
        self._errors.pop(step, None)

    def hold(self, step: str) -> asyncio.Event:
        """Let `step` wait until the returned event is set."""
        self._gates[step] = asyncio.Event()
        return self._gates[step]

    async def at(self, step: str) -> None:
        self.calls[step] += 1
        if (gate := self._gates.get(step)) is not None:
            await gate.wait()
        if self._errors[step]:
            raise self._errors[step].popleft()
