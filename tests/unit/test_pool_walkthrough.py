"""What was walked through before building: each way a trajectory is cleared or quarantined, from lease to verdict."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.errors import NotCleared
from sandbox.model import CheckPolicy, ClearanceState, Depth, QuarantineReason, ResetMethod, ResetPolicy, TrajectoryId
from sandbox.testing import memory_environment

HOOK = ResetPolicy(method=ResetMethod.HOOK, hook=("reset",))


async def use(pool: Any, bench: Any, *argv: str, name: str = "memory") -> TrajectoryId:
    """One lease: act, release, wait for reset and check."""
    async with pool.session(name, wait=5) as session:
        if argv:
            await session.run(list(argv))
    await bench.quiet()
    trajectory: TrajectoryId = session.trajectory_id
    return trajectory


async def states(pool: Any, trajectories: list[TrajectoryId]) -> list[ClearanceState]:
    found = await pool.clearance(trajectories)
    return [found[t].state for t in trajectories]


async def test_restore_per_lease_with_quick_checks_clears_one_trajectory_per_reset(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    for _ in range(20):
        trajectory = await use(pool, bench, "set", "orders", "0")
        assert await states(pool, [trajectory]) == [ClearanceState.CLEARED]
    assert bench.runtime.faults.calls["restore"] == 20


async def test_a_leak_that_only_deep_sees_quarantines_everything_since_the_last_deep_check(bench: Any) -> None:
    bench.leaks[ResetMethod.HOOK] = ["file/deep/*"]
    pool = await bench.open(memory_environment(reset=HOOK, check=CheckPolicy(deep_every=20)))
    before = [await use(pool, bench) for _ in range(6)]
    leak = await use(pool, bench, "set", "deep/settings", "changed")
    between = [await use(pool, bench) for _ in range(12)]
    assert set(await states(pool, [*before, leak, *between])) == {ClearanceState.CLEARED}
    last = await use(pool, bench)
    window = [*before, leak, *between, last]
    assert set(await states(pool, window)) == {ClearanceState.QUARANTINED}
    after = await use(pool, bench)
    assert await states(pool, [after]) == [ClearanceState.CLEARED]


async def test_a_clean_deep_check_starts_the_window_anew(bench: Any) -> None:
    bench.leaks[ResetMethod.HOOK] = ["file/deep/*"]
    pool = await bench.open(memory_environment(reset=HOOK, check=CheckPolicy(deep_every=3)))
    first = [await use(pool, bench) for _ in range(3)]  # the third is followed by a clean deep check
    second = [await use(pool, bench), await use(pool, bench, "set", "deep/settings", "changed"), await use(pool, bench)]
    assert set(await states(pool, first)) == {ClearanceState.CLEARED}
    assert set(await states(pool, second)) == {ClearanceState.QUARANTINED}


async def test_the_closing_check_comes_before_the_lineage_is_replaced(bench: Any) -> None:
    bench.leaks[ResetMethod.HOOK] = ["file/deep/*"]
    policy = ResetPolicy(method=ResetMethod.HOOK, hook=("reset",), restore_every=10)
    check = CheckPolicy(deep_every=20, required_depth=Depth.DEEP)
    pool = await bench.open(memory_environment(reset=policy, check=check))
    used = []
    for n in range(1, 11):
        used.append(await use(pool, bench, *(["set", "deep/settings", "changed"] if n == 7 else [])))
        assert bench.runtime.faults.calls["restore"] == (1 if n == 10 else 0)
    assert set(await states(pool, used)) == {ClearanceState.QUARANTINED}
    found = await pool.clearance(used)
    assert {c.reason for c in found.values()} == {QuarantineReason.CONTAMINATED}
    assert await states(pool, [await use(pool, bench)]) == [ClearanceState.CLEARED]


async def test_a_clean_lineage_is_cleared_at_the_required_depth_before_it_is_replaced(bench: Any) -> None:
    policy = ResetPolicy(method=ResetMethod.HOOK, hook=("reset",), restore_every=4)
    check = CheckPolicy(deep_every=0, deep_after_s=1e9, required_depth=Depth.DEEP)
    pool = await bench.open(memory_environment(reset=policy, check=check))
    used = [await use(pool, bench) for _ in range(4)]
    found = await pool.clearance(used)
    assert all(found[t].ships_at(Depth.DEEP) for t in used)


async def test_drain_checks_the_last_trajectories_at_the_required_depth(bench: Any) -> None:
    check = CheckPolicy(deep_every=0, deep_after_s=1e9, required_depth=Depth.DEEP)
    pool = await bench.open(memory_environment(reset=HOOK, check=check))
    used = [await use(pool, bench) for _ in range(3)]
    assert not any(c.ships_at(Depth.DEEP) for c in (await pool.clearance(used)).values())
    await pool.drain()
    found = await bench.ledger.clearances(used)
    assert all(found[t].ships_at(Depth.DEEP) for t in used)


async def test_drain_revokes_what_does_not_end_and_checks_it_too(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    session = await pool.acquire("memory", wait=5)
    await session.run(["set", "orders", "0"])
    await pool.drain(grace_s=0.01)
    assert session.outcome == "killed"
    found = await bench.ledger.clearances([session.trajectory_id])
    assert found[session.trajectory_id].state is ClearanceState.CLEARED


async def test_a_kill_during_a_reset_loses_nothing_and_the_first_holder_is_cleared_after_the_restart(bench: Any) -> None:
    environment = memory_environment()
    pool = await bench.open(environment)
    gate = bench.runtime.faults.hold("restore")
    session = await pool.acquire("memory", wait=5)
    await session.release()
    await asyncio.sleep(0.01)
    assert bench.runtime.faults.calls["restore"] == 1
    await bench.crash()
    gate.set()
    assert len(bench.machine.running) == 1  # nobody swept it yet
    pool = await bench.open(environment)
    assert (await pool.clearance([session.trajectory_id]))[session.trajectory_id].state is ClearanceState.CLEARED
    assert pool.settled.restored == [session.lease.namespace]
    assert pool.settled.swept


async def test_a_kill_while_leased_ends_the_trajectory_unverified(bench: Any) -> None:
    environment = memory_environment()
    pool = await bench.open(environment)
    session = await pool.acquire("memory", wait=5)
    await bench.crash()
    pool = await bench.open(environment)
    clearance = (await pool.clearance([session.trajectory_id]))[session.trajectory_id]
    assert clearance.state is ClearanceState.QUARANTINED
    assert clearance.reason is QuarantineReason.UNVERIFIED
    assert [lease.trajectory for lease in pool.settled.lost] == [session.trajectory_id]


async def test_later_holders_of_a_lineage_that_a_kill_ended_are_unverified(bench: Any) -> None:
    environment = memory_environment(reset=HOOK, check=CheckPolicy(deep_every=0, deep_after_s=1e9, required_depth=Depth.DEEP))
    pool = await bench.open(environment)
    used = [await use(pool, bench) for _ in range(3)]
    await bench.crash()
    pool = await bench.open(environment)
    found = await pool.clearance(used)
    assert [found[t].state for t in used[1:]] == [ClearanceState.QUARANTINED] * 2
    assert {found[t].reason for t in used[1:]} == {QuarantineReason.UNVERIFIED}
    first = (await pool.cleared(used[:1], timeout=5))[used[0]]
    assert first.ships_at(Depth.DEEP)


async def test_a_fork_is_cleared_with_its_own_check_and_tainted_when_its_parent_is(bench: Any) -> None:
    pool = await bench.open(memory_environment(), size=2)
    async with pool.session("memory", wait=5) as parent:
        await parent.run(["set", "orders", "9"])
        async with await parent.fork(await parent.snapshot(), wait=5) as child:
            assert (await child.run(["get", "orders"])).text == "9"
    await bench.quiet()
    assert await states(pool, [child.trajectory_id, parent.trajectory_id]) == [ClearanceState.CLEARED] * 2

    bench.leaks[ResetMethod.CLEAN] = bench.leaks[ResetMethod.RESTORE] = ["process/*"]
    async with pool.session("memory", wait=5) as parent:
        async with await parent.fork(await parent.snapshot(), wait=5) as child:
            pass
        await bench.quiet()
        assert await states(pool, [child.trajectory_id]) == [ClearanceState.CLEARED]
        await parent.run(["spawn", "miner"])
    await bench.quiet()
    assert await states(pool, [child.trajectory_id, parent.trajectory_id]) == [ClearanceState.QUARANTINED] * 2


async def test_a_deep_requirement_with_few_leases_is_met_by_the_time_limit(bench: Any) -> None:
    check = CheckPolicy(deep_every=100, deep_after_s=600, required_depth=Depth.DEEP)
    pool = await bench.open(memory_environment(reset=HOOK, check=check))
    used = [await use(pool, bench) for _ in range(2)]
    waiting = asyncio.create_task(pool.cleared(used, timeout=5, depth=Depth.DEEP))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await bench.clock.advance(601)
    await bench.quiet()
    found = await pool.clearance(used)
    assert all(found[t].ships_at(Depth.DEEP) for t in used)


async def test_cleared_asks_for_the_deep_check_at_once(bench: Any) -> None:
    check = CheckPolicy(deep_every=100, deep_after_s=1e9)
    pool = await bench.open(memory_environment(reset=HOOK, check=check))
    used = [await use(pool, bench) for _ in range(2)]
    found = await pool.cleared(used, timeout=5, depth=Depth.DEEP)
    assert all(found[t].ships_at(Depth.DEEP) for t in used)


async def test_cleared_says_who_is_not_decided_in_time(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    session = await pool.acquire("memory", wait=5)
    with pytest.raises(NotCleared) as caught:
        await pool.cleared([session.trajectory_id], timeout=0.01)
    assert caught.value.clearances == {session.trajectory_id: "pending"}
    await session.release()
    assert (await pool.cleared([session.trajectory_id], timeout=5))[session.trajectory_id].state is ClearanceState.CLEARED
