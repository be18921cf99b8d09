"""Steps side by side: a caller that is cancelled leaves nothing running behind it."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.errors import InstanceLost
from sandbox.runtimes.group.together import all_of, together


async def test_all_of_ends_its_steps_also_when_it_is_cancelled() -> None:
    begun, gate, ended = asyncio.Event(), asyncio.Event(), list[int]()

    async def step(number: int) -> None:
        begun.set()
        await gate.wait()
        ended.append(number)

    caller = asyncio.create_task(all_of(step(1), step(2)))
    await begun.wait()
    caller.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not caller.done()  # it waits for what it started
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert sorted(ended) == [1, 2]


async def test_all_of_runs_the_others_when_one_fails_and_tells_our_error_first() -> None:
    ended: list[str] = []

    async def fails(error: Exception) -> None:
        raise error

    async def goes_on() -> None:
        await asyncio.sleep(0)
        ended.append("done")

    with pytest.raises(InstanceLost, match="gone"):
        await all_of(fails(OSError("disk")), fails(InstanceLost("gone")), goes_on())
    assert ended == ["done"]
    await all_of()


async def test_together_cancels_the_others_when_one_fails() -> None:
    cancelled = asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def fails() -> None:
        raise InstanceLost("gone")

    with pytest.raises(InstanceLost):
        await together(waits(), fails())
    assert cancelled.is_set()
