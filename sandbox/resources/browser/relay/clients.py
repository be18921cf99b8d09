"""A client's connection on the Unix socket: WebSocket for Playwright, NUL-ended JSON for the manager's own readers.

Part of the relay (Python 3.9, standard library only).
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Coroutine
from typing import Any, cast

from . import websocket
from .filtering import ANSWERED, LASTING, Denied
from .parts import Part, Parts, refusal
from .sharing import CallFailed, Message, Sharing

PART = "/part/"
ENTER = "Relay.enter"

WAITING_BYTES = 256 << 20  # for a client that does not read: then it is dropped


class Connection(asyncio.Protocol):
    """One client. What it says before it has its session waits."""

    def __init__(self, server: Server, *, trusted: bool = False) -> None:
        self._server = server
        self.trusted = trusted
        self.part: Part | None = None
        self._transport: asyncio.Transport | None = None
        self._greeting = bytearray()
        self._frames: websocket.Frames | None = None
        self._plain: bytearray | None = None
        self._waiting: list[Message] | None = []
        self._joining: asyncio.Task[None] | None = None

    @property
    def context(self) -> str | None:
        return None if self.part is None else self.part.context

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
                if self._joining is None:
                    entering = message.get("method") == ENTER
                    self._enter(message.get("params", {}) if entering else {})
                    if entering:
                        self.deliver({"id": message.get("id"), "result": {}})
                        continue
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
            return self._split(bytes(self._greeting))
        head, end, rest = bytes(self._greeting).partition(b"\r\n\r\n")
        if not end:
            if len(head) > websocket.GREETING_BYTES:
                raise websocket.Refused("a greeting without an end")
            return []
        path, secret, answer = websocket.greeting(head)
        self._admit(path, secret)
        self._write(answer)
        self._frames = websocket.Frames()
        self._join()
        return self._messages(self._frames, rest)

    def _enter(self, given: Message) -> None:
        """Begin without a greeting: as the holder of a part where the first call says so."""
        path = f"{PART}{given['name']}" if "name" in given else "/"
        self._admit(path, str(given.get("secret", "")))
        self._join()

    def _admit(self, path: str, secret: str) -> None:
        """Decide what of the browser this client has."""
        if self.trusted:
            if not hmac.compare_digest(secret.encode(), self._server.secret.encode()):
                raise websocket.Refused("not the manager")
            return
        if path.startswith(PART):
            self.part = self._server.parts.find(path[len(PART) :], secret)
            if self.part is None:
                raise websocket.Refused("no such part, or not its holder")
        elif self._server.parts.shared:
            raise websocket.Refused("nobody has the whole of a shared browser")

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

    def __init__(self, sharing: Sharing, downloads: str, secret: str) -> None:
        self.sharing = sharing
        self.parts = Parts(sharing, downloads)
        sharing.heard = self.parts.heard
        self.connections: set[Connection] = set()
        self.secret = secret  # of the manager's own connections: where it is an ordinary user, directories stop nobody
        self._downloads = downloads
        self._tasks: set[asyncio.Task[Any]] = set()

    def asked(self, connection: Connection, message: Message) -> None:
        """Answer a call of ours, or pass it on to the browser."""
        method = str(message.get("method", ""))
        if method.startswith("Relay."):
            self._later(self._answer(connection, method, message))
            return
        if connection.part is not None:
            if method in ANSWERED:
                connection.deliver({"id": message.get("id"), "result": self.parts.answer(connection.part, method)})
                return
            try:
                message = self.parts.judged(connection.part, message)
            except Denied as why:
                connection.deliver(refusal(message, why))
                return
            self.sharing.ask(connection, message, lasting=method in LASTING)
            return
        if method == "Browser.setDownloadBehavior":  # a client's own directories do not exist here
            message["params"] = {**message.get("params", {}), "downloadPath": self._downloads}
        self.sharing.ask(connection, message)

    async def _answer(self, connection: Connection, method: str, message: Message) -> None:
        try:
            result = await self._own(method if connection.trusted else "", message.get("params") or {})
        except (CallFailed, OSError) as error:
            connection.deliver({"id": message.get("id"), "error": {"code": -32000, "message": str(error)}})
            return
        if result is None:
            unknown = {"code": -32601, "message": f"'{method}' wasn't found"}
            connection.deliver({"id": message.get("id"), "error": unknown})
        else:
            connection.deliver({"id": message.get("id"), "result": result})

    async def _own(self, method: str, params: Message) -> Message | None:
        """Do what only the manager may ask for; None for what is not known."""
        name = str(params.get("name", ""))
        if method == "Relay.disconnect":
            self.disconnect()
        elif method == "Relay.parts":
            return self.parts.known()
        elif method == "Relay.commons":
            return await self.parts.commons.read()
        elif method == "Relay.makePart":
            self.disconnect(of=name)
            await self.parts.make(name, str(params["secret"]))
        elif method == "Relay.fencePart":
            self.parts.fence(name)
            self.disconnect(of=name)
            await self.parts.commons.empty()
        elif method == "Relay.disconnectPart":
            self.disconnect(of=name)
        elif method == "Relay.dropPart":
            self.parts.fence(name)
            self.disconnect(of=name)
            await self.parts.drop(name)
        else:
            return None
        return {}

    def disconnect(self, *, everyone: bool = False, of: str | None = None) -> None:
        """End the connections of every client, or of one part's; the manager's too where `everyone`."""
        for connection in list(self.connections):
            part = connection.part.name if connection.part is not None else None
            if everyone or (not connection.trusted and of in (None, part)):
                connection.close()

    def leaving(self, connection: Connection, joining: asyncio.Task[None] | None) -> None:
        """Give up a client's sessions once it has gone."""

        async def leave() -> None:
            if joining is not None:
                await asyncio.wait({joining})
            await self.sharing.leave(connection)
            if connection.part is not None:
                await self.parts.left(connection.part)

        self._later(leave())

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
