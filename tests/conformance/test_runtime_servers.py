"""What every real runtime promises about servers, confinement and what a former holder may leave: the fake has none of these."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from sandbox.errors import InstanceLost, LimitReached, ResetFailed
from sandbox.model import Limits, ResetMethod, ResetPolicy, Role
from sandbox.ports import Instance, Runtime

pytestmark = pytest.mark.usefixtures("real")
Begin = Callable[..., Awaitable[Instance]]
RESTORE = ResetPolicy()
HOOK = ResetPolicy(method=ResetMethod.HOOK, hook=("true",))
CLEAN = ResetPolicy(method=ResetMethod.CLEAN)


async def ask(instance: Instance, sql: str) -> str:
    done = await instance.run(["psql", "-X", "-Atc", sql])
    assert done.exit_code == 0, done.stderr.decode()
    return done.text.strip()


async def shell(instance: Instance, script: str) -> str:
    done = await instance.run(["/bin/sh", "-c", script])
    return (done.stdout + done.stderr).decode().strip()


async def test_the_agent_is_confined(instance: Instance) -> None:
    status = dict(line.split(":\t", 1) for line in (await shell(instance, "cat /proc/self/status")).splitlines() if ":\t" in line)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert "0" not in status["Uid"].split()
    assert await shell(instance, "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '") == "lo"
    tried = "touch /usr/x /etc/x /x; mkdir /root/x; chroot / true; unshare -r true; mount -t tmpfs none /tmp; cat /etc/shadow"
    for script in tried.split("; "):
        assert (await instance.run(["/bin/sh", "-c", script])).exit_code != 0, script
    assert await shell(instance, "cat /proc/self/mountinfo | grep -c docker.sock") == "0"
    assert await shell(instance, "id -un; echo $HOME; cd; pwd") == "agent\n/home/agent\n/home/agent"


async def test_the_agent_reaches_no_server_file_and_signals_no_server(instance: Instance) -> None:
    assert (await instance.run(["ls", "/srv/postgres/base"])).exit_code != 0
    assert "postgres" not in await shell(instance, "cat /proc/[0-9]*/comm")
    # Neither take the socket away nor put another in its place.
    await shell(instance, "rm -f /run/db/.s.PGSQL.5432; touch /run/db/x; mv /run/db /run/other")
    assert await ask(instance, "select count(*), current_user from items") == "500|agent"


async def test_bounds_hold(begin: Begin, kit: Any) -> None:
    instance = await begin(kit.under(RESTORE, limits=Limits(memory_mb=96, pids=40, file_mb=2, output_bytes=1000)))
    assert (await instance.run(["perl", "-e", "$x = 'a' x 300_000_000; print length $x"])).exit_code != 0
    assert (await instance.run(["/bin/sh", "-c", "head -c 3000000 /dev/zero > /workspace/big"])).exit_code != 0
    cut = await instance.run(["/bin/sh", "-c", "head -c 5000 /dev/zero"])
    assert (len(cut.stdout), cut.truncated) == (1000, True)
    late = await instance.run(["sleep", "60"], limit_s=0.2)
    assert late.timed_out
    assert await instance.alive()
    assert "memory" in instance.in_force


async def test_old_addresses_and_connections_are_dead(instance: Instance, kit: Any) -> None:
    old = instance.endpoint("db")
    connection = await psycopg.AsyncConnection.connect(old, autocommit=True)
    await connection.execute("select 1")
    await instance.revoke()
    with pytest.raises(psycopg.OperationalError):
        await psycopg.AsyncConnection.connect(old)
    await instance.restore(kit.golden, 2)
    with pytest.raises(psycopg.OperationalError):
        await psycopg.AsyncConnection.connect(old)
    with pytest.raises(psycopg.OperationalError):
        await connection.execute("select 1")
    await connection.close()
    async with await psycopg.AsyncConnection.connect(instance.endpoint("db")) as fresh:
        await fresh.execute("select 1")


@pytest.mark.parametrize("policy", [HOOK, CLEAN], ids=["hook", "clean"])
async def test_in_place_revoking_ends_sessions_and_keeps_the_server(begin: Begin, kit: Any, policy: ResetPolicy) -> None:
    instance = await begin(kit.under(policy))

    async def server() -> list[int]:
        return [p.pid for p in await instance.subject().processes() if p.role is Role.SERVER and "/opt/" in p.argv[0]]

    before = await server()
    old = instance.endpoint("db")
    connection = await psycopg.AsyncConnection.connect(old, autocommit=True)
    await connection.execute("begin; lock table items")
    await instance.revoke()
    with pytest.raises(psycopg.OperationalError):
        await connection.execute("select 1")
    await connection.close()
    with pytest.raises(psycopg.OperationalError):
        await psycopg.AsyncConnection.connect(old)
    await instance.reset_in_place(2, hook=policy.hook or None)
    assert await ask(instance, "select count(*) from items") == "500"
    assert await server() == before
    assert instance.in_force["reset_scope"] == "in place"


async def test_a_hook_has_rights_that_end_with_it(begin: Begin, kit: Any) -> None:
    instance = await begin(kit.under(HOOK))
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
    assert await ask(instance, "select count(*) from pg_roles where rolname !~ '^pg_'") == "2"
    assert (await instance.run(["ls", "/autoclave/hooks"])).exit_code != 0


async def test_a_hook_that_fails_is_a_failed_reset(begin: Begin, kit: Any) -> None:
    instance = await begin(kit.under(HOOK))
    with pytest.raises(ResetFailed, match=r"ended with 3: (?s:.*)told you"):
        await instance.reset_in_place(2, hook=["/bin/sh", "-c", "echo told you >&2; exit 3"])
    assert not await instance.alive()
    await instance.restore(kit.golden, 3)
    assert await ask(instance, "select count(*) from items") == "500"


async def test_quiescing_ends_the_agents_sessions(instance: Instance) -> None:
    await shell(instance, "(psql -Atc \"begin; insert into items(name) values('late'); select pg_sleep(600)\" >/dev/null 2>&1 &)")
    running = asyncio.create_task(instance.run(["sleep", "600"], limit_s=700))
    await asyncio.sleep(0.3)
    await instance.quiesce()
    async with asyncio.timeout(30):
        assert (await running).exit_code == 137
    subject = instance.subject()
    assert [p.argv for p in await subject.processes() if p.role is Role.AGENT] == [("autoclave-init",)]
    async with await psycopg.AsyncConnection.connect(subject.endpoint("db"), autocommit=True) as connection:
        cursor = await connection.execute("select count(*) from pg_stat_activity where usename = 'agent'")
        assert await cursor.fetchone() == (0,)
        cursor = await connection.execute("select current_user, (select count(*) from secrets)")
        assert await cursor.fetchone() == ("postgres", 1)


async def test_a_saved_state_holds_the_database_too(begin: Begin, runtime: Runtime, instance: Instance) -> None:
    await ask(instance, "insert into items (name) values ('forked')")
    saved = await instance.snapshot_now()
    try:
        assert await ask(instance, "select count(*) from items") == "501"
        # What changed before the snapshot would be missing from the new clone's own list.
        assert instance.subject().tree("docs").changed() is None
        child = await begin(snapshot=saved, name="child")
        assert await ask(child, "delete from items where name = 'forked' returning 1") == "1\nDELETE 1"
        assert await ask(instance, "select count(*) from items") == "501"
        await child.close()
        await instance.close()
    finally:
        for directory in saved.dirs:
            await runtime.storage.remove(directory)


async def test_trusted_commands_see_the_state_and_cannot_write_it(instance: Instance) -> None:
    await shell(instance, "echo changed > docs/new; mkdir -p bin; printf '#!/bin/sh\\necho fooled\\n' > bin/cat; chmod +x bin/cat")
    subject = instance.subject()
    for _ in range(2):
        done = await subject.trusted_run(
            ["/bin/sh", "-c", "cat docs/new; echo x > docs/other; touch ~/x; ls /run/db; echo $PGHOST"]
        )
        assert done.text.split() == ["changed"]
    assert subject.tree("docs").read("new") == b"changed\n"
    assert subject.tree("docs").entry("other") is None
    assert subject.tree("home").entry("x") is None
    assert subject.tree("workspace").entry("bin/cat") is not None


async def test_what_runs_listens_and_is_mounted_is_seen_from_outside(instance: Instance) -> None:
    listening = 'use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un("\\0hidden")); listen(S, 1); sleep 500'
    await instance.run(["/bin/sh", "-c", '(sleep 500 &); (perl -e "$0" &); sleep 0.5', listening])
    subject = instance.subject()
    processes = await subject.processes()
    assert ("sleep", "500") in [p.argv for p in processes if p.role is Role.AGENT]
    assert {p.resource for p in processes if p.role is Role.SERVER} == {"db"}
    listeners = await subject.listeners()
    assert any(f.role is Role.AGENT and "hidden" in f.address and f.state == "listen" for f in listeners)
    assert any(f.resource == "db" and f.address.endswith(".s.PGSQL.5432") for f in listeners)
    assert any(line.startswith("/workspace/docs ") for line in await subject.mounts(Role.AGENT))
    assert any(line.startswith("db: /srv/postgres ") for line in await subject.mounts(Role.SERVER))


async def test_two_fresh_instances_look_alike(begin: Begin, kit: Any) -> None:
    one, two = await begin(name="one"), await begin(name="two")
    await shell(one, "(sleep 500 &); echo x > /tmp/x")
    await one.restore(kit.golden, 2)
    first, second = one.subject(), two.subject()
    for role in Role:
        assert await first.mounts(role) == await second.mounts(role)
    assert sorted(p.argv for p in await first.processes() if p.role is Role.AGENT) == [("autoclave-init",)]


async def test_nothing_of_a_former_holder_is_left_in_scratch_space_or_shared_memory(instance: Instance, kit: Any) -> None:
    left = "shmget(4711, 4096, 0666 | 01000) // die; semget(4712, 2, 0666 | 01000) // die; msgget(4713, 0666 | 01000) // die"
    assert (await instance.run(["perl", "-e", left])).exit_code == 0
    await shell(instance, "for d in /tmp /dev/shm /var/tmp ~; do echo x > $d/left; mkdir -m 0 $d/shut; done; mkdir /tmp/.X11-unix")
    await instance.restore(kit.golden, 2)
    assert await shell(instance, "ls -A /tmp /dev/shm /var/tmp ~ | grep -v ':$' | grep .") == ""
    assert await shell(instance, "cat /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg | grep -v key") == ""


async def test_nothing_that_was_done_to_the_first_process_reaches_the_next_holder(instance: Instance, kit: Any) -> None:
    ask_all = "ulimit -n; nice; cat /proc/1/oom_score_adj; grep -E 'Sig(Blk|Ign)|Cpus_allowed:' /proc/self/status; pwd; umask"
    fresh = await shell(instance, ask_all)
    await shell(
        instance, "renice -n 7 -p 1; prlimit --pid 1 --nofile=64:64; taskset -p 1 1; ionice -c 3 -p 1; chrt -i -p 0 1; kill -STOP 1"
    )
    await instance.restore(kit.golden, 2)
    assert await shell(instance, ask_all) == fresh


async def test_a_server_that_died_comes_back_with_a_reset_in_place(begin: Begin, kit: Any) -> None:
    instance = await begin(kit.under(CLEAN))
    await kit.die(instance)
    await instance.revoke()
    await instance.reset_in_place(2, hook=None)
    assert await ask(instance, "select count(*) from items") == "500"


async def test_a_session_that_fills_its_disk_is_stopped(begin: Begin, kit: Any) -> None:
    instance = await begin(kit.under(RESTORE, limits=Limits(disk_mb=60, file_mb=50)))
    with pytest.raises(LimitReached, match=r"limits\.disk_mb is 60"):
        await instance.run(["/bin/sh", "-c", "for i in 1 2 3 4; do head -c 20000000 /dev/zero > big$i; done; sleep 60"], limit_s=70)
    assert not await instance.alive()
    with pytest.raises((LimitReached, InstanceLost)):
        await instance.run(["true"])
    await instance.restore(kit.golden, 2)
    assert await shell(instance, "ls") == "docs"
