"""The agent's commands in a container of any image: one exec each, for it may lack what a lasting channel stands on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.aio import in_thread, run_shielded, undo
from sandbox.errors import AutoclaveError, InstanceLost
from sandbox.model import NOTHING, ExecResult
from sandbox.runtimes.docker import containers, streams
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.plain.reach import Reach, is_of

log = logging.getLogger(__name__)
MARK = "AUTOCLAVE_COMMAND"
_CHUNK = 64_000
_END_S = 10.0


async def run(
    engine: Engine,
    reach: Reach,
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] = NOTHING,
    cwd: str | None = None,
    user: str = "",
    limit_s: float = 60.0,
    output_bytes: int = 1_000_000,
) -> ExecResult:
    """Run a command. At `limit_s`, counted from its start, it dies with what it started; where that cannot be told from here, the
    container dies, and this raises InstanceLost. A caller that is cancelled gets its cancellation once the command has died."""
    began = time.monotonic()
    running = _Running(engine, reach, mark=secrets.token_hex(8))
    output = _Output(output_bytes)
    timed_out, code = False, 137
    try:
        await running.begin(argv, stdin=bool(stdin), env=env, cwd=cwd, user=user)
        try:
            async with asyncio.timeout(limit_s):
                await _exchange(running.attached, stdin, output)
                code = await running.exit_code()  # it may have closed its output, and work on
        except TimeoutError:
            timed_out = True
            await run_shielded(running.end())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await _exchange(running.attached, b"", output)
    except BaseException as error:
        await undo(error, running.withdraw())
        raise
    finally:
        await run_shielded(running.close())
    return ExecResult(
        exit_code=code,
        stdout=bytes(output.out),
        stderr=bytes(output.err),
        truncated=output.truncated,
        timed_out=timed_out,
        duration_s=time.monotonic() - began,
    )


class _Running:
    """One command from the moment that the engine is asked for it."""

    def __init__(self, engine: Engine, reach: Reach, *, mark: str) -> None:
        self._engine, self._reach, self._mark = engine, reach, mark
        self._number = ""
        self._attached: streams.Attached | None = None

    @property
    def attached(self) -> streams.Attached:
        assert self._attached is not None
        return self._attached

    async def begin(self, argv: Sequence[str], *, stdin: bool, env: Mapping[str, str], cwd: str | None, user: str) -> None:
        """Start it. A cancellation waits for the engine's answer: what was begun must be known to be ended."""

        async def start() -> None:
            whole = {**env, MARK: self._mark}
            self._number, self._attached = await streams.execute(
                self._engine, self._reach.container, argv, user=user, env=whole, workdir=cwd, stdin=stdin
            )

        await run_shielded(start())

    async def exit_code(self) -> int:
        """Wait until it has ended; the caller sets the deadline."""
        pause = 0.01
        while True:
            found = await self._found()
            if not found["Running"] and found["ExitCode"] is not None:
                return int(found["ExitCode"])
            if not (await containers.inspect(self._engine, self._reach.container))["State"]["Running"]:
                raise InstanceLost("the container ended while a command ran in it", fix="ask for a new session")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    async def end(self) -> None:
        """Kill it with what it started; raise InstanceLost where only the container could be killed."""
        if not self._reach.pid:
            await containers.kill(self._engine, self._reach.container)
            raise InstanceLost(
                "a command passed its limit in a container of another machine, where only the whole container can be ended",
                fix="raise limits.action_s, or run the manager as root beside the engine",
            )
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _END_S
        while True:
            found = await self._found()
            over = not found["Running"] and found["ExitCode"] is not None
            await in_thread(kill_marked, self._reach, self._mark, int(found.get("Pid") or 0))
            if over:
                return
            if loop.time() > give_up:
                await containers.kill(self._engine, self._reach.container)
                raise InstanceLost("a command could not be ended, and its container was", fix="look at the engine's log")
            await asyncio.sleep(0.01)  # the engine answers before the process is there

    async def withdraw(self) -> None:
        """End it for a caller that goes away, or whose engine fails it, and who shall hear nothing but that."""
        try:
            if self._number:
                await self.end()
            elif self._reach.pid:
                await in_thread(kill_marked, self._reach, self._mark)
        except AutoclaveError as error:
            log.info("a command's end", extra={"event": "docker.withdrawn", "reason": str(error)})

    async def close(self) -> None:
        if self._attached is not None:
            await self._attached.close()

    async def _found(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self._engine.call(
            lambda client: client.exec_inspect(self._number), doing="reading how a command stands"
        )
        return found


class _Output:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.out, self.err = bytearray(), bytearray()
        self.truncated = False

    def add(self, stream: int, piece: bytes) -> None:
        kept = self.err if stream == streams.STDERR else self.out
        room = self._limit - len(kept)
        kept += piece[:room]
        self.truncated = self.truncated or len(piece) > room


async def _exchange(attached: streams.Attached, stdin: bytes, output: _Output) -> None:
    async def feed() -> None:
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(stdin), _CHUNK):
                attached.writer.write(stdin[at : at + _CHUNK])
                await attached.writer.drain()
            if attached.writer.can_write_eof():
                attached.writer.write_eof()

    async def collect() -> None:
        while (piece := await attached.frame()) is not None:
            output.add(*piece)

    if not stdin:
        return await collect()
    feeding = asyncio.ensure_future(feed())
    try:
        await collect()
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})


def kill_marked(reach: Reach, mark: str | None, first: int = 0) -> list[int]:
    """Kill every process of the container that a command left (with `mark`: that one, whose own process is `first` where it is
    known), also what descends from one. Those that cleared their environment and lost their parents are not found: a check shows
    them. Blocking."""
    killed: list[int] = []
    for _ in range(20):
        found = _marked(reach, mark, first)
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        time.sleep(0.005)
    return killed


def _marked(reach: Reach, mark: str | None, first: int) -> list[int]:
    wanted = f"{MARK}={mark or ''}".encode()
    members = _members(reach)
    found = {pid for pid in members if pid != reach.pid and (pid == first or _carries(pid, wanted, whole=mark is not None))}
    grown = True
    while grown:
        more = {pid for pid, parent in members.items() if parent in found} - found
        grown, found = bool(more), found | more
    return sorted(found)


def _members(reach: Reach) -> dict[int, int]:
    """Every process of the container with its parent, on the host's numbers; zombies left out."""
    found: dict[int, int] = {}
    for pid in _everyone():
        if is_of(pid, reach.container):
            try:
                words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if words[0] not in "ZX":
                found[pid] = int(words[1])
    return found


def _carries(pid: int, wanted: bytes, *, whole: bool) -> bool:
    try:
        pieces: Iterable[bytes] = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(p == wanted if whole else p.startswith(wanted) for p in pieces)


def _everyone() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
