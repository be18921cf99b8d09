"""The pool's background tasks, in one TaskGroup that a task of its own holds.

The group does not live in the caller's task: a pool may be entered in one task and left in another (fixtures, servers), and a
failed background step must never cancel the user's code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")


class Crew:
    """Runs background work. `quiet` waits until none is left; `stop` cancels what goes on for ever."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._holder: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._work: set[asyncio.Task[Any]] = set()
        self._duties: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        started = asyncio.Event()
        self._holder = asyncio.create_task(self._hold(started), name="pool crew")
        await started.wait()

    async def _hold(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as self._group:
            started.set()
            await self._stop.wait()
            for task in (*self._duties, *self._work):
                task.cancel()

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T | None]:
        """Run `work` to its end; an error is logged, and the task's result is then None."""
        if self._group is None:
            work.close()
            raise RuntimeError("the crew has not started")
        task = self._group.create_task(self._guarded(work, name), name=name)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def keep(self, duty: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run a duty that ends only with `stop`."""
        if self._group is None:
            duty.close()
            raise RuntimeError("the crew has not started")
        task = self._group.create_task(duty, name=name)
        self._duties.add(task)

    async def quiet(self) -> None:
        """Wait for the work under way, and for what it starts in turn. Each piece of work has deadlines of its own."""
        while self._work:
            await asyncio.wait(set(self._work))

    def end_duties(self) -> None:
        for task in self._duties:
            task.cancel()

    async def stop(self) -> None:
        self._stop.set()
        if self._holder is not None:
            await asyncio.wait({self._holder})

    async def _guarded(self, work: Coroutine[Any, Any, T], name: str) -> T | None:
        try:
            return await work
        except Exception:
            log.exception("background work failed", extra={"event": "pool.work_failed", "work": name})
            return None
