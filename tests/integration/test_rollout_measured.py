"""Pilots and studies over the embedded runtime: a part that was made slow is named, and a study goes on where it was stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from envs.repo import environment as repo
from envs.shop import environment as shop
from rollout.journal import read
from rollout.meters.measure import LEDGER, activity, began, measure, stored
from rollout.pilot.run import pilot_load
from rollout.run import run
from rollout.setup import Options
from rollout.study import cells
from rollout.study.plan import Configuration, Factors, StudyPlan
from rollout.study.runner import Study
from rollout.study.table import table
from sandbox.clock import SystemClock
from sandbox.settings import Settings
from sandbox.wiring import open_pool

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.acceptance
@pytest.mark.parametrize(("part", "stage"), [("database", "environments"), ("judge", "judges"), ("engine", "generation")])
async def test_the_pilot_names_the_part_that_was_made_slow(settings: Settings, part: str, stage: str) -> None:
    """Two sessions, and twenty seconds more for each use: whatever else this machine does, that is what holds them."""
    opened: Any = shop()
    async with open_pool([opened], size=2, settings=settings) as pool:
        found = await pilot_load(
            Options(environment="shop", size=2, group_size=1),
            pool=pool,
            environment=opened,
            home=settings.home,
            rates=(0.5, 1.0),
            hold_s=60.0,
            slow={part: 20.0},
        )

    assert found["bottleneck"] == stage, found
    most = next(iter(found["held_by"]))
    assert most == {"database": "tool:sql", "judge": "judge", "engine": "model"}[part]
    assert read(Path(found["journal"])).torn == ""


async def test_figures_are_traced_to_the_trajectory_store_and_the_ledger(settings: Settings, nothing_left: None) -> None:
    """What the summary says is computed again from the files, and its counts are those of the rows."""
    opened: Any = repo()
    options = Options(environment="repo", trajectories=4, group_size=2, batch_groups=1, size=2, learner="stepping", judge_again=1.0)
    async with open_pool([opened], size=2, settings=settings) as pool:
        summary = await run(options, pool=pool, environment=opened, home=settings.home, clock=SystemClock())
        rows = await activity(settings.home / LEDGER, environment="repo", since=began(read(Path(summary["journal"])).trajectories))
    again = measure(stored(Path(summary["journal"]).parent, activity=rows))

    for name in ("cycles", "cost_per_accepted", "percentiles_by", "memory", "judges", "energy"):
        assert again[name] == summary[name], name
    assert rows is not None
    assert again["environments"]["creation"]["count"] == len(rows["creations"]) >= 2
    assert again["environments"]["reset"]["count"] == len(rows["resets"]) >= 4
    assert again["environments"]["checks"]["quick"]["count"] >= 4
    assert summary["memory"]["categories_mb"]["environments"] is None or summary["memory"]["set_by"] is not None
    assert summary["judges"]["agreement"] == 1.0
    assert summary["cycles"]["between_share"] < 0.05


async def test_a_study_goes_on_where_it_was_stopped_and_says_how_it_falls_short(settings: Settings, nothing_left: None) -> None:
    opened: Any = repo()
    plan = StudyPlan(
        name="small",
        owner="tests",
        environment="repo",
        denominator="informative groups",
        target=0.0,
        seeds=(0,),
        tasks_per_run=2,
        held_out_tasks=2,
        base=Factors(size=2, batch_groups=1),
        configurations=(Configuration(name="base"), Configuration(name="deep-every-1", change={"check_every": 1})),
    )
    pools: list[int] = []

    @asynccontextmanager
    async def open_one(environment: Any, size: int) -> AsyncIterator[Any]:
        pools.append(environment.spec.check.deep_every)
        async with open_pool([environment], size=size, settings=settings) as pool:
            yield pool

    study = Study(plan, environment=opened, open_pool=open_one, home=settings.home, clock=SystemClock())
    shortfalls = await study.run()
    assert pools == [20, 1]
    await study.run()
    assert pools == [20, 1]  # nothing was run again

    whys = {(s.rule, s.configuration) for s in shortfalls}
    assert (5, "") in whys  # one seed
    assert (1, "base") in whys  # four tasks
    found = table(plan, cells.read(study.folder), shortfalls)
    assert [row["seeds"] for row in found["rows"]] == [1, 1]
    assert not found["compliant"]
    assert all(row["quality"] is not None and row["hours"] > 0 for row in found["rows"])
    held_out = {t.id for t in opened.tasks.values() if t.split == "held-out"}
    for cell in cells.read(study.folder):
        assert set(cell.evaluated_on) <= held_out
        assert not set(cell.trained_on) & held_out
        trained = read(settings.home / "rollouts" / cell.run / "trajectories.jsonl").trajectories
        assert {r.task for r in trained.values()} == set(cell.trained_on)
