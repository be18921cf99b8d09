"""Where a browser is reached: by its clients, and by the manager alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandbox.errors import InstanceLost
from sandbox.ports import LiveResource
from sandbox.resources.browser import cdp

SOCKET_DIR = "/run/server"
SOCKET = "cdp.sock"  # the agent's
OWN = "own/cdp.sock"  # the manager's: other host users cannot pass its directory


def address(path: str) -> str:
    """Return the address that Playwright's `connect_over_cdp` takes for a socket."""
    return f"ws+unix://{path}:/"


@asynccontextmanager
async def connected(live: LiveResource) -> AsyncIterator[cdp.Cdp]:
    """Hold the manager's own connection; raises InstanceLost."""
    if live.socket_dir is None:
        raise InstanceLost(f"resource {live.spec.name} has no socket directory")
    async with cdp.connect(str(live.socket_dir / OWN)) as browser:
        yield browser
