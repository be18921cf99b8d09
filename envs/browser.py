"""Browsers as environments use them: what one keeps for an origin, for success checks, and destructive things done in one.

Storage is read in a blank page of the origin, in which nothing that the site sent has a part.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from envs.success import BrowserCheck, BrowserClaim
from sandbox.aio import in_thread
from sandbox.errors import InstanceLost
from sandbox.model import BrowserAction
from sandbox.resources.browser import cdp
from sandbox.resources.browser.seeding import blank_visit

SETTLED_S = 12.0  # from the last act until a look: history is on the disk after 10 s, local storage after 5 s
_ADDRESS = re.compile(r"ws\+unix://(?P<socket>.*?):/(?:part/(?P<part>.+))?")
# One expression, so that it can be evaluated in any page of the origin.
READ = """(async () => {
  const asked = (request) => new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  const within = (url) => {
    const place = new URL(url);
    return place.origin === location.origin ? place.pathname + place.search : url;
  };
  const found = { local_storage: { ...localStorage }, indexed_db: {}, caches: {}, service_workers: [] };
  for (const { name } of await indexedDB.databases()) {
    const database = await asked(indexedDB.open(name));
    const stores = (found.indexed_db[name] = {});
    for (const store of database.objectStoreNames) {
      stores[store] = await asked(database.transaction(store).objectStore(store).getAll());
    }
    database.close();
  }
  if (!window.isSecureContext) return JSON.stringify(found);
  for (const name of await caches.keys()) {
    const kept = await (await caches.open(name)).keys();
    found.caches[name] = kept.map((request) => within(request.url));
  }
  for (const each of await navigator.serviceWorker.getRegistrations()) {
    const worker = each.active || each.waiting || each.installing;
    found.service_workers.push({ scope: within(each.scope), script: worker ? within(worker.scriptURL) : null });
  }
  return JSON.stringify(found);
})()"""


async def read(endpoint: str, origin: str, *, part: str | None = None) -> dict[str, Any]:
    """Return the storage of an origin from the manager's own connection to the browser: that of a part's context where the browser
    is shared. Raises InstanceLost or Refused."""
    async with cdp.connect(endpoint) as browser:
        where = {} if part is None else {"browserContextId": await _context(browser, part)}
        target = (await browser.call("Target.createTarget", {"url": "about:blank", **where}))["targetId"]
        try:
            session = await browser.attach(target)
            await blank_visit(browser, session, origin)
            found: dict[str, Any] = json.loads(await browser.evaluate(session, READ))
            return found
        finally:
            await browser.call("Target.closeTarget", {"targetId": target})


async def _context(browser: cdp.Cdp, part: str) -> str:
    """The default context is nobody's: a page in it would be a field of the whole browser that differs."""
    known: Mapping[str, str] = (await browser.call("Relay.parts"))["parts"]
    if part not in known:
        raise InstanceLost(f"the browser has no context for {part} any more", fix="ask for a new session")
    return known[part]


def failures(check: BrowserCheck, state: Mapping[str, Any]) -> list[str]:
    """Return what does not hold of a check's claims."""
    return [f"{claim.name}: {fault}" for claim in check.claims if (fault := _fault(claim, state))]


def _fault(claim: BrowserClaim, state: Mapping[str, Any]) -> str | None:
    value: Any = state
    for step in claim.path:
        value = value.get(step) if isinstance(value, Mapping) else None
    if claim.records is not None:
        right = isinstance(value, list) and len(value) == len(claim.records) and _all_match(claim.records, value)
    elif claim.items is not None:
        right = isinstance(value, list) and sorted(map(_text, value)) == sorted(map(_text, claim.items))
    else:
        right = isinstance(value, str) and _document(value) == claim.document
    return None if right else f"found {_text(value)[:200]}"


def _all_match(wanted: Sequence[Mapping[str, Any]], found: Sequence[Any]) -> bool:
    left = list(found)
    for record in wanted:
        match = next((item for item in left if isinstance(item, Mapping) and record.items() <= item.items()), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


async def act(address: str, action: BrowserAction, *, limit_s: float) -> None:
    """Do something as the agent, at the agent's address of the browser. Raises Refused or InstanceLost."""
    async with _as_agent(address, limit_s) as browser:
        if action.visit or action.script:
            session = await browser.attach(await _first_tab(browser))
            if action.visit:
                await _visit(browser, session, action.visit)
            if action.script:
                await _run_script(browser, session, action.script, limit_s)
        for method, params in action.calls:
            await browser.call(method, params)


async def plant(address: str, action: BrowserAction, *, limit_s: float) -> None:
    """Like `act`, in a tab that has the focus; calls whose names begin with `page:` are made in the tab's own session, and
    `{window}` in their parameters is the number of its window."""
    async with _as_agent(address, limit_s) as browser:
        target = await _first_tab(browser)
        session = await browser.attach(target)
        window = (await browser.call("Browser.getWindowForTarget", {"targetId": target}))["windowId"]
        await _visit(browser, session, action.visit)
        await browser.call("Page.bringToFront", session=session)
        await browser.call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session=session)
        if action.script:
            await _run_script(browser, session, action.script, limit_s)
        for method, params in action.calls:
            filled = {name: window if value == "{window}" else value for name, value in params.items()}
            own = method.startswith("page:")
            await browser.call(method.removeprefix("page:"), filled, session=session if own else None)


@asynccontextmanager
async def _as_agent(address: str, limit_s: float) -> AsyncIterator[cdp.Cdp]:
    url, _, secret_file = address.partition("#")
    found = _ADDRESS.fullmatch(url)
    if found is None:
        raise InstanceLost(f"{url} is no address of a browser")
    try:
        async with asyncio.timeout(limit_s), cdp.connect(found["socket"]) as browser:
            if found["part"] is not None:  # of a browser that several share
                secret = await in_thread(Path(secret_file).read_text, "ascii")
                await browser.call(cdp.ENTER, {"name": found["part"], "secret": secret})
            yield browser
    except OSError as error:
        raise InstanceLost(f"the way to the browser was taken away: {error.strerror}") from error
    except TimeoutError:
        raise InstanceLost(f"the browser did not do it within {limit_s:g} s") from None


async def _run_script(browser: cdp.Cdp, session: str, script: str, limit_s: float) -> None:
    await browser.evaluate(session, f"(async () => {{\n{script}\n}})()", timeout=limit_s)


async def _first_tab(browser: cdp.Cdp) -> str:
    targets = (await browser.call("Target.getTargets"))["targetInfos"]
    tabs = [str(t["targetId"]) for t in targets if t["type"] == "page"]
    return tabs[-1] if tabs else str((await browser.call("Target.createTarget", {"url": "about:blank"}))["targetId"])


async def _visit(browser: cdp.Cdp, session: str, url: str) -> None:
    await browser.call("Page.enable", session=session)
    said = await browser.call("Page.navigate", {"url": url}, session=session)
    if said.get("errorText"):
        raise cdp.Refused(f"{url} could not be opened: {said['errorText']}")
    await browser.event("Page.loadEventFired", session)
