"""Instances of the namespaces runtime: built, used, reset in every way, looked into, and gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

import psycopg
import pytest

from sandbox.errors import InstanceLost, LimitReached, ResetFailed
from sandbox.model import Limits, Role, TaskSpec
from sandbox.ports import Instance, Runtime
from sandbox.runtimes.group.instance import GroupInstance
from sandbox.runtimes.namespaces import create
from sandbox.storage import open_storage

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


async def test_the_agent_reaches_no_server_file_and_signals_no_server(instance: Instance) -> None:
    done = await instance.run(["ls", "/srv/postgres"])
    assert done.exit_code != 0
    names = await shell(instance, "cat /proc/[0-9]*/comm")
    assert "postgres" not in names
    assert "python3" in names  # the agent's own first process
    # Neither take the socket away nor put another in its place.
    await shell(instance, "rm -f /run/db/.s.PGSQL.5432; touch /run/db/x; mv /run/db /run/other")
    assert await ask(instance, "select 1") == "1"


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


async def test_old_addresses_and_connections_are_dead(instance: Instance, built: Any) -> None:
    old = instance.endpoint("db")
    connection = await psycopg.AsyncConnection.connect(old, autocommit=True)
    await connection.execute("select 1")
    await instance.revoke()
    with pytest.raises(psycopg.OperationalError):
        await psycopg.AsyncConnection.connect(old)
    with pytest.raises(InstanceLost):
        await instance.run(["true"])
    await instance.revoke()  # once more does nothing
    await instance.restore(built.golden, 2)
    with pytest.raises(psycopg.OperationalError):
        await psycopg.AsyncConnection.connect(old)
    with pytest.raises(psycopg.OperationalError):
        await connection.execute("select 1")
    await connection.close()
    async with await psycopg.AsyncConnection.connect(instance.endpoint("db")) as fresh:
        await fresh.execute("select 1")


@pytest.mark.parametrize("method", ["hook", "clean"])
async def test_in_place_revoking_ends_sessions_and_keeps_the_server(begin: Begin, world_changed: Any, method: str) -> None:
    instance = await begin(world_changed(method=method, hook=["true"]))
    before = [p.pid for p in await instance.subject().processes() if p.role is Role.SERVER and "/opt/" in p.argv[0]]
    old = instance.endpoint("db")
    connection = await psycopg.AsyncConnection.connect(old, autocommit=True)
    await connection.execute("begin; lock table items")
    await instance.revoke()
    with pytest.raises(psycopg.OperationalError):
        await connection.execute("select 1")
    await connection.close()
    with pytest.raises(psycopg.OperationalError):
        await psycopg.AsyncConnection.connect(old)
    await instance.reset_in_place(2, hook=["true"] if method == "hook" else None)
    assert await ask(instance, "select count(*) from items") == "500"
    after = [p.pid for p in await instance.subject().processes() if p.role is Role.SERVER and "/opt/" in p.argv[0]]
    assert before == after
    assert instance.subject().in_place
    assert instance.subject().proof is None
    assert instance.in_force["reset_scope"] == "in place"


async def test_a_hook_has_rights_that_end_with_it(begin: Begin, world_changed: Any) -> None:
    instance = await begin(world_changed(method="hook", hook=["true"]))
    await ask(instance, "insert into items (name) values ('more')")
    script = (
        "psql -X -v ON_ERROR_STOP=1 -f /autoclave/hooks/reset.sql && "
        "psql -X -Atc \"select current_user; update secrets set value = 'seen'; create table made_by_hook (a int)\" && "
        'echo "$PGUSER $PGPASSWORD" > /workspace/trap'
    )
    await instance.reset_in_place(2, hook=["/bin/sh", "-ec", script])
    assert await ask(instance, "select count(*) from items") == "0"
    user, password = (await instance.read_file("trap")).decode().split()
    tried = await instance.run(["psql", "-Atc", "select 1", "-U", user], env={"PGPASSWORD": password})
    assert tried.exit_code != 0
    assert "authentication failed" in tried.stderr.decode()
    roles = "select count(*) from pg_roles where rolname !~ '^pg_'"
    assert await ask(instance, roles) == "2"
    assert await ask(instance, "select tableowner from pg_tables where tablename = 'made_by_hook'") == "postgres"


async def test_a_hook_that_fails_is_a_failed_reset(begin: Begin, world_changed: Any, built: Any) -> None:
    instance = await begin(world_changed(method="hook", hook=["true"]))
    with pytest.raises(ResetFailed, match=r"ended with 3: (?s:.*)told you"):
        await instance.reset_in_place(2, hook=["/bin/sh", "-c", "echo told you >&2; exit 3"])
    assert not await instance.alive()
    await instance.restore(built.golden, 3)
    assert await ask(instance, "select count(*) from items") == "500"


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


async def test_a_dead_server_is_noticed_and_brought_back_by_restore(instance: Instance, built: Any) -> None:
    world: Any = instance
    world.world.lives["db"].signal(9)
    async with asyncio.timeout(20):
        while await instance.alive():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    await instance.restore(built.golden, 2)
    assert await ask(instance, "select count(*) from items") == "500"


async def test_quiescing_kills_the_agents_processes_and_sessions(instance: Instance) -> None:
    await shell(instance, "(psql -Atc \"begin; insert into items(name) values('late'); select pg_sleep(600)\" >/dev/null 2>&1 &)")
    running = asyncio.create_task(instance.run(["sleep", "600"], limit_s=700))
    await asyncio.sleep(0.3)
    await instance.quiesce()
    async with asyncio.timeout(10):
        assert (await running).exit_code == 137
    subject = instance.subject()
    assert [p.argv for p in await subject.processes() if p.role is Role.AGENT] == [("autoclave-init",)]
    async with await psycopg.AsyncConnection.connect(subject.endpoint("db"), autocommit=True) as connection:
        cursor = await connection.execute("select count(*) from pg_stat_activity where usename = 'agent'")
        assert await cursor.fetchone() == (0,)
        cursor = await connection.execute("select current_user, (select count(*) from secrets)")
        assert await cursor.fetchone() == ("postgres", 1)


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


async def test_what_runs_listens_and_is_mounted_is_seen_from_outside(instance: Instance) -> None:
    await shell(instance, "(sleep 500 &) ; (python3 -c \"import socket,time; s=socket.socket(socket.AF_UNIX); "
                          "s.bind('\\0hidden'); s.listen(); time.sleep(500)\" &); sleep 0.5")  # fmt: skip
    subject = instance.subject()
    processes = await subject.processes()
    assert ("sleep", "500") in [p.argv for p in processes if p.role is Role.AGENT]
    assert {p.resource for p in processes if p.role is Role.SERVER} == {"db"}
    listeners = await subject.listeners()
    assert any(f.role is Role.AGENT and "hidden" in f.address and f.state == "listen" for f in listeners)
    assert any(f.resource == "db" and f.address.endswith(".s.PGSQL.5432") for f in listeners)
    assert any(line.startswith("/workspace/code ") for line in await subject.mounts(Role.AGENT))
    assert any(line.startswith("db: /srv/postgres ") for line in await subject.mounts(Role.SERVER))


async def test_a_session_that_fills_its_disk_is_stopped(begin: Begin, world_changed: Any, built: Any) -> None:
    instance = await begin(world_changed(limits=Limits(disk_mb=60, file_mb=50)))
    with pytest.raises(LimitReached, match=r"limits\.disk_mb is 60"):
        await instance.run(["/bin/sh", "-c", "for i in 1 2 3 4; do head -c 20000000 /dev/zero > big$i; done; sleep 60"], limit_s=70)
    assert not await instance.alive()
    with pytest.raises(LimitReached):
        await instance.run(["true"])
    await instance.restore(built.golden, 2)
    assert await shell(instance, "ls") == "code\ndocs"


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


async def test_closing_twice_is_fine(instance: Instance) -> None:
    await instance.close()
    await instance.close()
    assert not await instance.alive()
    with pytest.raises(InstanceLost):
        await instance.run(["true"])


async def test_a_snapshot_that_is_gone_leaves_nothing_half_started(begin: Begin, built: Any) -> None:
    from dataclasses import replace

    from sandbox.errors import AutoclaveError

    broken = replace(built.golden, dirs=tuple(replace(d, layers=(f"{d.layers[0]}x",)) for d in built.golden.dirs))
    with pytest.raises(AutoclaveError):
        await begin(snapshot=broken)


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


async def test_a_sweep_takes_what_no_instance_owns(begin: Begin, built: Any) -> None:
    """A second runtime stands for the manager after a crash: to it, the first one's instance is a leftover."""
    instance = await begin()
    kept = await open_storage(built.settings)
    later = create(built.settings, kept)
    try:
        own = await later.start(built.world, built.golden, instance.namespace, 1)
        gone = await later.sweep()
        assert any(line.startswith("process ") for line in gone)
        assert await own.alive()
        assert await ask(own, "select 1") == "1"
        async with asyncio.timeout(10):
            while await instance.alive():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        assert await later.sweep() == ()
    finally:
        await later.close()
        await kept.close()
