"""How the host reaches a port inside a container: through its own network where that can be entered, else as published."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sandbox.errors import RuntimeUnavailable

log = logging.getLogger(__name__)
CLONE_NEWIPC = 0x800_0000
_CLONE_NEWNET = 0x4000_0000
_CLONE_NEWNS = 0x2_0000
_CLONE_FS = 0x200
_CONNECT_S = 10.0
_CHUNK = 64_000
_BACKLOG = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The way into one started container. `pid` is its first process (0: it is not on this machine), `published` gives the engine's
    address for each port."""

    container: str
    pid: int = 0
    published: Mapping[int, tuple[str, int]]

    async def connect(self, place: int | str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a TCP port, or to a socket by its path inside; raise OSError."""
        async with asyncio.timeout(_CONNECT_S):
            if not self.pid:
                if isinstance(place, str) or place not in self.published:
                    raise ConnectionRefusedError(f"{place} is not published")
                return await asyncio.open_connection(*self.published[place])
            inside = await _made_inside(self.pid, self.container, place)
            try:
                if isinstance(place, str):
                    return await asyncio.open_unix_connection(sock=inside)
                await asyncio.get_running_loop().sock_connect(inside, ("127.0.0.1", place))
                return await asyncio.open_connection(sock=inside)
            except BaseException:
                inside.close()
                raise


def reach_of(found: Mapping[str, Any], *, beside: bool, engine_host: str) -> Reach:
    """Make the way into a container from its engine's description."""
    container, state = str(found["Id"]), found["State"]
    ports: dict[int, tuple[str, int]] = {}
    for name, bound in (found["NetworkSettings"].get("Ports") or {}).items():
        if bound:
            ports[int(name.partition("/")[0])] = (engine_host or bound[0]["HostIp"] or "127.0.0.1", int(bound[0]["HostPort"]))
    return Reach(container=container, pid=int(state["Pid"]) if beside else 0, published=ports)


def is_of(pid: int, container: str) -> bool:
    """True where a process of this machine belongs to that container."""
    try:
        return container in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


async def _made_inside(pid: int, container: str, place: int | str) -> socket.socket:
    """Make a socket in the network of a container, or connect one in its files. A thread of its own enters it and ends there, so
    that links which the agent made lead nowhere else."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[socket.socket] = loop.create_future()

    def work() -> None:
        try:
            made = _at_path(pid, container, place) if isinstance(place, str) else _in_network(pid, container)
        except OSError as error:
            loop.call_soon_threadsafe(_settle, future, error)
        else:
            loop.call_soon_threadsafe(_settle, future, made)

    threading.Thread(target=work, name="autoclave-network", daemon=True).start()
    return await future


def _settle(future: asyncio.Future[socket.socket], found: socket.socket | OSError) -> None:
    if future.cancelled():
        if isinstance(found, socket.socket):
            found.close()
    elif isinstance(found, OSError):
        future.set_exception(found)
    else:
        future.set_result(found)


def _in_network(pid: int, container: str) -> socket.socket:
    enter(pid, container, "net", _CLONE_NEWNET)
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setblocking(False)
    # Closed, it leaves nothing waiting in the container's network, where a check would see it.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return made


def _at_path(pid: int, container: str, path: str) -> socket.socket:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_FS) != 0:
        raise OSError(ctypes.get_errno(), "a thread cannot have a root directory of its own")
    enter(pid, container, "mnt", _CLONE_NEWNS)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(_CONNECT_S / 2)
        made.connect(path)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def enter(pid: int, container: str, kind: str, flag: int) -> None:
    """Put this thread, which must end thereafter, into a namespace of a container's first process; raise OSError."""
    descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not is_of(pid, container):
            raise ConnectionRefusedError(f"container {container[:12]} has ended")
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, flag) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot enter container {container[:12]} ({kind}): {os.strerror(code)}")
    finally:
        os.close(descriptor)


class Spent:
    """Ports of generations that have ended: kept bound, so that no later generation has the same. The oldest goes when there are
    too many to keep."""

    def __init__(self, most: int = 1000) -> None:
        self._kept: deque[socket.socket] = deque()
        self._most = most

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, bound: socket.socket) -> None:
        self._kept.append(bound)
        while len(self._kept) > self._most:
            self._kept.popleft().close()

    def close(self) -> None:
        while self._kept:
            self._kept.popleft().close()


class Relay:
    """The addresses of one generation: listeners on this machine's loopback, each before one port or socket inside.

    Closed, nothing of them is left, and every connection through them has ended. A connection belongs to a task from the moment it
    is accepted, so that none is between two states when its generation ends.
    """

    def __init__(self, reach: Reach, spent: Spent) -> None:
        self._reach, self._spent = reach, spent
        self._bound: list[socket.socket] = []
        self._listening: dict[int | str, socket.socket] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def open(self, places: Sequence[int | str]) -> None:
        for place in places:
            bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)  # never listens, and holds the port when nobody does any more
            self._bound.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", 0))
            listening = self._listening[place] = socket.create_server(bound.getsockname(), backlog=_BACKLOG)
            listening.setblocking(False)
            self._listen(place, listening)

    def address(self, place: int | str) -> str:
        listening = self._listening.get(place)
        if listening is None:
            raise RuntimeUnavailable(f"{place} is not among the container's `ports` and `sockets`", fix="name it there")
        host, number = listening.getsockname()
        return f"{host}:{number}"

    async def close(self) -> None:
        """Idempotent."""
        listening, self._listening = self._listening, {}
        for one in listening.values():
            asyncio.get_running_loop().remove_reader(one)
            one.close()
        while self._bound:
            self._spent.keep(self._bound.pop())
        await self.cut()

    async def cut(self) -> None:
        """End every connection; new ones can be made."""
        for task in tuple(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=5)

    def _listen(self, place: int | str, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listening, self._accept, place, listening)

    def _accept(self, place: int | str, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_BACKLOG):
            try:
                outer, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:  # no descriptor is left: the connection waits until one is
                log.warning("a connection waits", extra={"event": "docker.accept", "reason": str(error)})
                loop.remove_reader(listening)
                loop.call_later(1.0, self._listen, place, listening)
                return
            outer.setblocking(False)
            task = loop.create_task(self._serve(place, outer))
            self._running.add(task)
            task.add_done_callback(partial(self._served, outer))

    def _served(self, outer: socket.socket, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        outer.close()  # also where the task was ended before it began

    async def _serve(self, place: int | str, outer: socket.socket) -> None:
        try:
            inner_reader, inner_writer = await self._reach.connect(place)
            try:
                reader, writer = await asyncio.open_connection(sock=outer)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(_pump(reader, inner_writer))
                        group.create_task(_pump(inner_reader, writer))
                finally:
                    writer.transport.abort()
            finally:
                inner_writer.transport.abort()
        except (OSError, TimeoutError):
            pass  # the client sees its connection end


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_CHUNK):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
