"""A client's connection on the Unix socket: WebSocket for Playwright, NUL-ended JSON for the manager's own readers.

Part of the relay (Python 3.9, standard library only).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from typing import Any, cast

from . import websocket
from .sharing import CallFailed, Message, Sharing

WAITING_BYTES = 256 << 20  # for a client that does not read: then it is dropped


class Connection(asyncio.Protocol):
    """One client. What it says before it has its session waits."""

    def __init__(self, server: Server, *, trusted: bool = False) -> None:
        self._server = server
        self.trusted = trusted
        self._transport: asyncio.Transport | None = None
        self._greeting = bytearray()
        self._frames: websocket.Frames | None = None
        self._plain: bytearray | None = None
        self._waiting: list[Message] | None = []
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.leaving(self, self._joining)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            for text in self._texts(data):
                message = json.loads(text)
                if not isinstance(message, dict):
                    raise websocket.Refused("not a call")
                if self._waiting is not None:
                    self._waiting.append(message)
                else:
                    self._server.asked(self, message)
        except (websocket.Refused, ValueError):
            self.close()

    def _texts(self, data: bytes) -> list[bytes]:
        if self._plain is not None:
            return self._split(data)
        if self._frames is not None:
            return self._messages(self._frames, data)
        self._greeting += data
        if self._greeting[:1] == b"{":
            self._plain = bytearray()
            self._join()
            return self._split(bytes(self._greeting))
        head, end, rest = bytes(self._greeting).partition(b"\r\n\r\n")
        if not end:
            if len(head) > websocket.GREETING_BYTES:
                raise websocket.Refused("a greeting without an end")
            return []
        _, answer = websocket.greeting(head)
        self._write(answer)
        self._frames = websocket.Frames()
        self._join()
        return self._messages(self._frames, rest)

    def _split(self, data: bytes) -> list[bytes]:
        assert self._plain is not None
        self._plain += data
        *found, rest = bytes(self._plain).split(b"\0")
        self._plain = bytearray(rest)
        if len(rest) > websocket.MESSAGE_BYTES:
            raise websocket.Refused("a message is too long")
        return found

    def _messages(self, frames: websocket.Frames, data: bytes) -> list[bytes]:
        found = []
        for kind, payload in frames.feed(data):
            if kind == websocket.TEXT:
                found.append(payload)
            elif kind == websocket.PING:
                self._write(websocket.frame(websocket.PONG, payload))
            elif kind == websocket.CLOSE:
                self._write(websocket.frame(websocket.CLOSE, payload))
                if self._transport is not None:
                    self._transport.close()
        return found

    def _join(self) -> None:
        self._joining = asyncio.ensure_future(self._joined())

    async def _joined(self) -> None:
        try:
            await self._server.sharing.join(self)
        except CallFailed:
            self.close()
            return
        waiting, self._waiting = self._waiting or [], None
        for message in waiting:
            self._server.asked(self, message)

    def deliver(self, message: Message) -> None:
        data = json.dumps(message, separators=(",", ":")).encode()
        self._write(data + b"\0" if self._frames is None else websocket.frame(websocket.TEXT, data))

    def _write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > WAITING_BYTES:
            self.close()


class Server:
    """Every connection on the sockets, and the calls that the relay answers itself."""

    def __init__(self, sharing: Sharing, downloads: str) -> None:
        self.sharing = sharing
        self.connections: set[Connection] = set()
        self._downloads = downloads
        self._tasks: set[asyncio.Task[Any]] = set()

    def asked(self, connection: Connection, message: Message) -> None:
        """Answer a call of ours, or pass it on to the browser."""
        method = str(message.get("method", ""))
        if method.startswith("Relay."):
            connection.deliver({"id": message.get("id"), **self._own(connection, method)})
            return
        if method == "Browser.setDownloadBehavior":  # a client's own directories do not exist here
            message["params"] = {**message.get("params", {}), "downloadPath": self._downloads}
        self.sharing.ask(connection, message)

    def _own(self, connection: Connection, method: str) -> Message:
        if connection.trusted and method == "Relay.disconnect":
            self.disconnect()
        elif connection.trusted and method == "Relay.emptyDownloads":
            for entry in os.scandir(self._downloads):
                os.unlink(entry.path) if not entry.is_dir(follow_symlinks=False) else shutil.rmtree(entry.path)
        else:
            return {"error": {"code": -32601, "message": f"'{method}' wasn't found"}}
        return {"result": {}}

    def disconnect(self, *, everyone: bool = False) -> None:
        """End every client's connection; the manager's too where `everyone`."""
        for connection in list(self.connections):
            if everyone or not connection.trusted:
                connection.close()

    def leaving(self, connection: Connection, joining: asyncio.Task[None] | None) -> None:
        """Give up a client's sessions once it has gone."""

        async def leave() -> None:
            if joining is not None:
                await asyncio.wait({joining})
            await self.sharing.leave(connection)

        task = asyncio.ensure_future(leave())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
