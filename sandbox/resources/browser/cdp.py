"""The manager's own connection to a browser: calls and events as NUL-ended JSON over the relay's socket.

Every call has a deadline. What comes back was made by a browser that an agent drove: it is data, never trusted to have a shape.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sandbox.aio import in_thread
from sandbox.errors import AutoclaveError, InstanceLost
from sandbox.ports import Part

CALL_S = 60.0
ENTER = "Relay.enter"
MESSAGE_BYTES = 256 << 20
_EVENTS = 10_000  # that nobody has asked for yet


class Refused(AutoclaveError):
    """The browser answered a call with an error."""


class Cdp:
    """One client's browser session. Made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._events: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        self._ended = False
        self._listening = asyncio.ensure_future(self._listen())

    async def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, session: str | None = None, timeout: float = CALL_S
    ) -> dict[str, Any]:
        """Make one call. Raises Refused (the browser said no) or InstanceLost (it is gone, or silent for `timeout` seconds)."""
        if self._ended:
            raise InstanceLost(f"the browser closed the connection before {method}")
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": dict(params or {})}
        if session is not None:
            message["sessionId"] = session
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\0")
                await self._writer.drain()
                answer = await future
        except TimeoutError:
            raise InstanceLost(f"the browser did not answer {method} within {timeout:g} s") from None
        except OSError as error:
            raise InstanceLost(f"the browser closed the connection during {method}") from error
        finally:
            self._answers.pop(number, None)
        if "error" in answer:
            raise Refused(f"the browser refused {method}: {answer['error'].get('message', answer['error'])}")
        result: dict[str, Any] = answer.get("result", {})
        return result

    def events(self, method: str, session: str | None = None) -> list[dict[str, Any]]:
        """Take the parameters of every such event that has come so far."""
        found: list[dict[str, Any]] = []
        kept: list[dict[str, Any]] = []
        for event in self._events:
            wanted = event["method"] == method and session in (None, event.get("sessionId"))
            (found if wanted else kept).append(event)
        self._events = kept
        return [event.get("params", {}) for event in found]

    async def event(self, method: str, session: str | None = None, *, timeout: float = CALL_S) -> dict[str, Any]:
        """Wait for the next such event and return its parameters; raises InstanceLost."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    for place, event in enumerate(self._events):
                        if event["method"] == method and session in (None, event.get("sessionId")):
                            del self._events[place]
                            found: dict[str, Any] = event.get("params", {})
                            return found
                    if self._ended:
                        raise InstanceLost(f"the browser closed the connection before {method}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise InstanceLost(f"the browser sent no {method} within {timeout:g} s") from None

    async def attach(self, target: str) -> str:
        """Open a session with a target and return its id."""
        session: str = (await self.call("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"]
        return session

    async def evaluate(self, session: str, expression: str, *, timeout: float = CALL_S) -> Any:
        """Evaluate (and await) an expression in a page and return its value; raises Refused with what it threw."""
        params = {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        done = await self.call("Runtime.evaluate", params, session=session, timeout=timeout)
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            said = details.get("exception", {}).get("description") or details.get("text", "")
            raise Refused(f"the page threw: {said}")
        return done.get("result", {}).get("value")

    async def _listen(self) -> None:
        try:
            while True:
                message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                if "id" in message:
                    future = self._answers.get(message["id"])
                    if future is not None and not future.done():
                        future.set_result(message)
                elif len(self._events) < _EVENTS:
                    self._events.append(message)
                    self._news.set()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
            return
        finally:
            self._ended = True
            self._news.set()
            for future in self._answers.values():
                if not future.done():
                    future.set_result({"error": {"message": "the connection ended"}})

    async def close(self) -> None:
        self._writer.close()
        self._listening.cancel()
        await asyncio.wait({self._listening})
        with suppress(OSError):
            await self._writer.wait_closed()


def _read(path: str) -> str:
    try:
        return Path(path).read_text("ascii")
    except OSError as error:
        raise InstanceLost(f"the browser's secret is gone: {error.strerror}") from error


@asynccontextmanager
async def connect(path: str, *, part: Part | None = None, timeout: float = CALL_S) -> AsyncIterator[Cdp]:
    """Hold a connection to the browser whose relay listens at `path`, as the holder of `part` where one is given, or as the manager
    with the secret in the file that the path names after a `#`; raises InstanceLost."""
    path, _, secret_file = path.partition("#")
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_unix_connection(path, limit=MESSAGE_BYTES)
    except (OSError, TimeoutError) as error:
        raise InstanceLost(f"no browser answers at {path}: {error or 'timed out'}") from error
    cdp = Cdp(reader, writer)
    try:
        if part is not None:
            await cdp.call(ENTER, {"name": part.name, "secret": part.secret})
        elif secret_file:
            await cdp.call(ENTER, {"secret": await in_thread(_read, secret_file)})
        yield cdp
    finally:
        await cdp.close()
