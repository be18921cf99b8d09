"""An engine that stalls in its answer, loses one, or fails twice; and faults of this machine that are not the engine's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import envs
from sandbox.errors import InstanceLost, LimitReached, ResetFailed, RuntimeUnavailable
from sandbox.model import NamespaceId
from sandbox.resources.container import Container
from sandbox.runtimes.docker import containers, troubles
from sandbox.runtimes.docker.address import Address
from sandbox.runtimes.docker.engine import Engine, EngineLimits
from sandbox.runtimes.docker.labels import Mark
from sandbox.runtimes.docker.plain import archive
from sandbox.runtimes.docker.plain.definition import Definition
from sandbox.runtimes.docker.plain.instance import PlainInstance
from sandbox.runtimes.docker.plain.lineage import Lineage
from sandbox.runtimes.docker.plain.reach import Reach, Spent
from sandbox.runtimes.docker.plain.readiness import ended_at, until_ready
from sandbox.runtimes.docker.plain.saved import Saved, SavedVolume

CONTAINER = "c" * 64
STALLED = b"HTTP/1.1 200 OK\r\nX-Docker-Container-Path-Stat: e30=\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
SIGNALLED = b'{"State": {"ExitCode": 137}, "Config": {"Tty": true}}'
Answers = Callable[[str], bytes | Awaitable[bytes] | None]


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def defined(**options: Any) -> Definition:
    resource = {"kind": "container", "image": "any", **options}
    environment = envs.define({"name": "box", "version": "1", "resources": {"box": resource}}, Path("/"))
    found = environment.resources[0]
    assert isinstance(found, Container)
    return Definition(spec=environment.spec, resource="box", options=found.options, image={})


def acting(engine: Engine, definition: Definition) -> PlainInstance:
    """An instance whose container has run for a while; nobody of this machine is in it."""
    nothing: Any = None
    instance = PlainInstance(engine, nothing, definition, nothing, NamespaceId("box-1"), None, Spent())
    lineage = Lineage(engine, definition, Mark(home=engine.home), "any")
    lineage.container, lineage.reach = CONTAINER, Reach(container=CONTAINER, pid=1, published={})
    instance._lineage, instance._revoked = lineage, False
    return instance


@pytest.fixture
def engine_of(answering: Callable[..., AbstractAsyncContextManager[None]]) -> Callable[..., AbstractAsyncContextManager[Engine]]:
    """Our side of an engine that says what `answers` gives for a request's first line; nothing where that is None."""

    @asynccontextmanager
    async def opened(place: Path, answers: Answers, **limits: Any) -> AsyncIterator[Engine]:
        async with answering(place, answers):
            engine = Engine(Address(url=f"unix://{place}", path=str(place)), home="test", limits=EngineLimits(**limits))
            try:
                yield engine
            finally:
                await engine.close()

    return opened


async def test_an_engine_that_stalls_in_an_archive_holds_no_thread_for_ever(place: Path, engine_of: Any) -> None:
    async with engine_of(place, lambda line: STALLED if "/archive" in line else answer(b"{}"), calls=1) as engine:
        with pytest.raises(troubles.AnswerLost, match="did not answer in time"):
            await engine.call(lambda client: archive.lines_at(client, "one", "/data"), doing="reading", limit_s=0.5)
        assert await engine.call(lambda client: client.info(), doing="asking", limit_s=60) == {}


async def test_what_ended_a_creation_is_told_also_where_its_withdrawal_fails(place: Path, engine_of: Any) -> None:
    def answers(line: str) -> bytes:
        said = b'{"message": "invalid mount"}' if line.startswith("POST") else b'{"message": "driver failed to remove"}'
        return answer(said, "400 Bad Request" if line.startswith("POST") else "500 Internal Server Error")

    async with engine_of(place, answers) as engine:
        mark = Mark(home="test")
        with pytest.raises(troubles.Refused, match="invalid mount"):
            await containers.create(engine, {"Image": "any"}, mark)
        assert engine.doubtful == {mark.name}


