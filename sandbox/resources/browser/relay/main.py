"""Starts Chromium and serves its debugging pipe until one of the two ends. SIGTERM closes the browser, which saves its profile.

Part of the relay (Python 3.9, standard library only). One argument, JSON: `argv` of the browser, `directory` of the sockets,
`downloads`, and `sites` as port -> Unix socket.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
from typing import Any

from .clients import Connection, Server
from .sharing import Sharing
from .sites import lead

SECRET = "AUTOCLAVE_RELAY_SECRET"
_HIGH = 16  # descriptors above those that the browser expects its pipe at
_CLOSE_S = 20.0


class _Pipe(asyncio.Protocol):
    """Reads the browser's end."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._parts: list[bytes] = []
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        *whole, rest = data.split(b"\0")
        for part in whole:
            self._parts.append(part)
            message = b"".join(self._parts)
            self._parts.clear()
            self._sharing.received(message)
        if rest:
            self._parts.append(rest)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _start(argv: list[str]) -> tuple[int, int, int]:
    """Start the browser with its pipe at descriptors 3 and 4; return its pid, what to write to, and what to read from."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in (theirs_in, theirs_out)]
    actions = [(os.POSIX_SPAWN_DUP2, high[0], 3), (os.POSIX_SPAWN_DUP2, high[1], 4)]
    ours = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in (ours_out, ours_in)]
    for fd in (theirs_in, theirs_out, ours_in, ours_out):
        os.close(fd)
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
    for fd in high:
        os.close(fd)
    return pid, ours[0], ours[1]


async def serve(config: dict[str, Any]) -> int:
    """Run until the browser has ended; return its exit code."""
    loop = asyncio.get_running_loop()
    leads = [await lead(int(port), path) for port, path in config["sites"].items()]
    secret = os.environ.pop(SECRET)
    pid, out, back = _start(config["argv"])
    writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(out, "wb", 0))
    sharing = Sharing(writing.write)
    reading, pipe = await loop.connect_read_pipe(lambda: _Pipe(sharing), os.fdopen(back, "rb", 0))
    server = Server(sharing, config["downloads"], secret)
    first = asyncio.ensure_future(
        sharing.call("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": config["downloads"]})
    )
    await asyncio.wait({first, pipe.ended}, return_when=asyncio.FIRST_COMPLETED)
    if not first.done():  # it ended before it said anything, and will not
        first.cancel()
        return await loop.run_in_executor(None, _exit_code, pid) or 1
    first.result()
    directory = config["directory"]
    os.mkdir(f"{directory}/own", 0o700)
    listening = [await loop.create_unix_server(lambda: Connection(server), f"{directory}/cdp.sock")]
    os.chmod(f"{directory}/cdp.sock", 0o777)  # who may come in is decided by the directory
    listening.append(await loop.create_unix_server(lambda: Connection(server, trusted=True), f"{directory}/own/cdp.sock"))
    closing: list[asyncio.Task[None]] = []

    async def close() -> None:
        for each in listening:
            each.close()
        server.disconnect(everyone=True)
        asking = asyncio.ensure_future(sharing.call("Browser.close"))
        await asyncio.wait({asking}, timeout=_CLOSE_S)
        if not asking.done() or asking.exception() is not None:
            os.kill(pid, signal.SIGKILL)

    loop.add_signal_handler(signal.SIGTERM, lambda: closing.append(asyncio.ensure_future(close())))
    await pipe.ended
    for each in (*listening, *leads):
        each.close()
    reading.close()
    if not writing.is_closing():
        writing.abort()
    code = await loop.run_in_executor(None, _exit_code, pid)
    return code if not closing else 0


def _exit_code(pid: int) -> int:
    """Wait for its end."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    """Entry point."""
    sys.exit(asyncio.run(serve(json.loads(sys.argv[1]))) & 0xFF)
