"""Namespaces that share an instance, in memory: barriers, windows, revoked leases, rebuilds, and crashes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sandbox.aio import poll
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable, StaleGeneration
from sandbox.lifecycle import Event, State
from sandbox.model import CheckPolicy, Depth, Isolation, Mismatch, ResetMethod, ResetPolicy, TaskSpec
from sandbox.pool import Pool
from sandbox.quarantine import describe
from sandbox.testing import memory_environment

SHARED = Isolation.DATABASE


def shared(**fields: Any) -> Any:
    check = fields.pop("check", CheckPolicy(instance_every=100))
    return memory_environment("shared", isolation=SHARED, namespaces_per_instance=3, check=check, **fields)


async def stand(pool: Pool, *names: str) -> list[str]:
    found = await pool.clearance(list(names))
    return [describe(found[name]) for name in names]  # type: ignore[index]


async def use(pool: Pool, name: str, *argv: str) -> None:
    async with pool.session("shared", trajectory=name, wait=5) as session:
        if argv:
            await session.run(argv)


def hosts(pool: Pool) -> list[Any]:
    return list(pool.environment("shared").hosts)


async def until_full(bench: Any, pool: Pool, count: int) -> None:
    prepared = pool.environment("shared")

    async def full() -> bool:
        return len(prepared.members) >= count or prepared.breaker.is_open

    await poll(full, timeout=30)
    assert len(prepared.members) == count, prepared.breaker.reason
    await bench.quiet()


async def test_namespaces_are_placed_on_instances_up_to_their_number(bench: Any) -> None:
    pool = await bench.open(shared(), size=5)
    await until_full(bench, pool, 5)

    assert sorted(len(host.members) for host in hosts(pool)) == [2, 3]
    records = await bench.ledger.namespaces()
    assert {r.instance for r in records} == {host.id for host in hosts(pool)}
    status = (await pool.status())["environments"]["shared"]
    assert status["isolation"] == "database"
    assert sorted(i["namespaces"] for i in status["instances"].values()) == [2, 3]


async def test_a_session_is_cleared_by_its_namespaces_next_check(bench: Any) -> None:
    pool = await bench.open(shared(), size=2)

    await use(pool, "t1", "set", "orders", "17")
    await bench.quiet()

    assert await stand(pool, "t1") == ["cleared (quick)"]
    assert all(n.live().files["orders"] == "3" for n in pool.environment("shared").ready())


async def test_what_a_reset_misses_of_a_namespaces_own_taints_that_namespace_only(bench: Any) -> None:
    pool = await bench.open(shared(), size=2)
    bench.leaks[ResetMethod.RESTORE] = ["file/left"]
    async with pool.session("shared", trajectory="other") as other:
        await use(pool, "dirty", "set", "left", "behind")
        await asyncio.sleep(0)
        await other.run(["set", "orders", "1"])
    bench.leaks.clear()
    await bench.quiet()

    assert await stand(pool, "dirty", "other") == ["quarantined (contaminated)", "cleared (quick)"]


async def test_a_guarded_field_revokes_and_taints_everybody_since_the_last_check_of_the_instance(bench: Any) -> None:
    pool = await bench.open(shared(), size=4)
    await until_full(bench, pool, 4)
    apart = next(host for host in hosts(pool) if len(host.members) == 1)
    beside = next(host for host in hosts(pool) if len(host.members) == 3)
    sessions = [await pool.acquire("shared", trajectory=f"t{n}", wait=5) for n in range(4)]
    where: dict[Any, list[Any]] = {s.namespace.host: [] for s in sessions}
    for session in sessions:
        where[session.namespace.host].append(session)
    first, second, third = where[beside]

    await second.release()
    await bench.quiet()
    assert await stand(pool, second.trajectory_id) == ["cleared (quick)"]
    await first.run(["set", "common/guard/roles", "eve"])
    await first.release()
    await bench.quiet()

    tainted = [s.trajectory_id for s in (first, second, third)]
    assert await stand(pool, *tainted) == ["quarantined (contaminated)"] * 3
    with pytest.raises(StaleGeneration):
        await third.run(["get", "orders"])
    (untouched,) = where[apart]
    await untouched.run(["set", "orders", "2"])
    await untouched.release()
    await bench.quiet()
    assert await stand(pool, untouched.trajectory_id) == ["cleared (quick)"]
    assert beside.state is State.READY
    assert beside.record.generation == 2
    assert beside.live().commons["common/guard/roles"] == "none"
    assert len(list(pool.environment("shared").ready())) == 4
    await use(pool, "after")
    await bench.quiet()
    assert await stand(pool, "after") == ["cleared (quick)"]


async def test_a_part_that_cannot_be_made_clean_puts_its_instance_in_doubt(bench: Any) -> None:
    """As default privileges do, which no part's check names and every new part differs by: the barrier comes at once."""
    pool = await bench.open(shared(check=CheckPolicy(instance_every=1000)), size=2)
    await until_full(bench, pool, 2)
    await use(pool, "earlier")
    await bench.quiet()
    await use(pool, "dirty", "set", "common/every/left", "behind")
    await bench.quiet()

    assert await stand(pool, "earlier", "dirty") == ["quarantined (contaminated)"] * 2
    await until_full(bench, pool, 2)
    (host,) = hosts(pool)
    assert "common/every/left" not in host.live().commons
    await use(pool, "after")
    await bench.quiet()
    assert await stand(pool, "after") == ["cleared (quick)"]


