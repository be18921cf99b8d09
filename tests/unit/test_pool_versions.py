"""A newer version of an environment in a running pool: nobody sees both, and each is judged by its own baseline."""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

import pytest

from sandbox.aio import poll
from sandbox.errors import EnvironmentInvalid, LedgerConflict, NotCleared, PoolBroken, PoolBusy, SealBroken
from sandbox.lifecycle import State
from sandbox.model import CheckPolicy, ClearanceState, Depth, Isolation, TaskSpec
from sandbox.testing import memory_environment


def version(number: int, **options: Any) -> Any:
    return memory_environment(files={"orders": str(number), "deep/settings": "default"}, version=f"{number}.0.0", **options)


async def held(bench: Any, pool: Any) -> dict[str, int]:
    """How many live namespaces the ledger has of each version's digest."""
    found: dict[str, int] = {}
    for record in await bench.ledger.namespaces():
        if record.state != State.RETIRED and not record.shares:
            found[record.environment] = found.get(record.environment, 0) + 1
    return found


async def test_a_lease_keeps_the_version_that_it_took_and_the_next_gets_the_new_one(bench: Any) -> None:
    one, two = version(1), version(2)
    pool = await bench.open(one, size=2)
    async with pool.session("memory", wait=5) as old:
        assert await pool.roll(two)
        assert (await old.run(["get", "orders"])).text == "1"
        async with pool.session("memory", wait=5) as new:
            assert (await new.run(["get", "orders"])).text == "2"
            assert (await old.run(["get", "orders"])).text == "1"
            stand = (await pool.status())["environments"]["memory"]
            assert (stand["version"], stand["former"][0]["version"], stand["former"][0]["leased"]) == ("2.0.0", "1.0.0", 1)
        await old.run(["set", "orders", "17"])
    await pool.cleared([old.trajectory_id, new.trajectory_id], timeout=5)
    await bench.quiet()

    assert {c.state for c in (await pool.clearance([old.trajectory_id, new.trajectory_id])).values()} == {ClearanceState.CLEARED}
    assert await held(bench, pool) == {two.spec.digest: 2}
    assert (await pool.status())["environments"]["memory"]["former"] == []


async def test_who_waits_gets_the_new_version(bench: Any) -> None:
    pool = await bench.open(version(1), size=1)
    async with pool.session("memory", wait=5):
        waiting = asyncio.create_task(pool.acquire("memory", wait=60))
        await asyncio.sleep(0.02)
        await pool.roll(version(2))
    async with await waiting as session:
        assert (await session.run(["get", "orders"])).text == "2"


def with_task(number: int) -> Any:
    """A version whose task has a start state of its own."""
    start = {"state": {"mark": f"of {number}"}}
    task = TaskSpec(id="own", family="f", difficulty="easy", split="train", prompt="", start=start)
    return version(number, tasks=[task])


async def derives(bench: Any, times: int) -> bool:
    """Wait until so many start states were begun."""

    async def begun() -> bool:
        return bool(bench.runtime.faults.calls["derive"] >= times)

    return await poll(begun, timeout=60)


async def test_a_start_state_that_the_former_version_is_still_making_is_not_given_to_the_new_one(bench: Any) -> None:
    pool = await bench.open(with_task(1), size=2)
    gate = bench.runtime.faults.hold("derive")
    before = asyncio.create_task(pool.acquire("memory", task="own", wait=60))
    assert await derives(bench, 1)
    await pool.roll(with_task(2))
    after = asyncio.create_task(pool.acquire("memory", task="own", wait=60))
    await asyncio.sleep(0.02)
    gate.set()
    for request in (after, before):
        async with await request as session:
            assert (await session.run(["get", "orders"])).text == "2"
            assert (await session.run(["get", "mark"])).text == "of 2"
            assert session.namespace.start.baseline.key != pool.environment("memory").golden.baseline.key


