"""A Docker engine that is slow, loses answers, goes away in the middle, comes back, is killed, or has a full disk.

Slow and lost answers come from a proxy in front of the engine of this session; restarts and full disks need an engine of the test's
own, with a small file system for its data and no network.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import shutil
import signal
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import envs
from sandbox.errors import InstanceLost, LimitReached, RuntimeUnavailable
from sandbox.model import NamespaceId
from sandbox.runtimes.docker import containers, create, leftovers, troubles
from sandbox.runtimes.docker.address import Address, from_environment
from sandbox.runtimes.docker.engine import Engine, EngineLimits
from sandbox.runtimes.docker.labels import Mark, home_identity
from sandbox.settings import Settings
from sandbox.storage import open_storage

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
IMAGE = "autoclave/base:latest"
CREATE = re.compile(rb"^POST /v[0-9.]+/containers/create")


class Proxy:
    """A socket before the engine's. `delay` seconds pass before an answer to a creation; `lose` such answers never come."""

    def __init__(self, engine: str, place: Path) -> None:
        self._engine = engine
        self.path = place / "proxy.sock"
        self.delay = 0.0
        self.lose = 0
        self.lost = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))

    async def close(self) -> None:
        """Be gone: nobody listens, and every connection ends."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.path.unlink(missing_ok=True)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        inner = None
        try:
            inner_reader, inner = await asyncio.open_unix_connection(self._engine)
            asked = asyncio.Event()  # a creation is on its way through this connection

            async def there() -> None:
                while piece := await reader.read(65536):
                    if CREATE.match(piece):
                        asked.set()
                    inner.write(piece)
                    await inner.drain()
                inner.write_eof()

            async def back() -> None:
                while piece := await inner_reader.read(65536):
                    if asked.is_set():
                        asked.clear()
                        if self.lose:
                            self.lose -= 1
                            self.lost.set()
                            raise ConnectionResetError("lost on purpose")
                        await asyncio.sleep(self.delay)
                    writer.write(piece)
                    await writer.drain()
                writer.close()

            async with asyncio.TaskGroup() as group:
                group.create_task(there())
                group.create_task(back())
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, inner):
                if end is not None:
                    end.transport.abort()
            self._tasks.discard(task)


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    with tempfile.TemporaryDirectory(prefix="ac-", dir="/tmp") as place:
        made = Proxy(from_environment().path, Path(place))
        await made.open()
        yield made
        await made.close()


@pytest.fixture
async def engine(settings: Settings) -> AsyncIterator[Engine]:
    """The engine itself, to see what is really there; nothing of this home may be left on it."""
    opened = Engine(from_environment(), home=home_identity(settings))
    yield opened
    left = await leftovers.sweep(opened)
    await opened.close()
    assert not left, f"left on the engine: {left}"


def through(proxy: Proxy, engine: Engine, **limits: Any) -> Engine:
    address = Address(url=f"unix://{proxy.path}", path=str(proxy.path))
    return Engine(address, home=engine.home, limits=EngineLimits(**limits))


def mark(engine: Engine) -> Mark:
    return Mark(home=engine.home, environment="faults")


def idle(image: str = IMAGE) -> dict[str, Any]:
    return {"Image": image, "Cmd": ["sleep", "600"], "HostConfig": {"NetworkMode": "none"}}


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_creation_whose_answer_is_lost_is_found_again(proxy: Proxy, engine: Engine, lost: int) -> None:
    proxy.lose = lost
    faulty = through(proxy, engine)
    found = await containers.create(faulty, idle(), mark(engine))
    assert proxy.lost.is_set()
    assert [c["Id"] for c in await containers.ours(engine)] == [found]
    assert not faulty.doubtful
    assert not faulty.breaker.is_open
    await containers.remove(engine, found)
    await faulty.close()


async def test_an_engine_that_goes_before_it_answers_is_swept_when_it_is_back(proxy: Proxy, engine: Engine) -> None:
    proxy.lose = 1
    faulty = through(proxy, engine, create_s=2.0)
    asking = asyncio.ensure_future(containers.create(faulty, idle(), mark(engine)))
    async with asyncio.timeout(60):
        await proxy.lost.wait()
    await proxy.close()
    with pytest.raises(RuntimeUnavailable):
        await asking
    assert len(faulty.doubtful) == len(await containers.ours(engine)) == 1
    await proxy.open()
    assert len(await leftovers.sweep(faulty)) == 1
    assert await containers.ours(engine) == []
    assert not faulty.doubtful
    await faulty.close()


async def test_a_slow_creation_is_waited_for_and_one_that_is_too_slow_is_withdrawn(proxy: Proxy, engine: Engine) -> None:
    proxy.delay = 1.0
    patient = through(proxy, engine)
    await containers.remove(engine, await containers.create(patient, idle(), mark(engine)))
    await patient.close()

    proxy.delay = 30.0
    hasty = through(proxy, engine, create_s=3.0)
    with pytest.raises(RuntimeUnavailable, match="not there after 3 s") as caught:
        await containers.create(hasty, idle(), mark(engine))
    assert caught.value.fix
    assert await containers.ours(engine) == []
    await hasty.close()


async def test_the_breaker_opens_while_the_engine_is_gone_and_closes_when_it_is_back(proxy: Proxy, engine: Engine) -> None:
    faulty = through(proxy, engine, failures=3, pause_s=0.2)
    await faulty.facts()
    await proxy.close()
    for _ in range(3):
        with pytest.raises(troubles.EngineGone, match=re.escape(str(proxy.path))) as caught:
            await containers.create(faulty, idle(), mark(engine))
        assert "start it" in caught.value.fix
    assert faulty.breaker.is_open
    assert "no Docker engine answers" in faulty.breaker.reason
    await proxy.open()
    async with asyncio.timeout(60):
        while not faulty.breaker.can_try():
            with pytest.raises(RuntimeUnavailable, match="3 times in a row"):
                await containers.create(faulty, idle(), mark(engine))
            await asyncio.sleep(0.01)
    await containers.remove(engine, await containers.create(faulty, idle(), mark(engine)))
    assert not faulty.breaker.is_open
    await faulty.close()


async def test_what_could_not_be_removed_goes_when_the_engine_is_back(
    proxy: Proxy, engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance is closed while its engine is away: its container and its volume are named, and go with the next that is made."""
    resource = {
        "kind": "container",
        "image": IMAGE,
        "volumes": ["/data"],
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"],
    }
    environment = envs.define({"name": "away", "version": "1", "resources": {"box": resource}}, Path("/"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
    storage = await open_storage(settings)
    runtime = create(settings, storage)
    try:
        golden = await runtime.build(environment)
        lost = await runtime.start(environment, golden, NamespaceId("away-1"), 1)
        await proxy.close()
        with pytest.raises(RuntimeUnavailable):
            await lost.close()
        await proxy.open()
        assert len(await containers.ours(engine)) == 1
        second = await runtime.start(environment, golden, NamespaceId("away-2"), 1)
        assert len(await containers.ours(engine)) == 1
        await proxy.close()
        with pytest.raises(RuntimeUnavailable):
            await second.close()
        await proxy.open()
    finally:
        await runtime.close()
        await storage.close()
    assert await leftovers.found(engine) == []


class OwnEngine:
    """An engine of this test alone, over a file system of 300 MB."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self.data = top / "data"
        self.path = top / "docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        return Address(url=f"unix://{self.path}", path=str(self.path))

    def mount(self) -> None:
        disk = self._top / "disk"
        with disk.open("wb") as file:
            file.truncate(300_000_000)
        self.data.mkdir()
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(disk)], check=True, timeout=60)
        subprocess.run(["mount", "-o", "loop", str(disk), str(self.data)], check=True, timeout=60)

    async def start(self) -> None:
        # In a network namespace of its own: with `--bridge=none` it would delete docker0, which is another engine's.
        command = ["unshare", "--net", "dockerd", "--host", self.address.url, "--data-root", str(self.data)]
        command += ["--exec-root", str(self._top / "exec")]
        command += ["--pidfile", str(self._top / "pid"), "--group", "root", "--bridge=none", "--iptables=false"]
        self._process = self._begin(command)
        async with asyncio.timeout(120):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_unix_connection(str(self.path))
                    writer.close()
                    return
                assert self._process.poll() is None, (self._top / "log").read_text(errors="replace")[-3000:]
                await asyncio.sleep(0.05)

    def _begin(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._top / "log").open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)

    def remove(self) -> None:
        self.stop()
        below = [
            line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1].startswith(str(self._top))
        ]
        for point in reversed(below):
            subprocess.run(["umount", "-l", point], check=False, capture_output=True, timeout=60)
        shutil.rmtree(self._top)


@pytest.fixture
async def own_engine(need: Any) -> AsyncIterator[OwnEngine]:
    if os.geteuid() != 0 or shutil.which("dockerd") is None or os.uname().machine != "x86_64":
        need("root", "an engine of the test's own needs root, dockerd and an x86_64 machine")
    made = OwnEngine(Path(tempfile.mkdtemp(prefix="autoclave-test-", dir="/var/tmp")))
    try:
        made.mount()
        await made.start()
        yield made
    finally:
        made.remove()


def tiny(client: Any) -> None:
    """Import an image of one program that waits for ever: `pause` in a loop, without a library."""
    code = bytes.fromhex("b8220000000f05ebf7")
    start = 0x400000 + 64 + 56
    head = struct.pack("<4sBBBBB7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 0, 2, 62, 1, start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 120 + len(code), 120 + len(code), 4096)
    program, packed = head + segment + code, io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("wait")
        entry.size, entry.mode = len(program), 0o755
        archive.addfile(entry, io.BytesIO(program))
    client.import_image_from_data(packed.getvalue(), repository="tiny", tag="latest")


@pytest.mark.root
@pytest.mark.slow
async def test_an_engine_that_was_restarted_is_used_again_and_its_dead_containers_are_told(
    own_engine: OwnEngine, settings: Settings
) -> None:
    engine = Engine(own_engine.address, home=home_identity(settings))
    await engine.call(tiny, doing="importing an image")
    container = await containers.create(engine, {**idle("tiny"), "Cmd": ["/wait"]}, mark(engine))
    await containers.start(engine, container)
    assert (await containers.inspect(engine, container))["State"]["Running"]

    own_engine.stop()
    with pytest.raises(troubles.EngineGone):
        await containers.inspect(engine, container)
    await own_engine.start()

    assert await containers.wait_ended(engine, container, timeout=60)
    again = await containers.create(engine, {**idle("tiny"), "Cmd": ["/wait"]}, mark(engine))
    await containers.start(engine, again)
    assert len(await leftovers.sweep(engine)) == 2
    with pytest.raises(InstanceLost):
        await containers.inspect(engine, again)
    await engine.close()


async def until_refused(engine: Engine, config: dict[str, Any]) -> None:
    for _ in range(50):
        await containers.create(engine, config, mark(engine))


@pytest.mark.root
@pytest.mark.slow
async def test_a_full_disk_is_called_by_its_name_and_leaves_nothing(own_engine: OwnEngine, settings: Settings) -> None:
    engine = Engine(own_engine.address, home=home_identity(settings), limits=EngineLimits(failures=2, pause_s=0.0))
    await engine.call(tiny, doing="importing an image")
    config = {**idle("tiny"), "Cmd": ["/wait"]}
    ballast = own_engine.data / "ballast"
    for size in (1 << 20, 4096, 1):  # until not one more byte, and then not one more name
        with contextlib.suppress(OSError), ballast.with_suffix(f".{size}").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(size))
    with pytest.raises(LimitReached, match="full") as caught:
        await until_refused(engine, config)
    assert "autoclave gc" in caught.value.fix
    for path in own_engine.data.glob("ballast.*"):
        path.unlink()
    await leftovers.sweep(engine)
    assert await containers.ours(engine) == []
    found = await containers.create(engine, config, mark(engine))
    await containers.remove(engine, found)
    assert not engine.breaker.is_open
    await engine.close()
