"""The pool as users open it, over the embedded runtime: one home, one manager, another client, nothing left behind."""

from __future__ import annotations

import pytest

from sandbox import ClearanceState, Depth, Pool, PoolBroken
from sandbox.service import Server
from sandbox.settings import Settings

pytestmark = pytest.mark.namespaces


async def test_a_home_is_opened_used_closed_and_opened_again(settings: Settings, nothing_left: None) -> None:
    async with Pool.open(["repo"], size=2, settings=settings) as pool:
        with pytest.raises(PoolBroken, match="in use by process"):
            async with Pool.open(["repo"], settings=settings):
                pass
        async with pool.session("repo", wait=60) as session:
            await session.write_file("/workspace/README.md", b"changed")
            assert (await session.run(["git", "status", "--porcelain"])).text == " M README.md\n"
            async with await session.fork(await session.snapshot(), wait=60) as child:
                assert await child.read_file("/workspace/README.md") == b"changed"
        found = await pool.cleared([session.trajectory_id, child.trajectory_id], timeout=60)
        assert {c.state for c in found.values()} == {ClearanceState.CLEARED}
        async with Server(pool, settings), Pool.connect(settings) as remote:
            task = next(iter(pool.environment("repo").environment.tasks))
            async with remote.session("repo", task=task, wait=120) as held:
                assert (await held.run(["git", "status", "--porcelain"])).text == ""
                score = await held.score()
                assert score.success is False
                assert score.reward is not None
            await remote.cleared([held.trajectory_id], timeout=60, depth=Depth.DEEP)
            await remote.ship("batch", [held.trajectory_id], policy_version="1")
    async with Pool.open(["repo"], size=1, settings=settings) as pool:
        found = await pool.clearance([held.trajectory_id, session.trajectory_id])
        assert {c.state for c in found.values()} == {ClearanceState.CLEARED}
        assert pool.settled.lost == []
