"""Starts processes under another user id without copying the manager.

The standard library forks when it is told to change the user, which copies the page tables of a large manager (90 ms at 300 MB)
and stops its event loop meanwhile; without a change it uses vfork (1 ms). The kernel keeps user ids per thread, so one thread for
each role gives up root for good, by system calls that touch that thread alone, and what it starts is born under the role's id. The
kernel makes the whole manager undumpable at that moment, so that nothing of the role's id can open its memory.

The thread lives as long as the manager. bubblewrap's `--die-with-parent` means the thread that started it.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from sandbox.aio import run_shielded
from sandbox.errors import RuntimeUnavailable

T = TypeVar("T")
# setgroups, setresgid, setresuid: the C library's own functions would change every thread
_CALLS = {"x86_64": (116, 119, 117), "aarch64": (159, 149, 147)}


class Spawner:
    """A thread under one user id (None: the manager's own)."""

    def __init__(self, uid: int | None) -> None:
        self._uid = uid
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name=f"autoclave-spawner-{uid}", daemon=True).start()

    async def call(self, function: Callable[[], T]) -> T:
        """Run a short blocking function in the thread; when cancelled, wait for it before re-raising."""
        future: Future[T] = Future()
        self._work.put((future, function))

        async def wait() -> T:
            return await asyncio.wrap_future(future)

        return await run_shielded(wait())

    def _serve(self) -> None:
        problem: Exception | None = None
        try:
            if self._uid is not None:
                _become(self._uid)
        except (OSError, RuntimeUnavailable) as error:
            problem = error
        while True:
            future, function = self._work.get()
            try:
                if problem is not None:
                    raise problem
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - whoever waits gets it
                future.set_exception(error)


def _become(uid: int) -> None:
    """Give up root in this thread only: groups first, the user last."""
    machine = os.uname().machine
    if machine not in _CALLS:
        raise RuntimeUnavailable(f"user ids cannot be changed per thread on {machine}", fix="run as an ordinary user")
    call = ctypes.CDLL(None, use_errno=True).syscall
    groups, group, user = _CALLS[machine]
    for number, arguments in ((groups, (0, 0)), (group, (uid, uid, uid)), (user, (uid, uid, uid))):
        if call(number, *arguments) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot become user {uid}: {os.strerror(code)}")


@functools.lru_cache(maxsize=16)
def _of_process(uid: int | None, pid: int) -> Spawner:  # a forked manager has no threads of its parent's
    return Spawner(uid)


def spawner(uid: int | None) -> Spawner:
    """Return this process's thread for that user id, started when first asked for."""
    return _of_process(uid, os.getpid())
