"""The host's end of the command channel: one socket to the init of one sandbox, many calls told apart by id."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from sandbox.aio import run_shielded
from sandbox.errors import InstanceLost, LimitReached
from sandbox.model import ExecResult, Limits
from sandbox.runtimes.channel import wire
from sandbox.runtimes.channel.frames import Decoder, Exit, Frame, Malformed, unpack, unpack_exit, unpack_number

_GRACE_S = 5.0  # the inside ends a command at its limit; the host waits this much longer before it calls the inside lost
_FILE_S = 60.0
_FOR_EVER_S, _ENDLESS = 1e9, 1 << 62  # of a server: its life and its output have no bound of the channel's
_CREDIT = 256 << 10  # stdin on its way to a command that has not read it yet


class _Call:
    """A request that waits for its answer. `cap` bounds each stream (or the file); with a `sink` nothing is kept."""

    __slots__ = ("cap", "credit", "future", "kept", "sink", "wake")

    def __init__(self, cap: int, future: asyncio.Future[Frame], sink: Callable[[bytes], None] | None = None) -> None:
        self.cap, self.sink = cap, sink
        self.future = future
        self.kept: dict[int, bytearray] = {}
        self.credit = _CREDIT
        self.wake = asyncio.Event()

    def take(self, kind: int, data: bytes) -> None:
        if self.sink is not None:
            self.sink(data)
            return
        kept = self.kept.setdefault(kind, bytearray())
        if len(kept) + len(data) > self.cap:
            raise Malformed("more output than was asked for")
        kept += data

    def bytes(self, kind: int) -> bytes:
        return bytes(self.kept.get(kind, b""))


class Channel(asyncio.Protocol):
    """Runs commands and moves files inside one sandbox. Bytes are never decoded.

    Everything that comes from inside is checked: what no honest init would send ends the channel, and every waiter gets
    InstanceLost at once.
    """

    def __init__(self, name: str, *, limits: Limits, env: Mapping[str, str], workdir: str) -> None:
        self._name, self._limits, self._env, self._workdir = name, limits, dict(env), workdir
        self._decoder = Decoder()
        self._calls: dict[int, _Call] = {}
        self._last = self._former = 0  # ids: the newest call's, and the newest of an earlier channel over this transport
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._hello: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._dead: str | None = None

    @classmethod
    async def open(cls, end: socket.socket, name: str, *, limits: Limits, env: Mapping[str, str], workdir: str) -> Channel:
        """Take over the host's end of the socket pair."""
        channel = cls(name, limits=limits, env=env, workdir=workdir)
        end.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=end)
        return channel

    @classmethod
    def over(
        cls,
        transport: asyncio.Transport,
        name: str,
        *,
        limits: Limits,
        env: Mapping[str, str],
        workdir: str,
        before: Channel | None = None,
    ) -> Channel:
        """Speak over a transport that somebody else reads: what comes is given to `data_received`. `before` spoke over it until
        now: it is let go, and what is still answered to it is dropped."""
        channel = cls(name, limits=limits, env=env, workdir=workdir)
        if before is not None:
            channel._former = before._last
            channel._last = before._last
            channel._decoder = before._decoder  # it may hold the first half of a frame
            before._let_go()
        channel.connection_made(transport)
        return channel

    @property
    def dead(self) -> str | None:
        """Why the channel ended, None while it works."""
        return self._dead

    async def hello(self) -> bytes:
        """Wait for the init's first frame: its own /proc/self/status. The caller sets the deadline."""
        return await asyncio.shield(self._hello)

    # what callers do

    async def run(
        self,
        argv: Sequence[str | bytes],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limit_s: float | None = None,
        output_bytes: int | None = None,
    ) -> ExecResult:
        """Run a command; `env` is added to the plan's. A death by signal n is exit code 128 + n, a command that cannot be started
        127 or 126. stdout and stderr are each cut at `output_bytes`. At `limit_s` its process group and every descendant die;
        when it ends by itself, processes that it left in the background live on. Raises InstanceLost."""
        limit = self._limits.action_s if limit_s is None else limit_s
        cap = self._limits.output_bytes if output_bytes is None else output_bytes
        payload = _run_payload(argv, {**self._env, **(env or {})}, cwd or self._workdir, limit, cap, stdin=bool(stdin))
        number, call = self._begin(cap)
        try:
            async with asyncio.timeout(limit + _GRACE_S):
                done = self._exit(await self._conduct(number, call, self._command(number, call, payload, stdin)))
        except TimeoutError:
            raise self._lost(f"no answer {_GRACE_S:g} s after the limit of a command ({limit:g} s)") from None
        finally:
            self._calls.pop(number, None)
        return ExecResult(
            exit_code=done.code,
            stdout=call.bytes(wire.OUT),
            stderr=call.bytes(wire.ERR),
            truncated=done.truncated,
            timed_out=done.timed_out,
            duration_s=done.seconds,
        )

    async def serve(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, output: Callable[[bytes], None]
    ) -> asyncio.Future[Frame]:
        """Start a command that runs until it ends by itself or is killed; `output` gets what it writes to either stream. The future
        is done when it has ended, also by the channel's end."""
        payload = _run_payload(argv, env, cwd, _FOR_EVER_S, _ENDLESS, stdin=False)
        number, call = self._begin(_ENDLESS, output)
        call.future.add_done_callback(lambda _: self._calls.pop(number, None))
        await self._send(wire.RUN, number, payload)
        return call.future

    async def renew(self, *, timeout: float = 10.0) -> list[bytes]:
        """Kill every process except the init and remove what outlives processes; return what could not be. Raises InstanceLost."""
        return unpack((await self._simple(wire.RENEW, timeout)).payload)

    async def read_file(self, path: str, *, limit_bytes: int = 16_000_000) -> bytes:
        """Return a file's bytes. Raises OSError (FileNotFoundError, ...) as the inside met it, LimitReached above `limit_bytes`."""
        number, call = self._begin(limit_bytes)
        payload = wire.pack([self._absolute(path), b"%d" % limit_bytes])
        await self._file_call(number, call, ((wire.READ, payload),), path, f"{limit_bytes} bytes (limit_bytes)")
        return call.bytes(wire.CHUNK)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write beside the target, then rename; parents are made. Raises OSError as the inside met it."""
        number, call = self._begin(0)
        pieces = [(wire.DATA, data[at : at + wire.CHUNK_BYTES]) for at in range(0, len(data), wire.CHUNK_BYTES)]
        head = (wire.WRITE, wire.pack([self._absolute(path), b"%d" % mode]))
        await self._file_call(
            number, call, (head, *pieces, (wire.COMMIT, b"")), path, f"{self._limits.file_mb} MiB (limits.file_mb)"
        )

    async def quiesce(self, *, timeout: float = 10.0) -> None:
        """Kill every process except the init until none is left; commands that run end with code 137. Raises InstanceLost."""
        await self._simple(wire.QUIESCE, timeout)

    async def ping(self, *, timeout: float = 5.0) -> float:
        """Return the seconds of one round trip."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self._simple(wire.PING, timeout)
        return loop.time() - started

    async def facts(self, *, timeout: float = 5.0) -> dict[str, bytes]:
        """Return what the init sees of its own confinement, and what came of trying to leave it."""
        found = unpack((await self._simple(wire.FACTS, timeout)).payload)
        return {name.decode("ascii", "replace"): value for name, _, value in (line.partition(b"=") for line in found)}

    async def close(self) -> None:
        """End the channel; the init inside ends with it, and its whole namespace with the init."""
        self.fail("it was closed")

    def fail(self, reason: str) -> None:
        """Mark the channel dead and wake every waiter with InstanceLost. The first reason stays."""
        if self._dead is None:
            self._dead = reason
        self._writable.set()
        for call in self._calls.values():
            call.wake.set()
            if not call.future.done():
                call.future.set_exception(self._error())
                call.future.exception()  # a waiter that was cancelled never asks; this keeps asyncio quiet about it
        if not self._hello.done():
            self._hello.set_exception(self._error())
            self._hello.exception()
        if self._transport is not None:
            self._transport.abort()

    def _let_go(self) -> None:
        """End this channel and leave the transport to its successor."""
        self._transport = None
        self.fail("the sandbox was ended")

    # requests

    def _begin(self, cap: int, sink: Callable[[bytes], None] | None = None) -> tuple[int, _Call]:
        if self._dead is not None:
            raise self._error()
        self._last += 1
        number = self._last & 0xFFFFFFFF
        call = self._calls[number] = _Call(cap, asyncio.get_running_loop().create_future(), sink)
        return number, call

    async def _send(self, kind: int, number: int, payload: bytes = b"") -> None:
        if self._dead is not None or self._transport is None:
            raise self._error()
        self._transport.write(wire.encode(kind, number, payload))
        if not self._writable.is_set():
            await self._writable.wait()

    async def _conduct(self, number: int, call: _Call, sending: Coroutine[Any, Any, None]) -> Frame:
        """Send a call and wait for its last frame; when the caller is cancelled, have the inside end the call first."""
        try:
            await sending
            return await asyncio.shield(call.future)
        except asyncio.CancelledError:
            if not call.future.done():
                await run_shielded(self._abandon(number, call))
            raise

    async def _abandon(self, number: int, call: _Call) -> None:
        try:
            async with asyncio.timeout(_GRACE_S):
                await self._send(wire.KILL, number)
                await asyncio.wait([call.future])
        except (TimeoutError, InstanceLost):
            self.fail("a call could not be ended inside")

    async def _command(self, number: int, call: _Call, payload: bytes, stdin: bytes) -> None:
        """Send a command, and its stdin as the command takes it, so that neither end holds much of it."""
        await self._send(wire.RUN, number, payload)
        at = 0
        while at < len(stdin) and call.credit != wire.NO_MORE and not call.future.done():
            if call.credit == 0:
                call.wake.clear()
                await call.wake.wait()
                continue
            piece = stdin[at : at + min(call.credit, 65536)]
            call.credit -= len(piece)
            at += len(piece)
            await self._send(wire.STDIN, number, piece)
        if stdin and not call.future.done():
            await self._send(wire.STDIN_END, number)

    async def _file_frames(self, number: int, call: _Call, frames: Sequence[tuple[int, bytes]]) -> None:
        for kind, payload in frames:
            if not call.future.done():
                await self._send(kind, number, payload)

    async def _file_call(self, number: int, call: _Call, frames: Sequence[tuple[int, bytes]], path: str, bound: str) -> None:
        try:
            async with asyncio.timeout(_FILE_S):
                answer = await self._conduct(number, call, self._file_frames(number, call, frames))
        except TimeoutError:
            raise self._lost(f"no answer within {_FILE_S:g} s about {path}") from None
        finally:
            self._calls.pop(number, None)
        if answer.kind is wire.FAIL:
            code = _code(answer)
            if code == errno.EFBIG:
                raise LimitReached(f"{path} is larger than {bound}", fix="raise that limit")
            raise OSError(code, os.strerror(code), path)
        if answer.kind is not wire.DONE:
            raise self._lost(f"an answer about {path} of the wrong kind")

    async def _simple(self, kind: int, timeout: float) -> Frame:
        number, call = self._begin(0)
        try:
            async with asyncio.timeout(timeout):
                await self._send(kind, number)
                return await asyncio.shield(call.future)
        except TimeoutError:
            raise self._lost(f"no answer within {timeout:g} s") from None
        finally:
            if self._dead is None and not call.future.done():
                call.future.cancel()  # a late answer is dropped, see `_deliver`
            else:
                self._calls.pop(number, None)

    def _exit(self, frame: Frame) -> Exit:
        if frame.kind is wire.FAIL:
            why = os.strerror(_code(frame))
            raise LimitReached(f"the command could not be taken on in {self._name}: {why}", fix="run fewer at once")
        try:
            return unpack_exit(frame.payload)
        except Malformed as error:
            raise self._lost(str(error)) from error

    def _absolute(self, path: str) -> bytes:
        if "\0" in path:
            raise ValueError("a path cannot hold a NUL character")
        return os.fsencode(os.path.join(self._workdir, path))

    def _error(self) -> InstanceLost:
        return InstanceLost(
            f"the command channel of {self._name} is gone: {self._dead or 'it was never opened'}", fix="ask for a new session"
        )

    def _lost(self, reason: str) -> InstanceLost:
        self.fail(reason)
        return self._error()

    # what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._deliver(frame)
        except Malformed as error:
            self.fail(f"the inside sent {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail("the inside has ended" if exc is None else f"the inside has ended ({exc})")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _deliver(self, frame: Frame) -> None:
        if frame.kind is wire.HELLO:
            if self._hello.done():
                raise Malformed("a second greeting")
            self._hello.set_result(frame.payload)
            return
        call = self._calls.get(frame.id)
        if call is None:
            if frame.id <= self._former:
                return
            raise Malformed("an answer to no call")
        if frame.kind in (wire.OUT, wire.ERR, wire.CHUNK):
            call.take(frame.kind, frame.payload)
        elif frame.kind is wire.CREDIT:
            amount = unpack_number(frame.payload)
            call.credit = (
                wire.NO_MORE if amount == wire.NO_MORE or call.credit == wire.NO_MORE else min(call.credit + amount, _CREDIT)
            )
            call.wake.set()
        else:  # EXIT, DONE, FAIL: the last frame of a call
            call.wake.set()
            if call.future.cancelled():
                del self._calls[frame.id]
            elif not call.future.done():
                call.future.set_result(frame)


def _run_payload(argv: Sequence[str | bytes], env: Mapping[str, str], cwd: str, limit: float, cap: int, *, stdin: bool) -> bytes:
    words = [os.fsencode(word) for word in argv]
    pairs = [os.fsencode(f"{name}={value}") for name, value in env.items()]
    if not words or not words[0]:
        raise ValueError("a command needs a program name")
    if any(b"\0" in word for word in (*words, *pairs, os.fsencode(cwd))):
        raise ValueError("a command's words, environment and directory cannot hold a NUL character; pass such bytes on stdin")
    numbers = (max(0, int(limit * 1000)), max(0, cap), int(stdin), len(words))
    payload = wire.pack([*(b"%d" % n for n in numbers), os.fsencode(cwd), *words, *pairs])
    if len(payload) > wire.MAX_FRAME:
        raise LimitReached(
            f"the command's words and environment take {len(payload)} bytes, above {wire.MAX_FRAME}",
            fix="pass data on stdin or in a file",
        )
    return payload


def _code(frame: Frame) -> int:
    """The error number of a failure. The inside may say anything: what no number can be is one that nobody has a name for."""
    return min(int.from_bytes(frame.payload, "big"), 2**31 - 1)
