"""A version of a real environment rolls through a running pool, under eight sessions, over the socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sandbox import Pool
from sandbox.aio import poll
from sandbox.service import Server
from sandbox.settings import Settings
from sandbox.wiring import environment, open_pool

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(600)]
SPEC = """
name = "desk"
version = "{number}.0.0"
[resources.docs]
kind = "files"
files = {{ "number.txt" = "{number}", "edition/{number}.txt" = "x" }}
"""


def written(base: Path, number: int) -> Path:
    base.mkdir(exist_ok=True)
    (base / "environment.toml").write_text(SPEC.format(number=number))
    return base


async def test_no_lease_sees_two_versions_and_none_is_judged_by_the_others_baseline(
    settings: Settings, passable_dir: Path, nothing_left: None
) -> None:
    place = written(passable_dir / "desk", 1)
    seen: dict[str, str] = {}

    rolled = asyncio.Event()

    async def work(pool: Any) -> None:
        """Session after session until the version has rolled, and one more."""
        last = False
        while not last:
            last = rolled.is_set()
            async with pool.session("desk", wait=300) as session:
                said = []
                for _ in range(3):
                    said.append((await session.run(["sh", "-c", "cat docs/number.txt docs/edition/*; ls docs/edition"])).text)
                    await asyncio.sleep(0.02)
                assert len(set(said)) == 1, said
                await session.run(["sh", "-c", "echo 9 > docs/number.txt; rm -r docs/edition"])
            seen[session.trajectory_id] = said[0][0]

    async def some_ended() -> bool:
        return len(seen) >= 6

    def find(name: str) -> Any:
        return environment(name, settings)

    async with open_pool([find(str(place))], size=8, settings=settings) as pool, Server(pool, settings, find=find):
        async with Pool.connect(settings) as remote, asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(work(remote))
            assert await poll(some_ended, timeout=300)
            written(place, 2)
            assert await remote.roll(str(place))
            rolled.set()
        async with pool.session("desk", wait=300) as session:
            assert (await session.run(["cat", "docs/number.txt"])).text == "2"
        judged = await pool.cleared(list(seen), timeout=300)
        told = [await pool.why(t) for t in seen]

    assert {str(c.state) for c in judged.values()} == {"cleared"}, [t["window"] for t in told]
    assert set(seen.values()) == {"1", "2"}
