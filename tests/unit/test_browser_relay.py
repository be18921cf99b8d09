"""The relay beside a browser: what it lets through, to whom it leads what comes back, and how it speaks."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.aio import poll
from sandbox.resources.browser.relay import websocket
from sandbox.resources.browser.relay.filtering import Denied, judge
from sandbox.resources.browser.relay.main import SECRET
from sandbox.resources.browser.relay.parts import Part, Parts
from sandbox.resources.browser.relay.sharing import CallFailed, Sharing


def judged(method: str, params: dict[str, Any] | None = None, *, session: bool = False) -> dict[str, Any]:
    return judge(method, params or {}, session=session, context="mine", targets={"t1"}, downloads="/down/mine")


@pytest.mark.parametrize(
    ("method", "params", "session"),
    [
        ("Target.createBrowserContext", {}, False),
        ("Target.disposeBrowserContext", {"browserContextId": "mine"}, False),
        ("Target.createTarget", {"url": "http://a/", "browserContextId": "theirs"}, False),
        ("Target.createTarget", {"url": "file:///etc/passwd"}, False),
        ("Target.createTarget", {"url": "chrome://settings/"}, False),
        ("Target.createTarget", {"url": "about:settings"}, False),
        ("Page.navigate", {"url": "ABOUT:flags", "transitionType": "address_bar"}, True),
        ("Target.attachToTarget", {"targetId": "theirs", "flatten": True}, False),
        ("Target.attachToBrowserTarget", {}, False),
        ("Target.exposeDevToolsProtocol", {"targetId": "t1"}, False),
        ("Target.attachToBrowserTarget", {}, True),
        ("Storage.getCookies", {"browserContextId": "theirs"}, False),
        ("Storage.getCookies", {"browserContextId": "theirs"}, True),
        ("Browser.grantPermissions", {"permissions": ["geolocation", "clipboardReadWrite"]}, False),
        ("Browser.grantPermissions", {}, False),
        ("Browser.setPermission", {"permission": {"name": "clipboard-write"}, "setting": "granted"}, True),
        ("Browser.resetPermissions", {}, False),
        ("Browser.resetPermissions", {"browserContextId": "mine"}, True),
        ("Emulation.addScreen", {"left": 800, "top": 0, "width": 1, "height": 1}, True),
        ("Emulation.removeScreen", {"screenId": "1"}, True),
        ("Input.dispatchKeyEvent", {"type": "rawKeyDown", "windowsVirtualKeyCode": "86", "modifiers": 2}, True),
        ("Input.dispatchKeyEvent", {"type": "rawKeyDown", "windowsVirtualKeyCode": 86.0, "modifiers": 2}, True),
        ("Input.dispatchKeyEvent", {"type": "rawKeyDown", "windowsVirtualKeyCode": 86, "modifiers": 2.0}, True),
        ("Input.dispatchKeyEvent", {"type": "rawKeyDown", "commands": "paste"}, True),
        ("Browser.crash", {}, True),
        ("SystemInfo.getProcessInfo", {}, False),
        ("Tracing.start", {}, True),
        ("Extensions.loadUnpacked", {"path": "/tmp"}, False),
        ("Tethering.bind", {"port": 1}, True),
        ("Page.navigate", {"url": "FILE:///etc/passwd"}, True),
        ("Page.navigate", {"url": "view-source:file:///etc/passwd"}, True),
        ("DOM.setFileInputFiles", {"files": ["/srv/browser/downloads/other/x"], "nodeId": 1}, True),
        ("Input.dispatchDragEvent", {"type": "drop", "data": {"items": [], "files": ["/etc/passwd"]}}, True),
        ("Runtime.evaluate", {"expression": "1"}, False),
        ("Unheard.of", {}, True),
    ],
)
def test_what_reaches_past_the_own_context_is_refused(method: str, params: dict[str, Any], session: bool) -> None:
    with pytest.raises(Denied):
        judged(method, params, session=session)


def test_calls_are_narrowed_to_the_own_context() -> None:
    assert judged("Storage.getCookies") == {"browserContextId": "mine"}
    assert judged("Target.createTarget", {"url": "http://a/"})["browserContextId"] == "mine"
    assert judged("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": "/etc"})["downloadPath"] == "/down/mine"
    assert judged("Page.setDownloadBehavior", {"downloadPath": "/etc"}, session=True)["downloadPath"] == "/down/mine"
    for where in ("Browser", "Page"):  # that would be the directory of the whole browser
        given = judged(f"{where}.setDownloadBehavior", {"behavior": "default"}, session=where == "Page")
        assert (given["behavior"], given["downloadPath"]) == ("allow", "/down/mine")


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"key": "c", "windowsVirtualKeyCode": 67, "modifiers": 2}, {"windowsVirtualKeyCode": 0}),
        ({"key": "V", "windowsVirtualKeyCode": 86, "modifiers": 10}, {"windowsVirtualKeyCode": 0}),
        ({"key": "x", "windowsVirtualKeyCode": 88, "modifiers": 4}, {"windowsVirtualKeyCode": 0}),
        ({"key": "Insert", "windowsVirtualKeyCode": 45, "modifiers": 8}, {"windowsVirtualKeyCode": 0}),
        ({"key": "Insert", "windowsVirtualKeyCode": 45, "modifiers": 2}, {"windowsVirtualKeyCode": 0}),
        ({"key": "Delete", "windowsVirtualKeyCode": 46, "modifiers": 8}, {"windowsVirtualKeyCode": 0}),
        ({"key": "Paste"}, {"key": "Unidentified"}),
        (
            {"key": "v", "commands": ["Paste", "selectAll", "pasteGlobalSelection"]},
            {"commands": ["selectAll"]},
        ),
        ({"key": "v", "windowsVirtualKeyCode": 86, "text": "v"}, {}),
        ({"key": "V", "windowsVirtualKeyCode": 86, "modifiers": 8, "text": "V"}, {}),
        ({"key": "a", "windowsVirtualKeyCode": 65, "modifiers": 2}, {}),
        ({"key": "Delete", "windowsVirtualKeyCode": 46}, {}),
        ({"key": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 8, "commands": ["insertNewline"]}, {}),
    ],
)
def test_a_key_does_not_reach_the_clipboard_and_is_otherwise_as_it_was(given: dict[str, Any], changed: dict[str, Any]) -> None:
    key = {"type": "rawKeyDown", **given}

    assert judged("Input.dispatchKeyEvent", key, session=True) == {**key, **changed}


def test_what_a_page_needs_goes_on_as_it_is() -> None:
    for method, params, session in (
        ("Target.attachToTarget", {"targetId": "t1", "flatten": True}, False),
        ("Target.setAutoAttach", {"autoAttach": True}, False),
        ("Page.navigate", {"url": "http://a/"}, True),
        ("Page.navigate", {"url": "about:blank#x"}, True),
        ("Runtime.evaluate", {"expression": "1"}, True),
        ("Emulation.setFocusEmulationEnabled", {"enabled": True}, True),
        ("DOM.setFileInputFiles", {"files": []}, True),
    ):
        assert judged(method, params, session=session) == params


class Listener:
    """A client that keeps what it is told."""

    def __init__(self, context: str | None = None) -> None:
        self.context = context
        self.heard: list[dict[str, Any]] = []

    def deliver(self, message: dict[str, Any]) -> None:
        self.heard.append(message)


class Chromium:
    """Answers what the relay asks of the browser's pipe."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.sharing = Sharing(self._said)
        self._sessions = iter(f"s{n}" for n in range(100))

    def _said(self, data: bytes) -> None:
        call = json.loads(data[:-1])
        self.asked.append(call)
        if call["method"] == "Target.attachToBrowserTarget":
            self.tell({"id": call["id"], "result": {"sessionId": next(self._sessions)}})

    def tell(self, message: dict[str, Any]) -> None:
        self.sharing.received(json.dumps(message).encode())

    def event(self, session: str, method: str, **params: Any) -> None:
        self.tell({"method": method, "params": params, "sessionId": session})


