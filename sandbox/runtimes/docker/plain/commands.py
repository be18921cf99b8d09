"""The agent's commands in a container of any image: one exec each, for it may lack what a lasting channel stands on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sandbox.aio import in_thread
from sandbox.errors import InstanceLost
from sandbox.model import NOTHING, ExecResult
from sandbox.runtimes.docker import containers, streams
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.plain.reach import Reach, is_of

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
    """Run a command. At `limit_s` it dies with what it started; where that cannot be told from here, the container dies, and this
    raises InstanceLost."""
    began = time.monotonic()
    mark = secrets.token_hex(8)
    number, attached = await streams.execute(
        engine, reach.container, argv, user=user, env={**env, MARK: mark}, workdir=cwd, stdin=bool(stdin)
    )
    output = _Output(output_bytes)
    timed_out = False
    try:
        try:
            async with asyncio.timeout(limit_s):
                await _exchange(attached, stdin, output)
        except TimeoutError:
            timed_out = True
            await _end(engine, reach, mark)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await _exchange(attached, b"", output)
        except asyncio.CancelledError:
            await _end(engine, reach, mark)
            raise
    finally:
        await attached.close()
    code = await _exit_code(engine, reach, number)
    return ExecResult(
        exit_code=137 if timed_out else code,
        stdout=bytes(output.out),
        stderr=bytes(output.err),
        truncated=output.truncated,
        timed_out=timed_out,
        duration_s=time.monotonic() - began,
    )


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


async def _exit_code(engine: Engine, reach: Reach, number: str) -> int:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + _END_S
    while True:
        found = await engine.call(lambda client: client.exec_inspect(number), doing="reading a command's exit code")
        if not found["Running"] and found["ExitCode"] is not None:
            return int(found["ExitCode"])
        if not (await containers.inspect(engine, reach.container))["State"]["Running"]:
            raise InstanceLost("the container ended while a command ran in it", fix="ask for a new session")
        if loop.time() > give_up:  # its output ended, and it lives on without any
            await _end(engine, reach, None)
            return 137
        await asyncio.sleep(0.01)


async def _end(engine: Engine, reach: Reach, mark: str | None) -> None:
    if reach.pid:
        await in_thread(kill_marked, reach, mark)
        return
    await containers.kill(engine, reach.container)
    raise InstanceLost(
        "a command passed its limit in a container of another machine, where only the whole container can be ended",
        fix="raise limits.action_s, or run the manager as root beside the engine",
    )


def kill_marked(reach: Reach, mark: str | None) -> list[int]:
    """Kill every process of the container that a command left (with `mark`: that one), also what descends from one. Those that
    cleared their environment and lost their parents are not found: a check shows them. Blocking."""
    killed: list[int] = []
    for _ in range(20):
        found = _marked(reach, mark)
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        time.sleep(0.005)
    return killed


def _marked(reach: Reach, mark: str | None) -> list[int]:
    wanted = f"{MARK}={mark or ''}".encode()
    members = _members(reach)
    found = {pid for pid in members if pid != reach.pid and _carries(pid, wanted, whole=mark is not None)}
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
