"""The engine's face: what is made is found again, what is removed is gone, and nobody else's things are touched."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import InstanceLost, RuntimeUnavailable
from sandbox.runtimes.docker import containers, leftovers, streams, troubles
from sandbox.runtimes.docker.address import from_environment
from sandbox.runtimes.docker.engine import Engine, EngineLimits
from sandbox.runtimes.docker.labels import HOME, Mark, home_identity, identity_in
from sandbox.settings import Settings

pytestmark = pytest.mark.docker


def mark(engine: Engine, **given: Any) -> Mark:
    return Mark(home=engine.home, environment="test", **given)


def sleeper(image: str) -> dict[str, Any]:
    return {"Image": image, "Cmd": ["sleep", "600"], "HostConfig": {"NetworkMode": "none"}}


async def test_it_says_what_it_is(engine: Engine) -> None:
    facts = await engine.facts()
    assert facts.version
    assert facts.storage_driver
    assert facts.cgroup in ("1", "2")


async def test_a_container_from_its_making_to_its_end(engine: Engine, debian: str) -> None:
    container = await containers.create(engine, sleeper(debian), mark(engine))
    await containers.start(engine, container)
    await containers.start(engine, container)
    assert (await containers.inspect(engine, container))["State"]["Running"]
    await containers.kill(engine, container)
    assert await containers.wait_ended(engine, container, timeout=20)
    await containers.kill(engine, container)
    assert (await containers.inspect(engine, container))["State"]["ExitCode"] == 137
    await containers.remove(engine, container)
    await containers.remove(engine, container)
    with pytest.raises(InstanceLost, match="removed"):
        await containers.inspect(engine, container)


async def test_asking_twice_with_one_mark_makes_one_container(engine: Engine, debian: str) -> None:
    same = mark(engine)
    both = [await containers.create(engine, sleeper(debian), same) for _ in range(2)]
    assert both[0] == both[1]
    assert len(await containers.ours(engine)) == 1
    assert not engine.doubtful
    await containers.remove(engine, both[0])


async def test_a_cancelled_creation_leaves_nothing(engine: Engine, debian: str) -> None:
    for steps in range(0, 12, 3):
        task = asyncio.ensure_future(containers.create(engine, sleeper(debian), mark(engine)))
        for _ in range(steps):
            await asyncio.sleep(0.005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await containers.remove(engine, await task)  # it was faster than its cancellation
        assert await containers.ours(engine) == []


async def test_creations_are_limited_apart_from_other_calls(engine: Engine) -> None:
    busy, most = [0], [0]
    narrow = Engine(from_environment(), home=engine.home, limits=EngineLimits(creations=2))

    async def one() -> None:
        async with narrow.creating("counting"):
            busy[0] += 1
            most[0] = max(most[0], busy[0])
            await narrow.call(lambda client: client.ping(), doing="asking")
            busy[0] -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(one())
    assert most[0] == 2
    await narrow.close()


async def test_an_image_that_is_not_there_is_named_and_does_not_open_the_breaker(engine: Engine) -> None:
    for _ in range(engine.limits.failures + 1):
        with pytest.raises(troubles.ImageMissing, match="no-such-image:never") as caught:
            await containers.create(engine, sleeper("autoclave/no-such-image:never"), mark(engine))
        assert "docker pull" in caught.value.fix
    assert not engine.breaker.is_open


async def test_a_sweep_takes_what_is_ours_and_leaves_decoys(engine: Engine, debian: str) -> None:
    """Decoys: without labels, of another home, and with our words in other places."""
    ours = [await containers.create(engine, sleeper(debian), mark(engine)) for _ in range(2)]
    kept = mark(engine, owner="living-instance")
    living = await containers.create(engine, sleeper(debian), kept)

    def plant(client: Any) -> list[str]:
        foreign = {HOME: "0123456789abcdef"}
        made = [
            client.create_container(debian, "true")["Id"],
            client.create_container(debian, "true", labels=foreign)["Id"],
            client.create_container(debian, "true", labels={"other": engine.home}, name=f"autoclave-decoy-{engine.home}")["Id"],
        ]
        client.create_volume(f"decoy-{engine.home}", labels=foreign)
        client.create_network(f"decoy-{engine.home}", internal=True, labels=foreign)
        client.create_volume(f"ours-{engine.home}", labels={HOME: engine.home})
        return made

    def decoys(client: Any, made: list[str]) -> list[str]:
        found = [c["Id"] for c in client.containers(all=True) if c["Id"] in made]
        found += [v["Name"] for v in client.volumes()["Volumes"] if v["Name"] == f"decoy-{engine.home}"]
        return found + [n["Name"] for n in client.networks(names=[f"decoy-{engine.home}"])]

    def clear(client: Any, made: list[str]) -> None:
        for container in made:
            client.remove_container(container, force=True)
        client.remove_volume(f"decoy-{engine.home}")
        client.remove_network(f"decoy-{engine.home}")

    made = await engine.call(plant, doing="planting decoys")
    try:
        told = await leftovers.sweep(engine, {"living-instance"}, dry_run=True)
        assert len(told) == 3
        assert {c["Id"] for c in await containers.ours(engine)} == {*ours, living}
        assert await leftovers.sweep(engine, {"living-instance"}) == told
        assert [c["Id"] for c in await containers.ours(engine)] == [living]
        assert len(await leftovers.sweep(engine)) == 1
        assert len(await engine.call(lambda client: decoys(client, made), doing="looking for decoys")) == 5
    finally:
        await engine.call(lambda client: clear(client, made), doing="removing decoys")


async def test_an_attached_command_gets_stdin_and_gives_both_streams(engine: Engine, debian: str) -> None:
    container = await containers.create(engine, sleeper(debian), mark(engine))
    await containers.start(engine, container)
    script = 'read line; echo "out $line"; echo "err $MODE" >&2'
    _, attached = await streams.execute(engine, container, ["/bin/sh", "-c", script], env={"MODE": "test"})
    attached.writer.write(b"hello\n")
    await attached.writer.drain()
    found = {streams.STDOUT: b"", streams.STDERR: b""}
    async with asyncio.timeout(30):
        while (piece := await attached.frame()) is not None:
            found[piece[0]] += piece[1]
    await attached.close()
    assert found == {streams.STDOUT: b"out hello\n", streams.STDERR: b"err test\n"}
    await containers.remove(engine, container)
    with pytest.raises(InstanceLost):
        await streams.execute(engine, container, ["true"])


async def test_a_first_process_can_be_attached_to(engine: Engine, debian: str) -> None:
    config = {**sleeper(debian), "Cmd": ["cat"], "OpenStdin": True, "AttachStdin": True}
    container = await containers.create(engine, config, mark(engine))
    attached = await streams.attach(engine, container)
    await containers.start(engine, container)
    attached.writer.write(b"there and back\n")
    await attached.writer.drain()
    async with asyncio.timeout(30):
        assert await attached.frame() == (streams.STDOUT, b"there and back\n")
        await containers.remove(engine, container)
        assert await attached.frame() is None
    await attached.close()


async def test_nobody_at_the_address() -> None:
    engine = Engine(from_environment({"DOCKER_HOST": "unix:///nonexistent/docker.sock"}), home="none")
    with pytest.raises(troubles.EngineGone, match=r"unix:///nonexistent/docker\.sock"):
        await engine.facts()
    with pytest.raises(troubles.EngineGone):
        await streams.attach(engine, "0" * 64)
    await engine.close()
    with pytest.raises(RuntimeUnavailable, match="closed"):
        await engine.facts()


async def test_what_a_home_left_that_is_gone_goes_by_the_copy_of_its_identity(settings: Settings, debian: str) -> None:
    settings.store.mkdir(parents=True)
    first = home_identity(settings)
    engine = Engine(from_environment(), home=first)
    try:
        await containers.create(engine, sleeper(debian), mark(engine))
        shutil.rmtree(settings.home)
        assert identity_in(settings.store) == first
        assert [line.split()[0] for line in await leftovers.forget(first)] == ["container"]
        assert await containers.ours(engine) == []
        assert home_identity(settings) == first
    finally:
        await engine.close()


def test_two_homes_are_two_whatever_they_are_called(settings: Settings, tmp_path: Path) -> None:
    other = replace(settings, home=tmp_path / "home", store=tmp_path / "store")
    assert home_identity(settings) == home_identity(settings)
    assert home_identity(settings) != home_identity(other)