async def test_each_client_hears_of_its_own_sessions_alone() -> None:
    browser, one, two = Chromium(), Listener(), Listener()
    await browser.sharing.join(one)
    await browser.sharing.join(two)
    browser.event("s0", "Target.attachedToTarget", sessionId="page", targetInfo={"targetId": "t"})
    browser.event("page", "Page.loadEventFired")
    assert [m.get("method") for m in one.heard] == ["Target.attachedToTarget", "Page.loadEventFired"]
    assert "sessionId" not in one.heard[0]
    assert one.heard[1]["sessionId"] == "page"
    assert two.heard == []

    browser.sharing.ask(two, {"id": 7, "method": "Runtime.evaluate", "sessionId": "page"})
    assert two.heard[-1]["id"] == 7
    assert "not found" in two.heard[-1]["error"]["message"]

    browser.sharing.ask(one, {"id": 7, "method": "Browser.getVersion"})
    asked = browser.asked[-1]
    assert (asked["sessionId"], asked["id"] == 7) == ("s0", False)
    browser.tell({"id": asked["id"], "result": {"product": "x"}, "sessionId": "s0"})
    assert one.heard[-1] == {"id": 7, "result": {"product": "x"}}


async def test_what_must_last_is_asked_in_a_session_that_stays_and_answered_where_it_was_asked() -> None:
    browser, one = Chromium(), Listener(context="mine")
    await browser.sharing.join(one)
    browser.event("s0", "Target.attachedToTarget", sessionId="page", targetInfo={"targetId": "t", "browserContextId": "mine"})
    for session in (None, "page"):
        asking = {"id": 3, "method": "Browser.grantPermissions"} | ({"sessionId": session} if session else {})
        browser.sharing.ask(one, asking, lasting=True)
        asked = browser.asked[-1]
        assert "sessionId" not in asked
        browser.tell({"id": asked["id"], "result": {}})
        assert one.heard[-1] == {"id": 3, "result": {}} | ({"sessionId": session} if session else {})
    browser.sharing.ask(one, {"id": 4, "method": "Browser.grantPermissions", "sessionId": "another"}, lasting=True)
    assert "not found" in one.heard[-1]["error"]["message"]


