"""The pool over a Unix socket: the same names and errors, in process and from another one; a client that dies loses its leases."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox import errors
from sandbox.aio import poll
from sandbox.client import RemotePool, connect, wire
from sandbox.client.connection import Connection
from sandbox.errors import EnvironmentInvalid, NotCleared, PoolBroken, PoolBusy, StaleGeneration
from sandbox.model import Clearance, ClearanceState, Depth, ExecResult, TrajectoryId
from sandbox.service import Server
from sandbox.settings import Settings, Users
from sandbox.testing import memory_environment


@pytest.fixture
def settings() -> Any:
    with tempfile.TemporaryDirectory(prefix="ac-", dir="/tmp") as short:  # a socket's path may have 107 bytes
        root = Path(short)
        yield Settings(home=root, store=root, scratch=root, run=root / "run", users=Users(agent=None, server=None))


@pytest.fixture
async def pool(bench: Any) -> Any:
    return await bench.open(memory_environment(), size=2)


@pytest.fixture
async def server(pool: Any, settings: Settings) -> AsyncIterator[Server]:
    async with Server(pool, settings, silence_s=0.5) as serving:
        yield serving


@pytest.fixture
async def remote(server: Server, settings: Settings) -> AsyncIterator[RemotePool]:
    async with RemotePool(settings, heartbeat_s=0.1) as connected:
        yield connected


async def none_leased(bench: Any) -> bool:
    return not await bench.ledger.leases()


async def nobody_waits(remote: RemotePool) -> bool:
    return not (await remote.status())["environments"]["memory"]["waiting"]


async def test_a_remote_session_has_the_same_names(remote: RemotePool, bench: Any) -> None:
    async with remote.session("memory", wait=5, trajectory="t1", group="g") as session:
        assert (await session.run(["cat"], stdin=b"\x00\xffraw")).stdout == b"\x00\xffraw"
        await session.write_file("/a", b"\x01\xfe")
        assert await session.read_file("/a") == b"\x01\xfe"
        assert session.endpoint("state").startswith("memory://")
        assert session.in_force["reset"] == "restore"
        assert await session.heartbeat(extend_s=50) == 50.0
        async with await session.fork(await session.snapshot(), wait=5) as child:
            assert child.lease.parent == "t1"
    found = await remote.cleared(["t1"], timeout=5)
    assert found[TrajectoryId("t1")].state is ClearanceState.CLEARED
    batch = await remote.ship("b1", ["t1"], policy_version="7")
    assert batch["batch"] == "b1"
    await remote.record_update("u1", batches=["b1"], checkpoint="c1")
    assert (await remote.recall()).updates == ()
    assert (await remote.status())["environments"]["memory"]["size"] == 2
    assert await remote.verify_seals() == {"memory": True}
    with pytest.raises(StaleGeneration):
        await session.run(["get", "orders"])


async def test_errors_come_back_as_what_they_are(remote: RemotePool) -> None:
    with pytest.raises(EnvironmentInvalid, match="it keeps: memory"):
        await remote.acquire("other")
    async with remote.session("memory", wait=5), remote.session("memory", wait=5) as session:
        with pytest.raises(PoolBusy) as busy:
            await remote.acquire("memory", wait=0.01)
        assert busy.value.retry_after_s > 0
        with pytest.raises(NotCleared) as refused:
            await remote.ship("b", [session.trajectory_id], policy_version="1")
        assert session.trajectory_id in refused.value.clearances
        with pytest.raises(FileNotFoundError):
            await session.read_file("nothing")


async def test_calls_overlap_and_a_cancelled_one_ends_at_the_pool_too(remote: RemotePool, pool: Any) -> None:
    async with remote.session("memory", wait=5), remote.session("memory", wait=5) as session:
        waiting = asyncio.create_task(remote.acquire("memory", wait=60))
        assert (await session.run(["get", "orders"])).text == "3"
        assert (await remote.status())["environments"]["memory"]["waiting"] == 1
        waiting.cancel()
        await asyncio.wait({waiting})
        assert await poll(lambda: nobody_waits(remote), timeout=5)
    assert waiting.cancelled()


async def test_a_client_that_leaves_loses_its_leases(server: Server, settings: Settings, pool: Any, bench: Any) -> None:
    async with connect(settings) as remote:
        session = await remote.acquire("memory", wait=5)
    assert await poll(lambda: none_leased(bench), timeout=5)
    assert (await bench.ledger.why(session.trajectory_id))["lease"]["outcome"] == "lost"
    found = await pool.cleared([session.trajectory_id], timeout=5)
    assert found[session.trajectory_id].state is ClearanceState.CLEARED


async def test_a_client_that_falls_silent_loses_its_leases(server: Server, settings: Settings, bench: Any) -> None:
    async with RemotePool(settings, heartbeat_s=60) as remote:
        await remote.acquire("memory", wait=5)
        assert await poll(lambda: none_leased(bench), timeout=5)
        with pytest.raises(PoolBroken):
            await remote.status()


CHILD = """
import asyncio, os, sys
from pathlib import Path
from sandbox.client import connect
from sandbox.settings import Settings, Users

