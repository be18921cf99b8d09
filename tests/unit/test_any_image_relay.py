"""The addresses of a container's generation: closed, they let nobody through, also who had just been accepted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import envs
from sandbox.resources.container import Container
from sandbox.runtimes.docker.plain.addresses import Addresses
from sandbox.runtimes.docker.plain.definition import Definition
from sandbox.runtimes.docker.plain.reach import Reach, Relay, Spent

TURNS = 12


@pytest.fixture
def spent() -> Iterator[Spent]:
    made = Spent(most=3)
    yield made
    made.close()


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


async def test_an_open_relay_serves(reach: Reach, spent: Spent) -> None:
    relay = Relay(reach, spent)
    await relay.open([1])
    with await connected(relay, 0) as client:
        assert await said_again(client) == b"x"
        await relay.cut()
        assert await said_again(client) == b""
    with await connected(relay, 0) as client:
        assert await said_again(client) == b"x"
    await relay.close()


@pytest.mark.parametrize("turns", range(TURNS))
async def test_who_was_accepted_just_before_the_end_of_a_generation_is_not_served_in_the_next(
    reach: Reach, spent: Spent, turns: int
) -> None:
    relay = Relay(reach, spent)
    await relay.open([1])
    with await connected(relay, turns) as client:
        await relay.close()
        assert await said_again(client) == b""


async def test_every_address_goes_also_for_a_caller_that_is_cancelled(reach: Reach, spent: Spent) -> None:
    resource = {"kind": "container", "image": "any", "ports": [1]}
    environment = envs.define({"name": "box", "version": "1", "resources": {"box": resource}}, Path("/"))
    found = environment.resources[0]
    assert isinstance(found, Container)
    addresses = Addresses(Definition(spec=environment.spec, resource="box", options=found.options, image={}), spent)
    await addresses.open(reach)
    assert addresses._session is not None
    ports = [int(place.rpartition(":")[2]) for place in (addresses.session("box"), addresses.trusted("box"))]
    with await connected(addresses._session, TURNS):
        closing = asyncio.create_task(addresses.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


async def test_a_port_of_a_generation_that_ended_is_nobodys_for_a_while(reach: Reach, spent: Spent) -> None:
    ports = []
    for _ in range(5):
        relay = Relay(reach, spent)
        await relay.open([1])
        ports.append(int(relay.address(1).rpartition(":")[2]))
        await relay.close()
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
    for port in ports[-3:]:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    assert len(set(ports[-4:])) == 4
    assert len(spent) == 3