async def test_what_no_namespaces_check_reads_is_found_at_the_barrier(bench: Any) -> None:
    pool = await bench.open(shared(check=CheckPolicy(instance_every=3)), size=2)
    for name in ("a", "b"):
        await use(pool, name)
    await use(pool, "dirty", "set", "common/slots", "one")
    await bench.quiet()
    assert await stand(pool, "a", "b", "dirty") == ["cleared (quick)"] * 3

    await pool._sharing.round()
    await bench.quiet()

    assert await stand(pool, "a", "b", "dirty") == ["quarantined (contaminated)"] * 3
    await use(pool, "after")
    await bench.quiet()
    assert await stand(pool, "after") == ["cleared (quick)"]


async def test_a_clean_barrier_moves_the_window_and_opens_again(bench: Any) -> None:
    pool = await bench.open(shared(check=CheckPolicy(instance_every=1)), size=2)
    await use(pool, "before")
    await bench.quiet()
    await pool._sharing.round()
    await bench.quiet()
    assert (await pool.status())["environments"]["shared"]["ready"] == 2

    await use(pool, "dirty", "set", "common/slots", "one")
    await bench.quiet()
    await pool._sharing.round()
    await bench.quiet()

    assert await stand(pool, "before", "dirty") == ["cleared (quick)", "quarantined (contaminated)"]


