"""What is one for all contexts of a browser, and stands between them for that reason: the clipboard and the screens.

Read, and the clipboard emptied, from a page of the relay's own in a context of its own, which no client can name. A paste event
is what reads: it sees every kind of data, those of a page's own making included, and needs no permission and no origin.

Part of the relay (Python 3.9, standard library only).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .sharing import CallFailed, Message, Sharing

T = TypeVar("T")
_LIMIT_S = 100.0  # less than whoever asks waits; a machine may have much else to do

# For a page that was opened for it. The digest is there to tell contents apart, no more.
PREPARE = """(() => {
  const area = document.createElement('div');
  area.contentEditable = 'true';
  document.body.append(area);
  const digest = (bytes) => {
    let a = 0xdeadbeef, b = 0x41c6ce57;
    for (const byte of bytes) {
      a = Math.imul(a ^ byte, 2654435761);
      b = Math.imul(b ^ byte, 1597334677) ^ (a >>> 15);
    }
    return [a, b].map((n) => (n >>> 0).toString(16).padStart(8, '0')).join('');
  };
  const told = (type, bytes) => `${type}: ${bytes.length} bytes, ${digest(bytes)}`;
  const one = (item, data) => {
    if (item.kind === 'string') return told(item.type, new TextEncoder().encode(data.getData(item.type)));
    const [type, file] = [item.type, item.getAsFile()];
    return file ? file.arrayBuffer().then((buffer) => told(type, new Uint8Array(buffer))) : `${type}: a file`;
  };
  addEventListener('paste', (e) => {
    e.preventDefault();
    window.held = Promise.all(Array.from(e.clipboardData.items, (item) => one(item, e.clipboardData)));
  }, true);
  addEventListener('copy', (e) => {
    e.preventDefault();
    e.clipboardData.setData('text/plain', '');
  }, true);
  window.report = async () => {
    const lines = window.held && (await window.held).sort();
    window.held = null;
    return lines;
  };
  area.focus();
})()"""
PASTE = {"type": "rawKeyDown", "key": "v", "commands": ["paste"]}
REPORT = "report()"  # null where no paste event came
_COPY = "document.execCommand('copy')"


class Commons:
    """The page that reads and empties. Opened when it is first needed, and anew when it does not answer."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._session: str | None = None
        self._turn = asyncio.Lock()
        self.context: str | None = None

    @property
    def working(self) -> bool:
        """True while its context may be coming or going."""
        return self._turn.locked()

    async def read(self) -> Message:
        """Return what the clipboard holds, a line for each kind of data, and the screens; raise CallFailed."""
        async with self._turn:
            return await self._tried(self._read)

    async def empty(self) -> None:
        """Leave nothing on the clipboard; raise CallFailed where something stays."""
        async with self._turn:
            await self._tried(self._empty)

    async def _tried(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Where the page is not there any more (its process may have ended), once more with another one."""

        async def again() -> T:
            try:
                return await work()
            except CallFailed:
                await self._forget()
                return await work()

        try:
            return await _bounded(again())
        except CallFailed:
            await _bounded(self._forget())
            raise

    async def _read(self) -> Message:
        screens: list[Message] = []
        try:
            session = await self._open()
            screens = (await self._sharing.call("Emulation.getScreenInfos", session=session)).get("screenInfos", [])
        except CallFailed as error:
            if "wasn't found" not in str(error):  # a browser that is too old to have more than one
                raise
        shown = sorted(f"{s.get('width')}x{s.get('height')} at {s.get('left')},{s.get('top')}" for s in screens)
        return {"clipboard": await self._held(), "screens": shown}

    async def _empty(self) -> None:
        if not await self._held():  # nothing is written without need: pages may listen for changes
            return
        await self._evaluate(_COPY)
        if await self._held():
            raise CallFailed("the clipboard could not be emptied")

    async def _held(self) -> list[str]:
        await self._sharing.call("Input.dispatchKeyEvent", PASTE, await self._open())
        held = await self._evaluate(REPORT)
        if not isinstance(held, list):
            raise CallFailed("the clipboard could not be read: no paste came")
        return [str(line) for line in held]

    async def _evaluate(self, expression: str) -> Any:
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        done = await self._sharing.call("Runtime.evaluate", asked, await self._open())
        if "exceptionDetails" in done:
            raise CallFailed(f"the page that reads the clipboard threw: {done['exceptionDetails'].get('text', '')}")
        return done.get("result", {}).get("value")

    async def _open(self) -> str:
        if self._session is not None:
            return self._session
        call = self._sharing.call
        self.context = (await call("Target.createBrowserContext"))["browserContextId"]
        target = (await call("Target.createTarget", {"url": "about:blank", "browserContextId": self.context}))["targetId"]
        session = str((await call("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"])
        await call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session)
        await call("Runtime.evaluate", {"expression": PREPARE}, session)
        self._session = session
        return session

    async def _forget(self) -> None:
        context, self.context, self._session = self.context, None, None
        if context is not None:
            try:
                await self._sharing.call("Target.disposeBrowserContext", {"browserContextId": context})
            except CallFailed:
                return  # it is gone, or is counted as nobody's


async def _bounded(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=_LIMIT_S)
    finally:
        if not task.done():
            task.cancel()
    if not done:
        raise CallFailed(f"what reads the clipboard did not answer within {_LIMIT_S:g} s")
    return task.result()
