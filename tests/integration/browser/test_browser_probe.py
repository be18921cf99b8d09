"""The browser's probe: fresh starts agree whenever they are read, and what `clean` cannot undo is said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from envs.environment import LoadedEnvironment
from probes.leaks.browser import LEAKS
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


async def test_cleaning_in_place_closes_clears_and_leaves_what_it_does_not_know(
    browsing: LoadedEnvironment, begin: Any, golden: Snapshot, plant: Any
) -> None:
    verifier = browsing.verifier
    one, two = await begin("one"), await begin("two")
    baseline = await verifier.record([one.subject(), two.subject()], None, key="k")
    await two.close()
    planted = {"cookie", "tab", "context", "local-storage", "local-storage-elsewhere", "indexed-db", "clipboard", "download"}
    for leak in LEAKS:
        if leak.name in planted | {"preference"}:
            await plant(one.endpoint("web"), leak)
    await one.reset_in_place(2, hook=None)
    left: set[str] = set()
    for _ in range(20):  # what was deleted is deleted on disk some seconds later
        verdict = await verifier.check(one.subject(), baseline, Depth.DEEP)
        assert not verdict.problems
        left = {m.field for m in verdict.mismatches if m.probe == "web"}
        if not any("planted" in f for f in left):
            break
        await asyncio.sleep(1)
    assert not any("planted" in field for field in left), left
    assert not {f for f in left if f.startswith(("cookie", "target", "contexts", "downloads", "clipboard", "window"))}, left
    assert "profile/Default/Preferences/homepage" in left
