"""Instances of the namespaces runtime, beyond what tests/conformance asks of every runtime: a repository, and endings that meet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

import psycopg
import pytest

from sandbox.errors import LimitReached
from sandbox.model import Limits, TaskSpec
from sandbox.ports import Instance, Runtime
from sandbox.runtimes.group.instance import GroupInstance

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres]
Begin = Callable[..., Awaitable[Instance]]


async def ask(instance: Instance, sql: str) -> str:
    done = await instance.run(["psql", "-X", "-Atc", sql])
    assert done.exit_code == 0, done.stderr.decode()
    return done.text.strip()


async def shell(instance: Instance, script: str) -> str:
    done = await instance.run(["/bin/sh", "-c", script])
    return (done.stdout + done.stderr).decode().strip()


async def test_the_agent_works_in_its_world(instance: Instance) -> None:
    assert await ask(instance, "select count(*), current_user from items") == "500|agent"
    assert await shell(instance, "cd code && ./run.sh && git log --format=%s && git status --short") == "ran\nThe world"
    assert await instance.read_file("/workspace/docs/guide/start.txt") == b"begin\n"
    await instance.write_file("notes.txt", b"mine")
    assert await shell(instance, "cat /workspace/notes.txt; echo; id -u; echo $HOME; touch ~/here && ls ~") == (
        "mine\n1000\n/home/agent\nhere"
    )
    assert await instance.alive()


async def test_what_is_in_force_is_told(instance: Instance, built: Any) -> None:
    told = instance.in_force
    assert told["runtime"] == "namespaces"
    assert told["network"] == "none"
    assert told["storage"] in ("overlay", "btrfs", "reflink", "copy")
    assert told["resources"]["db"]["postgres"][:2].isdigit()
    assert told["uid"] == (built.settings.users.agent if built.settings.users.agent is not None else os.geteuid())
    assert "memory" in told
    assert told["reset_scope"].startswith("instance")


async def test_restore_brings_everything_back(instance: Instance, built: Any) -> None:
    await ask(instance, "insert into items (name) values ('evil'); create table t (a int)")
    await shell(instance, "echo x > ~/.profile; echo x >> code/run.sh; rm -r docs/guide; echo x > /tmp/left; (sleep 1000 &) ")
    await instance.revoke()
    await instance.restore(built.golden, 2)
    assert instance.generation == 2
    assert await ask(instance, "select count(*), to_regclass('t') is null from items") == "500|t"
    assert await shell(instance, "ls -A ~ /tmp; cd code; git status --short; cat ../docs/guide/start.txt") == (
        "/home/agent:\n\n/tmp:\nbegin"
    )
    subject = instance.subject()
    assert subject.proof is not None
    assert subject.proof.holds
    assert not subject.in_place
    assert not any("sleep" in p.argv[0] for p in await subject.processes())


async def test_clean_undoes_what_a_careful_author_would(begin: Begin, world_changed: Any) -> None:
    instance = await begin(world_changed(method="clean"))
    await ask(instance, "delete from items; create schema extra; alter database world set work_mem = '1MB'")
    await ask(instance, "begin; insert into items (name) values ('p'); prepare transaction 'left'")
    await shell(instance, "cd code; echo x > a.log; echo y > b; git checkout -q -b other; git add -f .; git -c user.name=a "
                          "-c user.email=a commit -qm evil; git init -q nested; chmod 0 b; cd ..; rm -r docs/guide; "
                          "mkdir -m 0500 docs/shut; echo x > ~/.bashrc; echo y > stray")  # fmt: skip
    await instance.reset_in_place(2, hook=None)
    assert await ask(instance, "select count(*) from items") == "500"
    assert await ask(instance, "select count(*) from pg_prepared_xacts") == "0"
    assert await ask(instance, "select to_regnamespace('extra') is null") == "t"
    assert await ask(instance, "show work_mem") == "4MB"
    assert await ask(instance, "show search_path") == "public, pg_catalog"
    found = await shell(instance, "cd code; git log --all --format=%s; git status --short --ignored; ls -A ~ ..; ls ../docs")
    assert found == "The world\n..:\ncode\ndocs\n\n/home/agent:\nguide"
    assert await shell(instance, "cd code; ls .git | grep -c _HEAD") == "0"  # git reset writes ORIG_HEAD


@pytest.mark.parametrize("method", ["clean", "hook"])
async def test_a_server_that_lives_on_is_not_found_at_its_former_address(begin: Begin, world_changed: Any, method: str) -> None:
    """Also by who looked up where the generation's address leads to (P8)."""
    instance = await begin(world_changed(method=method, hook=("true",)))
    former: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(instance.endpoint("db"))
    behind: dict[str, Any] = {**former, "host": os.path.realpath(str(former["host"]))}
    for address in (former, behind):
        await (await psycopg.AsyncConnection.connect(psycopg.conninfo.make_conninfo(**address))).close()
    await instance.revoke()
    await instance.reset_in_place(2, hook=None if method == "clean" else ("true",))
    for address in (former, behind):
        with pytest.raises(psycopg.OperationalError):
            await psycopg.AsyncConnection.connect(psycopg.conninfo.make_conninfo(**address), connect_timeout=5)
    await (await psycopg.AsyncConnection.connect(instance.endpoint("db"))).close()
    assert await ask(instance, "select count(*) from items") == "500"
    assert await instance.alive()


