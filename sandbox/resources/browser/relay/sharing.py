"""One debugging pipe, many clients: each gets a browser session of its own, and hears of nothing that belongs to another.

Part of the relay (Python 3.9, standard library only).
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any, Protocol

Message = dict[str, Any]


class Client(Protocol):
    """Who speaks with the browser. `context`: the only one that it may hear of, None where it has the whole."""

    @property
    def context(self) -> str | None: ...
    def deliver(self, message: Message) -> None: ...


class CallFailed(Exception):
    """The browser refused a call."""


class Sharing:
    """The browser's pipe. `send` writes one message to it; `received` is told each one that comes."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._answers: dict[int, Callable[[Message], None]] = {}
        self._owners: dict[str, Client] = {}  # by session
        self._own: dict[Client, str] = {}  # each client's browser session, which it does not know of
        self.heard: Callable[[Message], None] = lambda message: None  # told of what happens in the browser as a whole
        self.heard_in: Callable[[str, Message], None] = lambda session, message: None  # ... in sessions of the relay's own

    async def call(self, method: str, params: Message | None = None, session: str | None = None) -> Message:
        """Call the browser on the relay's own behalf; raise CallFailed."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def answered(message: Message) -> None:
            if not future.done():
                future.set_result(message)

        number = self._ask({"method": method, "params": params or {}}, session, answered)
        try:
            message = await future
        finally:
            self._answers.pop(number, None)
        if "error" in message:
            raise CallFailed(f"{method}: {message['error'].get('message', '')}")
        result: Message = message.get("result", {})
        return result

    async def join(self, client: Client) -> None:
        """Give a client a session with the browser."""
        session = (await self.call("Target.attachToBrowserTarget"))["sessionId"]
        self._own[client] = session
        self._owners[session] = client

    async def leave(self, client: Client) -> None:
        """End a client's sessions, with whatever they hold: contexts made to end with them, interceptions, emulations."""
        session = self._own.pop(client, None)
        self._owners = {name: owner for name, owner in self._owners.items() if owner is not client}
        if session is not None:
            try:
                await self.call("Target.detachFromTarget", {"sessionId": session})
            except CallFailed:
                return

    def ask(self, client: Client, message: Message, *, lasting: bool = False) -> None:
        """Pass a client's call on. Sessions that are not its own do not exist for it. `lasting`: what it sets is not undone when
        the client leaves."""
        number, own, session = message.get("id"), self._own[client], message.get("sessionId")
        if session is not None and self._owners.get(session) is not client:
            client.deliver({"id": number, "error": {"code": -32001, "message": "Session with given id not found."}})
            return

        def answered(answer: Message) -> None:
            answer["id"] = number
            if lasting and session is not None:
                answer["sessionId"] = session
            elif answer.get("sessionId") == own:
                del answer["sessionId"]
            if client in self._own:
                client.deliver(answer)

        self._ask(
            {"method": message.get("method"), "params": message.get("params", {})}, None if lasting else session or own, answered
        )

    def _ask(self, call: Message, session: str | None, answered: Callable[[Message], None]) -> int:
        number = next(self._numbers)
        self._answers[number] = answered
        call["id"] = number
        if session is not None:
            call["sessionId"] = session
        self._send(json.dumps(call, separators=(",", ":")).encode() + b"\0")
        return number

    def received(self, data: bytes) -> None:
        """Lead a message of the browser's to whom it belongs."""
        message = json.loads(data)
        if "id" in message:
            answered = self._answers.pop(message["id"], None)
            if answered is not None:
                answered(message)
            return
        if "sessionId" not in message:
            self.heard(message)
            return
        client = self._owners.get(message["sessionId"])
        if client is None:
            self.heard_in(message["sessionId"], message)
            return
        method, params = message.get("method"), message.get("params", {})
        if method == "Target.attachedToTarget":
            if client.context not in (None, params["targetInfo"].get("browserContextId")):
                self._let_go(params["sessionId"], message["sessionId"])
                return
            self._owners[params["sessionId"]] = client
        elif method == "Target.detachedFromTarget" and params.get("sessionId") != self._own.get(client):
            self._owners.pop(params.get("sessionId", ""), None)
        if message["sessionId"] == self._own.get(client):
            del message["sessionId"]
        client.deliver(message)

    def _let_go(self, session: str, parent: str) -> None:
        """Leave a target that a client was given and may not have; it may be waiting to be let go on."""

        def answered(message: Message) -> None:
            return

        self._ask({"method": "Runtime.runIfWaitingForDebugger", "params": {}}, session, answered)
        self._ask({"method": "Target.detachFromTarget", "params": {"sessionId": session}}, parent, answered)
