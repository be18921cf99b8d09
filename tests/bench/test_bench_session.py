"""What a session costs the loop: getting one, acting through it, and the share of its check in a rollout."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from sandbox import Pool
from sandbox.binaries import bubblewrap
from sandbox.clock import SystemClock
from sandbox.ledger import open_ledger
from sandbox.model import Depth
from sandbox.pool import Pool as BarePool
from sandbox.pool import PoolLimits
from sandbox.service import Server
from sandbox.settings import Settings
from sandbox.testing import MemoryRuntime, memory_environment

pytestmark = [pytest.mark.bench, pytest.mark.slow]
CLIENTS, EACH, WORK_S = 32, 40, 0.4
SYSTEM = [
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
]
FRESH = ["--unshare-all", "--unshare-user", "--die-with-parent", *SYSTEM, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
QUERY = ["psql", "-Atc", "select count(*), sum(total) from public.orders where customer_id = 7"]


async def acquire_times(pool: Any) -> list[float]:
    """32 clients that take a session, work a while and give it back; a ready one is always there."""
    took: list[float] = []

    async def client() -> None:
        await asyncio.sleep(random.uniform(0, WORK_S))
        for turn in range(EACH):
            began = time.perf_counter()
            session = await pool.acquire("memory", wait=60)
            if turn:
                took.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(WORK_S * random.uniform(0.5, 1.5))
            await session.release()

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())
    return took


def acquired(rows: Any, took: list[float], how: str, bar_ms: float) -> None:
    p50, p99 = quantiles(took, n=100)[49], quantiles(took, n=100)[98]
    found = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms"
    rows.value(
        f"acquire a ready session {how}, {CLIENTS} clients", found, bar=f"p99 under {bar_ms:g} ms", met=p99 < bar_ms, n=len(took)
    )


async def test_acquire(tmp_path: Path, settings: Settings, rows: Any) -> None:
    limits = PoolLimits(creations=16, resets=64, upkeep_s=5.0)
    async with open_ledger(tmp_path / "ledger.sqlite", clock=SystemClock()) as ledger:
        pool = BarePool([memory_environment()], ledger=ledger, runtime=MemoryRuntime(), clock=SystemClock(), size=96, limits=limits)
        async with pool:
            acquired(rows, await acquire_times(pool), "in process (resets stubbed)", 2)
            async with Server(pool, settings), Pool.connect(settings) as remote:
                acquired(rows, await acquire_times(remote), "over the Unix socket (resets stubbed)", 10)


@pytest.mark.namespaces
async def test_one_action(built: Any, alternately: Callable[..., Awaitable[Any]], rows: Any, passable_dir: Path) -> None:
    data = {
        "name": "bench",
        "version": "1",
        "description": "files",
        "resources": {"docs": {"kind": "files", "target": "/workspace", "files": {"a.txt": "a"}}},
    }
    async with built(data, passable_dir) as b:
        program = str(bubblewrap(b.settings).path)

        def through(*argv: str) -> Callable[[], Awaitable[float]]:
            async def action() -> float:
                began = time.perf_counter()
                result = await b.instance.run(argv)
                took = (time.perf_counter() - began) * 1e3
                assert result.exit_code == 0, result
                return took

            return action

        def on_host(*argv: str) -> Callable[[], Awaitable[float]]:
            async def bare() -> float:
                began = time.perf_counter()
                subprocess.run(argv, capture_output=True, check=True)  # noqa: ASYNC221 - nothing else runs
                return (time.perf_counter() - began) * 1e3

            return bare

        for name, argv in (("true", ("/usr/bin/true",)), ("a command of 10 ms", ("/usr/bin/sleep", "0.01"))):
            ours, bare, fresh = await alternately(200, through(*argv), on_host(*argv), on_host(program, *FRESH, "--", *argv))
            rows.above(f"one action through the session: {name}", ours, "the command by subprocess on the host", bare, below_ms=5)
            rows.faster("the same", ours, "a fresh bwrap for each command", fresh, least=None)


@pytest.mark.namespaces
@pytest.mark.postgres
async def test_share_of_the_check(built: Any, rows: Any, passable_dir: Path) -> None:
    (passable_dir / "seed.sql").write_text(
        "create table public.orders as\n"
        "select g as id, g % 500 as customer_id, g * 1.25 as total from generate_series(1, 20000) g;\n"
        "grant select on public.orders to agent;\n"
    )
    db = {"kind": "postgres", "database": "bench", "seed": ["seed.sql"], "template": False}
    data = {"name": "bench", "version": "1", "description": "a rollout's world", "resources": {"db": db}}
    async with built(data, passable_dir) as b:
        checks, actions = [], []
        for generation in range(2, 23):
            began = time.perf_counter()
            for _ in range(20):
                result = await b.instance.run(QUERY)
                assert result.exit_code == 0, result
            actions.append((time.perf_counter() - began) * 1e3)
            await b.instance.restore(b.snapshot, generation)
            began = time.perf_counter()
            verdict = await b.environment.verifier.check(b.instance.subject(), b.baseline, Depth.QUICK)
            checks.append((time.perf_counter() - began) * 1e3)
            assert verdict.clean, verdict
        rows.share(
            "quick check as a share of 20 psql actions with no model in between (the worst case)",
            checks,
            "20 actions",
            actions,
            below=0.05,
        )
        thinking = [a + 20 * 500 for a in actions]
        rows.share("the same with half a second of model time a turn", checks, "20 turns", thinking, below=0.05)
