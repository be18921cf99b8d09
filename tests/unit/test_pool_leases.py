"""Leases: waiting, deadlines, the fence, expiry, escalation, the breaker, forks, preparation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandbox.errors import (
    BaselineUnstable,
    EnvironmentInvalid,
    InstanceLost,
    LedgerConflict,
    LimitReached,
    PoolBroken,
    PoolBusy,
    ResetFailed,
    RuntimeUnavailable,
    SealBroken,
    SessionExpired,
    StaleGeneration,
)
from sandbox.lifecycle import State
from sandbox.model import CheckPolicy, ClearanceState, Depth, ResetMethod, ResetPolicy, TaskSpec, VerdictStatus
from sandbox.testing import memory_environment

HOOK = ResetPolicy(method=ResetMethod.HOOK, hook=("reset",))
TASKS = tuple(
    TaskSpec(
        id=f"task-{n}",
        family="f",
        difficulty="easy",
        split="train",
        prompt="",
        start={"state": {"orders": str(n)}},
        success={"orders": "ok"},
    )
    for n in range(3)
)


async def state(bench: Any, session: Any) -> Any:
    return (await bench.ledger.clearances([session.trajectory_id]))[session.trajectory_id]


async def test_a_session_acts_and_its_deadline_is_the_leases(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    async with pool.session("memory", wait=5, trajectory="mine", group="g") as session:
        assert session.trajectory_id == "mine"
        await session.write_file("/notes", b"\x00\xff")
        assert await session.read_file("/notes") == b"\x00\xff"
        assert session.endpoint("state").startswith("memory://")
        assert session.in_force["reset"] == "restore"
        assert await session.heartbeat() == 600.0
        assert await session.heartbeat(extend_s=900.0) == 900.0
        with pytest.raises(RuntimeUnavailable):
            await session.page()
    assert (await bench.ledger.why("mine"))["lease"]["holder"]


async def test_an_old_handle_is_refused_after_release(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    async with pool.session("memory", wait=5) as session:
        pass
    for action in (session.run(["get", "orders"]), session.read_file("orders"), session.snapshot(), session.heartbeat()):
        with pytest.raises(StaleGeneration):
            await action
    with pytest.raises(StaleGeneration):
        session.endpoint("state")


async def test_two_holders_never_share_a_namespace_and_all_are_served(bench: Any) -> None:
    pool = await bench.open(memory_environment(), size=3)
    held: set[str] = set()
    served = 0

    async def worker() -> None:
        nonlocal served
        for _ in range(5):
            async with pool.session("memory", wait=20) as session:
                assert session.lease.namespace not in held
                held.add(session.lease.namespace)
                assert (await session.run(["get", "orders"])).text == "3"
                await session.run(["set", "orders", "0"])
                await asyncio.sleep(0)
                held.remove(session.lease.namespace)
                served += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(worker())
    assert served == 40


async def test_a_request_that_waits_too_long_is_told_when_to_come_back(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    async with pool.session("memory", wait=5):
        with pytest.raises(PoolBusy, match="1 of 1 live, 1 leased") as caught:
            await pool.acquire("memory", wait=0.02)
    assert caught.value.retry_after_s > 0


async def test_requests_are_served_by_priority_and_a_cancelled_one_loses_no_namespace(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    order: list[str] = []

    async def ask(name: str, priority: int) -> None:
        async with pool.session("memory", wait=20, priority=priority):
            order.append(name)

    first = await pool.acquire("memory", wait=5)
    tasks = []
    for name, priority in (("low", 0), ("cancelled", 9), ("high", 5)):
        tasks.append(asyncio.create_task(ask(name, priority)))
        await asyncio.sleep(0.01)
    await first.release()
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert order == ["high", "low"]
    async with pool.session("memory", wait=5):
        pass


async def test_a_request_cancelled_while_its_lease_is_written_gives_the_lease_back(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    async with pool.session("memory", wait=5):
        pass
    await bench.quiet()
    for steps in range(12):
        request = asyncio.create_task(pool.acquire("memory", wait=5))
        for _ in range(steps):
            await asyncio.sleep(0)
        request.cancel()
        await asyncio.wait({request})
        if not request.cancelled():
            await request.result().release()
        await bench.quiet()
        assert await bench.ledger.leases() == []
        assert (await pool.status())["environments"]["memory"]["ready"] == 1


async def test_an_expired_lease_is_revoked_reset_and_cleared_like_any_other(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    session = await pool.acquire("memory", wait=5, ttl=10)
    await bench.clock.advance(11)
    await asyncio.sleep(0.05)
    with pytest.raises(SessionExpired):
        await session.run(["get", "orders"])
    assert session.outcome == "expired"
    await bench.quiet()
    assert (await state(bench, session)).state is ClearanceState.CLEARED
    async with pool.session("memory", wait=5):
        pass


async def test_a_lease_does_not_expire_under_a_running_score(bench: Any) -> None:
    environment = memory_environment(tasks=TASKS)
    pool = await bench.open(environment)
    async with pool.session("memory", task="task-1", wait=5, ttl=10) as session:
        assert (await session.score()).reward == 0.0
        await session.run(["set", "orders", "ok"])
        gate = environment.faults.hold("score")
        scoring = asyncio.create_task(session.score())
        await asyncio.sleep(0)
        await bench.clock.advance(60)
        await asyncio.sleep(0.02)
        gate.set()
        assert (await scoring).reward == 1.0


async def test_a_dead_instance_is_no_reward_and_its_lease_ends_as_lost(bench: Any) -> None:
    pool = await bench.open(memory_environment(tasks=TASKS))
    async with pool.session("memory", task="task-2", wait=5) as session:
        with pytest.raises(InstanceLost):
            await session.run(["die"])
        with pytest.raises(InstanceLost):
            await session.run(["get", "orders"])
    await bench.quiet()
    assert session.outcome == "lost"
    assert (await bench.ledger.why(session.trajectory_id))["lease"]["outcome"] == "lost"
    async with pool.session("memory", wait=5) as session:
        assert (await session.run(["get", "orders"])).text == "3"


async def test_what_a_score_cut_short_loses_no_instance_however_late_it_is_told(bench: Any) -> None:
    pool = await bench.open(memory_environment(tasks=TASKS))
    async with pool.session("memory", task="task-0", wait=5) as session:
        score: Any = None

        async def browsing() -> None:
            nonlocal score
            async with session._acting("browse"):
                score = await session.score()
                raise InstanceLost("the session's browser is gone")

        with pytest.raises(InstanceLost):
            await browsing()
        assert score.reward is not None
        assert (await session.run(["get", "orders"])).text == "0"


async def test_infrastructure_failure_while_scoring_is_no_reward(bench: Any) -> None:
    pool = await bench.open(memory_environment(tasks=TASKS))
    async with pool.session("memory", task="task-0", wait=5) as session:
        bench.runtime.faults.fail("quiesce", InstanceLost("gone"))
        score = await session.score()
    assert score.reward is None
    assert "gone" in score.detail


async def test_each_task_starts_from_its_own_state_and_a_ready_namespace_is_retargeted(bench: Any) -> None:
    pool = await bench.open(memory_environment(tasks=TASKS))
    for n in (0, 2, 1, 1):
        async with pool.session("memory", task=f"task-{n}", wait=5) as session:
            assert (await session.run(["get", "orders"])).text == str(n)
    assert bench.runtime.faults.calls["derive"] == 6  # each once, and once more for its baseline
    with pytest.raises(EnvironmentInvalid, match="no task"):
        await pool.acquire("memory", task="nothing", wait=5)
    with pytest.raises(EnvironmentInvalid, match="it keeps: memory"):
        await pool.acquire("other", wait=5)


async def test_a_reset_that_fails_is_followed_by_stronger_ones(bench: Any) -> None:
    pool = await bench.open(memory_environment(reset=HOOK))
    bench.runtime.faults.fail("reset_in_place", ResetFailed("the hook ended with 1"))
    bench.runtime.faults.fail("restore", ResetFailed("no space"))
    async with pool.session("memory", wait=5) as session:
        pass
    await bench.quiet()
    assert (
        await state(bench, session)
    ).state is ClearanceState.CLEARED  # first of its lineage: the rebuilt state's check clears it
    events = [row["event"] for row in await bench.ledger.history(session.lease.namespace)]
    assert events.count("escalate") == 2
    async with pool.session("memory", wait=5) as after:
        assert after.lease.namespace == session.lease.namespace
        assert after.lease.first_of_lineage


async def test_a_namespace_that_no_rebuild_mends_is_retired_and_replaced(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    bench.runtime.faults.fail("restore", ResetFailed("broken"))
    async with pool.session("memory", wait=5) as session:
        bench.runtime.faults.fail("start", ResetFailed("broken"), times=2)
    await bench.quiet()
    assert State((await bench.ledger.namespace(session.lease.namespace)).state) is State.RETIRED
    assert (await state(bench, session)).state is ClearanceState.QUARANTINED
    async with pool.session("memory", wait=5) as after:
        assert after.lease.namespace != session.lease.namespace


async def test_an_inconclusive_check_is_tried_once_more_and_a_second_one_is_not_clean(bench: Any) -> None:
    environment = memory_environment()
    pool = await bench.open(environment)
    async with pool.session("memory", wait=5) as session:
        environment.verifier.script.extend([VerdictStatus.INCONCLUSIVE, None])
    await bench.quiet()
    assert (await state(bench, session)).state is ClearanceState.CLEARED
    async with pool.session("memory", wait=5) as session:
        environment.verifier.script.extend([VerdictStatus.INCONCLUSIVE, RuntimeError("the verifier has a bug")])
    await bench.quiet()
    assert (await state(bench, session)).state is ClearanceState.QUARANTINED
    async with pool.session("memory", wait=5):
        pass


async def test_creation_that_keeps_failing_opens_the_breaker_which_says_why(bench: Any) -> None:
    environment = memory_environment()
    pool = await bench.open(environment)
    await pool.drain()
    await bench.close()
    bench.runtime.faults.fail("start", RuntimeUnavailable("no user namespaces"), times=3)
    pool = await bench.open(environment)
    with pytest.raises(PoolBroken, match="no user namespaces"):
        await pool.acquire("memory", wait=5)
    with pytest.raises(PoolBroken, match="no user namespaces"):
        await pool.acquire("memory", wait=5)
    await bench.clock.advance(31)
    async with pool.session("memory", wait=5):
        pass


async def test_a_check_too_old_is_made_again_before_the_hand_out(bench: Any) -> None:
    environment = memory_environment(check=CheckPolicy(max_ready_age_s=60))
    bench.limits = type(bench.limits)(upkeep_s=1e9)
    pool = await bench.open(environment)
    async with pool.session("memory", wait=5):
        pass
    await bench.quiet()
    before = len(environment.verifier.checks)
    await bench.clock.advance(61)
    async with pool.session("memory", wait=5):
        assert len(environment.verifier.checks) == before + 1


async def test_a_fork_fails_at_once_when_only_the_end_of_a_lease_could_make_room(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    async with pool.session("memory", wait=5) as parent:
        with pytest.raises(PoolBusy, match="does not wait for a lease"):
            await parent.fork(await parent.snapshot(), wait=60)


async def test_a_fork_that_waits_fails_at_once_when_what_was_coming_goes_to_another(bench: Any) -> None:
    pool = await bench.open(memory_environment(), size=2)
    async with pool.session("memory", wait=5) as parent:
        saved = await parent.snapshot()
        async with pool.session("memory", wait=5):
            gate = bench.runtime.faults.hold("restore")
        fork = asyncio.create_task(parent.fork(saved, wait=60))  # what is being reset may become its own
        other = asyncio.create_task(pool.acquire("memory", wait=60, priority=100))
        await asyncio.sleep(0.05)
        assert not fork.done()
        gate.set()
        async with asyncio.timeout(5), await other:
            with pytest.raises(PoolBusy, match="does not wait for a lease"):
                await fork


async def test_a_forks_namespace_returns_to_golden(bench: Any) -> None:
    pool = await bench.open(memory_environment(), size=2)
    async with pool.session("memory", wait=5) as parent:
        await parent.run(["set", "orders", "9"])
        async with await parent.fork(await parent.snapshot(), wait=5) as child:
            assert child.lease.parent == parent.trajectory_id
            await child.run(["set", "orders", "10"])
        assert (await parent.run(["get", "orders"])).text == "9"
    await bench.quiet()
    for _ in range(2):
        async with pool.session("memory", wait=5) as session:
            assert (await session.run(["get", "orders"])).text == "3"
        await bench.quiet()


async def test_a_broken_seal_retires_the_environment(bench: Any) -> None:
    environment = memory_environment()
    pool = await bench.open(environment)
    async with pool.session("memory", wait=5):
        pass
    await bench.quiet()
    golden = pool.environment("memory").golden.snapshot
    bench.storage.content(golden.dirs[0])["orders"] = "tampered"
    assert await pool.verify_seals() == {"memory": False}
    with pytest.raises(SealBroken, match="state/files"):
        await pool.acquire("memory", wait=5)
    await bench.close()
    pool = await bench.open(environment)
    with pytest.raises(SealBroken):
        await pool.acquire("memory", wait=5)


async def test_a_baseline_needs_two_instances_that_agree_and_reports_drift_of_a_second_build(bench: Any) -> None:
    with pytest.raises(BaselineUnstable, match="memory/file/clock"):
        await bench.open(memory_environment(per_start=["clock"]))
    pool = await bench.open(memory_environment("salted", per_build=["salt"]))
    baseline = pool.environment("salted").golden.baseline
    assert [m.field for m in baseline.drift] == ["file/salt"]
    assert not [i for i in bench.machine.running if i.namespace.startswith("baseline")]


async def test_what_was_built_is_found_again_and_a_changed_environment_is_built_anew(bench: Any) -> None:
    await bench.open(memory_environment())
    await bench.close()
    builds = bench.runtime.faults.calls["build"]
    await bench.open(memory_environment())
    await bench.close()
    assert bench.runtime.faults.calls["build"] == builds
    await bench.open(memory_environment(version="2"))
    assert bench.runtime.faults.calls["build"] == builds + 2


async def test_a_trajectory_name_that_exists_is_refused_without_harm_to_the_namespace(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    async with pool.session("memory", wait=5, trajectory="one"):
        pass
    with pytest.raises(LedgerConflict):
        await pool.acquire("memory", wait=5, trajectory="one")
    async with pool.session("memory", wait=5):
        pass


async def test_a_namespace_is_retired_after_max_resets(bench: Any) -> None:
    pool = await bench.open(memory_environment(reset=ResetPolicy(max_resets=2)))
    seen = []
    for _ in range(4):
        async with pool.session("memory", wait=5) as session:
            seen.append(session.lease.namespace)
        await bench.quiet()
    assert len(set(seen)) == 2


async def test_an_audit_reads_ready_namespaces_and_remembers_the_leased_ones(bench: Any) -> None:
    environment = memory_environment()
    pool = await bench.open(environment, size=2)
    async with pool.session("memory", wait=5) as session:
        await bench.quiet()
        found = await pool.audit_namespaces(Depth.DEEP)
        assert sorted(found.values(), key=str) == [None, True]
        assert found[session.lease.namespace] is None
    await bench.quiet()
    assert environment.verifier.checks[-1] == (session.lease.namespace, Depth.DEEP)


async def test_status_counts_and_a_drained_pool_admits_nobody(bench: Any) -> None:
    pool = await bench.open(memory_environment(), size=2)
    async with pool.session("memory", wait=5):
        await bench.quiet()
        counts = (await pool.status())["environments"]["memory"]
        assert (counts["live"], counts["ready"], counts["leased"]) == (2, 1, 1)
    await pool.drain()
    with pytest.raises(PoolBroken, match="draining"):
        await pool.acquire("memory", wait=5)
    assert list(await bench.ledger.namespaces()) == []


async def test_no_wait_takes_what_is_ready_and_is_busy_at_once_otherwise(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    async with pool.session("memory", wait=5):
        pass
    await bench.quiet()
    async with pool.session("memory", wait=0):
        with pytest.raises(PoolBusy):
            await pool.acquire("memory", wait=0)


async def test_a_fork_of_another_environments_snapshot_is_refused(bench: Any) -> None:
    pool = await bench.open(memory_environment("one"), memory_environment("two"), size=2)
    async with pool.session("one", wait=5) as one, pool.session("two", wait=5) as two:
        with pytest.raises(EnvironmentInvalid, match="not of this session"):
            await two.fork(await one.snapshot())


async def test_an_instance_that_cannot_be_revoked_is_treated_as_lost_and_restored(bench: Any) -> None:
    pool = await bench.open(memory_environment(reset=HOOK))
    bench.runtime.faults.fail("revoke", InstanceLost("no answer"))
    async with pool.session("memory", wait=5) as session:
        await session.run(["set", "orders", "0"])
    await bench.quiet()
    assert bench.runtime.faults.calls["reset_in_place"] == 0
    async with pool.session("memory", wait=5) as after:
        assert (await after.run(["get", "orders"])).text == "3"


async def test_an_end_that_the_ledger_could_not_write_is_written_later(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = await bench.open(memory_environment())
    session = await pool.acquire("memory", wait=5)
    end_lease = bench.ledger.end_lease
    refused: list[Any] = []

    async def full(*args: Any, **kwargs: Any) -> Any:
        if not refused:
            refused.append(args)
            raise LimitReached("the disk is full")
        return await end_lease(*args, **kwargs)

    monkeypatch.setattr(bench.ledger, "end_lease", full)
    with pytest.raises(LimitReached):
        await session.release()
    with pytest.raises(StaleGeneration):
        await session.run(["get", "orders"])
    assert len(await bench.ledger.leases()) == 1
    await bench.clock.advance(2)
    assert (await pool.cleared([session.trajectory_id], timeout=5))[session.trajectory_id].state is ClearanceState.CLEARED


async def test_whoever_waits_learns_at_once_that_the_seal_broke_during_a_reset(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    session = await pool.acquire("memory", wait=5)
    waiting = asyncio.create_task(pool.acquire("memory", wait=600))
    await asyncio.sleep(0)
    (golden,) = [s for s in await bench.ledger.snapshots() if s.task is None]
    bench.storage.content(golden.dirs[0])["orders"] = "tampered"
    bench.runtime.faults.fail("restore", InstanceLost("it does not start"))  # the rebuild that follows verifies the seal
    await session.release()
    with pytest.raises(SealBroken):
        async with asyncio.timeout(30):
            await waiting


async def test_a_golden_that_was_tampered_with_is_noticed_at_the_next_restore(bench: Any) -> None:
    pool = await bench.open(memory_environment())
    async with pool.session("memory", wait=5) as session:
        bench.storage.content(pool.environment("memory").golden.snapshot.dirs[0])["deep/settings"] = (
            "tampered"  # no quick probe reads it
        )
    await bench.quiet()
    clearance = await state(bench, session)
    assert clearance.state is ClearanceState.QUARANTINED
    with pytest.raises(SealBroken):
        await pool.acquire("memory", wait=5)
    assert list(await bench.ledger.namespaces()) == []


async def test_a_reset_goes_straight_to_the_start_state_that_somebody_waits_for(bench: Any) -> None:
    pool = await bench.open(memory_environment(tasks=TASKS))
    async with pool.session("memory", task="task-1", wait=5) as session:
        waiting = asyncio.create_task(pool.acquire("memory", task="task-2", wait=5))
        await asyncio.sleep(0.05)
        before = bench.runtime.faults.calls["restore"]
    async with await waiting as after:
        assert (await after.run(["get", "orders"])).text == "2"
        assert bench.runtime.faults.calls["restore"] == before + 1
    found = await pool.cleared([session.trajectory_id], timeout=5)
    assert found[session.trajectory_id].state is ClearanceState.CLEARED
