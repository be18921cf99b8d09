"""Undoing in place, as far as the browser itself can. It is weak by its nature: the browser that an agent drove does it, and what
neither its protocol nor its own `Clear browsing data` knows (client hints, preferences, open sockets) stays. A check judges the
result."""

from __future__ import annotations

import json

from sandbox.errors import InstanceLost, ResetFailed
from sandbox.ports import LiveResource
from sandbox.resources.browser import cdp, seeding
from sandbox.resources.browser.access import connected
from sandbox.resources.browser.options import BrowserOptions

_KINDS = (
    "browsing_history", "download_history", "cookies", "cache", "passwords", "form_data", "site_settings", "hosted_apps_data",
)  # fmt: skip
_ALL_TIME = 4
_CLEAR_S = 60.0
_CLEAR = f"""
(async () => {{
  const {{sendWithPromise}} = await import('chrome://resources/js/cr.js');
  await sendWithPromise('clearBrowsingData', {json.dumps([f"browser.clear_data.{kind}" for kind in _KINDS])}, {_ALL_TIME});
}})()
"""
_CLIPBOARD = "https://clipboard.invalid"


async def clean(live: LiveResource, options: BrowserOptions) -> None:
    """Close every page and context, clear what is stored, and bring golden's cookies and storage back; raise ResetFailed."""
    try:
        async with connected(live) as browser:
            await browser.call("Relay.disconnect")
            await _one_blank_tab(browser)
            await browser.call("Browser.resetPermissions")
            await _clear_stores(browser)
            await _clear_clipboard(browser)
            await browser.call("Relay.emptyDownloads")
            await seeding.fill(browser, options)
    except (cdp.Refused, InstanceLost) as error:
        raise ResetFailed(f"resource {live.spec.name}: {error.message}", fix='use method "restore"') from error


async def _one_blank_tab(browser: cdp.Cdp) -> None:
    """Dispose of every context, and leave one new tab in the default one."""
    for context in (await browser.call("Target.getBrowserContexts"))["browserContextIds"]:
        await browser.call("Target.disposeBrowserContext", {"browserContextId": context})
    old = [t["targetId"] for t in (await browser.call("Target.getTargets"))["targetInfos"] if t["type"] in ("page", "webview")]
    await browser.call("Target.createTarget", {"url": "about:blank"})
    for target in old:
        await browser.call("Target.closeTarget", {"targetId": target})


async def _clear_stores(browser: cdp.Cdp) -> None:
    """By the browser's own means, in a tab of its settings: they know every site, which the protocol must be told."""
    target = (await browser.call("Target.createTarget", {"url": "about:blank"}))["targetId"]
    session = await browser.attach(target)
    await browser.call("Page.enable", session=session)
    await browser.call("Page.navigate", {"url": "chrome://settings/clearBrowserData"}, session=session)
    await browser.event("Page.loadEventFired", session)
    await browser.evaluate(session, _CLEAR, timeout=_CLEAR_S)
    await browser.call("Target.closeTarget", {"targetId": target})


async def _clear_clipboard(browser: cdp.Cdp) -> None:
    context = (await browser.call("Target.createBrowserContext", {"disposeOnDetach": True}))["browserContextId"]
    granting = {"permissions": ["clipboardReadWrite"], "origin": _CLIPBOARD, "browserContextId": context}
    await browser.call("Browser.grantPermissions", granting)
    target = (await browser.call("Target.createTarget", {"url": "about:blank", "browserContextId": context}))["targetId"]
    session = await browser.attach(target)
    await seeding.blank_visit(browser, session, _CLIPBOARD)
    await browser.call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session=session)
    await browser.evaluate(session, "navigator.clipboard.writeText('')")
    await browser.call("Target.disposeBrowserContext", {"browserContextId": context})
