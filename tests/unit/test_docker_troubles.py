"""An engine that stalls in its answer, loses one, or fails twice; and faults of this machine that are not the engine's."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import envs
from sandbox.errors import LimitReached, RuntimeUnavailable
from sandbox.resources.container import Container
from sandbox.runtimes.docker import containers, troubles
from sandbox.runtimes.docker.address import Address
from sandbox.runtimes.docker.engine import Engine, EngineLimits
from sandbox.runtimes.docker.labels import Mark
from sandbox.runtimes.docker.plain import archive
from sandbox.runtimes.docker.plain.definition import Definition
from sandbox.runtimes.docker.plain.lineage import Lineage

VERSION = b'{"ApiVersion": "1.41", "Version": "20.10"}'
STALLED = b"HTTP/1.1 200 OK\r\nX-Docker-Container-Path-Stat: e30=\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
Answers = Callable[[str], bytes | None]


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ac-", dir="/tmp") as found:
        yield Path(found, "engine.sock")


@asynccontextmanager
async def engine_of(place: Path, answers: Answers, **limits: Any) -> AsyncIterator[Engine]:
    """An engine that says what `answers` gives for a request's first line; nothing where that is None."""
    serving: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(writer)
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = next((int(w[15:]) for w in head.splitlines() if w.lower().startswith("content-length:")), 0)
                await reader.readexactly(length)
                line = " ".join(head.split()[:2])
                said = answer(VERSION) if line.endswith("/version") else answers(line)
                if said is not None:
                    writer.write(said)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            serving.discard(writer)
            writer.transport.abort()

    server = await asyncio.start_unix_server(serve, str(place))
    engine = Engine(Address(url=f"unix://{place}", path=str(place)), home="test", limits=EngineLimits(**limits))
    try:
        yield engine
    finally:
        await engine.close()
        server.close()
        async with asyncio.timeout(30):
            while serving:
                for writer in serving:
                    writer.transport.abort()
                await asyncio.sleep(0.01)


async def test_an_engine_that_stalls_in_an_archive_holds_no_thread_for_ever(place: Path) -> None:
    async with engine_of(place, lambda line: STALLED if "/archive" in line else answer(b"{}"), calls=1) as engine:
        with pytest.raises(troubles.AnswerLost, match="did not answer in time"):
            await engine.call(lambda client: archive.lines_at(client, "one", "/data"), doing="reading", limit_s=0.5)
        assert await engine.call(lambda client: client.info(), doing="asking", limit_s=60) == {}


async def test_what_ended_a_creation_is_told_also_where_its_withdrawal_fails(place: Path) -> None:
    def answers(line: str) -> bytes:
        said = b'{"message": "invalid mount"}' if line.startswith("POST") else b'{"message": "driver failed to remove"}'
        return answer(said, "400 Bad Request" if line.startswith("POST") else "500 Internal Server Error")

    async with engine_of(place, answers) as engine:
        mark = Mark(home="test")
        with pytest.raises(troubles.Refused, match="invalid mount"):
            await containers.create(engine, {"Image": "any"}, mark)
        assert engine.doubtful == {mark.name}


async def test_a_creation_whose_answer_never_came_is_not_forgotten(place: Path) -> None:
    """The container may come later, with its volumes: whoever closes removes both."""

    def answers(line: str) -> bytes | None:
        return None if line.startswith("POST") else answer(b'{"message": "No such container"}', "404 Not Found")

    resource = {"kind": "container", "image": "any", "volumes": ["/data"]}
    environment = envs.define({"name": "box", "version": "1", "resources": {"box": resource}}, Path("/"))
    found = environment.resources[0]
    assert isinstance(found, Container)
    definition = Definition(spec=environment.spec, resource="box", options=found.options, image={})
    async with engine_of(place, answers, create_s=0.3) as engine:
        mark = Mark(home="test")
        with pytest.raises(RuntimeUnavailable, match="making a container"):
            await Lineage.make(engine, definition, mark, image="any", fresh=True)
        assert engine.doubtful == {mark.name}
        assert engine.doubtful_volumes == {f"{mark.name}-0"}


def test_a_fault_of_this_machine_is_not_the_engines(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "volume0.tar").open("rb")
    told = troubles.translate(caught.value, "filling", "unix:///engine")
    assert told is not None
    assert not isinstance(told, troubles.EngineGone)
    assert str(tmp_path / "volume0.tar") in told.message
    full = troubles.translate(OSError(28, "No space left on device"), "saving", "unix:///engine")
    assert isinstance(full, LimitReached)
    assert "this machine" in full.message
    gone = troubles.translate(FileNotFoundError(2, "No such file or directory"), "asking", "unix:///engine")
    assert isinstance(gone, troubles.EngineGone)
