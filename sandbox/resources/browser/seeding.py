"""Filling a golden profile, and taking away what only one run of the browser needed."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.errors import EnvironmentInvalid
from sandbox.model import Role
from sandbox.ports import SeedHost
from sandbox.resources.browser import cdp
from sandbox.resources.browser.options import BrowserStart, Cookie
from sandbox.resources.contents import succeeded

EMPTY = base64.b64encode(b"<!doctype html><title></title>").decode()
# Made anew at each start; in a golden profile they would only be copied.
_ONE_RUN = (
    "BrowserMetrics*", "Crash Reports", "Crashpad", "DevToolsActivePort", "*Cache", "Default/*Cache", "ShaderCache", "Singleton*",
    "Default/Site Characteristics Database", "Default/shared_proto_db", "Default/Sessions", "Default/LOG*", "Default/*/LOG*",
    "Default/*/*/LOG*", "Variations", "segmentation_platform", "Safe Browsing", "component_crx_cache", "extensions_crx_cache",
)  # fmt: skip
_TRIM = 'cd "$1"; shift; for p in "$@"; do find . -path "./$p" -prune -exec rm -rf {} +; done'


_Key = tuple[str, str, str]  # name, domain, path


async def ends(browser: cdp.Cdp) -> Mapping[_Key, float]:
    """Return when the profile's own cookies end. A browser cuts what is further away than it likes, from when it is told; a context
    that is told later would have other ends than one that was told before."""
    found = (await browser.call("Storage.getCookies"))["cookies"]
    return {(c["name"], c["domain"].lstrip("."), c["path"]): float(c["expires"]) for c in found if not c.get("session")}


async def fill(
    browser: cdp.Cdp, start: BrowserStart, *, context: str | None = None, ends: Mapping[_Key, float] | None = None
) -> None:
    """Put cookies and local storage into the profile, or into a context beside it; raises EnvironmentInvalid."""
    where = {} if context is None else {"browserContextId": context}
    try:
        if start.cookies:
            await browser.call("Storage.setCookies", {"cookies": [cookie_parameters(c, ends) for c in start.cookies], **where})
        for origin, items in start.storage.items():
            await _store(browser, origin, items, where)
    except cdp.Refused as error:
        raise EnvironmentInvalid(f"the browser's profile cannot be filled: {error.message}") from error


def cookie_parameters(cookie: Cookie, ends: Mapping[_Key, float] | None = None) -> dict[str, Any]:
    """Return a cookie as the protocol wants it."""
    found: dict[str, Any] = {
        "name": cookie.name,
        "value": cookie.value,
        "domain": cookie.domain,
        "path": cookie.path,
        "expires": (ends or {}).get((cookie.name, cookie.domain.lstrip("."), cookie.path), cookie.expires),
        "httpOnly": cookie.http_only,
    }
    if cookie.same_site is not None:
        found["sameSite"] = cookie.same_site
        found["secure"] = cookie.same_site == "None"
    return found


async def _store(browser: cdp.Cdp, origin: str, items: Mapping[str, str], where: Mapping[str, str]) -> None:
    """In a page of that origin that no server was asked for."""
    target = (await browser.call("Target.createTarget", {"url": "about:blank", **where}))["targetId"]
    session = await browser.attach(target)
    try:
        await blank_visit(browser, session, origin)
        await browser.evaluate(
            session, f"for (const [k, v] of Object.entries({json.dumps(dict(items))})) localStorage.setItem(k, v)"
        )
    finally:
        await browser.call("Target.closeTarget", {"targetId": target})


async def blank_visit(browser: cdp.Cdp, session: str, origin: str) -> None:
    """Bring a page to an origin without a request leaving the browser: an empty document is its answer. Service workers are passed
    by, since they would answer first."""
    await browser.call("Network.enable", session=session)
    await browser.call("Network.setBypassServiceWorker", {"bypass": True}, session=session)
    await browser.call("Fetch.enable", {"patterns": [{"urlPattern": "*"}]}, session=session)
    await browser.call("Page.enable", session=session)
    navigating = await _navigation(browser, session, f"{origin}/")
    if navigating:
        raise cdp.Refused(f"{origin} could not be opened: {navigating}")


async def _navigation(browser: cdp.Cdp, session: str, url: str) -> str:
    going = asyncio.ensure_future(browser.call("Page.navigate", {"url": url}, session=session))
    try:
        paused = await browser.event("Fetch.requestPaused", session)
        headers = [{"name": "Content-Type", "value": "text/html"}]
        answer = {"requestId": paused["requestId"], "responseCode": 200, "responseHeaders": headers, "body": EMPTY}
        await browser.call("Fetch.fulfillRequest", answer, session=session)
        said = await going
    finally:
        going.cancel()
        await asyncio.wait({going})
    await browser.event("Page.loadEventFired", session)
    return str(said.get("errorText", ""))


async def trim(host: SeedHost, profile: str) -> None:
    """After a clean stop: remove what belongs to one run."""
    argv: Sequence[str] = ("/bin/sh", "-ec", _TRIM, "sh", profile, *_ONE_RUN)
    succeeded(await host.run(argv, role=Role.SERVER), "removing what a run of the browser leaves")