async def test_a_client_of_one_context_is_not_given_a_page_of_another_and_that_page_goes_on() -> None:
    browser, one = Chromium(), Listener(context="mine")
    await browser.sharing.join(one)
    browser.event("s0", "Target.attachedToTarget", sessionId="p1", targetInfo={"targetId": "t", "browserContextId": "theirs"})
    assert one.heard == []
    assert [(c["method"], c["sessionId"]) for c in browser.asked[-2:]] == [
        ("Runtime.runIfWaitingForDebugger", "p1"),
        ("Target.detachFromTarget", "s0"),
    ]
    browser.event("p1", "Page.loadEventFired")
    browser.event("s0", "Target.attachedToTarget", sessionId="p2", targetInfo={"targetId": "u", "browserContextId": "mine"})
    assert [m["method"] for m in one.heard] == ["Target.attachedToTarget"]


async def test_a_client_that_left_hears_no_more() -> None:
    browser, one = Chromium(), Listener()
    await browser.sharing.join(one)
    browser.event("s0", "Target.attachedToTarget", sessionId="page", targetInfo={"targetId": "t"})
    browser.sharing.ask(one, {"id": 1, "method": "Browser.getVersion"})
    pending = browser.asked[-1]["id"]
    leaving = asyncio.ensure_future(browser.sharing.leave(one))
    await asyncio.sleep(0)
    assert browser.asked[-1]["method"] == "Target.detachFromTarget"
    browser.tell({"id": browser.asked[-1]["id"], "result": {}})
    await leaving
    one.heard.clear()
    browser.event("page", "Page.loadEventFired")
    browser.tell({"id": pending, "result": {}})
    assert one.heard == []


def test_a_part_admits_its_holder_until_it_is_fenced() -> None:
    part = Part("ns_1", "secret", "context", "/down")
    assert part.admits("secret")
    assert not part.admits("other")
    part.open = False
    assert not part.admits("secret")


GREETING = b"GET /part/ns_1 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="


def test_a_greeting_is_answered_as_the_standard_says() -> None:
    path, secret, answer = websocket.greeting(GREETING + b"\r\nX-Autoclave-Secret: s3")
    assert (path, secret) == ("/part/ns_1", "s3")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer


@pytest.mark.parametrize("line", [b"\r\nOrigin: http://portal.test", b"\r\norigin: null"])
def test_a_page_may_not_come_in(line: bytes) -> None:
    with pytest.raises(websocket.Refused):
        websocket.greeting(GREETING + line)


def masked(kind: int, payload: bytes, *, final: bool = True) -> bytes:
    mask = b"\x01\x02\x03\x04"
    size = len(payload)
    head = bytes([(0x80 if final else 0) | kind])
    length = bytes([0x80 | size]) if size < 126 else bytes([0xFE]) + size.to_bytes(2, "big")
    return head + length + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.integers(1, 50))
