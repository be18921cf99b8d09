"""How things end: drains that are cancelled or overlap, late requests, foreign snapshots, what waits when its namespace leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox import cleaning
from sandbox.errors import AutoclaveError, EnvironmentInvalid, LimitReached, PoolBroken, RecordMissing
from sandbox.model import CheckPolicy, ClearanceState, Depth, ResetMethod, ResetPolicy, TaskSpec
from sandbox.settings import load
from sandbox.testing import memory_environment


async def state(bench: Any, trajectory: str) -> Any:
    return (await bench.ledger.clearances([trajectory]))[trajectory]


async def test_a_fork_starts_from_a_snapshot_of_its_own_parent_only(bench: Any) -> None:
    pool = await bench.open(memory_environment(), size=3)
    async with pool.session("memory", wait=5) as tainted, pool.session("memory", wait=5) as other:
        snapshot = await tainted.snapshot()
        with pytest.raises(EnvironmentInvalid, match="not of this session"):
            async with await other.fork(snapshot):
                pass


async def test_a_fork_may_be_forked_again_from_its_own_start(bench: Any) -> None:
    pool = await bench.open(memory_environment(), size=3)
    async with pool.session("memory", wait=5) as parent:
        snapshot = await parent.snapshot()
        async with await parent.fork(snapshot, wait=5) as child, await child.fork(snapshot, wait=5) as grandchild:
            assert grandchild.lease.parent == child.trajectory_id


async def test_a_cancelled_drain_still_ends_open_sessions_and_checks_them(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    session = await pool.acquire("memory", wait=5)
    draining = asyncio.create_task(pool.drain(grace_s=0.2))
    await asyncio.sleep(0.05)
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert session.outcome == "killed"
    assert (await state(bench, session.trajectory_id)).state is ClearanceState.CLEARED
    assert not bench.machine.running


async def test_a_second_drain_waits_for_the_first(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    await pool.acquire("memory", wait=5)
    first = asyncio.create_task(pool.drain(grace_s=0.2))
    await asyncio.sleep(0.05)
    await pool.drain()
    assert not bench.machine.running
    await first


async def test_a_request_that_is_being_fitted_when_the_pool_drains_gets_no_session(bench: Any) -> None:
    own = TaskSpec(id="own", family="f", difficulty="easy", split="train", prompt="", start={"state": {"orders": "9"}})
    pool = await bench.open(memory_environment(tasks=[own]))
    async with pool.session("memory", wait=5):
        pass
    await bench.quiet()
    gate = bench.runtime.faults.hold("restore")
    request = asyncio.create_task(pool.acquire("memory", task="own", wait=5))
    await asyncio.sleep(0.1)
    draining = asyncio.create_task(pool.drain(grace_s=0.05))
    await asyncio.sleep(0.1)
    gate.set()
    with pytest.raises(PoolBroken):
        await request
    await draining
    assert not await bench.ledger.leases()


async def test_actions_are_refused_while_the_session_is_scored(bench: Any) -> None:
    task = TaskSpec(id="t", family="f", difficulty="easy", split="train", prompt="", success={"orders": "ok"})
    pool = await bench.open(memory_environment(tasks=[task]))
    async with pool.session("memory", task="t", wait=5) as session:
        gate = bench.runtime.faults.hold("quiesce")
        scoring = asyncio.create_task(session.score())
        await asyncio.sleep(0.02)
        with pytest.raises(LimitReached, match="score"):
            await session.write_file("/orders", b"ok")
        gate.set()
        await scoring


async def test_ends_that_the_ledger_refuses_again_are_not_forgotten(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = await bench.open(memory_environment(), size=2)
    sessions = [await pool.acquire("memory", wait=5) for _ in range(2)]
    written = bench.ledger.end_lease
    refusals = 3

    async def end_lease(*args: Any, **kwargs: Any) -> Any:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise AutoclaveError("the disk is full")
        return await written(*args, **kwargs)

    monkeypatch.setattr(bench.ledger, "end_lease", end_lease)
    for session in sessions:
        with pytest.raises(AutoclaveError):
            await session.release()
    for _ in range(5):
        await bench.clock.advance(100)
        await asyncio.sleep(0.01)
    assert not await bench.ledger.leases()


async def test_a_namespace_that_grew_old_has_its_closing_check_before_it_goes(bench: Any) -> None:
    hook = ResetPolicy(method=ResetMethod.HOOK, hook=("reset",), max_age_s=50.0)
    check = CheckPolicy(required_depth=Depth.DEEP, deep_every=100, deep_after_s=1000.0)
    pool = await bench.open(memory_environment(reset=hook, check=check))
    names = []
    for _ in range(2):
        async with pool.session("memory", wait=5) as session:
            names.append(session.trajectory_id)
        await bench.quiet()
    assert [(await state(bench, n)).depth for n in names] != [Depth.DEEP, Depth.DEEP]
    for _ in range(3):
        await bench.clock.advance(60)
        await asyncio.sleep(0.01)
    await bench.quiet()
    assert [(await state(bench, n)).depth for n in names] == [Depth.DEEP, Depth.DEEP]


async def test_after_a_crash_the_deep_check_is_still_due(bench: Any) -> None:
    check = CheckPolicy(required_depth=Depth.DEEP, deep_every=100, deep_after_s=60.0)
    pool = await bench.open(memory_environment(check=check))
    async with pool.session("memory", wait=5) as session:
        pass
    await bench.quiet()
    assert (await state(bench, session.trajectory_id)).depth is Depth.QUICK
    await bench.crash()
    await bench.open(memory_environment(check=check))
    for _ in range(3):
        await bench.clock.advance(61)
        await asyncio.sleep(0.01)
    await bench.quiet()
    assert (await state(bench, session.trajectory_id)).depth is Depth.DEEP


async def test_a_creation_that_the_ledger_breaks_leaves_no_instance(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = await bench.open(memory_environment(), size=1)
    written = bench.ledger.record_check
    broken = True

    async def record_check(*args: Any, **kwargs: Any) -> Any:
        nonlocal broken
        if broken:
            broken = False
            raise AutoclaveError("the disk is full")
        return await written(*args, **kwargs)

    monkeypatch.setattr(bench.ledger, "record_check", record_check)
    await bench.clock.advance(2)
    await bench.quiet()
    assert not broken
    assert {instance.namespace for instance in bench.machine.running} == set(pool.environment("memory").members)  # the second try's
    async with pool.session("memory", wait=5):
        assert len(bench.machine.running) == 1


async def test_a_late_request_of_a_draining_pool_is_refused_at_once(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    await pool.acquire("memory", wait=5)
    draining = asyncio.create_task(pool.drain(grace_s=0.1))
    await asyncio.sleep(0)
    with pytest.raises(PoolBroken):
        await pool.acquire("memory", wait=5)
    await draining


async def test_a_golden_that_is_gone_is_built_anew_even_where_a_former_run_names_it(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    await pool.acquire("memory", wait=5)
    golden = pool.environment("memory").golden.snapshot
    await bench.crash()
    for sealed in golden.dirs:
        await bench.storage.remove(sealed)
    again = await bench.open(memory_environment())
    async with again.session("memory", wait=5):
        assert again.environment("memory").golden.snapshot.id != golden.id


async def test_gc_deletes_what_sessions_saved_and_keeps_goldens_and_start_states(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = TaskSpec(id="own", family="f", difficulty="easy", split="train", prompt="", start={"state": {"orders": "9"}})
    environment = memory_environment(tasks=[own])
    pool = await bench.open(environment)
    async with pool.session("memory", task="own", wait=5) as session:
        saved = await session.snapshot()
    await bench.quiet()
    monkeypatch.setattr(cleaning, "environment", lambda name, settings: environment)
    known = await bench.ledger.snapshots()
    assert len(known) == 3
    stale, _ = await cleaning._superseded(load(), bench.ledger, known)
    assert [s.id for s in stale] == [saved.id]


async def test_waiting_for_an_unknown_trajectory_says_so(bench: Any) -> None:
    pool = await bench.open(memory_environment())

    with pytest.raises(RecordMissing, match="t-nobody"):
        await pool.cleared(["t-nobody"], timeout=5)


async def test_a_pool_that_closes_over_a_full_disk_says_so_and_closes_everything(bench: Any, caplog: Any) -> None:
    pool = await bench.open(memory_environment(), size=2)
    caplog.set_level("INFO")
    session = await pool.acquire("memory", wait=5)
    full = LimitReached("the disk is full")
    for step in ("end_lease", "transition", "record_check", "create_namespace"):
        bench.disk.fail(step, full, times=1000)
    with pytest.raises(LimitReached, match="full"):
        await session.release()
    for _ in range(30):
        await bench.clock.advance(2)
        await bench.quiet()
    told = [record for record in caplog.records if record.message == "duty failed"]
    assert len(told) == 1  # not once a second
    with pytest.raises(LimitReached, match="full"):
        await pool.drain()
    assert not bench.machine.running
    for step in ("end_lease", "transition", "record_check", "create_namespace"):
        bench.disk.mend(step)
    with pytest.raises(LimitReached):  # leaving the pool says it again
        await bench.close()
    await bench.open(memory_environment(), size=2)
    assert (await state(bench, session.trajectory_id)).state is ClearanceState.QUARANTINED


async def test_creation_that_the_ledger_refuses_opens_the_breaker(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    await pool.drain()
    await bench.close()
    bench.disk.fail("create_namespace", LimitReached("the disk is full"), times=3)
    pool = await bench.open(memory_environment())
    with pytest.raises(PoolBroken, match="disk is full"):
        await pool.acquire("memory", wait=60)
    await bench.clock.advance(31)
    async with pool.session("memory", wait=5):
        pass
