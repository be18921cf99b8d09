"""Running steps side by side, with the one error that matters."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sandbox.errors import AutoclaveError


async def together(*steps: Coroutine[Any, Any, Any]) -> None:
    """Run every step at once. When one fails the others are cancelled, and the first error of ours (else the first) is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for step in steps:
                group.create_task(step)
    except BaseExceptionGroup as failed:
        raise _first(failed) from failed


async def all_of(*steps: Coroutine[Any, Any, Any]) -> None:
    """Run every step to its end, whatever becomes of the others; then raise the first error."""
    done = await asyncio.wait([asyncio.ensure_future(step) for step in steps]) if steps else (set(), set())
    errors = [error for task in done[0] if (error := task.exception()) is not None]
    if errors:
        raise next((e for e in errors if isinstance(e, AutoclaveError)), errors[0])


def _first(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    flat: list[BaseException] = []
    waiting: list[BaseException] = [failed]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting[:0] = error.exceptions
        else:
            flat.append(error)
    return next((e for e in flat if isinstance(e, AutoclaveError)), flat[0])
