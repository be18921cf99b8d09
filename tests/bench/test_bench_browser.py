"""A browser's context: made anew and checked, beside a bare new context and page, and beside a relaunch from the golden profile."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from probes import create_verifier
from sandbox.aio import poll
from sandbox.model import Depth, InstanceId, Isolation, NamespaceId
from sandbox.ports import SharingRuntime
from sandbox.resources.browser import cdp

pytestmark = [pytest.mark.bench, pytest.mark.slow, pytest.mark.namespaces, pytest.mark.browser, pytest.mark.timeout(1800)]
ROUNDS = 20


class Shared:
    """The same environment, its namespaces sharing one browser."""

    def __init__(self, environment: Any) -> None:
        self.spec = dataclasses.replace(environment.spec, isolation=Isolation.CONTEXT, namespaces_per_instance=2)
        self.resources, self.tasks = environment.resources, environment.tasks
        self.verifier = create_verifier(self.spec)


def environment(base: Path) -> dict[str, Any]:
    return {
        "name": "bench",
        "version": "1",
        "description": "a browser",
        "limits": {"memory_mb": 2048, "cpus": 2.0, "pids": 512},
        "check": {"probe_limit_s": 120.0},
        "resources": {"web": {"kind": "browser"}},
    }


async def _until_idle(path: str) -> None:
    """The context that waits for the next reset is opened behind the last one: it is not part of this one."""
    async with cdp.connect(path) as browser:

        async def waits() -> bool:
            return (await browser.call("Relay.parts"))["spare"] is not None

        assert await poll(waits, timeout=60)


async def test_context(built: Any, alternately: Callable[..., Awaitable[Any]], rows: Any, passable_dir: Path) -> None:
    async with built(environment(passable_dir), passable_dir) as b:
        assert isinstance(b.runtime, SharingRuntime)
        shared = Shared(b.environment)
        host = await b.runtime.start_shared(shared, b.snapshot, InstanceId("bench-shared"), 1)  # type: ignore[arg-type]
        try:
            one = await host.open(NamespaceId("one"), 1)
            two = await host.open(NamespaceId("two"), 1)
            baseline = await shared.verifier.record([one.subject(), two.subject()], None, key="k")
            path = one.subject().endpoint("web")
            generation = 1

            async def ours() -> float:
                nonlocal generation
                await _until_idle(path)
                generation += 1
                began = time.perf_counter()
                await one.restore(b.snapshot, generation)
                verdict = await shared.verifier.check(one.subject(), baseline, Depth.QUICK)
                took = (time.perf_counter() - began) * 1e3
                assert verdict.clean, verdict
                return took

            async def bare() -> float:
                """What the browser itself needs for a context with a page in which something can run."""
                async with cdp.connect(path) as browser:
                    began = time.perf_counter()
                    context = (await browser.call("Target.createBrowserContext"))["browserContextId"]
                    opening = {"url": "about:blank", "browserContextId": context}
                    session = await browser.attach((await browser.call("Target.createTarget", opening))["targetId"])
                    await browser.evaluate(session, "1")
                    took = (time.perf_counter() - began) * 1e3
                    await browser.call("Target.disposeBrowserContext", {"browserContextId": context})
                    return took

            relaunches = 1

            async def relaunch() -> float:
                nonlocal relaunches
                relaunches += 1
                began = time.perf_counter()
                await b.instance.restore(b.snapshot, relaunches)
                async with cdp.connect(str(b.instance.subject().endpoint("web"))) as browser:
                    targets = (await browser.call("Target.getTargets"))["targetInfos"]
                    session = await browser.attach(next(t["targetId"] for t in targets if t["type"] == "page"))
                    await browser.evaluate(session, "1")
                return (time.perf_counter() - began) * 1e3

            reset, plain, again = await alternately(ROUNDS, ours, bare, relaunch)
        finally:
            await host.close()
        what = "reset + quick check, browser context"
        rows.slower(what, reset, "a bare new context and page", plain, below=1.5)
        rows.faster("the same", reset, "relaunch from the golden profile", again, least=3)
