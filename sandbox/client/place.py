"""Where a pool listens, and that nobody else put a socket there."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from sandbox.errors import PoolBroken
from sandbox.settings import Settings


def socket_path(settings: Settings) -> Path:
    """Return the pool's socket: in a directory of its own that only its user may enter."""
    return settings.run / "pool" / "pool.sock"


def listens(settings: Settings) -> bool:
    """Return whether a pool answers there; a killed one leaves its socket behind."""
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(5)
        try:
            trial.connect(str(socket_path(settings)))
        except OSError:
            return False
        return True


def ours_alone(directory: Path) -> None:
    """Raise PoolBroken unless the directory is the present user's and closed to all others."""
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PoolBroken(
            f"{directory} is not a directory that only this user may enter",
            fix=f"remove it, or set AUTOCLAVE_RUN elsewhere: {directory}",
        )
