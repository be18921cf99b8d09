"""Cross-namespace leaks on a shared server (isolation `database`): each is caught, and costs exactly whom the windows name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(3000)]


@dataclass(frozen=True, kw_only=True)
class Leak:
    """`sql` is run as superuser in `database` ("own": that of the namespace whose session plants it; "ready": that of one which
    nobody uses) while a session is open. `quick`: the next namespace's check sees it; else the barrier does. `field` is what it
    shows in. {a} is the part of the planting session, {b} and {c} are those of others, which nobody uses."""

    name: str
    sql: tuple[str, ...]
    field: str
    database: str = "postgres"
    quick: bool = True
    owns: bool = False  # it is the namespace's own affair, and taints nobody else


LEAKS = [
    Leak(name="role created", sql=("create role eve login",), field="roles/eve"),
    Leak(name="the agent's role can log in", sql=("alter role agent login",), field="roles/agent"),
    Leak(name="setting of the agent's role", sql=("alter role agent set work_mem = '1MB'",), field="role settings/*/agent"),
    Leak(name="setting of the whole server", sql=("alter system set work_mem = '1MB'",), field="file settings/"),
    Leak(name="another database", sql=("create database depot",), field="databases/depot"),
    Leak(name="golden's settings", sql=("alter database world set timezone = 'Asia/Tokyo'",), field="role settings/world/*"),
    Leak(name="golden can be entered", sql=("alter database world allow_connections true",), field="databases/world"),
    Leak(name="replication slot", sql=("select pg_create_physical_replication_slot('eve', true)",), field="replication slots/eve"),
    Leak(name="replication origin", sql=("select pg_replication_origin_create('eve')",), field="replication origins/eve"),
    Leak(name="privilege on a setting", sql=("grant set on parameter log_statement to public",), field="parameter privileges/"),
    Leak(name="comment on a shared role", sql=("comment on role agent is 'seen'",), field="shared comments/"),
    Leak(
        name="rules of who may come in",
        sql=("copy (select 'local all all trust') to program 'cat >> pg_hba.conf'",),
        field="configuration/pg_hba.conf",
    ),
    Leak(name="member of another's role", sql=('grant "{b}" to "{c}"',), field="members/", quick=False),
    Leak(name="way into another's database", sql=('grant connect on database "{b}" to agent',), field="databases/", quick=False),
    Leak(name="table in a common database", sql=("create table left_here (a int)",), field="table public.left_here", quick=False),
    Leak(name="large object in a common database", sql=("select lo_create(4711)",), field="large objects/", quick=False),
    Leak(
        name="file in the data directory",
        sql=("copy (select 1) to program 'cat > base/left_here'",),
        field="unexpected files/",
        quick=False,
    ),
    Leak(
        name="prepared transaction",
        sql=("begin", "create table later (a int)", "prepare transaction 'eve'"),
        field="prepared transactions/eve",
        quick=False,
    ),
    Leak(
        name="extension in template1", sql=("create extension hstore",), field="extension hstore", database="template1", quick=False
    ),
    Leak(
        name="row in another's database",
        sql=("insert into items (name) values ('hello')",),
        field="items",
        database="ready",
        quick=False,
    ),
    Leak(
        name="settings of another's role",
        sql=("alter role \"{b}\" set search_path = 'nowhere'",),
        field="role settings/*/(own)",
        quick=False,
    ),
    Leak(name="row left in its own database", sql=("delete from items",), field="", database="own", owns=True),
]


async def evidence(house: Any, trajectory: str) -> list[str]:
    why = await house.pool.why(trajectory)
    return [m["field"] for m in why["window"]["mismatches"]] if why["window"] else []


@pytest.mark.parametrize("share", [3])
async def test_every_leak_is_caught_and_taints_exactly_whom_the_windows_name(
    open_house: Callable[..., Coroutine[Any, Any, Any]], share: int
) -> None:
    house = await open_house("database", size=share + 1, share=share)
    host = next(h for h in house.hosts if len(h.members) == share)
    apart_host = next(h for h in house.hosts if h is not host)
    apart = await house.acquire("apart", on=apart_host)
    missed = []
    for leak in LEAKS:
        await house.full()
        outside = await house.acquire("outside", on=host)
        await outside.release()
        assert await house.judged(outside.trajectory_id) == ["cleared (quick)"]
        assert await house.barrier(host), f"before {leak.name}: the instance was not clean"
        earlier = await house.acquire("earlier", on=host)
        await earlier.release()
        assert await house.judged(earlier.trajectory_id) == ["cleared (quick)"]
        await house.full()
        dirty = await house.acquire("dirty", on=host)
        running = await house.acquire("running", on=host) if leak.quick else None
        ready = [m for m in host.members if m not in (dirty.namespace, running.namespace if running else None)]
        names = dict(zip("abc", [m.live().part_name for m in (dirty.namespace, *ready)], strict=False))
        database = {"own": names["a"], "ready": names["b"]}.get(leak.database, leak.database)
        await house.as_superuser(host, *(s.format(**names) for s in leak.sql), database=database)

        await dirty.release()
        tainted = [earlier.trajectory_id, dirty.trajectory_id, *([running.trajectory_id] if running else [])]
        if leak.owns:
            assert await house.judged(dirty.trajectory_id) == ["cleared (quick)"], leak.name  # its own database is made anew
            if running is not None:
                await running.release()
                await house.judged(running.trajectory_id)
            continue
        await house.judged(dirty.trajectory_id)
        if not leak.quick:
            await house.full()
            await house.barrier(host)
        await house.full()
        stand = await house.stand(*tainted, outside.trajectory_id, apart.trajectory_id)
        wanted = ["quarantined (contaminated)"] * len(tainted) + ["cleared (quick)", "pending"]
        seen = await evidence(house, dirty.trajectory_id)
        if stand != wanted or not any(leak.field in field for field in seen):
            missed.append((leak.name, dict(zip([*tainted, "outside", "apart"], stand, strict=True)), seen))
    assert not missed
    assert len(LEAKS) >= 20
    await apart.release()
    assert await house.judged(apart.trajectory_id) == ["cleared (quick)"]
