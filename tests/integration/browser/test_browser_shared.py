"""A browser that several namespaces share: each has its context, sees no other, and gets a new one by a reset."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.environment import define
from probes import create_verifier
from sandbox.errors import InstanceLost
from sandbox.model import Depth, EnvironmentSpec, InstanceId, Isolation, NamespaceId, Score, Snapshot, TaskSpec
from sandbox.pages import Pages, resolve
from sandbox.ports import Environment, Resource, Runtime, SharedInstance, SharingRuntime, Subject, Verifier
from sandbox.resources.browser import cdp

pytestmark = [pytest.mark.namespaces, pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]


class Shared:
    """An environment whose namespaces share a browser."""

    def __init__(self, spec: EnvironmentSpec, resources: Sequence[Resource]) -> None:
        self.spec, self.resources = spec, resources
        self.tasks: Mapping[str, TaskSpec] = {}
        self.verifier: Verifier = create_verifier(spec)

    async def score(self, subject: Subject, task: TaskSpec) -> Score:
        raise NotImplementedError


@pytest.fixture
def environment(passable_dir: Path) -> Environment:
    data = {
        "name": "shared",
        "version": "1",
        "limits": {"memory_mb": 2048, "cpus": 2.0, "pids": 512},
        "check": {"probe_limit_s": 120.0},
        "resources": {"web": {"kind": "browser"}},
    }
    whole = define(data, passable_dir)
    spec = dataclasses.replace(whole.spec, isolation=Isolation.CONTEXT, namespaces_per_instance=3)
    return Shared(spec, whole.resources)


@pytest.fixture
async def host(runtime: Runtime, environment: Environment, golden: Snapshot) -> AsyncIterator[SharedInstance]:
    assert isinstance(runtime, SharingRuntime)
    shared = await runtime.start_shared(environment, golden, InstanceId("shared-one"), 1)
    yield shared
    await shared.close()


@pytest.fixture
async def golden(runtime: Runtime, environment: Environment) -> Snapshot:
    return await runtime.build(environment)


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    found = Pages()
    yield found
    await found.close()


HELLO = "data:text/html,<title>mine</title><input>"


async def test_each_has_its_own_context_and_a_reset_gives_another(
    environment: Environment, host: SharedInstance, golden: Snapshot, pages: Pages
) -> None:
    verifier = environment.verifier
    one, two = [await host.open(NamespaceId(name), 1) for name in ("one", "two")]
    baseline = await verifier.record([one.subject(), two.subject()], None, key="k")
    whole = await verifier.record([host.subject(), host.subject()], None, key="w")
    address = one.endpoint("web")
    mine, other = await pages.page("one", address), await pages.page("two", two.endpoint("web"))
    await mine.goto(HELLO)
    await mine.context.add_cookies([{"name": "mine", "value": "1", "url": "http://a.test/"}])
    await mine.context.new_page()
    assert await other.context.cookies() == []
    assert len(other.context.pages) == 1
    assert await mine.title() == "mine"

    dirty = await verifier.check(one.subject(), baseline, Depth.QUICK)
    assert {"(own) cookie/a.test / mine", "(own) targets"} <= {m.field for m in dirty.mismatches if m.probe == "web"}
    assert (await verifier.check(two.subject(), baseline, Depth.QUICK)).clean
    for instance in (one, two):
        await instance.revoke()
    assert await host.canaries() == []

    await one.restore(golden, 2)
    assert (await verifier.check(one.subject(), baseline, Depth.QUICK)).clean
    assert (await verifier.check(host.subject(), whole, Depth.DEEP)).clean
    with pytest.raises(InstanceLost):
        await pages.page("late", address)
    fresh = await pages.page("again", one.endpoint("web"))
    assert await fresh.context.cookies() == []
    assert len(fresh.context.pages) == 1


async def test_nobody_reaches_past_the_own_context(environment: Environment, host: SharedInstance, pages: Pages) -> None:
    from playwright.async_api import Error

    one = await host.open(NamespaceId("one"), 1)
    page = await pages.page("one", one.endpoint("web"))
    assert page.context.browser is not None
    for forbidden in (page.context.browser.new_context(), page.context.grant_permissions(["clipboard-read"])):
        with pytest.raises(Error, match="Not allowed"):
            await forbidden
    for address in ("file:///etc/passwd", "chrome://settings/"):
        with pytest.raises(Error, match="ERR_BLOCKED"):
            await page.goto(address)
    url, headers = await asyncio.to_thread(resolve, one.endpoint("web"))
    whole = url.partition("/part/")[0] + "/"
    for wrong, given in ((whole, {}), (url, {}), (url, dict.fromkeys(headers, "guess"))):
        with pytest.raises(Error):
            await _connect(page, wrong, given)


HOSTILE = """(secret) => {
  document.open(); document.write('<textarea id=t>' + secret + '</textarea>'); document.close();
  addEventListener('copy', (e) => { e.preventDefault(); e.clipboardData.setData('application/x-own', secret); });
  t.select();
  return document.execCommand('copy');
}"""


async def test_the_clipboard_does_not_cross_contexts(
    environment: Environment, host: SharedInstance, golden: Snapshot, pages: Pages
) -> None:
    """`set_content` opens the document anew, which ends every listener of the page."""
    from playwright.async_api import Error

    one, two = [await host.open(NamespaceId(name), 1) for name in ("one", "two")]
    verifier = environment.verifier
    baseline = await verifier.record([one.subject(), two.subject()], None, key="k")
    mine, other = await pages.page("one", one.endpoint("web")), await pages.page("two", two.endpoint("web"))
    for key in ("c", "x", "Insert"):
        await mine.set_content("<textarea id=t>secret of one</textarea>")
        await mine.focus("#t")
        await mine.keyboard.press("ControlOrMeta+a")
        await mine.keyboard.press(f"Control+{key}")
    assert await _common(host) == []
    await mine.evaluate(HOSTILE, "secret of one")
    for key in ("Control+v", "Control+Shift+V", "Shift+Insert", "Paste"):
        await other.set_content("<textarea id=t></textarea>")
        await other.focus("#t")
        if key != "Paste":
            await other.keyboard.press(key)
        else:
            await other.evaluate("document.execCommand('paste')")
        assert await other.input_value("#t") == ""
    with pytest.raises(Error, match="Not allowed"):
        await mine.context.clear_permissions()
    assert (await verifier.check(two.subject(), baseline, Depth.QUICK)).clean


async def test_what_a_holder_set_does_not_end_with_its_connection(host: SharedInstance, pages: Pages) -> None:
    """The browser takes back what a session set when it ends: the clipboard stays denied, and downloads stay in their directory."""
    one = await host.open(NamespaceId("one"), 1)
    first = await pages.page("first", one.endpoint("web"))
    await first.context.grant_permissions(["geolocation"], origin="https://other.invalid")
    await pages.forget("first")
    page = await pages.page("second", one.endpoint("web"))
    assert page.context.browser is not None
    await page.route("**/*", lambda route: route.fulfill(body="<p>hello", content_type="text/html"))
    await page.goto("https://one.invalid/")
    said = await page.evaluate("navigator.clipboard.writeText('kept').then(() => 'written', (e) => e.name)")
    assert said == "NotAllowedError"
    assert await _common(host) == []


async def test_what_was_put_on_the_clipboard_is_seen_by_every_check_and_is_gone_with_its_part(
    environment: Environment, host: SharedInstance, golden: Snapshot, pages: Pages
) -> None:
    one, two = [await host.open(NamespaceId(name), 1) for name in ("one", "two")]
    verifier = environment.verifier
    baseline = await verifier.record([one.subject(), two.subject()], None, key="k")
    whole = await verifier.record([host.subject(), host.subject()], None, key="w")
    for kind in ("text/plain", "application/x-own"):  # what the page's own interface does not show, too
        await _plant(host, COPY.replace("KIND", kind))
        for subject, known in ((two.subject(), baseline), (host.subject(), whole)):
            found = await verifier.check(subject, known, Depth.QUICK)
            assert {m.field for m in found.mismatches} == {"clipboard"}
            assert all(m.shared for m in found.mismatches)
        await one.revoke()
        await one.restore(golden, one.generation + 1)
        assert await _common(host) == []
        assert (await verifier.check(two.subject(), baseline, Depth.QUICK)).clean
    await _plant(host, COPY.replace("KIND", "text/plain"))
    await two.close()
    assert await _common(host) == []


COPY = """
document.body.innerHTML = '<p>words';
getSelection().selectAllChildren(document.body);
addEventListener('copy', (e) => { e.preventDefault(); e.clipboardData.setData('KIND', 'secret'); }, {once: true});
document.execCommand('copy');
"""


async def _common(host: SharedInstance) -> list[str]:
    async with cdp.connect(host.subject().endpoint("web")) as browser:
        return list((await browser.call("Relay.commons"))["clipboard"])


async def _plant(host: SharedInstance, script: str) -> None:
    """As the manager could, whom nothing stops."""
    async with cdp.connect(host.subject().endpoint("web")) as browser:
        context = (await browser.call("Target.createBrowserContext"))["browserContextId"]
        target = (await browser.call("Target.createTarget", {"url": "about:blank", "browserContextId": context}))["targetId"]
        session = await browser.attach(target)
        await browser.call("Emulation.setFocusEmulationEnabled", {"enabled": True}, session=session)
        await browser.evaluate(session, script)
        async with asyncio.timeout(60):  # what a page puts there is still on its way when the page has done so
            while not (await browser.call("Relay.commons"))["clipboard"]:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        await browser.call("Target.disposeBrowserContext", {"browserContextId": context})


async def _connect(page: Any, url: str, headers: Mapping[str, str]) -> None:
    """With the Playwright that the page came from."""
    kind = page.context.browser.browser_type
    await (await kind.connect_over_cdp(url, headers=headers, timeout=10_000)).close()
