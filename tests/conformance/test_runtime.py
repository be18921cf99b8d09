"""What every runtime promises about its instances, asked the same way of each."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from sandbox.errors import AutoclaveError, InstanceLost, LimitReached
from sandbox.ports import Environment, Instance, Runtime

Begin = Callable[..., Awaitable[Instance]]


def read(instance: Instance, kit: Any, name: str) -> str | None:
    """What lies in a file, from outside."""
    tree = instance.subject().tree(kit.state)
    return None if tree.entry(name) is None else tree.read(name).decode()


async def spawned(instance: Instance, kit: Any) -> int:
    return sum(kit.spawned(p.argv) for p in await instance.subject().processes())


async def test_a_fresh_instance_is_its_snapshot_and_proves_it(instance: Instance, kit: Any) -> None:
    assert await kit.get(instance, "orders") == "3"
    assert (instance.namespace, instance.generation, instance.snapshot) == ("world-one", 1, kit.golden)
    subject = instance.subject()
    assert (subject.namespace, subject.in_place) == ("world-one", False)
    assert subject.environment == kit.environment.spec
    assert subject.proof is not None
    assert subject.proof.holds, subject.proof.detail
    assert read(instance, kit, "orders") == "3"
    assert await instance.alive()


async def test_what_is_in_force_is_told(instance: Instance, runtime: Runtime, kit: Any) -> None:
    told = json.loads(json.dumps(dict(instance.in_force)))
    assert told["runtime"] == runtime.name == kit.name
    assert kit.name in await runtime.identity(kit.environment)
    assert kit.golden.runtime == kit.name
    assert kit.golden.storage == runtime.storage.name


async def test_commands_and_files_work(instance: Instance, kit: Any) -> None:
    data = bytes(range(256))
    echoed = await instance.run(["cat"], stdin=data)
    assert (echoed.exit_code, echoed.stdout, echoed.timed_out) == (0, data, False)
    assert (await instance.run(["no-such-program-at-all"])).exit_code == 127
    await instance.write_file("notes.bin", data)
    assert await instance.read_file("notes.bin") == data
    with pytest.raises(LimitReached):
        await instance.read_file("notes.bin", limit_bytes=10)
    with pytest.raises(FileNotFoundError):
        await instance.read_file("nothing")


async def test_commands_overlap(instance: Instance) -> None:
    texts = [f"{n}".encode() * 1000 for n in range(12)]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(instance.run(["cat"], stdin=text)) for text in texts]
    assert [task.result().stdout for task in running] == texts


async def test_what_an_agent_does_is_seen_from_outside(instance: Instance, kit: Any) -> None:
    await kit.put(instance, "orders", "0")
    await kit.put(instance, "added", "new")
    await kit.spawn(instance)
    assert (read(instance, kit, "orders"), read(instance, kit, "added")) == ("0", "new")
    assert await spawned(instance, kit) == 1


async def test_restore_brings_everything_back(instance: Instance, kit: Any) -> None:
    await kit.put(instance, "orders", "0")
    await kit.put(instance, "added", "new")
    await kit.spawn(instance)
    await instance.revoke()
    await instance.restore(kit.golden, 2)
    assert (instance.generation, instance.snapshot) == (2, kit.golden)
    assert (await kit.get(instance, "orders"), await kit.get(instance, "added")) == ("3", None)
    assert (read(instance, kit, "orders"), read(instance, kit, "added")) == ("3", None)
    assert await spawned(instance, kit) == 0
    subject = instance.subject()
    assert not subject.in_place
    assert subject.proof is not None
    assert subject.proof.holds


async def test_restore_also_comes_without_revoking_first_and_again_and_again(instance: Instance, kit: Any) -> None:
    for generation in range(2, 6):
        await kit.put(instance, "orders", str(generation))
        await kit.spawn(instance)
        await instance.restore(kit.golden, generation)
        assert await kit.get(instance, "orders") == "3"
        assert await spawned(instance, kit) == 0
        assert instance.generation == generation


async def test_a_revoked_generation_does_nothing_more(instance: Instance, kit: Any) -> None:
    await kit.spawn(instance)
    await instance.revoke()
    await instance.revoke()
    with pytest.raises(InstanceLost):
        await instance.run(["cat"])
    with pytest.raises(InstanceLost):
        await instance.read_file("orders")
    with pytest.raises(InstanceLost):
        await instance.write_file("orders", b"9")
    await instance.restore(kit.golden, 2)
    assert await kit.get(instance, "orders") == "3"
    assert await spawned(instance, kit) == 0


async def test_a_reset_in_place_says_that_it_was_one(begin: Begin, clean: Environment, kit: Any) -> None:
    instance = await begin(clean)
    await kit.put(instance, "orders", "0")
    await kit.put(instance, "added", "new")
    await kit.spawn(instance)
    await instance.revoke()
    await instance.reset_in_place(2, hook=None)
    assert (await kit.get(instance, "orders"), await kit.get(instance, "added")) == ("3", None)
    assert await spawned(instance, kit) == 0
    subject = instance.subject()
    assert (instance.generation, subject.in_place, subject.proof) == (2, True, None)
    await instance.restore(kit.golden, 3)
    assert not instance.subject().in_place
    assert instance.subject().proof is not None


async def test_quiescing_ends_processes_and_keeps_the_state(instance: Instance, kit: Any) -> None:
    await kit.put(instance, "orders", "0")
    await kit.spawn(instance)
    await instance.quiesce()
    assert await spawned(instance, kit) == 0
    assert read(instance, kit, "orders") == "0"
    assert await kit.get(instance, "orders") == "0"


async def test_a_saved_state_starts_elsewhere_and_the_instance_goes_on(
    begin: Begin, instance: Instance, runtime: Runtime, kit: Any
) -> None:
    await kit.put(instance, "orders", "7")
    saved = await instance.snapshot_now()
    try:
        assert saved.parent == kit.golden.id
        assert saved.digest != kit.golden.digest
        assert (instance.generation, instance.snapshot) == (1, kit.golden)
        assert await kit.get(instance, "orders") == "7"
        child = await begin(snapshot=saved, name="child")
        assert await kit.get(child, "orders") == "7"
        await kit.put(child, "orders", "8")
        assert await kit.get(instance, "orders") == "7"
        await instance.restore(kit.golden, 2)
        assert await kit.get(instance, "orders") == "3"
        assert await kit.get(child, "orders") == "8"
        await child.close()
        await instance.close()
    finally:
        for directory in saved.dirs:
            await runtime.storage.remove(directory)


async def test_a_reset_in_place_after_a_save_brings_back_what_was_before_it(
    begin: Begin, clean: Environment, runtime: Runtime, kit: Any
) -> None:
    instance = await begin(clean)
    await kit.put(instance, "orders", "7")
    saved = await instance.snapshot_now()
    await instance.revoke()
    await instance.reset_in_place(2, hook=None)
    assert await kit.get(instance, "orders") == "3"
    await instance.close()
    for directory in saved.dirs:
        await runtime.storage.remove(directory)


@pytest.mark.parametrize("ending", ["restore", "clean", "close"])
async def test_an_end_in_the_middle_of_a_save_is_an_end(
    begin: Begin, clean: Environment, runtime: Runtime, kit: Any, ending: str
) -> None:
    """Whenever it comes: what was being saved does not come up again after it, and nothing of it is left."""
    began = time.monotonic()
    first = await begin(name="timed")
    await kit.put(first, "orders", "7")
    saved = [await first.snapshot_now()]
    whole = time.monotonic() - began
    await first.close()
    for part in (0.1, 0.4, 0.7):
        instance = await begin(clean if ending == "clean" else None, name=f"at-{part}")
        await kit.put(instance, "orders", "7")
        await kit.put(instance, "added", "new")
        save = asyncio.create_task(instance.snapshot_now())
        await asyncio.sleep(part * whole)
        if ending == "close":
            await instance.close()
        else:
            await instance.revoke()
            if ending == "restore":
                await instance.restore(kit.golden, 2)
            else:
                await instance.reset_in_place(2, hook=None)
        outcome = (await asyncio.gather(save, return_exceptions=True))[0]
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, InstanceLost)
        else:
            saved.append(outcome)  # it was done before the end came
        if ending == "close":
            assert not await instance.alive()
            continue
        assert instance.generation == 2
        assert (await kit.get(instance, "orders"), await kit.get(instance, "added")) == ("3", None)
        assert (read(instance, kit, "orders"), read(instance, kit, "added")) == ("3", None)
        await instance.close()
    for snapshot in saved:
        for directory in snapshot.dirs:
            await runtime.storage.remove(directory)


async def test_a_task_has_a_start_state_of_its_own(begin: Begin, runtime: Runtime, kit: Any) -> None:
    derived = await runtime.derive(kit.environment, kit.golden, kit.task())
    try:
        assert (derived.parent, derived.task) == (kit.golden.id, "t")
        instance = await begin(snapshot=derived)
        assert await kit.get(instance, "orders") == "4"
        await instance.restore(kit.golden, 2)
        assert await kit.get(instance, "orders") == "3"
        await instance.restore(derived, 3)
        assert await kit.get(instance, "orders") == "4"
        await instance.close()
    finally:
        for directory in derived.dirs:
            if directory not in kit.golden.dirs:
                await runtime.storage.remove(directory)


async def test_instances_know_nothing_of_each_other(begin: Begin, kit: Any) -> None:
    one, two = await begin(name="one"), await begin(name="two")
    await kit.put(one, "orders", "1")
    await kit.spawn(one)
    assert await kit.get(two, "orders") == "3"
    assert await spawned(two, kit) == 0
    await two.close()
    assert await kit.get(one, "orders") == "1"
    assert await spawned(one, kit) == 1


async def test_a_dead_instance_says_so_and_restore_brings_it_back(instance: Instance, kit: Any) -> None:
    await kit.put(instance, "orders", "0")
    await kit.die(instance)
    assert not await instance.alive()
    await instance.restore(kit.golden, 2)
    assert await instance.alive()
    assert await kit.get(instance, "orders") == "3"


async def test_closing_is_final_and_may_be_said_twice(instance: Instance) -> None:
    await instance.close()
    await instance.close()
    assert not await instance.alive()
    with pytest.raises(InstanceLost):
        await instance.run(["cat"])


async def test_a_snapshot_that_is_gone_leaves_nothing_half_started(begin: Begin, kit: Any) -> None:
    gone = replace(
        kit.golden, dirs=tuple(replace(d, digest="0", layers=tuple(f"{x}-gone" for x in d.layers)) for d in kit.golden.dirs)
    )
    with pytest.raises(AutoclaveError):
        await begin(snapshot=gone)


async def test_a_cancelled_restore_can_be_made_again(instance: Instance, kit: Any) -> None:
    for delay in (0.0, 0.01, 0.05):
        task = asyncio.create_task(instance.restore(kit.golden, 2))
        await asyncio.sleep(delay)
        task.cancel()  # nothing where a fast machine was done before
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None
    await instance.restore(kit.golden, 3)
    assert await kit.get(instance, "orders") == "3"
    assert await instance.alive()


async def test_a_cancelled_start_leaves_nothing(begin: Any) -> None:
    for delay in (0.0, 0.01, 0.1):
        task = asyncio.create_task(begin())
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None


async def test_a_sweep_takes_what_no_instance_owns(begin: Begin, kit: Any) -> None:
    """A second runtime stands for the manager after a crash: to it, the first one's instance is a leftover."""
    instance = await begin()
    async with kit.opened() as later:
        own = await later.start(kit.environment, kit.golden, instance.namespace, 1)
        told = await later.sweep(dry_run=True)
        assert told
        assert await instance.alive()
        assert await later.sweep()
        async with asyncio.timeout(30):
            while await instance.alive():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        assert await own.alive()
        assert await kit.get(own, "orders") == "3"
        assert await later.sweep() == ()
