"""What the clipboard holds. It is one for the whole process, whichever context asks; so it is read from a context of our own."""

from __future__ import annotations

from probes.canonical import name_of
from sandbox.resources.browser.cdp import Cdp, Refused
from sandbox.resources.browser.relay.commons import PASTE, PREPARE, REPORT


async def read_clipboard(browser: Cdp) -> dict[str, str]:
    """Read it in a throw-away context, by pasting: that sees kinds of data of a page's own making, too."""
    context = (await browser.call("Target.createBrowserContext", {"disposeOnDetach": True}))["browserContextId"]
    try:
        target = (await browser.call("Target.createTarget", {"url": "about:blank", "browserContextId": context}))["targetId"]
        session = await browser.attach(target)
        await browser.call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session=session)
        await browser.evaluate(session, PREPARE)
        await browser.call("Input.dispatchKeyEvent", PASTE, session=session)
        held = await browser.evaluate(session, REPORT)
    finally:
        await browser.call("Target.disposeBrowserContext", {"browserContextId": context})
    if not isinstance(held, list):
        raise Refused("the clipboard could not be read: no paste came")
    return {"clipboard": "\n".join(name_of(str(line)) for line in held)}
