"""A pool in memory over a real ledger, with a clock that tests move, and a way to crash it."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox.model import ResetMethod
from sandbox.pool import Pool, PoolLimits
from sandbox.ports import Environment, Ledger
from sandbox.testing import FakeClock, Machine, MemoryRuntime, MemoryStorage
from sandbox.testing.faults import Faults

_VERSION = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 42\r\n\r\n{"ApiVersion": "1.41", "Version": "20.10"}'
)


class Refusing:
    """A ledger whose disk a test lets fail: a step that is scripted under its own name writes nothing and raises."""

    def __init__(self, ledger: Ledger, faults: Faults) -> None:
        self._ledger = ledger
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._ledger, name)
        if not inspect.iscoroutinefunction(step):
            return step

        async def call(*args: Any, **options: Any) -> Any:
            await self._faults.at(name)
            return await step(*args, **options)

        return call


class Bench:
    """One home: a ledger file, a store and a machine that outlive the pools opened over them."""

    def __init__(self, home: Path) -> None:
        self.path = home / "ledger.sqlite"
        self.clock = FakeClock()
        self.storage = MemoryStorage()
        self.machine = Machine()
        self.leaks: dict[ResetMethod, Sequence[str]] = {}
        self.limits = PoolLimits(resets=4, drain_grace_s=0.05)
        self.runtime = self._runtime()
        self.disk = Faults()  # of the ledger, by the names of its steps
        self.ledger: Ledger
        self._open: list[tuple[Pool, AsyncExitStack]] = []

    def _runtime(self) -> MemoryRuntime:
        return MemoryRuntime(self.storage, machine=self.machine, leaks=self.leaks)

    async def open(self, *environments: Environment, size: int | Mapping[str, int] = 1) -> Pool:
        from sandbox.ledger import open_ledger

        stack = AsyncExitStack()
        self.ledger = await stack.enter_async_context(open_ledger(self.path, durability="normal", clock=self.clock))
        ledger = cast("Ledger", Refusing(self.ledger, self.disk))
        pool = Pool(environments, ledger=ledger, runtime=self.runtime, clock=self.clock, size=size, limits=self.limits)
        try:
            await stack.enter_async_context(pool)
        except BaseException:
            await stack.aclose()
            raise
        self._open.append((pool, stack))
        return pool

    async def close(self) -> None:
        """Drain and close."""
        while self._open:
            _, stack = self._open.pop()
            await stack.aclose()

    async def crash(self) -> None:
        """End the manager at once: nothing is drained, its instances stay on the machine until somebody sweeps them."""
        pool, stack = self._open.pop()
        running = set(self.machine.running)
        pool._leasing.closed = "crashed"
        await pool._crew.stop()
        self.machine.running |= running  # what cancelled tasks closed on their way out, a killed manager would have left
        await stack.aclose()  # drain of a closed pool does nothing; the ledger's file and lock are dropped as the kernel would
        self.runtime = self._runtime()

    async def quiet(self) -> None:
        """Wait for the resets and checks that run in the background, and until every duty sleeps, so that none begins another."""
        crew = self._open[-1][0]._crew
        await crew.quiet()
        while any(not duty.done() and duty not in self.clock.asleep for duty in crew._duties):
            await asyncio.sleep(0.001)  # a duty's ledger works in a thread, which the clock knows nothing of
            await crew.quiet()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    await made.close()
    assert not made.machine.running, "instances were left running"


@pytest.fixture
def make_bench() -> Callable[[Path], Bench]:
    """For tests that need a bench for each example."""
    return Bench


@pytest.fixture
def place() -> Iterator[Path]:
    """Where an engine's socket may lie: its path has to be short."""
    with tempfile.TemporaryDirectory(prefix="ac-", dir="/tmp") as found:
        yield Path(found, "engine.sock")


@asynccontextmanager
async def _answering(
    place: Path, answers: Callable[[str], bytes | Awaitable[bytes] | None], heard: list[str] | None = None
) -> AsyncIterator[None]:
    serving: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(writer)
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = next((int(w[15:]) for w in head.splitlines() if w.lower().startswith("content-length:")), 0)
                await reader.readexactly(length)
                line = " ".join(head.split()[:2])
                if heard is not None:
                    heard.append(line)
                said = _VERSION if line.endswith("/version") else answers(line)
                if said is not None:
                    writer.write(said if isinstance(said, bytes) else await said)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            serving.discard(writer)
            writer.transport.abort()

    server = await asyncio.start_unix_server(serve, str(place))
    try:
        yield
    finally:
        server.close()
        async with asyncio.timeout(30):
            while serving:
                for writer in serving:
                    writer.transport.abort()
                await asyncio.sleep(0.01)


@pytest.fixture
def answering() -> Callable[..., AbstractAsyncContextManager[None]]:
    """`async with answering(place, answers)`: a Docker engine that says what `answers` gives for a request's first line; nothing
    where that is None. Its version it says itself. `heard` gets every first line."""
    return _answering
