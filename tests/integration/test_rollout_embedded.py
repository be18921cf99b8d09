"""A rollout over the embedded runtime: real sessions, real leaks that a reset misses, and batches without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.repo import environment
from rollout.contaminate import Contaminator, open_leaky_pool
from rollout.journal import read
from rollout.run import run
from rollout.setup import Options
from sandbox.clock import SystemClock
from sandbox.model import ClearanceState
from sandbox.settings import Settings

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(600)]


async def test_what_a_leaky_reset_left_is_in_no_batch(settings: Settings, nothing_left: None) -> None:
    options = Options(
        environment="repo",
        trajectories=8,
        group_size=4,
        batch_groups=1,
        size=2,
        contaminate=0.3,
        alarm=1.0,
        learner="stepping",
        tasks=("cache-01", "cache-02"),
    )
    leave = Contaminator("repo", share=options.contaminate, seed=options.seed)
    async with open_leaky_pool(environment(), leave, size=2, settings=settings) as (pool, opened):
        # a fixed name makes the choice of the contaminated ones the same in every run
        summary: dict[str, Any] = await run(
            options, pool=pool, environment=opened, home=settings.home, clock=SystemClock(), leave=leave, name="run-fixed"
        )
        records = read(Path(summary["journal"]))
        planted = {t for t, r in records.trajectories.items() if r.planted}
        found = await pool.clearance(sorted(records.trajectories))
        recall = await pool.recall()

    assert planted, "nothing was planted, so nothing was shown"
    assert planted <= {t for t, c in found.items() if c.state is ClearanceState.QUARANTINED}
    assert sum(summary["states"].values()) == summary["admitted"]
    assert summary["states"]["quarantined"] >= len(planted)
    assert summary["quarantined_in_batches"] == 0
    assert not recall.batches
    assert summary["slot_held_during_tool_wait_s"] == 0
    assert summary["batches"] >= 1
    assert all(o.reward is None for t, o in records.outcomes.items() if t in planted)
    scored = {r.scored for r in records.trajectories.values()}
    assert scored == {0.0, 1.0}
