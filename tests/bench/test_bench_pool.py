"""Bookkeeping of the pool, with resets and checks that cost nothing: acquire times, and cycles a second over many namespaces."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from sandbox.clock import SystemClock
from sandbox.ledger import open_ledger
from sandbox.pool import Pool, PoolLimits
from sandbox.testing import MemoryRuntime, memory_environment

pytestmark = [pytest.mark.bench, pytest.mark.slow]
LIMITS = PoolLimits(creations=64, resets=256, upkeep_s=5.0)


async def cycles(pool: Pool, *, clients: int, each: int, work_s: float) -> tuple[list[float], float]:
    """Let `clients` take and release sessions, and work for `work_s` in each; return the acquire times and the cycles a second."""
    took: list[float] = []

    async def client() -> None:
        for _ in range(each):
            began = time.perf_counter()
            session = await pool.acquire("memory", wait=60)
            took.append(time.perf_counter() - began)
            if work_s:
                await asyncio.sleep(work_s * random.uniform(0.5, 1.5))
            await session.release()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    await pool._crew.quiet()
    return took, clients * each / (time.perf_counter() - began)


@pytest.mark.parametrize("size", [64, 10_000])
async def test_bookkeeping(tmp_path: Path, size: int, rows: Any) -> None:
    async with open_ledger(tmp_path / "ledger.sqlite", clock=SystemClock()) as ledger:
        pool = Pool([memory_environment()], ledger=ledger, runtime=MemoryRuntime(), clock=SystemClock(), size=size, limits=LIMITS)
        began = time.perf_counter()
        async with pool:
            while (await pool.status())["environments"]["memory"]["ready"] < size:  # noqa: ASYNC110 - a bench may poll
                await asyncio.sleep(0.2)
            filled = time.perf_counter() - began
            took, rate = await cycles(pool, clients=32, each=20, work_s=0.5)
            p50, p99 = quantiles(took, n=100)[49], quantiles(took, n=100)[98]
            found = f"p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms at {rate:.0f} cycles/s"
            what = f"bookkeeping of {size:,} namespaces (resets stubbed)"
            rows.value(f"{what}: acquire, 32 clients", found, bar="p99 under 2 ms", met=p99 < 0.002, n=len(took))
            took, rate = await cycles(pool, clients=64, each=60, work_s=0.0)
            rows.value(f"{what}: as fast as it goes", f"{rate:.0f} cycles/s", bar="2,000 cycles/s", met=rate >= 2000, n=len(took))
            assert len(took) == 64 * 60
            began = time.perf_counter()
        found = f"filled in {filled:.1f} s, drained and closed in {time.perf_counter() - began:.1f} s"
        rows.value(f"{what}: start and end", found, bar="none", met=None, n=1)
