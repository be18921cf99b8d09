"""Every leak of the browser's catalogue: seen at its depth where no reset was done, gone after a restore."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import pytest

from envs.environment import LoadedEnvironment
from probes.leaks.browser import LEAKS, BrowserLeak
from sandbox.errors import AutoclaveError
from sandbox.model import Depth, Snapshot, Verdict
from sandbox.ports import Instance

pytestmark = [pytest.mark.namespaces, pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(7200)]
WRITTEN_S = 90.0  # what a browser stores is on disk some seconds later
WORLDS = 6  # leaks that touch the same thing stand beside each other in the catalogue, and so come into different ones
SAMPLE = ("cookie", "tab", "service-worker", "local-storage", "indexed-db", "preference")


def differences(verdict: Verdict) -> set[str]:
    return {m.field for m in verdict.mismatches if m.probe == "web"} | {p.reason for p in verdict.problems if p.probe == "web"}


async def until_seen(verifier: Any, instance: Instance, baseline: Any, leak: BrowserLeak, pattern: str) -> bool:
    """Look until the field that the leak must change differs; a leak that is seen at once must be seen at the first look."""
    assert leak.seen is not None
    found: set[str] = set()
    try:
        async with asyncio.timeout(WRITTEN_S):
            while True:
                found = differences(await verifier.check(instance.subject(), baseline, leak.seen))
                if any(fnmatchcase(field, pattern) for field in found):
                    return True
                await asyncio.sleep(1)
    except TimeoutError:
        print(f"{leak.name}: {pattern} is not among {sorted(found)}", flush=True)
        return False


async def survey(
    worlds: Sequence[Sequence[BrowserLeak]],
    browsing: LoadedEnvironment,
    begin: Callable[..., Awaitable[Instance]],
    golden: Snapshot,
    plant: Callable[..., Awaitable[None]],
    names: Mapping[str, str],
) -> list[str]:
    """Plant each world's leaks one after another, look at each, restore; return what is not as promised."""
    verifier = browsing.verifier
    one, two = await begin("one"), await begin("two")
    baseline = await verifier.record([one.subject(), two.subject()], None, key="k")
    await two.close()
    wrong = []
    for number, leaks in enumerate(worlds, 2):
        for leak in leaks:
            try:
                await plant(one.endpoint("web"), leak)
            except AutoclaveError as error:
                wrong.append(f"{leak.name} cannot be planted: {error}")
                continue
            pattern = leak.shows
            for name, text in names.items():
                pattern = pattern.replace(f"{{{name}}}", text)
            if leak.seen is not None and not await until_seen(verifier, one, baseline, leak, pattern):
                wrong.append(f"{leak.name} was not seen")
            print(f"{leak.name}: looked at", flush=True)
        await one.revoke()
        await one.restore(golden, number)
        left = await verifier.check(one.subject(), baseline, Depth.DEEP)
        if not left.clean:
            planted = ", ".join(leak.name for leak in leaks)
            wrong.append(f"after a restore of {planted}: {[(m.probe, m.field) for m in left.mismatches]} {left.problems}")
    return wrong


async def test_a_sample_of_leaks_is_seen_and_gone_after_a_restore(
    browsing: LoadedEnvironment, begin: Any, golden: Snapshot, plant: Any, names: Any
) -> None:
    assert await survey([[leak for leak in LEAKS if leak.name in SAMPLE]], browsing, begin, golden, plant, names) == []


@pytest.mark.acceptance
async def test_every_leak_is_seen_and_gone_after_a_restore(
    browsing: LoadedEnvironment, begin: Any, golden: Snapshot, plant: Any, names: Any
) -> None:
    chosen = os.environ.get("AUTOCLAVE_LEAKS", "")
    wanted = [leak for leak in LEAKS if not chosen or leak.name in chosen.split(",")]
    worlds = [world for n in range(WORLDS) if (world := wanted[n::WORLDS])]
    assert await survey(worlds, browsing, begin, golden, plant, names) == []
