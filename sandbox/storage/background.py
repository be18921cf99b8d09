"""Deleting what is no longer wanted, off the critical path and by few hands.

Unwanted directories are first renamed into a `trash` directory of the same filesystem, which makes them unreachable at once.
What a killed manager left in the trash is deleted at the next sweep.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from sandbox.aio import in_thread
from sandbox.errors import LimitReached

logger = logging.getLogger(__name__)

HANDS = 2
MOST_WAITING = 1_000


class Deletions:
    """The directories that wait for deletion, and the threads that delete them."""

    def __init__(self) -> None:
        self._hands = ThreadPoolExecutor(HANDS, thread_name_prefix="autoclave-delete")
        self._waiting: set[Future[None]] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()

    @property
    def waiting(self) -> int:
        with self._lock:
            return len(self._waiting)

    def throw_away(self, path: Path, trash: Path, prepare: Callable[[Path], None]) -> None:
        """Rename `path` into `trash`, and delete it there later after calling `prepare` on it; a path that does not exist is no
        error. Blocking, but short."""
        name = f"{trash}/{secrets.token_hex(8)}"
        try:
            if os.geteuid() != 0:
                os.chmod(path, 0o700)  # moving a directory writes to it
            os.rename(path, name)
        except FileNotFoundError:
            return
        with self._lock:
            job = self._hands.submit(self._delete, name, prepare)
            self._waiting.add(job)
        job.add_done_callback(self._done)

    async def room(self, timeout: float) -> None:
        """Wait until the backlog is below its bound; raise LimitReached."""
        if self.waiting < MOST_WAITING:
            return
        if not await in_thread(self._shrunk, timeout):
            raise LimitReached(
                f"{self.waiting} directories wait for deletion (bound: {MOST_WAITING})",
                fix="Use a smaller pool or a faster disk for the store (AUTOCLAVE_STORE)",
            )

    async def close(self, timeout: float) -> int:
        """Finish, for at most `timeout` seconds; return how many directories are left to the next sweep."""
        return await in_thread(self._close, timeout)

    def _close(self, timeout: float) -> int:
        with self._lock:
            jobs = set(self._waiting)
        left = wait(jobs, timeout=timeout).not_done
        self._stop.set()
        self._hands.shutdown(wait=True, cancel_futures=True)
        if left:
            logger.warning("deletions left for the next sweep", extra={"directories": len(left)})
        return len(left)

    def _shrunk(self, timeout: float) -> bool:
        with self._lock:
            jobs = set(self._waiting)
        wait(jobs, timeout=timeout, return_when="FIRST_COMPLETED")
        return self.waiting < MOST_WAITING

    def _delete(self, path: str, prepare: Callable[[Path], None]) -> None:
        try:
            prepare(Path(path))
            delete_tree(path, stop=self._stop.is_set)
        except OSError:
            logger.exception("could not delete a directory; the next sweep tries again", extra={"path": path})

    def _done(self, job: Future[None]) -> None:
        with self._lock:
            self._waiting.discard(job)


def delete_tree(path: str, *, stop: Callable[[], bool] = lambda: False) -> None:
    """Delete a directory that nothing uses, whatever its modes, depth and length of paths.

    Each inner directory that is not empty is first moved up beside the top: an agent can nest deeper than any recursion, open
    file limit or PATH_MAX allows.
    """
    pending = [(path, os.path.dirname(path))]
    failed: OSError | None = None
    while pending and not stop():
        directory, base = pending.pop()
        try:
            inner = _empty(directory, base)
            try:
                os.rmdir(directory)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY or inner is None:
                    raise
                pending.append((directory, base))
            pending += inner or []
        except FileNotFoundError:
            continue
        except OSError as error:
            failed = error
    if failed is not None:
        raise failed


def _empty(directory: str, base: str) -> list[tuple[str, str]] | None:
    """Delete the files of one directory and move its directories up to `base`; return each with its own base, None when there was
    nothing to do."""
    if os.geteuid() != 0:
        os.chmod(directory, 0o700)
    inner = []
    seen = False
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                seen = True
                if entry.is_dir(follow_symlinks=False):
                    inner += _move_up(entry.name, descriptor, directory, base)
                else:
                    os.unlink(entry.name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    return inner if seen else None


def _move_up(name: str, parent: int, directory: str, base: str) -> list[tuple[str, str]]:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        if os.geteuid() != 0:
            os.chmod(name, 0o700, dir_fd=parent)
        moved = f"{base}/{secrets.token_hex(8)}"
        try:
            os.rename(name, moved, src_dir_fd=parent)
        except OSError as error:
            if error.errno != errno.EXDEV:  # a btrfs subvolume's content cannot leave it
                raise
            return [(f"{directory}/{name}", directory)]
        return [(moved, base)]
    return []
