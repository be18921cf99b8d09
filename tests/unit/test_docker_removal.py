"""Containers whose removal failed, and those that ended while they rested, before an engine that has no container at all."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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

MISSING = b'{"message": "No such container"}'
SHAPE = Shape(image="sha256:1", uid=1, gid=1, home="/", limits=Limits(), targets=())


Opens = Callable[[Path], AbstractAsyncContextManager[list[str]]]


@pytest.fixture
def empty_engine(answering: Callable[..., AbstractAsyncContextManager[None]]) -> Opens:
    """An engine without a container; what it is asked."""
    head = f"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: {len(MISSING)}\r\n\r\n"

    @asynccontextmanager
    async def opened(place: Path) -> AsyncIterator[list[str]]:
        asked: list[str] = []
        async with answering(place, lambda _: head.encode() + MISSING, asked):
            yield asked

    return opened


async def rested(engine: Engine, number: int) -> tuple[Container, socket.socket]:
    """A container of which nothing is left but a line, and the line's other end."""
    here, there = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=here)
    order = Order(shape=SHAPE, config={}, mark=Mark(home=engine.home), slots=None)
    return Container(engine, order, f"{number:064x}", Line(Attached(reader=reader, writer=writer))), there


async def test_a_removal_that_failed_is_tried_again(place: Path, empty_engine: Opens) -> None:
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
    place: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, empty_engine: Opens
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
