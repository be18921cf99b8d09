"""Trying the walls between the contexts of a shared browser: marks left by the holder of one, looked for by that of another."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from sandbox.ports import Part
from sandbox.resources.browser import cdp
from sandbox.resources.browser.seeding import blank_visit

_ORIGIN = "https://walls.invalid"
_WRITE = """
localStorage.setItem('mark', MARK); sessionStorage.setItem('mark', MARK);
window.mark = new BroadcastChannel('walls'); window.mark.onmessage = () => window.mark.postMessage(MARK);
const area = document.createElement('textarea'); document.body.append(area); area.value = MARK; area.select();
document.execCommand('copy');
await caches.open(MARK);
"""
_READ = """
const found = [];
const saw = (where, text) => { if (String(text).includes(MARK)) found.push(where); };
saw('local storage', localStorage.getItem('mark'));
saw('session storage', sessionStorage.getItem('mark'));
saw('cache storage', await caches.keys());
const channel = new BroadcastChannel('walls');
const heard = new Promise((done) => { channel.onmessage = (e) => done(e.data); setTimeout(() => done(''), 300); });
channel.postMessage('?');
saw('a broadcast', await heard);
const area = document.createElement('textarea'); document.body.append(area); area.focus();
document.execCommand('paste');
saw('the clipboard', area.value);
try { saw('the clipboard', await navigator.clipboard.readText()); } catch (refused) { /* as it should be */ }
return found;
"""


async def seen(path: str, writer: Part, reader: Part, mark: str) -> list[str]:
    """Return where the reader saw the writer's mark, or reached what is the writer's."""
    async with cdp.connect(path, part=writer) as theirs, cdp.connect(path, part=reader) as ours:
        target, session = await _visit(theirs)
        await theirs.evaluate(session, _script(_WRITE, mark))
        cookie = {"name": mark, "value": mark, "url": f"{_ORIGIN}/", "expires": 2_000_000_000}
        await theirs.call("Storage.setCookies", {"cookies": [cookie]})
        mine, my_session = await _visit(ours)
        await ours.call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session=my_session)
        found: list[str] = list(await ours.evaluate(my_session, _script(_READ, mark)))
        if mark in json.dumps(await ours.call("Storage.getCookies")):
            found.append("cookies")
        if target in json.dumps(await ours.call("Target.getTargets")):
            found.append("the list of tabs")
        await _key(ours, my_session)
        if mark in str(await ours.evaluate(my_session, "document.querySelector('textarea').value")):
            found.append("the clipboard, by its key")
        for what, attempt in _attempts(ours, session, target):
            if await _succeeds(attempt):
                found.append(what)
        await theirs.call("Target.closeTarget", {"targetId": target})
        await ours.call("Target.closeTarget", {"targetId": mine})
    return found


def _attempts(ours: cdp.Cdp, session: str, target: str) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
    return [
        ("a tab of another context", lambda: ours.call("Target.attachToTarget", {"targetId": target, "flatten": True})),
        ("a session of another client", lambda: ours.call("Runtime.evaluate", {"expression": "1"}, session=session)),
        ("a context of its own making", lambda: ours.call("Target.createBrowserContext")),
        ("files of the machine", lambda: ours.call("Target.createTarget", {"url": "file:///etc/passwd"})),
    ]


async def _succeeds(attempt: Callable[[], Awaitable[object]]) -> bool:
    try:
        await attempt()
    except cdp.Refused:
        return False
    return True


async def _visit(browser: cdp.Cdp) -> tuple[str, str]:
    target = (await browser.call("Target.createTarget", {"url": "about:blank"}))["targetId"]
    session = await browser.attach(target)
    await blank_visit(browser, session, _ORIGIN)
    return target, session


async def _key(browser: cdp.Cdp, session: str) -> None:
    """Press Control and V, as a person would."""
    key = {"key": "v", "code": "KeyV", "windowsVirtualKeyCode": 86, "modifiers": 2, "commands": ["paste"]}
    for kind in ("rawKeyDown", "keyUp"):
        await browser.call("Input.dispatchKeyEvent", {**key, "type": kind}, session=session)


def _script(body: str, mark: str) -> str:
    return f"(async () => {{ const MARK = {json.dumps(mark)};\n{body}\n}})()"
