"""Running steps side by side, with the one error that matters."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from sandbox.aio import run_shielded
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
    """Run every step to its end, whatever becomes of the others, also when the caller is cancelled; then raise the first error."""
    if steps:
        await run_shielded(_all_of(steps))


async def _all_of(steps: Sequence[Coroutine[Any, Any, Any]]) -> None:
    done, _ = await asyncio.wait([asyncio.ensure_future(step) for step in steps])
    errors = [error for task in done if (error := task.exception()) is not None]
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
