"""The Unix-socket server of `autoclave pool up`."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.aio import in_thread
from sandbox.client.connection import HEARTBEAT_S
from sandbox.client.place import ours_alone, socket_path
from sandbox.errors import EnvironmentInvalid, PoolBroken
from sandbox.pool import Pool
from sandbox.ports import Environment
from sandbox.service.peer import Peer
from sandbox.settings import Settings

log = logging.getLogger(__name__)


class Server:
    """Serves a pool that its caller holds. Hold it with `async with`; `ended` is set when a client drained the pool."""

    def __init__(
        self,
        pool: Pool,
        settings: Settings,
        *,
        find: Callable[[str], Environment] | None = None,
        silence_s: float = 6 * HEARTBEAT_S,
    ) -> None:
        self._pool = pool
        self._find = find  # an environment, by its name or path, as it is now
        self._path = socket_path(settings)
        self._silence_s = silence_s
        self._server: asyncio.Server | None = None
        self._peers: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()

    @property
    def path(self) -> Path:
        return self._path

    async def __aenter__(self) -> Self:
        directory = self._path.parent
        directory.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        ours_alone(directory)
        if self._path.exists():
            if not stat.S_ISSOCK(os.lstat(self._path).st_mode) or await self._answers():
                raise PoolBroken(
                    f"a pool listens at {self._path} already", fix="use it with Pool.connect(), or `autoclave pool drain`"
                )
            self._path.unlink()  # left by a killed one
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._met, str(self._path))
        finally:
            os.umask(before)
        log.info("pool listens", extra={"event": "service.up", "path": str(self._path)})
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._server is not None:
            self._server.close()
        for peer in self._peers:
            peer.cancel()
        if self._peers:
            await asyncio.wait(set(self._peers))
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._path.parent.rmdir()

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(self._pool, reader, writer, silence_s=self._silence_s, drain=self._drain, roll=self._roll)
        task = asyncio.create_task(self._serve(peer), name="service peer")
        self._peers.add(task)
        task.add_done_callback(self._peers.discard)

    async def _serve(self, peer: Peer) -> None:
        try:
            await peer.serve()
        except Exception:
            log.exception("client failed", extra={"event": "service.peer_failed"})

    async def _drain(self, grace_s: float | None) -> None:
        await self._pool.drain(grace_s=grace_s)
        self.ended.set()

    async def _roll(self, name: str) -> bool:
        if self._find is None:
            raise EnvironmentInvalid(f"this pool cannot look up {name!r}", fix="whoever opened it rolls it with Pool.roll()")
        return await self._pool.roll(await in_thread(self._find, name))

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(2.0):
                _, writer = await asyncio.open_unix_connection(str(self._path))
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True
