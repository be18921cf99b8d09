"""A ledger on a disk that really fills up."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.clock import SystemClock
from sandbox.errors import LimitReached
from sandbox.ledger import SqliteLedger, open_ledger
from sandbox.model import Baseline, Depth, Reading

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small tmpfs"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def baseline(n: int) -> Baseline:
    return Baseline(
        key=f"k{n}", digest="d", readings=(Reading(probe="p", depth=Depth.DEEP, fields={"f": "x" * 50_000}),), instances=2
    )


def grow(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=32m", disk], check=True)


async def fill(ledger: SqliteLedger, kept: list[str]) -> None:
    for n in range(1_000):
        await ledger.save_baseline(baseline(n), environment="e", environment_name="shop")
        kept.append(f"k{n}")


async def test_a_full_disk_refuses_loses_nothing_and_goes_on_when_there_is_space(disk: Path) -> None:
    kept: list[str] = []
    async with open_ledger(disk / "ledger.sqlite", clock=SystemClock()) as ledger:
        with pytest.raises(LimitReached, match="full; nothing of this call was written") as refused:
            await fill(ledger, kept)
        assert "autoclave gc" in refused.value.fix
        assert await ledger.baseline(f"k{len(kept)}") is None

        await asyncio.to_thread(grow, disk)
        await ledger.save_baseline(baseline(9_999), environment="e", environment_name="shop")

    async with open_ledger(disk / "ledger.sqlite", clock=SystemClock()) as ledger:
        assert {b.key for b in await ledger.baselines()} == {*kept, "k9999"}
