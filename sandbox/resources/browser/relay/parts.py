"""A context for each namespace that shares the browser, and one that waits, opened before anybody asks for it.

Part of the relay (Python 3.9, standard library only).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import shutil
from collections.abc import Iterator
from weakref import WeakValueDictionary

from .commons import Commons
from .filtering import Denied, judge
from .guard import Guard
from .sharing import CallFailed, Client, Message, Sharing

_PAGES = ("page", "iframe", "webview")
_DENIED = ("clipboard-read", "clipboard-write")


class Part:
    """One namespace's context."""

    def __init__(self, name: str, secret: str, context: str, downloads: str) -> None:
        self.name, self.context, self.downloads = name, context, downloads
        self._secret = hashlib.sha256(secret.encode()).digest()
        self.open = True

    def admits(self, secret: str) -> bool:
        """True for its holder, until it is fenced. In constant time."""
        return hmac.compare_digest(self._secret, hashlib.sha256(secret.encode()).digest()) and self.open


class Parts:
    """Every part there is. Once there was one, nobody but the manager has the whole browser."""

    def __init__(self, sharing: Sharing, downloads: str) -> None:
        self._sharing = sharing
        self._downloads = downloads
        self._parts: dict[str, Part] = {}
        self._spare: asyncio.Task[str] | None = None
        self._context_of: dict[str, str] = {}  # by target
        self._kind_of: dict[str, Message] = {}
        self._guard = Guard(sharing)
        self._guarding: set[asyncio.Task[None]] = set()
        self._changing = 0  # contexts that are coming or going
        # By name: who asked may have given up while a part is still being made, and then asks for its end.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.commons = Commons(sharing)
        self.shared = False

    def find(self, name: str, secret: str) -> Part | None:
        part = self._parts.get(name)
        return part if part is not None and part.admits(secret) else None

    def known(self) -> Message:
        """Say which contexts are whose, and how many are coming or going: those may belong to nobody for as long."""
        spare = self._spare.result() if self._spare is not None and self._spare.done() and not self._spare.exception() else None
        own = {part.name: part.context for part in self._parts.values()}
        changing = self._changing + self.commons.working
        return {"parts": own, "spare": spare, "commons": self.commons.context, "changing": changing}

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        self._changing += 1
        try:
            yield
        finally:
            self._changing -= 1

    async def make(self, name: str, secret: str) -> None:
        """Give a name a context that nobody had before; what had that name is gone first."""
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            with self._change():
                await self._make(name, secret)

    async def _make(self, name: str, secret: str) -> None:
        if not self.shared:
            self.shared = True
            await self._sharing.call("Target.setDiscoverTargets", {"discover": True, "filter": [{}]})
        await self._drop(name)
        waiting, self._spare = self._spare, None
        try:
            context = await waiting if waiting is not None else await self._context()
        except CallFailed:
            context = await self._context()
        part = Part(name, secret, context, os.path.join(self._downloads, name))
        try:
            os.mkdir(part.downloads, 0o700)
            await self._keep_downloads(part)
        except (CallFailed, OSError):
            await self._dispose(context)  # it would be nobody's
            raise
        self._parts[name] = part
        if self._spare is None:  # another that was made meanwhile has seen to it
            self._spare = asyncio.ensure_future(self._context())

    async def _keep_downloads(self, part: Part) -> None:
        behavior = {"behavior": "allow", "downloadPath": part.downloads, "browserContextId": part.context}
        await self._sharing.call("Browser.setDownloadBehavior", behavior)

    async def left(self, part: Part) -> None:
        """A client of the part has left, and the browser undid what it had set: downloads stay in the part's own directory."""
        if self._parts.get(part.name) is part:
            try:
                await self._keep_downloads(part)
            except CallFailed:
                return  # the part is gone meanwhile

    def fence(self, name: str) -> Part | None:
        """Let nobody in any more."""
        part = self._parts.get(name)
        if part is not None:
            part.open = False
        return part

    async def drop(self, name: str) -> None:
        """Throw a name's context away, also one that is still being made."""
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            await self._drop(name)

    async def _drop(self, name: str) -> None:
        part = self.fence(name)
        if part is not None:
            with self._change():
                await self._dispose(part.context)
            del self._parts[name]
        shutil.rmtree(os.path.join(self._downloads, name), ignore_errors=True)
        await self.commons.empty()

    async def _dispose(self, context: str) -> None:
        try:
            await self._sharing.call("Target.disposeBrowserContext", {"browserContextId": context})
        except CallFailed:
            if context in (await self._sharing.call("Target.getBrowserContexts"))["browserContextIds"]:
                raise

    async def _context(self) -> str:
        """Open a context with an empty tab in which the clipboard is denied."""
        with self._change():
            return await self._open_context()

    async def _open_context(self) -> str:
        context: str = (await self._sharing.call("Target.createBrowserContext"))["browserContextId"]
        try:
            for name in _DENIED:
                denying = {"permission": {"name": name}, "setting": "denied", "browserContextId": context}
                await self._sharing.call("Browser.setPermission", denying)
            opened = await self._sharing.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        except CallFailed:
            await self._dispose(context)
            raise
        await self._guard.watch(opened["targetId"])
        return context

    def heard(self, message: Message) -> None:
        """Follow which targets there are."""
        params = message.get("params", {})
        if message.get("method") in ("Target.targetCreated", "Target.targetInfoChanged"):
            info = params["targetInfo"]
            fresh = info["targetId"] not in self._context_of
            self._context_of[info["targetId"]] = info.get("browserContextId", "")
            self._kind_of[info["targetId"]] = info
            mine = any(part.context == info.get("browserContextId") for part in self._parts.values())
            if fresh and mine and info.get("type") in _PAGES:
                task = asyncio.ensure_future(self._guard.watch(info["targetId"]))
                self._guarding.add(task)
                task.add_done_callback(self._guarding.discard)
        elif message.get("method") == "Target.targetDestroyed":
            self._context_of.pop(params.get("targetId", ""), None)
            self._kind_of.pop(params.get("targetId", ""), None)
        elif message.get("method") == "Target.detachedFromTarget":
            self._guard.gone(params.get("sessionId", ""))

    def answer(self, part: Part, method: str) -> Message:
        """Answer what names the whole browser, with the part's own."""
        if method == "Target.getTargets":
            own = [info for info in self._kind_of.values() if info.get("browserContextId") == part.context]
            return {"targetInfos": own}
        return {"browserContextIds": []} if method == "Target.getBrowserContexts" else {}

    def judged(self, part: Part, message: Message) -> Message:
        """Return the call as it may go on; raise Denied."""
        targets = {target for target, context in self._context_of.items() if context == part.context}
        params = message.get("params") or {}
        session = message.get("sessionId") is not None  # without one it is for the whole browser, also where it says null
        method = str(message.get("method"))
        found = judge(method, params, session=session, context=part.context, targets=targets, downloads=part.downloads)
        return {**message, "params": found}


def refusal(message: Message, why: Denied) -> Message:
    """Answer a call that may not go on; a page that may not be opened is one that could not be reached, which clients expect."""
    answer: Message = {"id": message.get("id")}
    if "sessionId" in message:
        answer["sessionId"] = message["sessionId"]
    if message.get("method") == "Page.navigate":
        frame = (message.get("params") or {}).get("frameId", "")
        return {**answer, "result": {"frameId": frame, "errorText": "net::ERR_BLOCKED_BY_ADMINISTRATOR"}}
    return {**answer, "error": {"code": -32000, "message": f"Not allowed in a shared browser: {why}"}}


__all__ = ["Client", "Denied", "Part", "Parts", "refusal"]