@pytest.mark.parametrize("method", ["clean", "hook"])
async def test_shared_memory_and_queues_die_with_the_agents_sandbox_also_in_place(
    begin: Begin, world_changed: Any, method: str
) -> None:
    """No probe reads them: they belong to an IPC namespace that no reset keeps."""
    instance = await begin(world_changed(method=method, hook=("true",)))
    await shell(instance, "ipcmk -M 4096; ipcmk -Q; ipcmk -S 1; echo x > /dev/shm/left")
    seen = "tail -qn +2 /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem | wc -l; ls -A /dev/shm"
    assert (await shell(instance, seen)).split() == ["3", "left"]
    await instance.revoke()
    await instance.reset_in_place(2, hook=None if method == "clean" else ("true",))
    assert (await shell(instance, seen)).split() == ["0"]


async def test_a_snapshot_of_a_session_can_be_started_elsewhere(begin: Begin, runtime: Runtime, built: Any) -> None:
    instance = await begin()
    await ask(instance, "insert into items (name) values ('forked')")
    await shell(instance, "echo mine > code/new; echo home > ~/kept")
    snapshot = await instance.snapshot_now()
    try:
        assert snapshot.parent == built.golden.id
        assert snapshot.digest != built.golden.digest
        assert await ask(instance, "select count(*) from items") == "501"
        assert await shell(instance, "cat code/new ~/kept") == "mine\nhome"
        assert instance.generation == 1
        assert instance.snapshot.id == built.golden.id
        # What changed before the snapshot would be missing from the new clone's own list.
        assert instance.subject().tree("code").changed() is None
        child = await begin(snapshot=snapshot, name="child")
        assert await ask(child, "delete from items where name = 'forked' returning 1") == "1\nDELETE 1"
        assert await ask(instance, "select count(*) from items") == "501"
        await child.close()
        await instance.restore(built.golden, 2)
        assert await ask(instance, "select count(*) from items") == "500"
    finally:
        await instance.close()
        for sealed in snapshot.dirs:
            await runtime.storage.remove(sealed)


async def test_a_task_has_a_start_state_of_its_own(begin: Begin, runtime: Runtime, built: Any) -> None:
    start = {
        "code": {"replace": [{"file": "package/sums.py", "old": "a + b", "new": "a - b"}]},
        "db": {"sql": "delete from items where id > 10;"},
    }
    task = TaskSpec(id="t1", family="f", difficulty="easy", split="train", prompt="", start=start)
    child = await runtime.derive(built.world, built.golden, task)
    try:
        assert (child.parent, child.task) == (built.golden.id, "t1")
        assert child.dir("docs/files") == built.golden.dir("docs/files")
        instance = await begin(snapshot=child)
        assert await ask(instance, "select count(*) from items") == "10"
        found = await shell(instance, "cd code; git rev-list --all --count; git status --short; grep return package/sums.py; "
                                      "git fsck --unreachable --no-reflogs; ls .git/logs 2>&1 | wc -l; "
                                      "git cat-file --batch-check --batch-all-objects | wc -l")  # fmt: skip
        # One commit, two trees, three files: nothing of the right version is in the repository.
        assert found == "1\n    return a - b\n1\n6"
        await instance.reset_in_place(2, hook=None)
        assert await ask(instance, "select count(*) from items") == "10"
        await instance.close()
    finally:
        for sealed in child.dirs:
            if sealed not in built.golden.dirs:
                await runtime.storage.remove(sealed)


async def test_trusted_commands_see_the_state_and_cannot_write_it(instance: Instance) -> None:
    await shell(instance, "echo changed > docs/new; mkdir -p bin; printf '#!/bin/sh\\necho fooled\\n' > bin/cat; chmod +x bin/cat")
    subject = instance.subject()
    done = await subject.trusted_run(
        ["/bin/sh", "-c", "cat docs/new; echo x > docs/other; touch ~/x; ls /run; echo $PGHOST; id -u"]
    )
    assert done.text.split() == ["changed", "1000"]
    assert subject.tree("docs").read("new") == b"changed\n"
    assert subject.tree("docs").entry("other") is None
    assert subject.tree("home").entry("x") is None
    assert subject.tree("workspace").entry("bin/cat") is not None


async def test_who_ends_an_instance_that_is_being_ended_waits_until_it_is_dead(instance: Instance) -> None:
    """The disk watch may be stopping a session at the moment at which its lease ends."""
    world = cast("GroupInstance", instance).world
    boxes = tuple(world.sandboxes)
    assert len(boxes) >= 2
    first = asyncio.create_task(world.kill())
    for _ in range(3):
        await asyncio.sleep(0)
    await world.kill()
    assert [box for box in boxes if not await box.wait(0)] == []
    await first


async def test_a_reset_in_place_waits_for_a_stop_that_the_disk_watch_began(begin: Begin, world_changed: Any) -> None:
    instance = await begin(world_changed(limits=Limits(disk_mb=60, file_mb=50), method="clean"))
    boxes = tuple(cast("GroupInstance", instance).world.sandboxes)
    with pytest.raises(LimitReached, match=r"limits\.disk_mb is 60"):
        await instance.run(["/bin/sh", "-c", "for i in 1 2 3 4; do head -c 20000000 /dev/zero > big$i; done; sleep 60"], limit_s=70)
    await instance.revoke()
    assert [box for box in boxes if not await box.wait(0)] == []
    await instance.reset_in_place(2, hook=None)
    assert await shell(instance, "ls /workspace") == "code\ndocs"
    assert await ask(instance, "select count(*) from items") == "500"


async def test_a_cancelled_restore_can_be_restored_again(instance: Instance, built: Any) -> None:
    cancelled = 0
    for delay in (0.001, 0.02, 0.08):
        task = asyncio.create_task(instance.restore(built.golden, 2))
        await asyncio.sleep(delay)
        if not task.cancel():  # a fast machine was done before
            continue
        try:
            await task
        except asyncio.CancelledError:
            cancelled += 1
            assert not await instance.alive()
    assert cancelled
    await instance.restore(built.golden, 3)
    assert await ask(instance, "select count(*) from items") == "500"
