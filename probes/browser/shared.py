"""Reading a browser that several namespaces share: one part of it, or the whole.

A part is a context. Which context is whose is asked of the relay, never of the browser. What belongs to no part is the browser's,
and no holder may change it: its default context, its profile, its clipboard and screens, and the absence of any further context.
The clipboard is common to all, so that every check reads it: the relay empties it before a part is made and after it was dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from probes.browser.live import cookie_fields, target_fields, window_fields
from probes.canonical import name_of
from sandbox.ports import Part, Sharing
from sandbox.resources.browser.cdp import Cdp

OWN = "(own) "
_COMMONS_S = 120.0  # its page may have to be opened first
_CHANGING_S = 20.0  # a context that waits for the next part is being opened; below the limit of a probe
_LEAVING_S = 10.0  # the targets of a context that went are gone within a second, and later on a busy machine
_SETTLE_S = 5.0  # what was asked one after another belongs together


def of_instance(field: str) -> bool:
    """True for a field that belongs to the browser as a whole."""
    return not field.startswith(OWN)


async def read_shared(browser: Cdp, sharing: Sharing) -> dict[str, str]:
    """Read what is due in this scope, without opening anything."""
    version = await browser.call("Browser.getVersion")
    fields = {"browser": str(version.get("product", "")), "user agent": str(version.get("userAgent", ""))}
    known = await browser.call("Relay.parts")
    targets, contexts, default = await _settled(browser)
    fields |= target_fields(default)
    fields |= await window_fields(browser, default)
    fields |= cookie_fields((await browser.call("Storage.getCookies"))["cookies"])
    common = await browser.call("Relay.commons", timeout=_COMMONS_S)
    fields |= {what: "\n".join(map(name_of, common[what])) for what in ("clipboard", "screens")}
    if sharing.own is None:
        return fields | {"contexts of nobody": await _of_nobody(browser, sharing)}
    return fields | await _own(browser, sharing.own, known, targets, contexts)


async def _settled(browser: Cdp) -> tuple[list[Mapping[str, Any]], Collection[str], list[Mapping[str, Any]]]:
    """Return all targets, the contexts, and the targets of no context but the browser's own.

    A context that goes leaves its list first and takes its targets with it a little later, the popups of its windows last. Those
    that were of no context at the first look and still are when time is up count as the browser's own; later ones are the ends of
    other parts.
    """
    loop = asyncio.get_running_loop()
    until, leaving = loop.time() + _LEAVING_S, None
    while True:
        targets = (await browser.call("Target.getTargets", {"filter": [{}]}))["targetInfos"]
        found = await browser.call("Target.getBrowserContexts")
        contexts, own = found["browserContextIds"], found.get("defaultBrowserContextId")
        outside = {t["targetId"]: t for t in targets if t.get("browserContextId") not in contexts}
        if own is None:  # an older browser does not say which is its own
            return targets, contexts, list(outside.values())
        homeless = {name for name, target in outside.items() if target.get("browserContextId") != own}
        leaving = homeless if leaving is None else leaving & homeless
        if not leaving or loop.time() > until:
            return targets, contexts, [outside[name] for name in outside if name in leaving or name not in homeless]
        await asyncio.sleep(0.05)


async def _own(
    browser: Cdp, part: Part, known: Mapping[str, Any], targets: list[Mapping[str, Any]], contexts: Collection[str]
) -> dict[str, str]:
    context = known["parts"].get(part.name)
    if context not in contexts:  # nobody knows it, or somebody took it away: what cannot be asked is no answer, and this is one
        return {f"{OWN}context": "there is none"}
    own = [t for t in targets if t.get("browserContextId") == context]
    found = target_fields(own) | await window_fields(browser, own)
    found |= cookie_fields((await browser.call("Storage.getCookies", {"browserContextId": context}))["cookies"])
    return {f"{OWN}context": "there", **{f"{OWN}{name}": text for name, text in found.items()}}


async def _of_nobody(browser: Cdp, sharing: Sharing) -> str:
    """Count the contexts that are neither a part's nor the one that waits, once none is coming or going."""
    loop = asyncio.get_running_loop()
    until, end = loop.time() + _CHANGING_S, loop.time() + _SETTLE_S
    while True:
        known = await browser.call("Relay.parts")
        if known["changing"] and loop.time() < until:
            end = loop.time() + _SETTLE_S
        contexts = set((await browser.call("Target.getBrowserContexts"))["browserContextIds"])
        strangers = [name for name in known["parts"] if name not in sharing.names]
        left = contexts - set(known["parts"].values()) - {known["spare"], known["commons"]}
        if not (left or strangers) or loop.time() > end:
            return str(len(left) + len(strangers))
        await asyncio.sleep(0.05)
