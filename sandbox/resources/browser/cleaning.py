"""Undoing in place, as far as the browser's own protocol can. It is weak by its nature: the browser that an agent drove does it,
and what the protocol has no word for (HTTP authentication, client hints, open sockets) stays. A check judges the result."""

from __future__ import annotations

import asyncio

from sandbox.aio import in_thread
from sandbox.errors import InstanceLost, ResetFailed
from sandbox.ports import LiveResource
from sandbox.resources.browser import cdp, seeding
from sandbox.resources.browser.access import connected
from sandbox.resources.browser.options import BrowserOptions


async def clean(live: LiveResource, options: BrowserOptions) -> None:
    """Close every page and context, clear what is stored, and bring golden's cookies and storage back; raise ResetFailed."""
    try:
        async with connected(live) as browser:
            await browser.call("Relay.disconnect")
            await one_blank_tab(browser)
            await browser.call("Browser.resetPermissions")
            await browser.call("Storage.clearCookies")
            for origin in await in_thread(_origins, live):
                await browser.call("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
            await browser.call("Relay.emptyDownloads")
            await seeding.fill(browser, options)
    except (cdp.Refused, InstanceLost) as error:
        raise ResetFailed(f"resource {live.spec.name}: {error.message}", fix='use method "restore"') from error


async def one_blank_tab(browser: cdp.Cdp) -> None:
    """Dispose of every context, and leave one new tab in the default one."""
    for context in (await browser.call("Target.getBrowserContexts"))["browserContextIds"]:
        await browser.call("Target.disposeBrowserContext", {"browserContextId": context})
    kept = (await browser.call("Target.createTarget", {"url": "about:blank"}))["targetId"]
    session = await browser.attach(kept)
    await browser.call("Network.clearBrowserCache", session=session)
    for target in (await browser.call("Target.getTargets"))["targetInfos"]:
        if target["type"] in ("page", "tab", "background_page", "webview") and target["targetId"] != kept:
            await browser.call("Target.closeTarget", {"targetId": target["targetId"]})
    await browser.call("Target.detachFromTarget", {"sessionId": session})
    await asyncio.sleep(0)


def _origins(live: LiveResource) -> list[str]:
    return []
