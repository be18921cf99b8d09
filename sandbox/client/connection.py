"""One connection to a pool: calls overlap, each answered by its number; heartbeats go by themselves."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sandbox.client import wire
from sandbox.errors import PoolBroken

log = logging.getLogger(__name__)
HEARTBEAT_S = 5.0


class Connection:
    """Hold it with `async with`. When the pool goes away, every open call raises PoolBroken."""

    def __init__(self, path: Path, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._path = path
        self._heartbeat_s = heartbeat_s
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._gone = False

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(10.0):
                reader, self._writer = await asyncio.open_unix_connection(str(self._path))
        except (OSError, TimeoutError) as error:
            raise PoolBroken(f"no pool listens at {self._path} ({error})", fix="start one with `autoclave pool up`") from error
        self._tasks = [asyncio.create_task(self._receive(reader)), asyncio.create_task(self._beat())]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._gone = True
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._fail_open()
        if self._writer is not None:
            self._writer.close()
            try:
                async with asyncio.timeout(5.0):
                    await self._writer.wait_closed()
            except (OSError, TimeoutError):
                log.debug("connection closed roughly", extra={"event": "client.closed"})

    async def call(self, method: str, **params: Any) -> Any:
        """Ask the pool and wait for its answer. A cancelled call is cancelled at the pool, too."""
        if self._gone:
            raise self._lost()
        number = next(self._numbers)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, "method": method, "params": {k: wire.encode(v) for k, v in params.items()}})
            return await future
        except asyncio.CancelledError:
            if not self._gone and self._writer is not None:
                self._writer.write(wire.pack({"cancel": number}))
            raise
        finally:
            self._open.pop(number, None)

    async def _send(self, frame: Mapping[str, Any]) -> None:
        if self._writer is None or self._gone:
            raise self._lost()
        try:
            self._writer.write(wire.pack(frame))
            await self._writer.drain()
        except ConnectionError as error:
            raise self._lost() from error

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                frame = await wire.read_frame(reader)
                future = self._open.get(frame["id"])
                if future is None or future.done():
                    continue
                if "error" in frame:
                    future.set_exception(wire.decode_error(frame["error"]))
                else:
                    future.set_result(wire.decode(frame["result"]))
        except (asyncio.IncompleteReadError, ConnectionError):
            log.debug("the pool has closed the connection", extra={"event": "client.gone"})
        except Exception:
            log.exception("a frame of the pool cannot be read", extra={"event": "client.bad_frame"})
        finally:  # whatever ended it: nobody may wait for an answer that nobody reads
            self._gone = True
            self._fail_open()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_s)
            try:
                await self._send({"beat": True})
            except PoolBroken:
                return

    def _fail_open(self) -> None:
        for future in self._open.values():
            if not future.done():
                future.set_exception(self._lost())

    def _lost(self) -> PoolBroken:
        return PoolBroken(f"the pool at {self._path} is gone", fix="its sessions ended as lost; connect again")
