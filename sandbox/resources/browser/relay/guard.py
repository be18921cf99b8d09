"""Keeps pages of a shared browser from the clipboard, as far as can be done inside a page.

A page's listeners end with `document.open()`, so that they are put back after it; `execCommand` is taken away for good. Neither
stops a page that goes out of its way. Nobody gets at what such a page wrote, since the relay lets no paste through and the
permission is denied; it is emptied at the next turn, or found by a check.

Part of the relay (Python 3.9, standard library only).
"""

from __future__ import annotations

import asyncio

from .sharing import CallFailed, Message, Sharing

_SCRIPT = """(() => {
  for (const kind of ['copy', 'cut', 'paste', 'beforecopy', 'beforecut', 'beforepaste'])
    window.addEventListener(kind, (e) => { e.preventDefault(); e.stopImmediatePropagation(); }, true);
  const [apply, own] = [Reflect.apply, Document.prototype.execCommand];
  if (!Object.getOwnPropertyDescriptor(Document.prototype, 'execCommand').configurable) return;
  const execCommand = function (name, ...rest) {
    const said = `${name}`;
    return /copy|cut|paste/i.test(said) ? false : apply(own, this, [said, ...rest]);
  };
  Object.defineProperty(Document.prototype, 'execCommand', { value: execCommand, configurable: false, writable: false });
})()"""


class Guard:
    """A session with every page of a context, kept as long as the page is there."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._scripts: dict[str, str] = {}  # by session
        self._again: dict[str, asyncio.Task[None]] = {}
        sharing.heard_in = self._heard_in

    async def watch(self, target: str) -> None:
        """Attach to a page and guard it, and every document that it opens."""
        try:
            session = (await self._sharing.call("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"]
            await self._sharing.call("Page.enable", session=session)
            await self._arm(session)
        except CallFailed:
            return  # it is gone

    async def _arm(self, session: str) -> None:
        adding = {"source": _SCRIPT, "runImmediately": True}
        made = await self._sharing.call("Page.addScriptToEvaluateOnNewDocument", adding, session)
        before = self._scripts.get(session)
        self._scripts[session] = made["identifier"]
        if before is not None:
            await self._sharing.call("Page.removeScriptToEvaluateOnNewDocument", {"identifier": before}, session)

    def _heard_in(self, session: str, message: Message) -> None:
        if message.get("method") != "Page.documentOpened" or session not in self._scripts or session in self._again:
            return

        async def again() -> None:
            try:
                await asyncio.sleep(0)  # what opens a hundred at once is answered once
                self._again.pop(session, None)
                await self._arm(session)
            except CallFailed:
                return

        self._again[session] = asyncio.ensure_future(again())

    def gone(self, session: str) -> None:
        self._scripts.pop(session, None)
        self._again.pop(session, None)
