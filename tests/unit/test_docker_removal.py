"""Containers whose removal failed, and those that ended while they rested, before an engine that has no container at all."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox.errors import RuntimeUnavailable
from sandbox.model import Limits
from sandbox.runtimes.docker import leftovers
from sandbox.runtimes.docker.address import Address
from sandbox.runtimes.docker.boxes import DockerBoxes
from sandbox.runtimes.docker.container import Container, Order
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.labels import FILE, Mark
from sandbox.runtimes.docker.line import Line
from sandbox.runtimes.docker.mode import room_of
from sandbox.runtimes.docker.profile import Shape
from sandbox.runtimes.docker.streams import Attached
from sandbox.settings import Settings

VERSION = b'{"ApiVersion": "1.41", "Version": "20.10"}'
MISSING = b'{"message": "No such container"}'
SHAPE = Shape(image="sha256:1", uid=1, gid=1, home="/", limits=Limits(), targets=())


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ac-", dir="/tmp") as found:
        yield Path(found, "engine.sock")


@asynccontextmanager
async def empty_engine(place: Path) -> AsyncIterator[list[str]]:
    """An engine without a container; what it is asked."""
    asked: list[str] = []
    serving: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked.append(" ".join(head.decode().split()[:2]))
                known = asked[-1].endswith("/version")
                body, status = (VERSION, "200 OK") if known else (MISSING, "404 Not Found")
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            serving.discard(writer)
            writer.transport.abort()

    server = await asyncio.start_unix_server(serve, str(place))
    try:
        yield asked
    finally:
        server.close()
        async with asyncio.timeout(30):
            while serving:
                for writer in serving:
                    writer.transport.abort()
                await asyncio.sleep(0.01)


async def rested(engine: Engine, number: int) -> tuple[Container, socket.socket]:
    """A container of which nothing is left but a line, and the line's other end."""
    here, there = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=here)
    order = Order(shape=SHAPE, config={}, mark=Mark(home=engine.home), slots=None)
    return Container(engine, order, f"{number:064x}", Line(Attached(reader=reader, writer=writer))), there


async def test_a_removal_that_failed_is_tried_again(place: Path) -> None:
    engine = Engine(Address(url=f"unix://{place}", path=str(place)), home="test")
    try:
        container, there = await rested(engine, 1)
        there.close()
        with pytest.raises(RuntimeUnavailable):
            await container.remove()
        assert engine.doubtful == {container.id}
        with pytest.raises(RuntimeUnavailable):
            await leftovers.settle(engine)
        async with empty_engine(place) as asked:
            await container.remove()
            assert any(line.startswith("DELETE") and container.id in line for line in asked)
            assert not engine.doubtful
            before = len(asked)
            await container.remove()
            assert len(asked) == before
    finally:
        await engine.close()


async def test_a_container_that_ended_while_it_rested_is_not_used_again(
    place: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with empty_engine(place) as asked:
        with monkeypatch.context() as patched:
            patched.setenv("DOCKER_HOST", f"unix://{place}")
            boxes = DockerBoxes(settings)
        (dead, end), (living, other_end) = await rested(boxes.engine, 1), await rested(boxes.engine, 2)
        end.close()
        async with asyncio.timeout(30):
            await dead.ended.wait()
        boxes._resting[("owner", SHAPE)] = [living, dead]
        try:
            assert await boxes._rested("owner", SHAPE) is living
            assert any(line.startswith("DELETE") and dead.id in line for line in asked)
            assert await boxes._rested("owner", SHAPE) is None
        finally:
            other_end.close()
            await living.remove()
            await boxes.close()
            (settings.home / FILE).unlink()  # so that nobody looks for this home on an engine


async def test_mounts_of_this_machine_go_also_where_the_engine_has_gone(
    place: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("DOCKER_HOST", f"unix://{place}")
        boxes = DockerBoxes(settings)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    room = room_of(settings)
    (room / "container").mkdir(parents=True)
    boxes.engine.doubtful.add("one")
    with pytest.raises(RuntimeUnavailable, match="no Docker engine answers"):
        await boxes.close()
    assert not room.exists()
    (settings.home / FILE).unlink()
