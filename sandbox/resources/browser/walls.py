"""Trying the walls between the contexts of a shared browser: marks left by the holder of one, looked for by that of another."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sandbox.ports import Part
from sandbox.resources.browser import cdp
from sandbox.resources.browser.seeding import blank_visit

_ORIGIN = "https://walls.invalid"
_WRITING = "leave to write to the clipboard"
_WRITE = """
localStorage.setItem('mark', MARK); sessionStorage.setItem('mark', MARK);
window.mark = new BroadcastChannel('walls'); window.mark.onmessage = () => window.mark.postMessage(MARK);
const area = document.createElement('textarea'); document.body.append(area); area.value = MARK; area.select();
document.execCommand('copy');
await caches.open(MARK);
try { await navigator.clipboard.writeText(MARK); return [WRITING]; } catch (refused) { return []; }
"""
# What a page listened to ends with this, and a world beside the page's own has functions that nothing took away.
_OPENED = """(() => {
  document.open(); document.write('<p>' + %s); document.close();
  addEventListener('copy', (e) => {
    e.preventDefault();
    for (const type of ['text/plain', 'application/x-walls']) e.clipboardData.setData(type, %s);
  });
  getSelection().selectAllChildren(document.body);
  return document.execCommand('copy');
})()"""
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
try { saw('the clipboard', await navigator.clipboard.readText()); } catch (refused) { /* as it should be */ }
try { await navigator.clipboard.writeText(''); found.push(WRITING); } catch (refused) { /* as it should be */ }
document.open(); document.write('<textarea></textarea>'); document.close();
window.pasted = '';
addEventListener('paste', (e) => { for (const type of e.clipboardData.types) window.pasted += e.clipboardData.getData(type); });
document.querySelector('textarea').focus();
document.execCommand('paste');
return found;
"""
_PASTED = "window.pasted + document.querySelector('textarea').value"
# Every way in which a key means to paste.
_KEYS: tuple[dict[str, Any], ...] = (
    {"key": "v", "code": "KeyV", "windowsVirtualKeyCode": 86, "modifiers": 2},
    {"key": "V", "code": "KeyV", "windowsVirtualKeyCode": 86, "modifiers": 10},
    {"key": "Insert", "code": "Insert", "windowsVirtualKeyCode": 45, "modifiers": 8},
    {"key": "Paste"},
    {"key": "v", "commands": ["paste"]},
    {"key": "v", "commands": ["pasteAndMatchStyle"]},
    {"key": "v", "commands": ["pasteGlobalSelection"]},
)


async def seen(path: str, writer: Part, reader: Part, mark: str) -> list[str]:
    """Return where the reader saw the writer's mark, or reached what is the writer's."""
    await _permitted(path, writer)
    async with cdp.connect(path, part=writer) as theirs, cdp.connect(path, part=reader) as ours:
        target, session = await _visit(theirs)
        found: list[str] = list(await theirs.evaluate(session, _script(_WRITE, mark)))
        cookie = {"name": mark, "value": mark, "url": f"{_ORIGIN}/", "expires": 2_000_000_000}
        await theirs.call("Storage.setCookies", {"cookies": [cookie]})
        await _copy_beside(theirs, target, session, mark)
        mine, my_session = await _visit(ours)
        await ours.call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session=my_session)
        found += await ours.evaluate(my_session, _script(_READ, mark))
        if mark in json.dumps(await ours.call("Storage.getCookies")):
            found.append("cookies")
        if target in json.dumps(await ours.call("Target.getTargets")):
            found.append("the list of tabs")
        for key in _KEYS:
            await _press(ours, my_session, key)
        if mark in str(await ours.evaluate(my_session, _PASTED)):
            found.append("the clipboard, by its keys")
        for what, attempt in _attempts(ours, my_session, session, target):
            if await _succeeds(attempt):
                found.append(what)
        await theirs.call("Target.closeTarget", {"targetId": target})
        await ours.call("Target.closeTarget", {"targetId": mine})
    return found


async def _permitted(path: str, part: Part) -> None:
    """A holder who was granted something, and left: what the browser takes back then must not be the denial of the clipboard."""
    async with cdp.connect(path, part=part) as browser:
        await browser.call("Browser.grantPermissions", {"permissions": ["geolocation"], "origin": "https://other.invalid"})
        await _succeeds(lambda: browser.call("Browser.resetPermissions"))


async def _copy_beside(browser: cdp.Cdp, target: str, session: str, mark: str) -> None:
    """Copy in a document that was opened anew, from a world in which nothing was taken away."""
    await browser.call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session=session)
    world = await browser.call("Page.createIsolatedWorld", {"frameId": target, "worldName": "walls"}, session=session)
    text = json.dumps(mark)
    asked = {"expression": _OPENED % (text, text), "contextId": world["executionContextId"], "userGesture": True}
    await browser.call("Runtime.evaluate", asked, session=session)


def _attempts(ours: cdp.Cdp, own: str, session: str, target: str) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
    screen = {"left": 10_000, "top": 0, "width": 100, "height": 100}
    return [
        ("a tab of another context", lambda: ours.call("Target.attachToTarget", {"targetId": target, "flatten": True})),
        ("a session of another client", lambda: ours.call("Runtime.evaluate", {"expression": "1"}, session=session)),
        ("a context of its own making", lambda: ours.call("Target.createBrowserContext")),
        ("files of the machine", lambda: ours.call("Target.createTarget", {"url": "file:///etc/passwd"})),
        ("permissions as nobody denied them", lambda: ours.call("Browser.resetPermissions")),
        ("a screen for everybody", lambda: ours.call("Emulation.addScreen", screen, session=own)),
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


async def _press(browser: cdp.Cdp, session: str, key: Mapping[str, Any]) -> None:
    for kind in ("rawKeyDown", "keyUp"):
        await browser.call("Input.dispatchKeyEvent", {**key, "type": kind}, session=session)


def _script(body: str, mark: str) -> str:
    return f"(async () => {{ const [MARK, WRITING] = {json.dumps([mark, _WRITING])};\n{body}\n}})()"