async def test_a_creation_whose_answer_never_came_is_not_forgotten(place: Path, engine_of: Any) -> None:
    """The container may come later, with its volumes: whoever closes removes both."""

    def answers(line: str) -> bytes | None:
        return None if line.startswith("POST") else answer(b'{"message": "No such container"}', "404 Not Found")

    definition = defined(volumes=["/data"])
    async with engine_of(place, answers, create_s=0.3) as engine:
        mark = Mark(home="test")
        with pytest.raises(RuntimeUnavailable, match="making a container"):
            await Lineage.make(engine, definition, mark, image="any", fresh=True)
        assert engine.doubtful == {mark.name}
        assert engine.doubtful_volumes == {f"{mark.name}-0"}


@pytest.mark.parametrize(
    ("signal", "may_be"), [("SIGKILL", True), ("sigkill", True), ("9", True), ("SIGTERM", False), (None, False)]
)
async def test_a_container_may_be_killed_where_its_author_says_so(
    signal: str | None, may_be: bool, place: Path, engine_of: Any
) -> None:
    """In whatever way: an engine takes the name of a signal in any case."""

    def answers(line: str) -> bytes:
        if "/logs" in line:
            return answer(b"")
        return answer(b"", "204 No Content") if line.startswith("POST") else answer(SIGNALLED)

    async with engine_of(place, answers) as engine:
        lineage = Lineage(engine, defined(stop_signal=signal), Mark(home="test"), "any")
        lineage.container = CONTAINER
        if may_be:
            await lineage.stop()
        else:
            with pytest.raises(InstanceLost, match="did not end"):
                await lineage.stop()


