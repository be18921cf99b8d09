"""The bubblewrap process on the host: started inside its bounds, its death noticed at once, its output kept within a cap."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sandbox.runtimes.group.tail import Tail


def launch(argv: Sequence[str], *, channel: socket.socket | None, output: int, pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a process with nothing of the manager's but the given descriptors. Blocking, a millisecond; called in a spawner."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL if channel is None else channel.fileno(),
        stdout=output,
        stderr=output,
        cwd="/",
        env={},
        umask=0o077,
        pass_fds=pass_fds,
    )


class Child:
    """A started process: a pidfd tells the event loop of its end, so that no thread waits and no signal handler is needed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.ended = asyncio.Event()
        self.exit_code: int | None = None
        self._pidfd = os.pidfd_open(process.pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        code = self._process.poll()
        if code is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self.exit_code = 128 - code if code < 0 else code
            self.ended.set()

    def signal(self, number: int) -> None:
        """Signal it, not yet reaped as it is."""
        if self.exit_code is None:
            self._process.send_signal(number)


class Output:
    """Reads a process's output pipe to its end, so that the process never blocks on it."""

    def __init__(self, read_end: int, log: Path | None, cap: int) -> None:
        self._fd = read_end
        self._tail = Tail(log, cap)
        self._taken = 0
        os.set_blocking(read_end, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(read_end, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        self._taken += len(data)
        self._tail.take(data)

    def tail(self, limit: int = 8192) -> bytes:
        return self._tail.last(limit)

    def drain(self) -> None:
        """Take what is waiting now (after the end of the process)."""
        while self._fd >= 0:
            before = self._taken, self._fd
            self._read()
            if (self._taken, self._fd) == before:
                return

    def close(self) -> None:
        """Stop reading; the process, if it lives, gets SIGPIPE when it writes."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        self._tail.close()
