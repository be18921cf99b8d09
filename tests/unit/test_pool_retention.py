"""What a session saved goes while the pool is up, as soon as nobody can fork it any more; and so does old evidence (P14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sandbox.model import TaskSpec
from sandbox.testing import memory_environment

TASK = TaskSpec(id="refund", family="f", difficulty="easy", split="train", prompt="", start={"state": {"orders": "4"}})


async def ids(bench: Any) -> set[str]:
    return {snapshot.id for snapshot in await bench.ledger.snapshots()}


async def pass_time(bench: Any, seconds: float) -> None:
    """In steps, so that every duty has its rounds."""
    for _ in range(10):
        await bench.clock.advance(seconds / 10)
        await bench.quiet()


async def test_snapshots_go_when_their_session_and_its_forks_have_ended(bench: Any) -> None:
    pool = await bench.open(memory_environment(), size=2)
    grace = bench.limits.snapshot_grace_s
    golden, data = await ids(bench), set(bench.storage.sealed)
    parent = await pool.acquire("memory", wait=5, ttl=1e6)
    first, second = await parent.snapshot(), await parent.snapshot()
    await pass_time(bench, 3 * grace)
    assert await ids(bench) == golden | {first.id, second.id}, "the session lives and may fork them"

    child = await parent.fork(first, wait=5, ttl=1e6)
    grown = await child.snapshot()
    await parent.release()
    await pass_time(bench, 3 * grace)
    assert await ids(bench) == golden | {first.id, grown.id}, "the fork may be forked again; the other has gone"
    assert second.dirs[0].layers[0] not in bench.storage.sealed

    await child.release()
    await bench.quiet()
    assert await ids(bench) == golden | {first.id, grown.id}, "not before the grace is over"
    await pass_time(bench, 3 * grace)
    assert await ids(bench) == golden
    assert set(bench.storage.sealed) == data


async def test_snapshots_of_an_earlier_manager_go_too(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    session = await pool.acquire("memory", wait=5, ttl=1e6)
    left = await session.snapshot()
    await bench.crash()

    await bench.open(memory_environment())
    assert left.id in await ids(bench)
    await pass_time(bench, 3 * bench.limits.snapshot_grace_s)

    assert left.id not in await ids(bench)


async def test_a_tasks_start_state_stays(bench: Any) -> None:
    environment = memory_environment(tasks=[TASK])
    pool = await bench.open(environment)
    async with pool.session("memory", task="refund", wait=5):
        pass
    before = await ids(bench)

    await pass_time(bench, 3 * bench.limits.snapshot_grace_s)

    assert await ids(bench) == before
    assert len(before) == 2


async def test_old_evidence_goes_while_the_pool_is_up(bench: Any) -> None:
    bench.limits = replace(bench.limits, evidence_s=1000.0, evidence_every_s=100.0, keep_checks=0)
    pool = await bench.open(memory_environment())
    async with pool.session("memory", wait=5) as session:
        pass
    await bench.quiet()
    name = session.lease.namespace
    before = len(await bench.ledger.history(name))

    await pass_time(bench, 5000)

    assert len(await bench.ledger.history(name)) < before
