"""One writer per home: an exclusive `flock` beside the ledger, which the kernel drops when its holder dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.errors import PoolBroken

POLL_S = 0.02


@asynccontextmanager
async def held(path: Path, *, wait_s: float = 0.0) -> AsyncIterator[None]:
    """Hold the lock file at `path`; raise PoolBroken with the holder's process id when it is not free within `wait_s` seconds."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        if not await _taken(descriptor, wait_s):
            raise PoolBroken(
                f"the home {path.parent} is in use by process {_holder(descriptor)}",
                fix="use that pool (Pool.connect(), `autoclave pool status`), or end it first (`autoclave pool drain`)",
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


async def _taken(descriptor: int, wait_s: float) -> bool:
    try:
        async with asyncio.timeout(wait_s):
            while not _try(descriptor):  # noqa: ASYNC110 - another process holds it, so there is no event to wait for
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return _try(descriptor)
    return True


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "(unknown)"
