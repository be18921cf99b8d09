"""Taking turns at a shared instance."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.pool.turn import Turn


async def test_many_work_on_parts_and_one_on_the_whole() -> None:
    turn, said = Turn(), list[str]()
    leave = asyncio.Event()

    async def part(name: str) -> None:
        async with turn.part():
            said.append(f"{name} in")
            await leave.wait()
        said.append(f"{name} out")

    async def whole() -> None:
        async with turn.whole():
            said.append("whole")

    async with asyncio.TaskGroup() as group:
        group.create_task(part("a"))
        group.create_task(part("b"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        group.create_task(whole())
        await asyncio.sleep(0)
        group.create_task(part("late"))  # who wants the whole goes before those who come after
        for _ in range(5):
            await asyncio.sleep(0)
        assert said == ["a in", "b in"]
        leave.set()

    assert said.index("whole") < said.index("late in")
    assert {*said[2:4]} == {"a out", "b out"}


async def test_a_wait_that_is_cancelled_leaves_nothing_behind() -> None:
    turn = Turn()
    async with turn.part():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), turn.whole():
                raise AssertionError("somebody works on a part")
    async with asyncio.timeout(5), turn.part():
        pass
    async with asyncio.timeout(5), turn.whole():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), turn.part():
                raise AssertionError("somebody works on the whole")
    async with asyncio.timeout(5), turn.part(), turn.part():
        pass
