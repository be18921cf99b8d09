"""The recipe with everything real: the pool, a live engine, GRPO, and weights that change in the engine between trajectories."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollout.journal import read
from rollout.recipes.arms import Arm, Cell
from rollout.recipes.experiment import Results, run_cells
from rollout.recipes.training import Recipe
from rollout.recipes.warmstart import WarmStart
from rollout.record import CONTEXT
from rollout.terms import State
from sandbox.settings import Settings

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.namespaces,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]


async def test_updates_change_the_engines_weights_and_records_say_which_made_each_token(
    settings: Settings, nothing_left: None, tmp_path: Path
) -> None:
    # at most two batches are out at once, so the third that is learned from was begun after the first one's weights were published
    recipe, warm = Recipe(updates=3, marks=(), batch_groups=2, spare_batches=20), WarmStart()
    cell = Cell(arm=Arm.ON, rate=0.5, seed=1)
    results = Results(tmp_path, recipe, warm)
    said: list[str] = []
    (run,) = await run_cells([cell], results, recipe=recipe, warm=warm, settings=settings, say=said.append)

    assert (run["updates"], run["published"], run["changed"]) == (3, 3, 3)
    assert run["states"]["quarantined"] > 0
    assert run["quarantined_in_batches"] == 0
    assert run["dirty_starts_in_batches"] == 0
    assert sum(run["states"].values()) == run["admitted"]
    learned = [m for m in run["metrics"] if m["learned"]]
    assert all(m["engine_gap"] < 0.05 for m in learned)  # the learner computes what the engine sampled with

    records = read(results.folder / "runs" / cell.name / "trajectories.jsonl")
    first = run["first_version"]
    made = set()
    for record in records.trajectories.values():
        for mask, version in zip(record.mask, record.versions, strict=True):
            assert (version != CONTEXT) is bool(mask)
        made |= set(record.versions) - {CONTEXT}
    for name, outcome in records.outcomes.items():  # those that were still open at the end have none
        if records.trajectories[name].planted and outcome.state is State.QUARANTINED:
            assert outcome.reward is None
    assert {first, first + 1} <= made <= {first, first + 1, first + 2, first + 3}

    before = len(said)
    again = await run_cells([cell], results, recipe=recipe, warm=warm, settings=settings, say=said.append)
    assert again == [run]  # what was run is not run again
    assert len(said) == before
