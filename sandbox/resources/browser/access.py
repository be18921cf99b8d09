"""Where a browser is reached: by its clients, and by the manager alone.

The manager's socket lies in a directory that other host users cannot pass. Where the manager is an ordinary user, an agent's
sandbox runs under the same id; so the relay asks for a secret, too, which lies beside the socket directory, where no sandbox sees
it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.errors import InstanceLost
from sandbox.ports import LiveResource
from sandbox.resources.browser import cdp

SOCKET_DIR = "/run/server"
SOCKET = "cdp.sock"  # the agent's
OWN = "own/cdp.sock"  # the manager's
SECRET_VARIABLE = "AUTOCLAVE_RELAY_SECRET"
_SECRET_FILE = "secret"


def address(path: str) -> str:
    """Return the address that Playwright's `connect_over_cdp` takes for a socket."""
    return f"ws+unix://{path}:/"


def trusted_address(live: LiveResource) -> str:
    """Return what `cdp.connect` takes for the manager's own connection: the socket, and the file with the secret."""
    directory = _directory(live)
    return f"{directory / OWN}#{directory.parent / _SECRET_FILE}"


def keep_secret(live: LiveResource, secret: str) -> None:
    """Write it where the manager's own readers find it, for as long as the server's directory is there."""
    path = _directory(live).parent / _SECRET_FILE
    if not path.exists():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w", encoding="ascii") as file:
            file.write(secret)


def _directory(live: LiveResource) -> Path:
    if live.socket_dir is None:
        raise InstanceLost(f"resource {live.spec.name} has no socket directory")
    return live.socket_dir


@asynccontextmanager
async def connected(live: LiveResource) -> AsyncIterator[cdp.Cdp]:
    """Hold the manager's own connection; raises InstanceLost."""
    async with cdp.connect(trusted_address(live)) as browser:
        yield browser
