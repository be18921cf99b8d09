"""The browser's probe: fresh starts agree whenever they are read; and the reset that a browser refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from envs.environment import LoadedEnvironment
from sandbox.errors import ResetFailed
from sandbox.model import Depth, Snapshot
from sandbox.ports import Instance

pytestmark = [pytest.mark.namespaces, pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]


async def fresh_starts(
    browsing: LoadedEnvironment, begin: Callable[..., Awaitable[Instance]], golden: Snapshot, waits: Sequence[float]
) -> list[str]:
    """Restore and check once for each wait (seconds between the two depths); return what was not clean."""
    verifier = browsing.verifier
    one, two = await begin("one"), await begin("two")
    baseline = await verifier.record([one.subject(), two.subject()], None, key="k")
    await two.close()
    wrong = []
    for number, wait in enumerate(waits, 2):
        await one.restore(golden, number)
        for depth in Depth:
            verdict = await verifier.check(one.subject(), baseline, depth)
            wrong += [f"start {number}, {depth}: {m.probe}/{m.field}: {m.expected} {m.actual}" for m in verdict.mismatches]
            wrong += [f"start {number}, {depth}: {p.probe}: {p.reason}" for p in verdict.problems]
            await asyncio.sleep(wait)
    return wrong


async def test_fresh_starts_agree(browsing: LoadedEnvironment, begin: Any, golden: Snapshot) -> None:
    assert await fresh_starts(browsing, begin, golden, [0, 3]) == []


@pytest.mark.acceptance
@pytest.mark.timeout(7200)
async def test_twenty_fresh_starts_agree(browsing: LoadedEnvironment, begin: Any, golden: Snapshot) -> None:
    assert await fresh_starts(browsing, begin, golden, [0, 0, 1, 12, 25] * 4) == []


async def test_a_browser_is_not_cleaned_in_place(browsing: LoadedEnvironment, begin: Any) -> None:
    one = await begin("one")
    web = next(resource for resource in browsing.resources if resource.spec.name == "web")
    with pytest.raises(ResetFailed, match="cannot be cleaned in place"):
        await web.clean(one.world.lives["web"])
