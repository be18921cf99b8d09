"""A whole run over a pool and vLLM, on weights that know nothing: its accounts add up, and what leaked is in no batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.repo import environment
from rollout.contaminate import Contaminator, open_leaky_pool
from rollout.engines.vllm import VllmEngine
from rollout.journal import read
from rollout.policies.tokens import ModelTokenizer
from rollout.run import Prepared, play
from rollout.setup import Options, plan_of
from sandbox.clock import SystemClock
from sandbox.model import ClearanceState
from sandbox.settings import Settings

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.namespaces,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]


async def test_a_run_on_vllm_ships_batches_without_what_leaked(
    engine: VllmEngine, model: Path, settings: Settings, nothing_left: None
) -> None:
    options = Options(
        environment="repo",
        engine="vllm",
        model=str(model),
        trajectories=8,
        group_size=4,
        batch_groups=1,
        size=2,
        slots=4,
        turns=2,
        answer_tokens=16,
        contaminate=0.3,
        alarm=1.0,
        reward="shaped",
        keep_flat=True,
        tasks=("cache-01", "cache-02"),
    )
    folder = settings.home / "rollouts" / "run-fixed"
    prepared = Prepared(  # a fixed name makes the choice of the contaminated ones the same in every run
        options=options,
        plan=plan_of(options, name="run-fixed"),
        folder=folder,
        engine=engine,
        tokenizer=ModelTokenizer(model),
        learner=None,
        clock=SystemClock(),
    )
    leave = Contaminator("repo", share=options.contaminate, seed=options.seed)
    async with open_leaky_pool(environment(), leave, size=2, settings=settings) as (pool, opened):
        summary: dict[str, Any] = await play(prepared, pool=pool, environment=opened, leave=leave)
        records = read(Path(summary["journal"]))
        planted = {t for t, r in records.trajectories.items() if r.planted}
        found = await pool.clearance(sorted(records.trajectories))
        recall = await pool.recall()

    assert planted, "nothing was planted, so nothing was shown"
    assert planted <= {t for t, c in found.items() if c.state is ClearanceState.QUARANTINED}
    assert sum(summary["states"].values()) == summary["admitted"] >= 8
    assert summary["states"]["failed"] == 0, summary["reasons"]
    assert summary["quarantined_in_batches"] == 0
    assert not recall.batches
    assert summary["batches"] >= 1
    assert summary["slot_held_during_tool_wait_s"] == 0
    for record in records.trajectories.values():
        assert len(record.tokens) == len(record.logprobs) == len(record.versions)
        assert {v for v, m in zip(record.versions, record.mask, strict=True) if m} == {engine.version}