def test_messages_arrive_whole_however_they_are_cut(messages: list[bytes], step: int) -> None:
    data = b"".join(masked(1, m[: len(m) // 2], final=False) + masked(9, b"p") + masked(0, m[len(m) // 2 :]) for m in messages)
    frames, found = websocket.Frames(), []
    for at in range(0, len(data), step):
        found += frames.feed(data[at : at + step])
    assert [payload for kind, payload in found if kind == websocket.TEXT] == messages
    assert sum(kind == websocket.PING for kind, _ in found) == len(messages)


def test_a_frame_without_a_mask_is_refused() -> None:
    with pytest.raises(websocket.Refused):
        websocket.Frames().feed(websocket.frame(websocket.TEXT, b"x"))


class Contexts:
    """A browser of which only contexts matter: each call takes a moment."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self._numbers = itertools.count()

    async def call(self, method: str, params: dict[str, Any] | None = None, session: str | None = None) -> dict[str, Any]:
        await asyncio.sleep(0.001)
        name = f"{method}-{next(self._numbers)}"
        if method == "Target.createBrowserContext":
            self.there.add(name)
        elif method == "Target.disposeBrowserContext":
            self.there.discard((params or {})["browserContextId"])
        evaluated: dict[str, Any] = {"value": []} if method == "Runtime.evaluate" else {}
        return {"browserContextId": name, "targetId": name, "sessionId": name, "identifier": name, "result": evaluated}


async def test_parts_that_are_made_side_by_side_leave_no_context_that_is_nobodys(tmp_path: Path) -> None:
    browser = Contexts()
    parts = Parts(browser, str(tmp_path))  # type: ignore[arg-type]

    async def quiet() -> bool:
        return not parts.known()["changing"]

    for _ in range(3):  # anew, as after each reset
        await asyncio.gather(*(parts.make(f"ns_{number}", "secret") for number in range(4)))
        assert await poll(quiet, timeout=5, interval=0.001)
        known = parts.known()
        assert browser.there == {*known["parts"].values(), known["spare"], known["commons"]}
        assert len(known["parts"]) == 4


async def test_a_session_that_is_null_is_none(tmp_path: Path) -> None:
    """What is for a page would else be asked of the whole browser: to hold every request of every context, say."""
    parts = Parts(Contexts(), str(tmp_path))  # type: ignore[arg-type]
    part = Part("ns_1", "secret", "mine", str(tmp_path))
    for message in ({"id": 1, "method": "Fetch.enable", "sessionId": None}, {"id": 1, "method": "Fetch.enable"}):
        with pytest.raises(Denied):
            parts.judged(part, message)
    assert parts.judged(part, {"id": 1, "method": "Fetch.enable", "sessionId": "page"})["method"] == "Fetch.enable"


async def test_a_part_that_is_dropped_while_it_is_made_is_gone_afterwards(tmp_path: Path) -> None:
    browser = Contexts()
    parts = Parts(browser, str(tmp_path))  # type: ignore[arg-type]

    async def begun() -> bool:
        return bool(browser.there)

    making = asyncio.ensure_future(parts.make("ns_1", "secret"))  # whoever asked for it has given up
    assert await poll(begun, timeout=5)
    await parts.drop("ns_1")
    await making
    assert parts.known()["parts"] == {}
    assert not list(tmp_path.iterdir())


async def test_a_part_that_is_made_and_dropped_twice_at_once_is_there_once(tmp_path: Path) -> None:
    browser = Contexts()
    parts = Parts(browser, str(tmp_path))  # type: ignore[arg-type]

    async def quiet() -> bool:
        return not parts.known()["changing"]

    await asyncio.gather(parts.make("ns_1", "old"), parts.make("ns_1", "new"))
    assert await poll(quiet, timeout=5, interval=0.001)
    known = parts.known()
    assert browser.there == {*known["parts"].values(), known["spare"], known["commons"]}
    assert parts.find("ns_1", "new") is not None
    await asyncio.gather(parts.drop("ns_1"), parts.drop("ns_1"))
    assert parts.known()["parts"] == {}


@pytest.mark.parametrize("refused", ["Browser.setPermission", "Target.createTarget", "Browser.setDownloadBehavior"])
async def test_a_part_that_cannot_be_made_leaves_no_context_that_is_nobodys(tmp_path: Path, refused: str) -> None:
    browser = Contexts()
    parts = Parts(browser, str(tmp_path))  # type: ignore[arg-type]

    async def call(method: str, params: dict[str, Any] | None = None, session: str | None = None) -> dict[str, Any]:
        if method == refused and (params or {}).get("browserContextId") != parts.commons.context:
            raise CallFailed(f"{method}: not now")
        return await Contexts.call(browser, method, params, session)

    browser.call = call  # type: ignore[method-assign]
    with pytest.raises(CallFailed):
        await parts.make("ns_1", "secret")
    assert browser.there <= {parts.commons.context}


async def test_a_browser_that_ends_before_it_answers_ends_the_relay(tmp_path: Path) -> None:
    """Nothing would be heard of it any more, and whoever starts it must not wait for that."""
    config = {"argv": ["/bin/sh", "-c", "exit 3"], "directory": str(tmp_path), "downloads": str(tmp_path), "sites": {}}
    boot = "import sys; from sandbox.resources.browser.relay.main import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", boot, json.dumps(config), env={**os.environ, SECRET: "secret"}, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            assert await process.wait() == 3
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert list(tmp_path.iterdir()) == []