async def test_a_container_that_ended_before_its_engine_says_so_is_told_as_ended(
    place: Path, engine_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is gone, which is not that the engine's processes cannot be seen."""
    looks = 0

    def answers(line: str) -> bytes:
        nonlocal looks
        if line.startswith("POST"):
            return answer(b"", "204 No Content")
        if "/logs" in line:
            return answer(b"no licence found")
        looks += 1
        running = looks < 6
        state = {"Running": running, "Pid": 2**22 if running else 0, "StartedAt": "", "ExitCode": 0 if running else 4}
        found = {"Id": CONTAINER, "State": state, "NetworkSettings": {}, "Config": {"Tty": True}}
        return answer(json.dumps(found).encode())

    monkeypatch.setattr(Engine, "beside", True)
    async with engine_of(place, answers) as engine:
        lineage = Lineage(engine, defined(runtime="other"), Mark(home="test"), "any")
        lineage.container = CONTAINER
        with pytest.raises(InstanceLost, match="ended with 4, and said: no licence found"):
            await lineage.start()


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


async def test_a_hook_waits_for_what_the_engine_still_does_for_the_generation_before(place: Path, engine_of: Any) -> None:
    """A file that is put late would lie in the next one's state, where the hook could not undo it."""
    events: list[str] = []
    begun = asyncio.Event()

    async def put() -> bytes:
        begun.set()
        await asyncio.sleep(0.3)
        events.append("put")
        return answer(b"")

    def answers(line: str) -> bytes | Awaitable[bytes] | None:
        if line.startswith("PUT"):
            return put()
        if line.endswith("/exec"):
            events.append("hook")
            return answer(b'{"message": "it does not run"}', "409 Conflict")
        if "/archive" in line:
            return answer(b'{"message": "no such file"}', "404 Not Found")
        return answer(b'{"Config": {}, "State": {"Running": false}}')

    async with engine_of(place, answers) as engine:
        instance = acting(engine, defined())
        writing = asyncio.create_task(instance.write_file("/srv/late", b"1"))
        async with asyncio.timeout(30):
            await begun.wait()
        with pytest.raises(ResetFailed, match="does not run"):
            await instance.reset_in_place(2, hook=["/reset"])
        await writing
        assert events == ["put", "hook"]


@pytest.mark.parametrize("path", ["/scratch/x", "/dev/shm/x", "../scratch/y"])
async def test_a_file_in_memory_is_refused_by_its_place(place: Path, path: str, engine_of: Any) -> None:
    """The engine would put it below what is mounted there, where no program of the container sees it."""
    async with engine_of(place, lambda _: answer(b"{}")) as engine:
        instance = acting(engine, defined(tmpfs=["/scratch"], workdir="/srv"))
        with pytest.raises(OSError, match="use a command"):
            await instance.write_file(path, b"1")
        with pytest.raises(OSError, match="use a command"):
            await instance.read_file(path)


async def test_what_a_run_before_said_makes_none_ready(place: Path, engine_of: Any) -> None:
    """The engine keeps what a container said before it was stopped for a snapshot."""
    asked: list[str] = []

    def answers(line: str) -> bytes:
        if "/logs" not in line:
            return answer(b'{"Config": {"Tty": false}, "State": {"Running": true}}')
        asked.append(line)
        return answer(b"\x01\0\0\0\0\0\0\x05ready")

    async with engine_of(place, answers) as engine:
        options = defined(ready={"log": "ready"}).options
        reach = Reach(container=CONTAINER, published={})
        since = ended_at({"FinishedAt": "2026-11-30T11:07:52.5Z"})
        await until_ready(engine, reach, options, since=since)
        assert ["since=1796036872.5" in line for line in asked] == [True]
        await until_ready(engine, reach, options, since=ended_at({"FinishedAt": "0001-01-01T00:00:00Z"}))
        assert "since" not in asked[-1]


async def test_volumes_of_a_read_only_root_are_filled_beside_it(place: Path, tmp_path: Path, engine_of: Any) -> None:
    """An engine refuses an archive for a container with such a root, even where it holds a volume's files alone."""
    (tmp_path / "data").mkdir()
    (tmp_path / "volume0.tar").write_bytes(archive.of_file(tmp_path / "data", "data"))
    with (tmp_path / "volume0.tar").open("rb") as file:
        digest = archive.digest_of(archive.lines_of(file))
    saved = Saved(image="sha256:1", volumes={"/data": SavedVolume(file="volume0.tar", digest=digest)}, place=tmp_path)
    definition = defined(volumes=["/data"], read_only=True)
    mark = Mark(home="test")
    asked = definition.config("sha256:1", mark, network="none", fresh=False)["HostConfig"]
    described = json.dumps({"HostConfig": {**asked, "Privileged": False, "PidMode": "", "UTSMode": ""}, "Mounts": []})
    whole = {"Image": "sha256:1", **json.loads(described)}
    events: list[str] = []
    removed: set[str] = set()

    def answers(line: str) -> bytes:
        method, path = line.split()
        which = "made" if mark.name in path or f"/{CONTAINER}" in path else "other"
        if "/containers/create" in path:
            return answer(json.dumps({"Id": CONTAINER if which == "made" else "d" * 64}).encode(), "201 Created")
        if method == "PUT":
            events.append(f"filled through the {which}")
            refused = which == "made"
            return answer(b'{"message": "container rootfs is marked read-only"}', "400 Bad Request") if refused else answer(b"")
        if method == "DELETE":
            events.append(f"removed the {which}")
            removed.add(which)
            return answer(b"")
        if "/archive" in path:
            packed = (tmp_path / "volume0.tar").read_bytes()
            return answer(packed).replace(b"Content-Type", b"X-Docker-Container-Path-Stat: e30=\r\nContent-Type", 1)
        if path.endswith("/changes"):
            return answer(b"null")
        if which in removed:
            return answer(b'{"message": "No such container"}', "404 Not Found")
        return answer(json.dumps(whole).encode())

    async with engine_of(place, answers) as engine:
        lineage = await Lineage.make(engine, definition, mark, image="sha256:1", fresh=False, saved=saved)
        assert lineage.proof is not None
        assert lineage.proof.holds, lineage.proof
        assert events == ["filled through the other", "removed the other"]
        assert not engine.doubtful
    assert definition.config("any", mark, network="none", fresh=True)["HostConfig"]["ReadonlyRootfs"] is False


async def test_a_file_that_a_read_only_root_refuses_is_refused_as_inside(place: Path, engine_of: Any) -> None:
    def answers(line: str) -> bytes:
        if line.startswith("PUT"):
            return answer(b'{"message": "container rootfs is marked read-only"}', "400 Bad Request")
        return answer(b'{"message": "no such file"}', "404 Not Found") if "/archive" in line else answer(b'{"Config": {}}')

    async with engine_of(place, answers) as engine:
        with pytest.raises(OSError, match="Read-only"):
            await acting(engine, defined(read_only=True)).write_file("/etc/x", b"1")
