"""The addresses of a container's generation: closed, they let nobody through, also who had just been accepted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from sandbox.runtimes.docker.plain.reach import Reach, Relay

TURNS = 12


@pytest.fixture
async def reach() -> AsyncIterator[Reach]:
    """The way to a server that says every byte again."""
    serving: set[asyncio.StreamWriter] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(writer)
        try:
            while piece := await reader.read(100):
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass  # the other end was aborted
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        yield Reach(container="none", published={1: server.sockets[0].getsockname()[:2]})
    finally:
        server.close()
        for writer in serving:
            writer.transport.abort()
        await asyncio.sleep(0.01)


async def said_again(client: socket.socket) -> bytes:
    """Send a byte and return what comes back: nothing where the connection has ended."""
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(client, b"x")
        async with asyncio.timeout(30):
            return await loop.sock_recv(client, 1)
    except ConnectionError:
        return b""


async def connected(relay: Relay, turns: int) -> socket.socket:
    """Connect and let the loop turn so often: somewhere between accepted and served."""
    host, _, port = relay.address(1).rpartition(":")
    client = socket.create_connection((host, int(port)))  # the kernel takes it: the loop does not turn
    client.setblocking(False)
    for _ in range(turns):
        await asyncio.sleep(0)
    return client


async def test_an_open_relay_serves(reach: Reach) -> None:
    relay = Relay(reach)
    await relay.open([1])
    with await connected(relay, 0) as client:
        assert await said_again(client) == b"x"
        await relay.cut()
        assert await said_again(client) == b""
    with await connected(relay, 0) as client:
        assert await said_again(client) == b"x"
    await relay.close()


@pytest.mark.parametrize("turns", range(TURNS))
async def test_who_was_accepted_just_before_the_end_of_a_generation_is_not_served_in_the_next(reach: Reach, turns: int) -> None:
    relay = Relay(reach)
    await relay.open([1])
    with await connected(relay, turns) as client:
        await relay.close()
        assert await said_again(client) == b""
