"""Watches how much an instance has written, since an overlay's upper has no quota of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sandbox.errors import AutoclaveError

log = logging.getLogger(__name__)
_MIB = 1 << 20
_EVERY_S = 1.0
_SHARE = 20  # a measurement may take a twentieth of the time


async def watch_disk(
    usage: Callable[[], Awaitable[int]], used: Callable[[], bool], limit_mb: int, stop: Callable[[str], Awaitable[None]], name: str
) -> None:
    """Measure while `used` says that somebody works there; call `stop` with the reason once the limit is passed. Ends then."""
    loop = asyncio.get_running_loop()
    pause = _EVERY_S
    while True:
        await asyncio.sleep(pause)
        if not used():
            continue
        began = loop.time()
        try:
            held = await usage()
        except (AutoclaveError, OSError) as error:  # the instance is being replaced right now
            log.debug("disk usage not measured", extra={"namespace": name, "reason": str(error)})
            continue
        pause = max(_EVERY_S, (loop.time() - began) * _SHARE)
        if held > limit_mb * _MIB:
            reason = f"it wrote {held // _MIB} MiB, and limits.disk_mb is {limit_mb}"
            log.warning("session stopped", extra={"event": "instance.disk_limit", "namespace": name, "reason": reason})
            await stop(reason)
            return
