"""What the clipboard holds. It is one for the whole process, whichever context asks; so it is read from a context of our own."""

from __future__ import annotations

from probes.canonical import name_of
from sandbox.resources.browser.cdp import Cdp
from sandbox.resources.browser.seeding import blank_visit

_ORIGIN = "https://clipboard.invalid"  # never asked for: its one page is made here
_READ = """
(async () => {
  const found = [];
  for (const item of await navigator.clipboard.read()) {
    for (const type of item.types) {
      const data = new Uint8Array(await (await item.getType(type)).arrayBuffer());
      const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', data));
      const hex = Array.from(digest.slice(0, 16), (b) => b.toString(16).padStart(2, '0')).join('');
      found.push(`${type}: ${data.length} bytes, ${hex}`);
    }
  }
  return found.sort().join('\\n');
})()
"""


async def read_clipboard(browser: Cdp) -> dict[str, str]:
    """Read it in a throw-away context."""
    context = (await browser.call("Target.createBrowserContext", {"disposeOnDetach": True}))["browserContextId"]
    try:
        granting = {"permissions": ["clipboardReadWrite"], "origin": _ORIGIN, "browserContextId": context}
        await browser.call("Browser.grantPermissions", granting)
        target = (await browser.call("Target.createTarget", {"url": "about:blank", "browserContextId": context}))["targetId"]
        session = await browser.attach(target)
        await blank_visit(browser, session, _ORIGIN)
        await browser.call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session=session)
        held = await browser.evaluate(session, _READ)
    finally:
        await browser.call("Target.disposeBrowserContext", {"browserContextId": context})
    return {"clipboard": "\n".join(map(name_of, str(held).split("\n")))}
