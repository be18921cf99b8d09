"""Attached streams: a container's first process, or an exec, over a connection of its own, without a thread.

The docker package hands out the raw socket of a response whose first bytes it may have read already; so these two requests are
made here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from sandbox.errors import InstanceLost
from sandbox.runtimes.docker import troubles
from sandbox.runtimes.docker.engine import Engine

_OPEN_S = 30.0
_HEAD = 64_000
STDOUT, STDERR = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Both directions of an attached process. `reader` gives the engine's frames (see `frame`), `writer` is its stdin."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def frame(self) -> tuple[int, bytes] | None:
        """Return the next piece of output with its stream (STDOUT or STDERR), None at its end. The caller sets the deadline."""
        try:
            head = await self.reader.readexactly(8)
            return head[0], await self.reader.readexactly(int.from_bytes(head[4:], "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def close(self) -> None:
        self.writer.close()
        try:
            async with asyncio.timeout(5):
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            self.writer.transport.abort()


async def attach(engine: Engine, container: str) -> Attached:
    """Attach to a container's first process: it must have been made with OpenStdin, and without a terminal."""
    query = urlencode({"stream": 1, "stdin": 1, "stdout": 1, "stderr": 1})
    return await _hijacked(engine, f"/containers/{container}/attach?{query}", None, f"attaching to container {container[:12]}")


async def execute(
    engine: Engine,
    container: str,
    argv: Sequence[str],
    *,
    user: str = "",
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
    stdin: bool = True,
) -> tuple[str, Attached]:
    """Start a command in a running container, attached. Returns the exec's id beside its streams."""
    doing = f"starting a command in container {container[:12]}"

    def make(client: Any) -> str:
        made = client.exec_create(container, list(argv), stdin=stdin, user=user, environment=dict(env or {}), workdir=workdir)
        return str(made["Id"])

    try:
        found = await engine.call(make, doing=doing)
    except troubles.Refused as error:
        if error.status != 409:
            raise
        raise InstanceLost(f"container {container[:12]} does not run", fix="ask for a new session") from error
    return found, await _hijacked(engine, f"/exec/{found}/start", {"Detach": False, "Tty": False}, doing)


async def _hijacked(engine: Engine, path: str, body: Mapping[str, Any] | None, doing: str) -> Attached:
    address = engine.address
    try:
        async with asyncio.timeout(_OPEN_S):
            if address.is_socket:
                reader, writer = await asyncio.open_unix_connection(address.path, limit=_HEAD)
            else:
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=address.context(), limit=_HEAD)
            try:
                return await _asked(reader, writer, path, body, doing)
            except BaseException:
                writer.transport.abort()
                raise
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise troubles.EngineGone(
            f"{doing}: the Docker engine at {address.url} gave no stream ({type(error).__name__}: {error})", fix="was it restarted?"
        ) from error


async def _asked(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: Mapping[str, Any] | None, doing: str
) -> Attached:
    content = json.dumps(body).encode() if body is not None else b""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)
    await writer.drain()
    answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status = int(answer.split(None, 2)[1])
    if status not in (101, 200):
        said = (await reader.read(2000)).decode("utf-8", "replace").strip()
        if status in (404, 409):
            raise InstanceLost(f"{doing}: {said}", fix="ask for a new session")
        raise troubles.Refused(f"{doing}: the Docker engine refused ({status}): {said}", status=status)
    return Attached(reader=reader, writer=writer)
