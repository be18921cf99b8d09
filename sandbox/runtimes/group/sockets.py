"""The directories through which clients reach an instance's servers.

A server's own directory lives as long as the server. What clients are told is a link to it below the generation's name: taking that
away revokes the address without a change inside the server. The name of an instance's directory is random and its parent cannot
be listed, so that no other user of the machine finds it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import RuntimeUnavailable
from sandbox.model import Role
from sandbox.settings import Settings

LONGEST = 107  # of a Unix socket's path
_SOCKET_NAME = "/.s.PGSQL.5432.lock"


class SocketDirs:
    """The directories of one instance. Blocking, a few system calls each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.token = secrets.token_hex(6)
        self._top = settings.run / self.token
        self._counter = itertools.count(1)
        self._published: Path | None = None

    def for_server(self, resource: str) -> Path:
        """Make a directory that the server's user can write, and everybody who knows its name can pass."""
        self._make_top()
        path = self._made_for(resource)
        path.mkdir(mode=0o711)
        path.chmod(0o711)
        uid = self._settings.users.of(Role.SERVER)
        if uid is not None:
            os.chown(path, uid, uid)
        return path

    def renew(self, path: Path) -> Path:
        """Move a running server's directory to a new name: who still knows the old one finds nothing there. What is mounted of it
        stays, the server's own view too."""
        fresh = self._made_for(path.name)
        path.parent.rename(fresh.parent)  # with what its resource keeps beside it
        return fresh

    def _made_for(self, resource: str) -> Path:
        path = self._top / f"s{next(self._counter)}" / resource
        if len(os.fsencode(path)) + len(_SOCKET_NAME) > LONGEST:
            raise RuntimeUnavailable(
                f"the path of a socket would be too long: {path}", fix="set AUTOCLAVE_RUN to a directory with a short path"
            )
        path.parent.mkdir(mode=0o711)
        path.parent.chmod(0o711)
        return path

    def publish(self, generation: int, servers: Iterable[tuple[str, Path]]) -> None:
        """Make the generation's addresses."""
        self._make_top()
        self._published = self._top / f"g{generation}"
        self._published.mkdir(mode=0o711)
        self._published.chmod(0o711)
        for resource, path in servers:
            (self._published / resource).symlink_to(path)

    def address(self, resource: str) -> Path:
        """Return the generation's directory of a resource; there is nothing at it once it was revoked."""
        return (self._published or self._top / "none") / resource

    def revoke(self) -> None:
        if self._published is not None:
            shutil.rmtree(self._published, ignore_errors=True)

    def drop(self, path: Path) -> None:
        """Remove the directory of a server that has ended."""
        shutil.rmtree(path.parent, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self._top, ignore_errors=True)

    def _make_top(self) -> None:
        if not self._top.is_dir():
            own_run_directory(self._settings.run)
            self._top.mkdir(mode=0o711)
            self._top.chmod(0o711)


def own_run_directory(run: Path) -> None:
    """Make the directory of all instances, or accept ours; refuse a stranger's, since its name can be guessed."""
    try:
        run.mkdir(mode=0o711, parents=True)
        run.chmod(0o711)
    except FileExistsError:
        pass
    except OSError as error:
        raise RuntimeUnavailable(f"cannot make {run}: {error.strerror}", fix="set AUTOCLAVE_RUN to a directory of yours") from error
    found = os.lstat(run)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise RuntimeUnavailable(f"{run} is not a directory of this user", fix="remove it, or set AUTOCLAVE_RUN to another place")


def sweep_sockets(settings: Settings, keep: frozenset[str], *, dry_run: bool = False) -> tuple[str, ...]:
    """Remove the directories of instances that are not in `keep` (with `dry_run`: name them). Blocking."""
    gone = []
    if settings.run.is_dir() and os.lstat(settings.run).st_uid == os.geteuid():
        for path in settings.run.iterdir():
            if path.name not in keep and path.is_dir():
                if not dry_run:
                    shutil.rmtree(path, ignore_errors=True)
                gone.append(str(path))
    return tuple(gone)


def remove_empty(settings: Settings) -> None:
    """Remove the directory of sockets when nobody uses it."""
    with contextlib.suppress(OSError):
        settings.run.rmdir()
