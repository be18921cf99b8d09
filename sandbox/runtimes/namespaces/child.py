"""The bubblewrap process on the host: started inside its bounds, its death noticed at once, its output kept within a cap."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

_log = logging.getLogger(__name__)
_TAIL = 8192


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
    """Reads a process's output pipe to its end, so that the process never blocks on it: the last few kilobytes are kept in
    memory, and up to `cap` bytes in `log`, where the older half makes room (`<log>.1`)."""

    def __init__(self, read_end: int, log: Path | None, cap: int) -> None:
        self._fd, self._log, self._cap = read_end, log, cap
        self._tail = bytearray()
        self._file = -1 if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0 if self._file < 0 else os.fstat(self._file).st_size
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
        self._tail += data
        del self._tail[:-_TAIL]
        if self._file >= 0:
            self._write(data)

    def _write(self, data: bytes) -> None:
        assert self._log is not None
        try:
            if self._size + len(data) > self._cap // 2:
                os.replace(self._log, f"{self._log}.1")
                os.close(self._file)
                self._file = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                self._size = 0
            self._size += os.write(self._file, data[-(self._cap // 2) :])
        except OSError as error:  # a full disk must not end the server that writes the log
            _log.warning("log not written", extra={"path": str(self._log), "reason": str(error)})

    def tail(self, limit: int = _TAIL) -> bytes:
        return bytes(self._tail[-limit:])

    def drain(self) -> None:
        """Take what is waiting now (after the end of the process)."""
        while self._fd >= 0:
            before = len(self._tail), self._fd
            self._read()
            if (len(self._tail), self._fd) == before:
                return

    def close(self) -> None:
        """Stop reading; the process, if it lives, gets SIGPIPE when it writes."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