async def test_what_was_being_made_when_the_version_rolled_leaves_its_place_at_once(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, start = asyncio.Event(), bench.runtime.start

    async def slowly(environment: Any, snapshot: Any, namespace: str, generation: int) -> Any:
        if re.fullmatch("memory-[0-9a-f]{12}", namespace) and environment.spec.version == "1.0.0":
            await gate.wait()
        return await start(environment, snapshot, namespace, generation)

    monkeypatch.setattr(bench.runtime, "start", slowly)
    pool = await bench.open(version(1), size=2)
    await pool.roll(version(2))
    waiting = asyncio.create_task(pool.acquire("memory", wait=5))
    await asyncio.sleep(0.02)
    gate.set()
    async with await waiting as session:
        assert (await session.run(["get", "orders"])).text == "2"


async def test_who_is_overtaken_by_two_versions_gets_the_newest(bench: Any) -> None:
    pool = await bench.open(with_task(1), size=1)
    held = await pool.acquire("memory", wait=5)
    waiting = asyncio.create_task(pool.acquire("memory", task="own", wait=60))
    await asyncio.sleep(0.02)
    gate = bench.runtime.faults.hold("derive")
    await pool.roll(with_task(2))
    assert await derives(bench, 2)  # that of the second version, for who waits
    await pool.roll(with_task(3))
    gate.set()
    await held.release()
    async with await waiting as session:
        assert (await session.run(["get", "mark"])).text == "of 3"


async def test_the_places_of_both_versions_are_never_more_than_the_size(bench: Any) -> None:
    pool = await bench.open(version(1), size=2)
    first, second = [await pool.acquire("memory", wait=5) for _ in range(2)]
    await pool.roll(version(2))
    with pytest.raises(PoolBusy):
        await pool.acquire("memory", wait=0.05)
    assert sum((await held(bench, pool)).values()) == 2
    await first.release()
    async with pool.session("memory", wait=5) as session:
        assert (await session.run(["get", "orders"])).text == "2"
        assert sum((await held(bench, pool)).values()) == 2
    await second.release()


async def test_a_version_written_over_files_that_leases_are_run_with_does_not_roll(bench: Any) -> None:
    """Their holders would see both: the one that they took, and what its files hold now."""
    one, edited = version(1), list[str]()
    one.changed_files = lambda: edited
    pool = await bench.open(one, size=2)
    async with pool.session("memory", wait=5) as session:
        edited.append("app")
        with pytest.raises(EnvironmentInvalid, match=r"1 leases of memory 1\.0\.0 are run with files that were edited since: app"):
            await pool.roll(version(2))
        assert (await session.run(["get", "orders"])).text == "1"
    await bench.quiet()

    assert await pool.roll(version(2))
    async with pool.session("memory", wait=5) as session:
        assert (await session.run(["get", "orders"])).text == "2"


async def test_nor_where_the_lease_was_given_while_the_new_one_was_built(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, edited = version(1), list[str]()
    one.changed_files = lambda: edited
    pool = await bench.open(one, size=2)
    edited.append("app")
    versions, built, leased = pool._versions, asyncio.Event(), asyncio.Event()
    prepared = versions._prepared

    async def slowly(*args: Any, **more: Any) -> Any:
        found = await prepared(*args, **more)
        built.set()
        await leased.wait()
        return found

    monkeypatch.setattr(versions, "_prepared", slowly)
    rolling = asyncio.create_task(pool.roll(version(2)))
    await built.wait()
    async with pool.session("memory", wait=5) as session:
        leased.set()
        with pytest.raises(EnvironmentInvalid, match="edited since: app"):
            await rolling
        assert (await session.run(["get", "orders"])).text == "1"


async def test_nor_does_a_third_over_files_of_one_that_went_before(bench: Any) -> None:
    one, edited = version(1), list[str]()
    one.changed_files = lambda: edited
    pool = await bench.open(one, size=2)
    async with pool.session("memory", wait=5):
        assert await pool.roll(version(2))
        edited.append("app")
        with pytest.raises(EnvironmentInvalid, match=r"memory 1\.0\.0 .*: app"):
            await pool.roll(version(3))


async def test_edited_files_break_the_seal_of_the_version_that_is_run_with_them(bench: Any) -> None:
    one, edited = version(1), list[str]()
    one.changed_files = lambda: edited
    pool = await bench.open(one, size=1)
    assert await pool.verify_seals() == {"memory": True}
    edited.append("app")

    assert await pool.verify_seals() == {"memory": False}
    with pytest.raises(SealBroken, match="run with files that were edited since it was read: app"):
        await pool.acquire("memory", wait=5)
    assert await pool.roll(version(2))
    async with pool.session("memory", wait=5) as session:
        assert (await session.run(["get", "orders"])).text == "2"


async def test_the_version_in_service_is_not_rolled_again_and_another_name_is_refused(bench: Any) -> None:
    pool = await bench.open(version(1))
    assert not await pool.roll(version(1))
    with pytest.raises(EnvironmentInvalid, match="keeps no environment 'other'"):
        await pool.roll(memory_environment("other"))


async def test_a_version_that_cannot_be_prepared_leaves_the_old_one_in_service(bench: Any) -> None:
    pool = await bench.open(version(1))
    bench.runtime.faults.fail("build", OSError("no space"))
    with pytest.raises(OSError, match="no space"):
        await pool.roll(version(2))
    async with pool.session("memory", wait=5) as session:
        assert (await session.run(["get", "orders"])).text == "1"


async def test_a_fork_of_a_former_version_is_refused_at_once_and_says_why(bench: Any) -> None:
    pool = await bench.open(version(1), size=2)
    async with pool.session("memory", wait=5) as parent:
        saved = await parent.snapshot()
        await pool.roll(version(2))
        with pytest.raises(PoolBusy, match=r"2\.0\.0 has taken the place of its version 1\.0\.0"):
            await parent.fork(saved, wait=60)


async def test_a_fork_that_waits_when_a_version_rolls_is_refused_as_any_other(bench: Any) -> None:
    pool = await bench.open(version(1), size=2)
    async with pool.session("memory", wait=5) as parent:
        saved = await parent.snapshot()
        gate = bench.runtime.faults.hold("restore")
        await (await pool.acquire("memory", wait=5)).release()  # its namespace comes back, and the fork may wait for it
        waiting = asyncio.create_task(parent.fork(saved, wait=60))
        assert await poll(lambda: waits(pool), timeout=60)
        await pool.roll(version(2))
        gate.set()
        with pytest.raises(PoolBusy, match=r"2\.0\.0 has taken the place of its version 1\.0\.0"):
            await waiting


async def waits(pool: Any) -> bool:
    return bool(len(pool.environment("memory").waiting))


async def test_a_former_version_whose_golden_was_changed_does_not_take_the_place_of_one_that_serves(bench: Any) -> None:
    pool = await bench.open(version(1))
    golden = pool.environment("memory").golden.snapshot.dirs[0]
    await bench.quiet()  # one that is still being made would go at a round of the duties, and no clock moves here
    await pool.roll(version(2))
    bench.storage.content(golden)["orders"] = "overwritten"
    with pytest.raises(SealBroken):
        await pool.roll(version(1))
    async with pool.session("memory", wait=5) as session:
        assert (await session.run(["get", "orders"])).text == "2"


async def test_who_waits_keeps_its_turn_when_a_version_rolls(bench: Any) -> None:
    pool = await bench.open(version(1), size=1)
    served: list[str] = []

    async def use(name: str, priority: int) -> None:
        async with pool.session("memory", wait=60, priority=priority):
            served.append(name)

    async with pool.session("memory", wait=5, ttl=10_000):
        first = asyncio.create_task(use("who waited long", 0))
        assert await poll(lambda: waits(pool), timeout=60)
        await bench.clock.advance(10 * bench.limits.ageing_s)
        second = asyncio.create_task(use("who came later", 5))
        await asyncio.sleep(0.02)
        await pool.roll(version(2))
    await first
    await second

    assert served == ["who waited long", "who came later"]


async def test_a_draining_pool_rolls_nothing(bench: Any) -> None:
    pool = await bench.open(version(1))
    await pool.drain()
    with pytest.raises(PoolBroken, match="draining"):
        await pool.roll(version(2))


async def test_instances_that_a_former_version_shared_go_after_their_last_check(bench: Any) -> None:
    shared = {"isolation": Isolation.DATABASE, "namespaces_per_instance": 2}
    pool = await bench.open(version(1, **shared), size=2)
    former = pool.environment("memory")
    async with pool.session("memory", wait=5) as old:
        await pool.roll(version(2, **shared))
        assert (await old.run(["get", "orders"])).text == "1"
    await bench.quiet()
    for _ in range(4):  # rounds of the duties: the last check, then the end
        await bench.clock.advance(5)
        await bench.quiet()
    assert former.hosts == []
    async with pool.session("memory", wait=5) as new:
        assert (await new.run(["get", "orders"])).text == "2"
    assert (await bench.ledger.clearances([old.trajectory_id]))[old.trajectory_id].state == ClearanceState.CLEARED


@pytest.mark.parametrize("seed", range(6))
async def test_versions_roll_under_eight_sessions(bench: Any, seed: int) -> None:
    chance = random.Random(seed)
    pool = await bench.open(version(1), size=8)
    digests = {version(n).spec.digest: str(n) for n in range(1, 5)}
    seen: dict[str, str] = {}

    async def work() -> None:
        for _ in range(6):
            async with pool.session("memory", wait=30) as session:
                texts = set()
                for _ in range(chance.randint(1, 3)):
                    texts.add((await session.run(["get", "orders"])).text)
                    await asyncio.sleep(chance.random() * 0.004)
                assert texts == {digests[session.namespace.environment.spec.digest]}
                await session.run(["set", "orders", "99"])
            seen[session.trajectory_id] = texts.pop()

    async def roll() -> None:
        for number in range(2, 5):
            await asyncio.sleep(chance.random() * 0.02)
            assert await pool.roll(version(number))

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(work())
        group.create_task(roll())
    await pool.cleared(list(seen), timeout=30)

    for trajectory, text in seen.items():
        told = await pool.why(trajectory)
        assert told["clearance"]["state"] == "cleared"
        namespace = await bench.ledger.namespace(told["namespace"])
        assert digests[namespace.environment] == text, "judged on another version's namespace"
    async with pool.session("memory", wait=30) as session:
        assert (await session.run(["get", "orders"])).text == "4"


async def test_what_a_version_of_before_the_restart_was_cleared_at_is_refused_with_what_to_do(bench: Any) -> None:
    """Its required depth is known where it is kept: elsewhere the deepest is taken, and no check of it can come any more."""
    one, two = version(1, check=CheckPolicy(required_depth=Depth.QUICK)), version(2)
    pool = await bench.open(one, size=1)
    async with pool.session("memory", wait=5) as session:
        pass
    name = session.trajectory_id
    assert (await pool.cleared([name], timeout=5))[name].depth is Depth.QUICK
    await bench.quiet()
    await bench.crash()

    pool = await bench.open(two, size=1)
    for refused in (pool.ship("batch-1", [name], policy_version="p"), pool.cleared([name], timeout=0.05)):
        with pytest.raises(NotCleared) as caught:
            await refused
        assert f"does not keep the version ({one.spec.digest[:12]}) that {name} acted in" in caught.value.message
        assert "a pool that was opened with that version" in caught.value.fix
        assert "cleared" in caught.value.clearances[name]
        assert "quick" in caught.value.clearances[name]
    for decide in (pool.release, pool.discard):
        with pytest.raises(LedgerConflict, match="only quarantined trajectories"):
            await decide([name], by="somebody", note="it is as good as it was")
    await bench.close()

    pool = await bench.open(one, size=1)
    await pool.roll(two)
    assert (await pool.cleared([name], timeout=5))[name].depth is Depth.QUICK
    assert (await pool.ship("batch-1", [name], policy_version="p"))["clearances"][name]["required"] == "quick"


async def test_one_of_another_version_that_is_cleared_deep_ships_once_and_its_second_batch_is_no_matter_of_versions(
    bench: Any,
) -> None:
    pool = await bench.open(version(1, check=CheckPolicy(deep_every=1)), size=1)
    async with pool.session("memory", wait=5) as session:
        pass
    name = session.trajectory_id
    await pool.cleared([name], timeout=5, depth=Depth.DEEP)
    await bench.close()

    pool = await bench.open(version(2), size=1)
    await pool.ship("batch-1", [name], policy_version="p")
    with pytest.raises(NotCleared, match="in batch batch-1 already") as refused:
        await pool.ship("batch-2", [name], policy_version="p")
    assert "version" not in refused.value.message


async def test_a_refusal_that_is_not_for_its_version_says_nothing_of_versions(bench: Any) -> None:
    pool = await bench.open(version(1, check=CheckPolicy(required_depth=Depth.DEEP, deep_every=100)), size=1)
    async with pool.session("memory", wait=5) as session:
        with pytest.raises(NotCleared) as refused:
            await pool.ship("batch-1", [session.trajectory_id], policy_version="p")
    assert "version" not in refused.value.message
