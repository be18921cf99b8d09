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


async def _connect(page: Any, url: str, headers: Mapping[str, str]) -> None:
    """With the Playwright that the page came from."""
    kind = page.context.browser.browser_type
    await (await kind.connect_over_cdp(url, headers=headers, timeout=10_000)).close()
