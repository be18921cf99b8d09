"""A small world with a browser and two sites, and what plants leaks in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from envs.environment import LoadedEnvironment, define
from probes.leaks.browser import BrowserLeak
from sandbox.model import NamespaceId, Snapshot
from sandbox.ports import Instance, Runtime
from sandbox.resources.browser import cdp
from sandbox.settings import Settings
from sandbox.wiring import machinery

SERVER = """
import base64, http.server, socketserver, sys
PAGE = b"<!doctype html><title>portal</title><h1>Hello</h1><form><input name=q></form>"
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        kind, body, more, status = "text/html", PAGE, {}, 200
        if self.path == "/worker.js":
            kind, body = "text/javascript", b"onfetch = () => {}"
        elif self.path == "/cached":
            kind, body, more = "text/plain", b"kept", {"Cache-Control": "max-age=9999"}
        elif self.path == "/private" and "Authorization" not in self.headers:
            status, more = 401, {"WWW-Authenticate": 'Basic realm="private"'}
        elif self.path == "/slow.bin":
            kind, body, more = "application/octet-stream", b"file", {"Content-Disposition": "attachment; filename=file.bin"}
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
    def address_string(self): return "client"
    def log_message(self, *words): pass
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer): daemon_threads = True
Server(sys.argv[1], Handler).serve_forever()
"""
NAMES: Mapping[str, str] = {
    "origin": "http://portal.test",
    "other": "http://other.test",
    "cookie": "theme",
    "domain": "portal.test",
    "item": "seen",
}


def sites_and_browser(base: Path, **more: Any) -> dict[str, Any]:
    (base / "app").mkdir(exist_ok=True)
    (base / "app" / "server.py").write_text(SERVER)
    return {
        "name": "browsing",
        "version": "1",
        "description": "two sites and a browser",
        "limits": {"memory_mb": 2048, "cpus": 2.0, "pids": 512},
        "check": {"probe_limit_s": 120.0},
        "resources": {
            "app": {"kind": "service", "argv": ["/usr/bin/python3", "-I", "/app/server.py", "{socket}"], "app": "app"},
            "web": {
                "kind": "browser",
                "sites": {"portal.test": "app", "other.test": "app/service.sock"},
                "cookies": [{"name": "theme", "value": "dark", "domain": "portal.test"}],
                "storage": {"http://portal.test": {"seen": "yes"}},
            },
        },
        **more,
    }


@pytest.fixture
def browsing(passable_dir: Path) -> LoadedEnvironment:
    return define(sites_and_browser(passable_dir), passable_dir)


@pytest.fixture
async def runtime(settings: Settings, nothing_left: None) -> AsyncIterator[Runtime]:
    async with machinery(settings) as (found, _):
        yield found


@pytest.fixture
async def golden(runtime: Runtime, browsing: LoadedEnvironment) -> Snapshot:
    return await runtime.build(browsing)


@pytest.fixture
async def begin(runtime: Runtime, browsing: LoadedEnvironment, golden: Snapshot) -> Callable[..., Awaitable[Instance]]:
    async def start(name: str = "one") -> Instance:
        return await runtime.start(browsing, golden, NamespaceId(f"browsing-{name}"), 1)

    return start


@pytest.fixture
def names() -> Mapping[str, str]:
    """What the names in a leak stand for here."""
    return NAMES


def socket_of(address: str) -> str:
    """The Unix socket in a browser's address."""
    return address.removeprefix("ws+unix://").removesuffix(":/")


@asynccontextmanager
async def first_tab(address: str) -> AsyncIterator[tuple[cdp.Cdp, str, str]]:
    """A client's connection, the first tab's target and a session with it."""
    async with cdp.connect(socket_of(address)) as browser:
        targets = (await browser.call("Target.getTargets"))["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        session = await browser.attach(target)
        await browser.call("Page.enable", session=session)
        yield browser, target, session


def _filled(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        for name, text in names.items():
            if value == f"{{{name}}}":
                return text
            value = value.replace(f"{{{name}}}", str(text))
        return value
    if isinstance(value, Mapping):
        return {k: _filled(v, names) for k, v in value.items()}
    return [_filled(v, names) for v in value] if isinstance(value, list | tuple) else value


@pytest.fixture
def plant() -> Callable[[str, BrowserLeak], Awaitable[None]]:
    """`await plant(address, leak)` does what an agent would."""

    async def do(address: str, leak: BrowserLeak) -> None:
        async with first_tab(address) as (browser, target, session):
            window = (await browser.call("Browser.getWindowForTarget", {"targetId": target}))["windowId"]
            names = {**NAMES, "window": window}
            await browser.call("Page.navigate", {"url": _filled(leak.visit, names)}, session=session)
            await browser.event("Page.loadEventFired", session)
            await browser.call("Page.bringToFront", session=session)
            await browser.call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session=session)
            if leak.script:
                await browser.evaluate(session, f"(async () => {{ {_filled(leak.script, names)}\n }})()")
            for method, params in leak.calls:
                own = method.startswith("page:")
                await browser.call(method.removeprefix("page:"), _filled(params, names), session=session if own else None)

    return do