async def test_a_barrier_waits_for_leases_and_admits_nobody_meanwhile(bench: Any) -> None:
    pool = await bench.open(shared(check=CheckPolicy(instance_every=1)), size=2)
    await until_full(bench, pool, 2)
    session = await pool.acquire("shared", trajectory="long", wait=5)
    await pool._sharing.round()
    for _ in range(20):
        await asyncio.sleep(0)
    assert list(pool.environment("shared").ready()) == []
    waiting = asyncio.create_task(use(pool, "next"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()

    await session.release()
    await waiting
    await bench.quiet()

    assert await stand(pool, "long", "next") == ["cleared (quick)"] * 2
    checks = (await bench.ledger.activity(bench.clock.now().replace(year=2000)))["checks"]
    assert [c["purpose"] for c in checks if c["namespace"] == hosts(pool)[0].id] == ["opening", "barrier"]


async def test_a_barrier_ends_leases_at_its_deadline(bench: Any) -> None:
    pool = await bench.open(shared(check=CheckPolicy(instance_every=1, instance_drain_s=0.01)), size=1)
    session = await pool.acquire("shared", trajectory="long", wait=5)
    await pool._sharing.round()
    await bench.quiet()

    with pytest.raises(StaleGeneration):
        await session.run(["get", "orders"])
    assert await stand(pool, "long") == ["cleared (quick)"]
    assert session.outcome == "killed"


async def test_a_barrier_does_not_wait_for_what_left_service(bench: Any) -> None:
    pool = await bench.open(shared(check=CheckPolicy(instance_every=1)), size=2)
    await until_full(bench, pool, 2)
    (host,) = hosts(pool)
    gate = bench.runtime.faults.hold("restore")
    session = await pool.acquire("shared", trajectory="t1", wait=5)
    await session.release()
    lost = session.namespace

    async def resetting() -> bool:
        return bool((await bench.ledger.namespace(lost.id)).state == State.RESETTING)

    assert await poll(resetting, timeout=30)
    barrier = pool._sharing.begin(host, purpose="barrier")
    assert host.room == 1
    await bench.ledger.transition(lost.id, Event.FAILED, generation=lost.generation, note="behind the pool's back")
    gate.set()

    done, _ = await asyncio.wait({barrier}, timeout=30)
    assert done, "the barrier still waits for a namespace that is out of service"
    assert barrier.result() is True
    assert lost not in host.members
    await until_full(bench, pool, 2)
    assert hosts(pool) == [host], "the place that came free was not used"


async def test_a_namespace_that_nobody_used_and_that_differs_was_changed_by_another(bench: Any) -> None:
    pool = await bench.open(shared(check=CheckPolicy(instance_every=1)), size=2)
    await use(pool, "writer")
    await bench.quiet()
    for namespace in pool.environment("shared").ready():
        if namespace.record.sequence == 0:
            namespace.live().files["orders"] = "written through a hole in the wall"

    await pool._sharing.round()
    await bench.quiet()

    assert await stand(pool, "writer") == ["quarantined (contaminated)"]
    assert hosts(pool)[0].record.generation == 2


async def test_a_mark_seen_through_a_wall_taints_like_any_field_of_the_instance(bench: Any) -> None:
    pool = await bench.open(shared(check=CheckPolicy(instance_every=1)), size=2)
    await use(pool, "t1")
    await bench.quiet()
    hosts(pool)[0].live().seen.append(Mismatch(probe="canary", field="large object", expected=None, actual="seen", shared=True))

    await pool._sharing.round()
    await bench.quiet()

    assert await stand(pool, "t1") == ["quarantined (contaminated)"]


async def test_deep_clearance_waits_for_the_instance(bench: Any) -> None:
    pool = await bench.open(shared(check=CheckPolicy(required_depth=Depth.DEEP, instance_every=100)), size=2)
    await use(pool, "t1")
    await bench.quiet()
    assert await stand(pool, "t1") == ["cleared (quick)"]

    found = asyncio.create_task(pool.cleared(["t1"], timeout=30))
    while not found.done():  # the wish must have been heard before the round that serves it
        await pool._sharing.round()
        await asyncio.sleep(0.01)

    assert [describe(c) for c in (await found).values()] == ["cleared (deep)"]


async def test_a_drain_checks_the_instance_too(bench: Any) -> None:
    pool = await bench.open(shared(check=CheckPolicy(required_depth=Depth.DEEP)), size=2)
    await use(pool, "clean")
    await bench.close()

    pool = await bench.open(shared(check=CheckPolicy(required_depth=Depth.DEEP)), size=2)
    assert await stand(pool, "clean") == ["cleared (deep)"]
    await use(pool, "dirty", "set", "common/slots", "one")
    await bench.close()

    pool = await bench.open(shared(check=CheckPolicy(required_depth=Depth.DEEP)), size=2)
    assert await stand(pool, "clean", "dirty") == ["cleared (deep)", "quarantined (contaminated)"]


async def test_a_dead_instance_is_rebuilt_and_its_unjudged_trajectories_are_unverified(bench: Any) -> None:
    pool = await bench.open(shared(), size=3)
    await until_full(bench, pool, 3)
    await use(pool, "judged")
    await bench.quiet()
    running = await pool.acquire("shared", trajectory="running", wait=5)
    await use(pool, "killer", "kill", "instance")
    await bench.quiet()

    assert await stand(pool, "judged", "running", "killer") == [
        "cleared (quick)",
        "quarantined (unverified)",
        "quarantined (unverified)",
    ]
    assert running.outcome == "killed"
    assert len(list(pool.environment("shared").ready())) == 3
    await use(pool, "after")
    await bench.quiet()
    assert await stand(pool, "after") == ["cleared (quick)"]


async def test_an_instance_that_cannot_be_rebuilt_leaves_service_and_another_is_made(bench: Any) -> None:
    pool = await bench.open(shared(), size=2)
    await until_full(bench, pool, 2)
    (old,) = hosts(pool)
    bench.runtime.faults.fail("rebuild", OSError("no space left"), times=2)

    await use(pool, "dirty", "set", "common/guard/roles", "eve")
    await bench.quiet()

    assert await stand(pool, "dirty") == ["quarantined (contaminated)"]
    assert old.gone
    (new,) = hosts(pool)
    assert new.id != old.id
    assert len(list(pool.environment("shared").ready())) == 2
    assert [r.id for r in await bench.ledger.instances()] == [new.id]


async def test_an_instance_whose_rebuild_ends_in_an_error_does_not_run_on(bench: Any) -> None:
    pool = await bench.open(shared(), size=2)
    await until_full(bench, pool, 2)
    (old,) = hosts(pool)
    bench.disk.fail("abandon_instance", OSError("the disk is full"))

    await use(pool, "dirty", "set", "common/guard/roles", "eve")
    await bench.quiet()

    assert "the disk is full" in old.gone
    assert old.instance is None
    assert old.id not in bench.machine.running
    assert old not in hosts(pool)
    assert [r.id for r in await bench.ledger.instances()] == [host.id for host in hosts(pool)]


async def test_after_a_crash_nothing_of_a_shared_instance_is_trusted(bench: Any) -> None:
    pool = await bench.open(shared(), size=3)
    await until_full(bench, pool, 3)
    await use(pool, "judged")
    await bench.quiet()
    await pool.acquire("shared", trajectory="open", wait=5)
    gate = bench.runtime.faults.hold("restore")
    ended = await pool.acquire("shared", trajectory="ended", wait=5)
    await ended.release()
    await bench.crash()
    gate.set()

    pool = await bench.open(shared(), size=3)
    await until_full(bench, pool, 3)

    assert await stand(pool, "judged", "open", "ended") == [
        "cleared (quick)",
        "quarantined (unverified)",
        "quarantined (unverified)",
    ]
    states = {r.id: r.state for r in await bench.ledger.instances(retired=True)}
    assert sorted(states.values()) == ["ready", "retired"]
    used = {r.instance for r in await bench.ledger.namespaces()}
    assert used == {name for name, state in states.items() if state == "ready"}


async def test_an_audit_checks_instances_on_which_nobody_works(bench: Any) -> None:
    pool = await bench.open(shared(), size=2)
    await use(pool, "dirty", "set", "common/slots", "one")
    await bench.quiet()

    found = await pool.audit_namespaces()
    await bench.quiet()

    assert found[hosts(pool)[0].id] is False
    assert await stand(pool, "dirty") == ["quarantined (contaminated)"]


async def test_an_audit_leaves_an_instance_on_which_somebody_works_to_the_end_of_the_lease(bench: Any) -> None:
    pool = await bench.open(shared(), size=2)
    await bench.quiet()
    async with pool.session("shared", wait=5) as session:
        assert sum((await pool.status())["environments"]["shared"]["states"].values()) == 2
        assert (await pool.status())["environments"]["shared"]["states"]["leased"] == 1
        found = await pool.audit_namespaces()
        assert found[hosts(pool)[0].id] is None
        await session.run(["get", "orders"])
    assert session.outcome == "released"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reset": ResetPolicy(method=ResetMethod.HOOK, hook=("true",))}, "reset.method"),
        ({"tasks": [TaskSpec(id="t", family="f", difficulty="easy", split="train", prompt="p", start={"state": {}})]}, "tasks"),
        ({"check": CheckPolicy(window=next(w for w in type(CheckPolicy().window) if w.value != "strict"))}, "check.window"),
    ],
)
async def test_what_does_not_go_with_a_shared_instance_is_refused(bench: Any, change: dict[str, Any], said: str) -> None:
    with pytest.raises(EnvironmentInvalid, match=said):
        await bench.open(shared(**change))


class Older:
    """A runtime of an older package: all of one but what shared instances need."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        if name == "start_shared":
            raise AttributeError(name)
        return getattr(self._runtime, name)


async def test_a_runtime_that_cannot_share_says_so(bench: Any) -> None:
    environment = shared()
    environment.spec = replace(environment.spec, isolation=SHARED)
    bench.runtime = Older(bench.runtime)
    with pytest.raises(RuntimeUnavailable, match="runtime memory cannot share an instance"):
        await bench.open(environment)
