"""Clean-ups of what an error cut short: each runs, and none takes the error's place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.aio import undo


async def tried(error: BaseException, *works: Any) -> None:
    try:
        raise error
    except BaseException as caught:
        await undo(caught, *works)
        raise


@pytest.mark.parametrize("error", [asyncio.CancelledError(), OSError("the disk")])
async def test_every_clean_up_runs_and_the_error_stays(error: BaseException) -> None:
    done: list[str] = []

    async def clean(name: str, *, fails: bool) -> None:
        done.append(name)
        if fails:
            raise ValueError(f"{name} is stuck")

    with pytest.raises(type(error)) as found:
        await tried(error, clean("one", fails=True), clean("two", fails=False))

    assert found.value is error
    assert done == ["one", "two"]
    assert error.__notes__ == ["its clean-up failed, too: ValueError: one is stuck"]


async def test_a_cancellation_that_comes_meanwhile_is_raised_when_all_is_clean() -> None:
    done: list[str] = []
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def clean(name: str) -> None:
        reached.set()
        await go_on.wait()
        done.append(name)

    task = asyncio.create_task(tried(OSError("the disk"), clean("one"), clean("two")))
    await reached.wait()
    task.cancel()
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["one", "two"]
