"""Every leak of the browser's catalogue: seen where no reset was done, gone after a restore."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from envs.environment import LoadedEnvironment
from probes.leaks.browser import LEAKS, BrowserLeak
from sandbox.errors import AutoclaveError
from sandbox.model import Depth, Snapshot, Verdict
from sandbox.ports import Instance

pytestmark = [pytest.mark.namespaces, pytest.mark.browser]
VISITED_S = 20.0
WRITTEN_S = 60.0  # what a browser stores is on disk some seconds later
SAMPLE = ("cookie", "tab", "service-worker", "local-storage", "indexed-db", "preference")


def differences(verdict: Verdict) -> list[str]:
    return [f"{m.probe}/{m.field}" for m in verdict.mismatches] + [f"{p.probe}: {p.reason}" for p in verdict.problems]


def ignored(leak: BrowserLeak, noise: dict[str, set[str]]) -> set[str]:
    """What is no sign of a leak, since the visit that it begins with leaves it, too."""
    return set() if leak.name == "history" else noise[leak.visit]


async def until_seen(verifier: Any, instance: Instance, baseline: Any, depth: Depth, noise: set[str]) -> list[str]:
    """Look until the browser's own probe finds something that a visit alone does not leave."""
    async with asyncio.timeout(WRITTEN_S) as limit:
        try:
            while True:
                found = [d for d in differences(await verifier.check(instance.subject(), baseline, depth)) if d.startswith("web/")]
                if set(found) - noise:
                    return sorted(set(found) - noise)
                await asyncio.sleep(1)
        except TimeoutError:
            assert limit.expired()
            return []


async def survey(
    names: tuple[str, ...],
    browsing: LoadedEnvironment,
    begin: Callable[..., Awaitable[Instance]],
    golden: Snapshot,
    plant: Callable[..., Awaitable[None]],
) -> list[str]:
    """Return what is not as promised."""
    verifier = browsing.verifier
    one, two = await begin("one"), await begin("two")
    baseline = await verifier.record([one.subject(), two.subject()], None, key="k")
    await two.close()
    wrong, generation = [], 1
    visits = {leak.visit for leak in LEAKS if leak.name in names}
    noise: dict[str, set[str]] = {}
    for visit in sorted(visits):
        await plant(one.endpoint("web"), BrowserLeak(name="visit", what="a visit alone", visit=visit))
        await asyncio.sleep(VISITED_S)
        noise[visit] = set(differences(await verifier.check(one.subject(), baseline, Depth.DEEP)))
        generation += 1
        await one.restore(golden, generation)
    for leak in (each for each in LEAKS if each.name in names):
        try:
            await plant(one.endpoint("web"), leak)
        except AutoclaveError as error:
            wrong.append(f"{leak.name} cannot be planted: {error}")
        else:
            if leak.seen is not None:
                seen = await until_seen(verifier, one, baseline, leak.seen, ignored(leak, noise))
                print(f"{leak.name}: {seen[:4]}", flush=True)
                if not seen:
                    wrong.append(f"{leak.name} was not seen")
        generation += 1
        await one.revoke()
        await one.restore(golden, generation)
        left = differences(await verifier.check(one.subject(), baseline, Depth.DEEP))
        if left:
            wrong.append(f"{leak.name} after a restore: {left}")
    return wrong


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_sample_of_leaks_is_seen_and_gone_after_a_restore(
    browsing: LoadedEnvironment, begin: Any, golden: Snapshot, plant: Any
) -> None:
    assert await survey(SAMPLE, browsing, begin, golden, plant) == []


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.timeout(7200)
async def test_every_leak_is_seen_and_gone_after_a_restore(
    browsing: LoadedEnvironment, begin: Any, golden: Snapshot, plant: Any
) -> None:
    chosen = os.environ.get("AUTOCLAVE_LEAKS", "")
    names = tuple(chosen.split(",")) if chosen else tuple(leak.name for leak in LEAKS)
    assert await survey(names, browsing, begin, golden, plant) == []
