"""What a browser answers about itself: its targets, contexts, cookies and windows. Nothing is opened, and no page is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from probes.canonical import name_of
from sandbox.resources.browser.cdp import Cdp

# The browser keeps one page of its own interface ready.
_OWN = ("chrome://", "chrome-untrusted://", "devtools://")


async def read_live(browser: Cdp) -> dict[str, str]:
    """Read what no page need be opened for."""
    targets = (await browser.call("Target.getTargets", {"filter": [{}]}))["targetInfos"]
    contexts = (await browser.call("Target.getBrowserContexts"))["browserContextIds"]
    version = await browser.call("Browser.getVersion")
    fields = {
        "browser": name_of(str(version.get("product", ""))),
        "user agent": name_of(str(version.get("userAgent", ""))),
        "contexts": str(len(contexts)),
    }
    fields |= target_fields(targets)
    fields |= await window_fields(browser, targets)
    fields |= cookie_fields((await browser.call("Storage.getCookies"))["cookies"])
    return fields


async def window_fields(browser: Cdp, targets: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """One field for each different kind of window, with how many tabs are in such a one."""
    seen: Counter[str] = Counter()
    for target in targets:
        if target.get("type") == "page":
            bounds = (await browser.call("Browser.getWindowForTarget", {"targetId": target["targetId"]}))["bounds"]
            seen[f"window/{bounds.get('width')}x{bounds.get('height')} {bounds.get('windowState')}"] += 1
    return {name: str(count) for name, count in seen.items()}


def target_fields(targets: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """One field for each different kind and address, with how often it is there."""
    seen: Counter[str] = Counter()
    for target in targets:
        kind, url = str(target.get("type", "")), str(target.get("url", ""))
        if kind in ("browser", "tab"):  # the connection's own; and a tab is there once for each page
            continue
        opened = " opened by a page" if target.get("openerId") else ""
        seen[f"target/{kind} {name_of(url)}{opened}"] += 1
    return {name: str(count) for name, count in seen.items()} | {"targets": str(seen.total())}


def cookie_fields(cookies: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """One field for each cookie."""
    fields: dict[str, str] = {}
    count = 0
    for cookie in cookies:
        count += 1
        partition = cookie.get("partitionKey")
        where = f"{cookie.get('domain', '')} {cookie.get('path', '')} {cookie.get('name', '')}"
        if partition:
            where += f" in {partition}"
        flags = [n for n in ("httpOnly", "secure") if cookie.get(n)]
        words = [*flags, f"same-site {cookie.get('sameSite', 'unset')}", _end(cookie), f"value {cookie.get('value', '')}"]
        if cookie.get("priority", "Medium") != "Medium":
            words.insert(0, f"priority {cookie['priority']}")
        fields[f"cookie/{name_of(where)}"] = name_of(", ".join(words))
    return fields | {"cookies": str(count)}


def _end(cookie: Mapping[str, Any]) -> str:
    return "until the browser ends" if cookie.get("session") else f"until {round(float(cookie.get('expires', 0)))}"
