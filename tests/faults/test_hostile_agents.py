"""Agents that do their worst over real instances: no record is lost, the restore is proven, and the next session is clean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from envs import LoadedEnvironment, define
from sandbox import ClearanceState, Depth, Pool
from sandbox.errors import InstanceLost, LimitReached, SessionExpired, StaleGeneration
from sandbox.model import ResetMethod, TrajectoryId
from sandbox.settings import Settings

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres]

SEED = """
create table public.stock (id serial primary key, product text, quantity int not null);
insert into public.stock (product, quantity) values ('tea', 5), ('rye', 7);
alter table public.stock owner to agent;
"""
STOCK = [("rye", 7), ("tea", 5)]
Act = Callable[[Any, AsyncExitStack], Awaitable[None]]


@pytest.fixture
def till(tmp_path: Path) -> LoadedEnvironment:
    """A small database and a directory, with narrow limits and a hook that ends well and does nothing."""
    (tmp_path / "seed.sql").write_text(SEED)
    described = {
        "name": "till",
        "version": "1",
        "limits": {"memory_mb": 512, "pids": 64, "disk_mb": 64, "file_mb": 64, "output_bytes": 100_000},
        "reset": {"method": "restore", "hook": ["true"]},
        "resources": {
            "db": {"kind": "postgres", "database": "till", "seed": ["seed.sql"], "max_prepared_transactions": 4},
            "box": {"kind": "files", "files": {"a.txt": "one"}, "target": "/workspace"},
        },
    }
    return define(described, tmp_path)


async def connect(session: Any, held: AsyncExitStack) -> psycopg.AsyncConnection[Any]:
    """Connect; `held` only closes it, since by then the server may have ended it."""
    connection = await psycopg.AsyncConnection.connect(session.endpoint("db"), autocommit=True)
    held.push_async_callback(connection.close)
    return connection


async def kills_everything(session: Any, held: AsyncExitStack) -> None:
    await session.run(["sh", "-c", "kill -9 -1; kill -9 1"], limit_s=5)


async def fills_its_disk(session: Any, held: AsyncExitStack) -> None:
    script = "for n in 1 2 3 4; do head -c 60000000 /dev/zero > /workspace/big$n || exit 9; done; sleep 20"
    try:
        result = await session.run(["sh", "-c", script], limit_s=30)
    except (LimitReached, InstanceLost):
        return  # what watches the disk has stopped it
    assert result.exit_code != 0


async def forks_without_end(session: Any, held: AsyncExitStack) -> None:
    await session.run(["sh", "-c", "b() { b | b & }; b; sleep 30"], limit_s=2)


async def prints_a_gigabyte(session: Any, held: AsyncExitStack) -> None:
    result = await session.run(["head", "-c", "1000000000", "/dev/zero"], limit_s=60)
    assert result.truncated
    assert len(result.stdout) == 100_000


async def ignores_sigterm(session: Any, held: AsyncExitStack) -> None:
    stubborn = "trap '' TERM INT HUP QUIT; (trap '' TERM; setsid sleep 300) & while :; do sleep 1; done"
    assert (await session.run(["sh", "-c", stubborn], limit_s=1)).timed_out


async def keeps_a_connection(session: Any, held: AsyncExitStack) -> None:
    connection = await connect(session, held)
    await connection.execute("create temporary table mine as select 1")
    await connection.execute("listen something")


async def prepares_a_transaction(session: Any, held: AsyncExitStack) -> None:
    connection = await connect(session, held)
    await connection.execute("begin")
    await connection.execute("update public.stock set quantity = 99")
    await connection.execute("prepare transaction 'left'")


async def holds_a_lock(session: Any, held: AsyncExitStack) -> None:
    connection = await connect(session, held)
    await connection.execute("begin")
    await connection.execute("lock table public.stock in access exclusive mode")


async def holds_an_advisory_lock(session: Any, held: AsyncExitStack) -> None:
    await (await connect(session, held)).execute("select pg_advisory_lock(1)")


ACTS: tuple[Act, ...] = (
    kills_everything,
    fills_its_disk,
    forks_without_end,
    prints_a_gigabyte,
    ignores_sigterm,
    keeps_a_connection,
    prepares_a_transaction,
    holds_a_lock,
    holds_an_advisory_lock,
)


async def as_seeded(session: Any) -> None:
    """Fail unless the session sees nothing but what was seeded."""
    async with AsyncExitStack() as held:
        connection = await connect(session, held)
        rows = await (await connection.execute("select product, quantity from public.stock order by 1")).fetchall()
        left = await (await connection.execute("select gid from pg_prepared_xacts")).fetchall()
        locks = await (await connection.execute("select 1 from pg_locks where pid <> pg_backend_pid() and granted")).fetchall()
    assert (rows, left, locks) == (STOCK, [], [])
    listing = await session.run(["sh", "-c", "ls -A /workspace; cat /workspace/a.txt; ls /proc | grep -c '^[0-9]'"], limit_s=20)
    assert listing.text.startswith("a.txt\none"), listing
    count = int(listing.text.removeprefix("a.txt\none"))
    assert count <= 5, f"{count} processes in a fresh session"


@pytest.mark.timeout(600)
async def test_whatever_an_agent_does_the_next_session_is_clean(
    till: LoadedEnvironment, settings: Settings, nothing_left: None
) -> None:
    async with Pool.open([till], size=1, settings=settings) as pool:
        done: dict[TrajectoryId, str] = {}
        for act in ACTS:
            async with AsyncExitStack() as held:  # the agent's connections outlive its session
                async with pool.session("till", wait=120, ttl=600) as session:
                    await act(session, held)
                done[session.trajectory_id] = act.__name__
                async with pool.session("till", wait=120, ttl=600) as following:
                    assert following.lease.sequence > session.lease.sequence or following.lease.namespace != session.lease.namespace
                    await as_seeded(following)
                done[following.trajectory_id] = f"after {act.__name__}"
        found = await pool.cleared(list(done), timeout=120, depth=Depth.DEEP)
        assert {done[t]: c.state for t, c in found.items() if c.state is not ClearanceState.CLEARED} == {}


LEAKS: tuple[tuple[str, str], ...] = (
    ("box", "a file"),
    ("db", "insert into public.stock (product, quantity) values ('oats', 1)"),
    ("db", "select nextval('public.stock_id_seq')"),
    ("db", "alter role agent set work_mem = '1MB'"),
)


@pytest.mark.timeout(300)
async def test_a_hook_that_ends_well_and_did_nothing_is_found_out_each_time(
    till: LoadedEnvironment, settings: Settings, nothing_left: None
) -> None:
    async with Pool.open([till.with_reset(ResetMethod.HOOK)], size=1, settings=settings) as pool:
        for where, what in LEAKS:
            async with pool.session("till", wait=120, ttl=600) as session:
                if where == "box":
                    await session.write_file("/workspace/left", b"x")
                else:
                    async with AsyncExitStack() as held:
                        await (await connect(session, held)).execute(what.encode())
            clearance = (await pool.cleared([session.trajectory_id], timeout=120))[session.trajectory_id]
            assert clearance.state is ClearanceState.QUARANTINED, what
            story = await pool.why(session.trajectory_id)
            assert story["window"]["mismatches"], what
            async with pool.session("till", wait=120, ttl=600) as following:
                await as_seeded(following)
            await pool.cleared([following.trajectory_id], timeout=120)


@pytest.mark.timeout(600)
async def test_under_a_hook_locks_end_with_their_session_and_what_stays_is_quarantined(
    till: LoadedEnvironment, settings: Settings, nothing_left: None
) -> None:
    async with Pool.open([till.with_reset(ResetMethod.HOOK)], size=1, settings=settings) as pool:
        for act in (holds_a_lock, holds_an_advisory_lock, keeps_a_connection, prepares_a_transaction):
            async with AsyncExitStack() as held:
                async with pool.session("till", wait=120, ttl=600) as session:
                    await act(session, held)
                state = (await pool.cleared([session.trajectory_id], timeout=120))[session.trajectory_id].state
                leaves = act in (prepares_a_transaction, keeps_a_connection)  # its temporary table left a schema in the catalog
                assert state is (ClearanceState.QUARANTINED if leaves else ClearanceState.CLEARED), act.__name__
                async with pool.session("till", wait=120, ttl=600) as following:
                    await as_seeded(following)


async def test_a_session_past_its_deadline_is_ended_and_its_handle_is_dead(
    till: LoadedEnvironment, settings: Settings, nothing_left: None
) -> None:
    async with Pool.open([till], size=1, settings=settings) as pool, AsyncExitStack() as held:
        session = await held.enter_async_context(pool.session("till", wait=120, ttl=1.5))
        await session.write_file("/workspace/left", b"x")
        connection = await connect(session, held)
        with pytest.raises(SessionExpired):
            await session.run(["sleep", "60"], limit_s=60)
        async with pool.session("till", wait=120, ttl=600) as following:
            await as_seeded(following)
            with pytest.raises(SessionExpired):
                await session.read_file("/workspace/a.txt")
            with pytest.raises(psycopg.OperationalError):
                await connection.execute("select 1")
        await session.release()
        found = await pool.cleared([session.trajectory_id, following.trajectory_id], timeout=60)
        assert {c.state for c in found.values()} == {ClearanceState.CLEARED}


async def test_a_handle_of_before_the_reset_reaches_nothing(
    till: LoadedEnvironment, settings: Settings, nothing_left: None
) -> None:
    async with Pool.open([till], size=1, settings=settings) as pool:
        async with pool.session("till", wait=120, ttl=600) as session:
            address = session.endpoint("db")
        async with pool.session("till", wait=120, ttl=600) as following:
            for use in (
                session.run(["true"]),
                session.write_file("/workspace/late", b"x"),
                session.read_file("/workspace/a.txt"),
                session.snapshot(),
                session.heartbeat(60),
            ):
                with pytest.raises(StaleGeneration):
                    await use
            with pytest.raises(StaleGeneration):
                session.endpoint("db")
            with pytest.raises(psycopg.OperationalError):
                await psycopg.AsyncConnection.connect(address, connect_timeout=5)
            await as_seeded(following)
