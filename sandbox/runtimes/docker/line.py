"""The line to a container's first process: one attached stream, over which one command channel after another speaks."""

from __future__ import annotations

import asyncio

from sandbox.runtimes.channel.channel import Channel
from sandbox.runtimes.docker.streams import STDERR, STDOUT, Attached

_HEAD = 8
_TAIL = 8192


class Line(asyncio.Protocol):
    """Takes the engine's stream apart: stdout is the channel's, the end of stderr is kept for messages."""

    def __init__(self, attached: Attached) -> None:
        """Take over a stream on which nothing was said yet: the container is made and not started."""
        self._attached = attached
        self._buffer = bytearray()
        self._said = bytearray()
        self._channel: Channel | None = None
        self.ended = asyncio.Event()
        self.transport: asyncio.Transport = attached.writer.transport  # type: ignore[assignment]
        self.transport.set_protocol(self)

    def give_to(self, channel: Channel) -> None:
        """From now on this channel speaks; the one before it has been let go."""
        self._channel = channel

    def said(self, limit: int = _TAIL) -> bytes:
        """The end of what the first process wrote to stderr."""
        return bytes(self._said[-limit:])

    def close(self, reason: str) -> None:
        if self._channel is not None:
            self._channel.fail(reason)
        self.transport.abort()
        self.ended.set()

    # what the transport calls

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _HEAD:
            size = int.from_bytes(self._buffer[at + 4 : at + _HEAD], "big")
            if len(self._buffer) - at < _HEAD + size:
                break
            stream, payload = self._buffer[at], bytes(self._buffer[at + _HEAD : at + _HEAD + size])
            at += _HEAD + size
            if stream == STDOUT and self._channel is not None:
                self._channel.data_received(payload)
            elif stream == STDERR:
                self._said += payload
                del self._said[:-_TAIL]
        del self._buffer[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        if self._channel is not None:
            self._channel.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._channel is not None:
            self._channel.pause_writing()

    def resume_writing(self) -> None:
        if self._channel is not None:
            self._channel.resume_writing()
