"""Waiting until a container of any image is ready, as its author says it is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from sandbox.aio import poll
from sandbox.errors import EnvironmentInvalid, InstanceLost
from sandbox.resources.container import ContainerOptions
from sandbox.runtimes.docker import containers
from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.plain import commands
from sandbox.runtimes.docker.plain.reach import Reach

_LOG_LINES = 2000
_COMMAND_S = 30.0
NEVER = "0001-01-01T00:00:00Z"


async def until_ready(engine: Engine, reach: Reach, options: ContainerOptions, *, since: float | None = None) -> None:
    """Wait for every condition; raise InstanceLost with what the container said. `since` is the end of its run before this one, of
    which the engine keeps what it said."""
    ready = options.ready
    port = ready.port or (options.ports[0] if options.ports else None)
    path = options.sockets[0] if options.sockets else None
    waits: list[tuple[str, Callable[[], Awaitable[bool]]]] = []
    if ready.log is not None:
        waits.append((f"its output to hold {ready.log!r}", _said(engine, reach, ready.log, since)))
    if ready.http is not None and port is not None:
        waits.append((f"port {port} to answer {ready.http}", _answers(reach, port, ready.http)))
    elif port is not None:
        waits.append((f"port {port} to accept connections", _accepts(reach, port)))
    elif path is not None:
        waits.append((f"{path} to accept connections", _accepts(reach, path)))
    if ready.command is not None:
        waits.append((f"{ready.command[0]} to end with 0", _succeeds(engine, reach, ready.command)))
    loop = asyncio.get_running_loop()
    give_up = loop.time() + ready.limit_s
    for what, condition in waits:
        await _wait(engine, reach, what, condition, give_up - loop.time())
    await asyncio.sleep(ready.seconds if waits or ready.seconds else 1.0)
    if not (await containers.inspect(engine, reach.container))["State"]["Running"]:
        raise await ended(engine, reach.container)


async def _wait(engine: Engine, reach: Reach, what: str, condition: Callable[[], Awaitable[bool]], timeout: float) -> None:
    looked = 0

    async def holds() -> bool:
        nonlocal looked
        looked += 1
        if await condition():
            return True
        if looked % 10 == 0 and not (await containers.inspect(engine, reach.container))["State"]["Running"]:
            raise await ended(engine, reach.container)
        return False

    if not await poll(holds, timeout=max(0.0, timeout), interval=0.01, slowest=0.25):
        said = await containers.log_tail(engine, reach.container)
        raise InstanceLost(f"waited in vain for {what}; the container said: {said[-1500:] or 'nothing'}", fix="see `ready`")


def ended_at(state: Mapping[str, Any]) -> float | None:
    """When a container's run before this one ended, in seconds; None where there was none."""
    at = datetime.fromisoformat(str(state.get("FinishedAt") or NEVER))
    return at.timestamp() if at.year > 1 else None


async def ended(engine: Engine, container: str) -> InstanceLost:
    """Return what became of a container whose first process ended."""
    state = (await containers.inspect(engine, container))["State"]
    said = await containers.log_tail(engine, container)
    why = " for want of memory (limits.memory_mb)" if state.get("OOMKilled") else ""
    return InstanceLost(f"the container ended with {state['ExitCode']}{why}, and said: {said[-1500:] or 'nothing'}")


def _said(engine: Engine, reach: Reach, pattern: str, since: float | None) -> Callable[[], Awaitable[bool]]:
    try:
        wanted = re.compile(pattern, re.MULTILINE)
    except re.error as error:
        raise EnvironmentInvalid(f"ready.log {pattern!r} is no regular expression: {error}") from error

    async def condition() -> bool:
        return bool(wanted.search(await containers.log_tail(engine, reach.container, _LOG_LINES, since=since)))

    return condition


def _accepts(reach: Reach, place: int | str) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        try:
            reader, writer = await reach.connect(place)
        except (OSError, TimeoutError):
            return False
        if reach.pid:
            writer.transport.abort()
            return True
        # A published port is accepted by the engine's own proxy, which closes when nobody listens inside.
        try:
            async with asyncio.timeout(0.2):
                return bool(await reader.read(1))
        except TimeoutError:
            return True
        except OSError:
            return False
        finally:
            writer.transport.abort()

    return condition


def _answers(reach: Reach, port: int, path: str) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        try:
            async with asyncio.timeout(5):
                reader, writer = await reach.connect(port)
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                    words = (await reader.readline()).split()
                    return len(words) > 1 and words[1].isdigit() and int(words[1]) < 400
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError):
            return False

    return condition


def _succeeds(engine: Engine, reach: Reach, argv: list[str]) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return (await commands.run(engine, reach, argv, limit_s=_COMMAND_S)).exit_code == 0

    return condition
