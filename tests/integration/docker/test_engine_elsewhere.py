"""Any image on an engine that is reached over TCP, as one on another machine: nothing but the engine is asked."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import envs
from envs import check
from sandbox.errors import InstanceLost
from sandbox.model import Depth, NamespaceId
from sandbox.runtimes.docker.address import from_environment

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The engine behind a TCP port, served by a thread: what looks for leftovers asks it, too, when the test's loop has ended."""
    path = from_environment().path
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
    monkeypatch.setenv("DOCKER_HOST", url)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(forward(listening, path),))
    thread.start()
    yield url
    loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
    thread.join()
    loop.close()


async def forward(listening: socket.socket, path: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner = await asyncio.open_unix_connection(path)
        with contextlib.suppress(OSError, ExceptionGroup, asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(reader, inner))
                group.create_task(pump(inner_reader, writer))
        for end in (writer, inner):
            end.transport.abort()

    server = await asyncio.start_server(serve, sock=listening)
    with contextlib.suppress(asyncio.CancelledError):
        await server.serve_forever()
    await asyncio.sleep(0)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


@pytest.mark.slow
async def test_a_container_on_another_machine(redis_image: str, elsewhere: str, machinery: Any) -> None:
    resource = {
        "kind": "container",
        "image": redis_image,
        "ports": [6379],
        # Connections do not come from its own loopback here.
        "command": ["redis-server", "--dir", "/data", "--protected-mode", "no"],
        "setup": [["redis-cli", "set", "greeting", "hello"]],
    }
    environment = envs.define(
        {"name": "far", "version": "1", "resources": {"far": resource}, "check": {"probe_limit_s": 240}}, Path("/")
    )
    start = await check.baseline(environment, machinery.runtime, machinery.ledger)
    instance = await machinery.runtime.start(environment, start.snapshot, NamespaceId("far-1"), 1)
    try:
        assert instance.in_force["engine"] == elsewhere
        assert "published" in instance.in_force["network"]
        assert "engine alone" in instance.in_force["observed"]
        assert await answer(instance.endpoint("far")) == b"hello"
        verdict = await environment.verifier.check(instance.subject(), start.baseline, Depth.DEEP)
        assert verdict.clean, (verdict.mismatches, verdict.problems)

        planted = "echo planted > /data/planted; echo planted > /tmp/planted; setsid sleep 600 > /dev/null 2>&1 &"
        assert (await instance.run(["/bin/sh", "-c", planted])).exit_code == 0
        await instance.write_file("/tmp/written", b"written")
        verdict = await environment.verifier.check(instance.subject(), start.baseline, Depth.DEEP)
        fields = {mismatch.field for mismatch in verdict.mismatches}
        assert {"volume /data/planted", "changed files/tmp/planted", "changed paths/tmp/written"} <= fields
        assert any(field.startswith("process/") and "sleep" in field for field in fields)

        await instance.restore(start.snapshot, 2)
        verdict = await environment.verifier.check(instance.subject(), start.baseline, Depth.DEEP)
        assert verdict.clean, (verdict.mismatches, verdict.problems)
        with pytest.raises(InstanceLost, match="whole container"):
            await instance.run(["sleep", "600"], limit_s=1)
        assert not await instance.alive()

        await instance.restore(start.snapshot, 3)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await instance.run(["sleep", "600"])
        assert not await instance.alive()
    finally:
        await instance.close()


async def answer(address: str) -> bytes:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET greeting\r\n")
        await reader.readline()
        found = (await reader.readline()).strip()
        writer.close()
        return found
