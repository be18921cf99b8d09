"""Helpers for asyncio that finish what must be finished.

The only module that calls `asyncio.shield`. A bare shield is not enough: the caller that is cancelled would leave while the
inner work still runs, and nobody would wait for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
MOST_LEFT = 32
_left: set[threading.Thread] = set()  # readers that were given up and may still run


async def run_shielded(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end even when the caller is cancelled, then re-raise the cancellation.

    `work` must have deadlines of its own. Its result or error is returned or raised; when the caller was cancelled and `work`
    failed too, the cancellation wins and carries the error as its cause.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:  # noqa: BLE001 - the task holds it; it is raised below
            break
    if cancelled is None:
        return task.result()
    if not task.cancelled() and (failure := task.exception()) is not None:
        raise cancelled from failure
    raise cancelled


async def undo(error: BaseException, *works: Coroutine[Any, Any, object]) -> None:
    """Run the clean-ups of what `error` cut short, each to its end, before it is raised again. What fails in them is a note of it:
    it must not replace what happened, least of all a cancellation. One that comes meanwhile is raised at the end."""
    cancelled: asyncio.CancelledError | None = None
    for work in works:
        try:
            await run_shielded(work)
        except asyncio.CancelledError as late:
            cancelled = late
        except Exception as failed:  # noqa: BLE001 - whatever it is, it is told with the error that comes first
            error.add_note(f"its clean-up failed, too: {type(failed).__name__}: {failed}")
    if cancelled is not None:
        raise cancelled


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking `function` in the default executor; when cancelled, wait for it to end before re-raising."""
    return await in_executor(None, function, *args, **kwargs)


async def in_executor(executor: Executor | None, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `in_thread`, in the given executor."""
    loop = asyncio.get_running_loop()

    async def call() -> T:
        return await loop.run_in_executor(executor, partial(function, *args, **kwargs))

    return await run_shielded(call())


async def read_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking read in a thread of its own; when cancelled, leave it behind at once.

    Only for what changes nothing: where `in_thread` waits for the work, a reader that something hostile holds up must not hold up
    its caller's deadline too. At most MOST_LEFT readers may be left behind and still run; then RuntimeError.
    """
    _left.difference_update([thread for thread in _left if not thread.is_alive()])
    if len(_left) >= MOST_LEFT:
        raise RuntimeError(f"{len(_left)} reads that were given up have not ended yet; no other is begun")
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if ended.done():
            return  # left behind
        if error is None:
            ended.set_result(result)  # type: ignore[arg-type]
        else:
            ended.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - the future holds it
            failure = error
        with suppress(RuntimeError):  # the loop has closed: nobody waits
            loop.call_soon_threadsafe(settle, result, failure)

    thread = threading.Thread(target=work, name="read", daemon=True)
    thread.start()
    try:
        return await ended
    except asyncio.CancelledError:
        _left.add(thread)
        raise


async def poll(ready: Callable[[], Awaitable[bool]], *, timeout: float, interval: float = 0.001, slowest: float = 0.05) -> bool:
    """Ask `ready` until it says True or `timeout` seconds pass; the interval grows by half up to `slowest`."""
    try:
        async with asyncio.timeout(timeout):
            while not await ready():
                await asyncio.sleep(interval)
                interval = min(interval * 1.5, slowest)
    except TimeoutError:
        return False
    return True
