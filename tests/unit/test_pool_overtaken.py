"""What a lease's end overtakes, or is overtaken by: a lease that is being written, a score, a plug-in's error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.model import ClearanceState, TaskSpec
from sandbox.testing import memory_environment


async def test_a_lease_that_is_being_written_keeps_the_pool_from_closing_over_it(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    await bench.quiet()
    asked = asyncio.create_task(pool.acquire("memory", wait=5))
    await asyncio.sleep(0)
    draining = asyncio.create_task(pool.drain(grace_s=5))
    session = await asked
    assert (await session.run(["get", "orders"])).text == "3"
    await session.release()
    await draining
    assert not await bench.ledger.leases()
    assert (await bench.ledger.clearances([session.trajectory_id]))[session.trajectory_id].state is ClearanceState.CLEARED


async def test_any_error_of_a_revocation_ends_the_lease(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    await bench.quiet()
    session = await pool.acquire("memory", wait=5)
    bench.runtime.faults.fail("revoke", RuntimeError("of a plug-in"))
    await session.release()
    await bench.quiet()
    assert not await bench.ledger.leases()
    async with pool.session("memory", wait=5) as again:
        assert (await again.run(["get", "orders"])).text == "3"


@pytest.mark.parametrize("end", ["release", "drain"])
async def test_a_score_that_the_end_of_its_lease_overtook_is_none(bench: Any, end: str) -> None:
    task = TaskSpec(id="t", family="f", difficulty="easy", split="train", prompt="", success={"orders": "done"})
    environment = memory_environment(tasks=[task])
    pool = await bench.open(environment)
    await bench.quiet()
    session = await pool.acquire("memory", task="t", wait=5)
    await session.run(["set", "orders", "done"])
    gate = environment.faults.hold("score")
    scoring = asyncio.create_task(session.score())
    await asyncio.sleep(0.01)
    ending = asyncio.create_task(session.release() if end == "release" else pool.drain(grace_s=0.01))
    while session.outcome is None:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.001)
    if end == "release":
        await ending
        await bench.quiet()  # the namespace is golden again
    gate.set()
    score = await scoring
    await ending
    assert (score.reward, score.success) == (None, False)


async def test_an_instance_that_is_not_the_one_that_was_checked_is_not_handed_out(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    await bench.quiet()
    next(iter(bench.machine.running)).generation -= 1  # something came up late, over what was checked
    async with pool.session("memory", wait=30) as session:
        assert session.lease.generation == next(iter(bench.machine.running)).generation
        assert (await pool.status())["environments"]["memory"]["states"] == {"leased": 1}