async def main():
    root = Path(sys.argv[1])
    settings = Settings(home=root, store=root, scratch=root, run=root / "run", users=Users(agent=None, server=None))
    async with connect(settings) as pool:
        async with pool.session("memory", wait=5, trajectory="child-1") as session:
            print((await session.run(["get", "orders"])).text, flush=True)
        await pool.acquire("memory", wait=5, trajectory="child-2")
        os._exit(9)

asyncio.run(main())
"""


async def test_another_process_uses_the_pool_and_its_death_ends_its_leases(
    server: Server, settings: Settings, pool: Any, bench: Any
) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(settings.home), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    out, _ = await child.communicate()
    assert (out, child.returncode) == (b"3\n", 9)
    found = await pool.cleared(["child-1", "child-2"], timeout=10)
    assert {c.state for c in found.values()} == {ClearanceState.CLEARED}
    outcomes = [(await bench.ledger.why(t))["lease"]["outcome"] for t in ("child-1", "child-2")]
    assert outcomes == ["released", "lost"]


async def test_one_pool_listens_and_only_its_user_may_enter(server: Server, settings: Settings, pool: Any) -> None:
    assert stat.S_IMODE(os.lstat(server.path).st_mode) == 0o600
    assert stat.S_IMODE(os.lstat(server.path.parent).st_mode) == 0o700
    with pytest.raises(PoolBroken, match="listens"):
        async with Server(pool, settings):
            pass
    server.path.parent.chmod(0o755)
    with pytest.raises(PoolBroken, match="only this user"):
        async with connect(settings):
            pass


async def test_a_socket_that_a_killed_pool_left_is_replaced(settings: Settings, pool: Any) -> None:
    async with Server(pool, settings) as first:
        path = first.path
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with Server(pool, settings), connect(settings) as remote:
        assert (await remote.status())["draining"] is False


async def test_no_pool_is_said_so(settings: Settings) -> None:
    with pytest.raises(PoolBroken, match="autoclave pool up"):
        async with connect(settings):
            pass


async def test_a_client_may_drain_the_pool(server: Server, settings: Settings) -> None:
    async with connect(settings) as remote:
        await remote.drain(grace_s=0)
        with pytest.raises(PoolBroken, match="draining"):
            await remote.acquire("memory", wait=1)
    assert server.ended.is_set()


def test_values_and_errors_survive_the_wire() -> None:
    values = [
        ExecResult(exit_code=1, stdout=b"\x00", stderr=b"", truncated=True),
        Clearance(trajectory=TrajectoryId("t"), state=ClearanceState.CLEARED, depth=Depth.DEEP),
        {"a": (1, 2.5, None), 3: [True, datetime(2026, 1, 2, tzinfo=UTC)], "$": "odd"},
    ]
    for value in values:
        assert wire.decode(wire.encode(value)) == value
    busy = wire.decode_error(wire.encode_error(PoolBusy("full", retry_after_s=1.5, fix="wait")))
    assert isinstance(busy, PoolBusy)
    assert (str(busy), busy.retry_after_s) == ("full. wait", 1.5)
    fault = wire.decode_error(wire.encode_error(RuntimeError("secret of the pool")))
    assert type(fault) is errors.AutoclaveError
    with pytest.raises(ValueError, match="different versions"):
        wire.decode({"$": "Path", "v": "/etc"})


async def test_a_grant_that_crosses_its_cancellation_is_not_lost(remote: RemotePool, bench: Any) -> None:
    for delay in range(12):
        request = asyncio.create_task(remote.acquire("memory", wait=5))
        for _ in range(delay):
            await asyncio.sleep(0)
        request.cancel()
        try:
            session = await request
        except asyncio.CancelledError:
            continue
        await session.release()
    assert await poll(lambda: none_leased(bench), timeout=5)


async def test_a_grant_that_was_answered_before_the_cancellation_arrived_is_given_back(server: Server, bench: Any) -> None:
    reader, writer = await asyncio.open_unix_connection(str(server.path))
    try:
        writer.write(wire.pack({"id": 7, "method": "acquire", "params": {"environment": "memory", "wait": 5}}))
        answer = await wire.read_frame(reader)
        assert "result" in answer
        assert not await none_leased(bench)
        writer.write(wire.pack({"cancel": 7}))
        assert await poll(lambda: none_leased(bench), timeout=0.3)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_an_answer_that_cannot_be_read_fails_every_open_call(settings: Settings) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await wire.read_frame(reader)
        writer.write(wire.pack({"id": frame["id"], "result": {"$": "of another version", "v": {}}}))
        await writer.drain()
        writer.close()

    path = settings.home / "s"
    server = await asyncio.start_unix_server(nonsense, str(path))
    async with server, Connection(path) as connection, asyncio.timeout(5):
        with pytest.raises(PoolBroken):
            await connection.call("status")
