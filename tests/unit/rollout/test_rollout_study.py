"""Studies: each rule of the protocol has its sentence, and the table compares only what reached the bar."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollout.advice.triage import signal_of
from rollout.journal import Outcome
from rollout.journal import read as journal
from rollout.meters.cost import USED
from rollout.record import CONTEXT, Trajectory
from rollout.study import cells, report
from rollout.study.cells import Cell
from rollout.study.machine import REQUIRED, lacking, machine, of_run
from rollout.study.plan import Configuration, Factors, StudyPlan, read
from rollout.study.protocol import of_plan, of_results
from rollout.study.runner import Study, drawn, stretch
from rollout.study.table import as_csv, table
from rollout.terms import State
from sandbox.errors import EnvironmentInvalid, RecordMissing
from sandbox.ledger import open_ledger
from sandbox.model import ResetMethod, TaskSpec
from sandbox.pool import Pool
from sandbox.testing import FakeClock, MemoryEnvironment, MemoryRuntime, memory_environment

TRAIN, HELD_OUT = [f"t{n:03}" for n in range(170)], [f"h{n:02}" for n in range(30)]


def workload(count: int = 170, *, held_out: int = 30) -> list[TaskSpec]:
    names = [(name, "train") for name in TRAIN[:count]] + [(name, "held-out") for name in HELD_OUT[:held_out]]
    levels = ("easy", "medium", "hard")
    return [
        TaskSpec(id=name, family="f", difficulty=levels[n % 3], split=split, prompt="", success={"kind": "x"})
        for n, (name, split) in enumerate(names)
    ]


PLAN = StudyPlan(
    name="cadence",
    owner="Ada",
    denominator="held-out tasks solved",
    target=0.3,
    tasks_per_run=60,
    configurations=(
        Configuration(name="base"),
        Configuration(name="groups-of-4", change={"group_size": 4}),
    ),
)


def plan(**fields: Any) -> StudyPlan:
    return PLAN.model_copy(update=fields)


def cell(configuration: str, seed: int, **fields: Any) -> Cell:
    whole: dict[str, Any] = {
        "configuration": configuration,
        "seed": seed,
        "run": f"run-{configuration}-{seed}",
        "evaluation": f"run-{configuration}-{seed}-held-out",
        "trained_on": stretch(TRAIN, size=60, number=seed),
        "evaluated_on": tuple(HELD_OUT),
        "wall_s": 3600.0,
        "gpu_hours": None,
        "peak_memory_mb": 100.0 + seed,
        "energy_kwh": 0.1,
        "energy_how": "estimated",
        "accepted": 100,
        "informative_groups": 20,
        "solved": 15,
        "stale_share": 0.0,
        "contaminated": 0,
        "dominant": "environment",
        "planned": PLAN.planned(next(c for c in PLAN.configurations if c.name == configuration)),
        "machine": {"hardware": {"cores": 2}, "driver": "none", "packages": {"autoclave": "1"}},
    }
    return Cell(**(whole | fields))


CELLS = [cell(name, seed) for name in ("base", "groups-of-4") for seed in (0, 1, 2)]
RECORDED = {name: dict.fromkeys(REQUIRED, "there") for name in ("base", "groups-of-4")}


def whys(*args: Any) -> list[tuple[int, str, str]]:
    return [(s.rule, s.configuration, s.why) for s in of_results(*args)]


def test_a_study_that_keeps_the_protocol_has_no_shortfall() -> None:
    assert whys(PLAN, workload(), CELLS, RECORDED) == []


@pytest.mark.parametrize(
    ("changed", "tasks", "rule", "why"),
    [
        ({}, workload(169), 1, "the workload has 199 tasks, 200 are the least"),
        ({}, [t for t in workload() if t.difficulty != "hard"], 1, "the workload has no hard task"),
        ({}, workload(held_out=0), 1, "nothing is held out: quality would be measured on what was trained on"),
        ({}, [replace(workload()[0], success={}), *workload()[1:]], 1, "1 tasks have no automatic check, t000 among them"),
        ({"target": None}, workload(), 2, "no quality target is set: cost cannot be compared"),
        ({"target": 0.0}, workload(), 2, "a target of 0 is none: whatever learns nothing reaches it"),
        ({"denominator": None}, workload(), 3, "the denominator of cost is not named"),
        ({"configurations": PLAN.configurations[:1]}, workload(), 4, "1 configurations are no comparison"),
        ({"configurations": PLAN.configurations[1:] * 1}, workload(), 4, "0 configurations are the base itself; one must be"),
        ({"seeds": (0, 1)}, workload(), 5, "2 seeds, 3 are the least"),
        ({"owner": " "}, workload(), 7, "nobody is named as the owner of the cost"),
    ],
)
def test_each_way_of_falling_short_says_why_before_it_runs(
    changed: dict[str, Any], tasks: list[TaskSpec], rule: int, why: str
) -> None:
    found = [(s.rule, s.why) for s in of_plan(plan(**changed), tasks)]

    assert (rule, why) in found


def test_two_factors_at_once_need_the_mark() -> None:
    both = {"group_size": 4, "max_gap": 3}
    unmarked = plan(configurations=(PLAN.configurations[0], Configuration(name="both", change=both)))
    marked = plan(configurations=(PLAN.configurations[0], Configuration(name="both", change=both, combined=True)))
    (found,) = of_plan(unmarked, workload())

    assert (found.rule, found.configuration) == (4, "both")
    assert found.why == "2 factors differ from the base (group_size, max_gap) and it is not marked as combined"
    assert of_plan(marked, workload()) == []


@pytest.mark.parametrize(
    ("fields", "rule", "why"),
    [
        ({"trained_on": TRAIN[:20]}, 1, "its runs touched 157 tasks together, 200 are the least"),
        ({"trained_on": (*TRAIN, "h00")}, 1, "1 held-out tasks were trained on or selected from, h00 among them"),
        ({"evaluated_on": (*HELD_OUT, "t000")}, 1, "quality was measured on 1 tasks that are not held out, t000 among them"),
        ({"solved": 3}, 2, "seeds 2 did not reach 30% on the held-out set"),
        ({"energy_kwh": None}, 3, "energy is unknown in some run"),
        ({"peak_memory_mb": None}, 3, "peak memory is unknown in some run"),
        ({"unjudged": ("h03",)}, 2, "1 held-out tasks came to no verdict and count as not solved, h03 among them"),
        ({"planned": {"group_size": 8}}, 4, "seeds 2 were run by another plan than this one: `study run` runs them again"),
        ({"stopped": "contamination alarm"}, 5, "seed 2 was stopped early: contamination alarm"),
    ],
)
def test_each_way_of_falling_short_says_why_by_its_results(fields: dict[str, Any], rule: int, why: str) -> None:
    """The last run of one configuration is at fault; the other one stays whole."""
    found = whys(PLAN, workload(), [*CELLS[:-1], replace(CELLS[-1], **fields)], RECORDED)

    assert (rule, "groups-of-4", why) in found
    assert not [row for row in found if row[1] == "base"]


def test_a_seed_without_a_run_and_an_environment_that_was_not_recorded() -> None:
    assert (5, "groups-of-4", "no run of seeds 2") in whys(PLAN, workload(), CELLS[:-1], RECORDED)
    incomplete = RECORDED | {"base": RECORDED["base"] | {"driver": "", "max_gap": None}}
    assert whys(PLAN, workload(), CELLS, incomplete) == [(6, "base", "not recorded: driver, max_gap")]


def test_peak_memory_of_other_parts_is_no_comparison() -> None:
    own = [replace(c, memory_of=("environments",)) for c in CELLS]
    found = of_results(PLAN, workload(), [*own[:-1], replace(own[-1], memory_of=("environments", "weights"))], RECORDED)

    assert [(s.rule, s.why) for s in found] == [(3, "peak memory is the sum of other parts in some runs than in others")]
    assert whys(PLAN, workload(), own, RECORDED) == []


def test_runs_on_two_machines_or_versions_are_no_comparison() -> None:
    moved = replace(CELLS[1], machine={**CELLS[1].machine, "packages": {"autoclave": "2"}})
    found = of_results(PLAN, workload(), [CELLS[0], moved, *CELLS[2:]], RECORDED)

    assert [(s.rule, s.why) for s in found] == [(6, "its runs differ in packages: their costs cannot be compared")]
    assert not any(row["compliant"] for row in table(PLAN, CELLS, found)["rows"])


@pytest.mark.parametrize(
    ("engine", "model", "lacks"),
    [
        ("scripted", {"name": "none: answers come from a script", "megabytes": None}, []),
        ("vllm", {"name": "m", "megabytes": 12.5}, []),
        ("vllm", {"name": "", "megabytes": 12.5}, ["the model's name"]),
        ("http", {"name": "m", "megabytes": None}, ["the model's size"]),
    ],
)
def test_a_model_without_name_or_size_is_not_recorded(engine: str, model: dict[str, Any], lacks: list[str]) -> None:
    there = machine() | of_run({"max_gap": 1}, {"engine": engine}, limits={"turns": 3}) | {"model": model}

    assert lacking(there) == lacks


def test_what_a_remote_servers_devices_cost_is_not_called_known() -> None:
    remote = plan(base=Factors(engine="http"))
    cells_ = [replace(c, planned=remote.planned(remote.configurations[n // 3])) for n, c in enumerate(CELLS)]

    assert (3, "base", "what its server's devices cost is not known here") in whys(remote, workload(), cells_, RECORDED)


def test_cost_is_divided_by_the_named_denominator_and_told_with_its_spread() -> None:
    own = [replace(c, solved=solved) for c, solved in zip(CELLS, (15, 10, 20, 15, 15, 15), strict=True)]
    base, other = table(PLAN, own, [])["rows"]

    assert base["costs"] == [pytest.approx(1 / n) for n in (15, 10, 20)]
    assert base["cost_per_outcome"] == pytest.approx((1 / 15 + 1 / 10 + 1 / 20) / 3)
    assert base["cost_spread"] > 0
    assert other["cost_spread"] == 0
    assert base["quality_spread"] == pytest.approx(1 / 6)
    assert base["peak_memory_mb"] == 102.0
    assert base["device_peak_mb"] is None
    by_groups = table(plan(denominator="informative groups"), own, [])["rows"][0]
    assert by_groups["cost_per_outcome"] == pytest.approx(1 / 20)


def test_a_row_below_the_bar_has_no_cost_and_is_not_compared() -> None:
    found = table(PLAN, [*CELLS[:-1], replace(CELLS[-1], solved=3)], [])
    row = found["rows"][1]

    assert row["reached_target"] == "2 of 3"
    assert row["cost_per_outcome"] is None
    assert row["quality_per_hour"] is None
    assert row["against_base"] == "not compared: the target was not reached, or a run had no outcome"
    (_, _, told) = list(csv.reader(io.StringIO(as_csv(found))))
    assert told[4] == "—"


def test_a_difference_within_the_spread_is_called_noise() -> None:
    near = [replace(c, wall_s=3600.0 * f) for c, f in zip(CELLS, (0.8, 1.0, 1.2, 0.9, 1.1, 1.3), strict=True)]
    far = [replace(c, wall_s=3600.0 * f) for c, f in zip(CELLS, (0.9, 1.0, 1.1, 2.9, 3.0, 3.1), strict=True)]

    assert table(PLAN, near, [])["rows"][1]["against_base"].endswith("within noise")
    assert table(PLAN, far, [])["rows"][1]["against_base"] == "3.00 times the base's cost"
    once = [far[0], far[3]]
    assert "by one seed: whether that is noise cannot be said" in table(PLAN, once, [])["rows"][1]["against_base"]


def test_the_unit_is_gpu_hours_only_where_every_run_held_gpus() -> None:
    held = [replace(c, gpu_hours=2.0) for c in CELLS]

    assert table(PLAN, held, [])["unit"] == "GPU-hours"
    assert table(PLAN, held, [])["rows"][0]["cost_per_outcome"] == pytest.approx(2 / 15)
    assert table(PLAN, [*held[:-1], CELLS[-1]], [])["unit"] == "machine-hours (not every run held a GPU)"
    assert table(PLAN, CELLS, [])["unit"] == "machine-hours (no GPU was held)"


def test_seeds_cover_the_workload_together_and_the_draw_is_uniform() -> None:
    covered = [t for number in range(3) for t in stretch(TRAIN, size=57, number=number)]
    assert set(covered) == set(TRAIN)
    counts = dict.fromkeys(HELD_OUT, 0)
    for seed in range(400):
        for name in drawn(HELD_OUT, size=10, seed=seed):
            counts[name] += 1
    assert sum(counts.values()) == 4000
    assert min(counts.values()) > 80 < 133 < max(counts.values()) < 190  # a third of 400 each, give or take


def test_html_has_the_plots_the_shortfalls_and_where_each_figure_is_from(tmp_path: Path) -> None:
    own = [*CELLS[:-1], replace(CELLS[-1], solved=3)]
    for each in own:
        cells.write(tmp_path, each)
    assert sorted(cells.read(tmp_path), key=lambda c: (c.configuration, c.seed)) == own
    run_s = of_run({"model": "", "max_gap": 1}, {"engine": "scripted"}, limits={"turns": 12})
    recorded = {name: machine() | run_s for name in RECORDED}
    found = table(PLAN, own, of_results(PLAN, workload(), own, RECORDED))
    paths = report.write(found, tmp_path, machine=recorded)
    html = Path(paths["html"]).read_text()

    assert html.count("<svg") == 2
    assert html.count("<circle") == 9  # three costs, since the other row has none, and six qualities
    assert "did not reach 30% on the held-out set" in html
    assert "no figure: the target was not reached, or there was no outcome" in html
    assert "run-base-0-held-out" in html
    assert "Owner of the cost: <b>Ada</b>" in html
    assert "<script" not in html
    assert "not compared: the target was not reached" in str(report.terminal(found)[1])
    assert Path(paths["csv"]).read_text().count("\n") == 3


def test_what_a_result_cannot_be_compared_without_is_captured() -> None:
    found = machine() | of_run({"model": "", "max_gap": 2}, {"context": 512}, limits={"answer_tokens": 16_384})

    assert all(found[name] not in (None, {}, "") for name in REQUIRED)
    assert found["packages"]["autoclave"]
    assert found["hardware"]["cores"] >= 1
    assert found["limits"] == {"answer_tokens": 16_384, "context": 512}


def test_a_file_that_is_no_study_is_refused_with_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text('name = "x"\ntarget = 3\n[[configurations]]\nname = "a"\nchange = { speed = 2 }\n')
    with pytest.raises(EnvironmentInvalid) as error:
        read(path)
    assert any("target" in p for p in error.value.problems)
    assert any("there is no factor speed" in p for p in error.value.problems)
    with pytest.raises(RecordMissing):
        cells.read(tmp_path)
    path.write_text('name = "x"\n[[configurations]]\nname = "a"\nchange = { group_size = 0 }\n')
    with pytest.raises(EnvironmentInvalid, match="configuration a: group_size"):
        read(path)


def test_signal_is_counted_in_what_an_update_took_and_not_in_scouts_or_quarantined_ones(bare: Callable[..., Trajectory]) -> None:
    """Five groups with unequal rewards: shipped, stale, of scouts, one whose success was contaminated, and one that is flat."""
    rows = [
        ("shipped", State.ACCEPTED, "train", (1.0, 0.0)),
        ("stale", State.STALE, "train", (1.0, 0.0)),
        ("scouts", State.DROPPED, "scout", (1.0, 0.0)),
        ("dirty", State.QUARANTINED, "train", (1.0,)),
        ("dirty", State.ACCEPTED, "train", (0.0, 0.0)),
        ("flat", State.DROPPED, "train", (1.0, 1.0)),
    ]
    records: dict[str, Trajectory] = {}
    outcomes: dict[str, Outcome] = {}
    for group, state, purpose, rewards in rows:
        for reward in rewards:
            name = f"{group}-{len(records)}"
            records[name] = bare(name, group=group, reward=reward, extra={"purpose": purpose})
            outcomes[name] = Outcome(trajectory=name, state=state)

    assert signal_of(records, outcomes) == (2, 4)  # shipped and stale, of those with dirty and flat
    assert signal_of(records, outcomes, among=USED) == (1, 2)


class Changeable(MemoryEnvironment):
    """As an environment that is read from files: reset and cadence can be set."""

    def with_reset(self, method: ResetMethod) -> Changeable:
        return self

    def with_check(self, **policy: Any) -> Changeable:
        return self


async def test_the_policy_that_came_of_training_is_judged_once_on_each_held_out_task(tmp_path: Path) -> None:
    """Families of one task beside a large one, whose floor would bring small ones twice; and an engine whose version moves on."""
    tasks = [
        TaskSpec(
            id=f"{split}-{n:02}",
            family=f"f{n}" if n < 4 else "large",
            difficulty=("easy", "medium", "hard")[n % 3],
            split=split,
            prompt="",
            success={"orders": "3"} if n != 5 else {"orders": "none"},
        )
        for split in ("train", "held-out")
        for n in range(12)
    ]
    base = memory_environment(tasks=tasks)
    environment = Changeable(base.spec, base.tasks, base.faults)
    clock = FakeClock()
    small = plan(
        name="small",
        environment="memory",
        tasks_per_run=12,
        seeds=(0,),
        base=Factors(group_size=1),
        configurations=PLAN.configurations[:1],
    )
    opened: list[int] = []

    @asynccontextmanager
    async def open_pool(given: Any, size: int) -> AsyncIterator[Pool]:
        opened.append(size)
        path = tmp_path / "ledger.sqlite"
        async with open_ledger(path, durability="normal", clock=clock) as ledger:
            pool = Pool([given], ledger=ledger, runtime=MemoryRuntime(), clock=clock, size=size)
            async with pool:
                yield pool

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.001)
            await clock.advance(0.5)

    study = Study(small, environment=environment, open_pool=open_pool, home=tmp_path, clock=clock)
    ticking = asyncio.create_task(tick())
    try:
        await study.run()
        await study.run()
        assert len(opened) == 1  # nothing was run again
        study.plan = small.model_copy(update={"tasks_per_run": 6})
        await study.run()
        assert len(opened) == 2  # it was planned otherwise
    finally:
        ticking.cancel()

    (found,) = cells.read(study.folder)
    judged = journal(tmp_path / "rollouts" / found.evaluation / "trajectories.jsonl").trajectories
    assert sorted(r.task for r in judged.values()) == [f"held-out-{n:02}" for n in range(12)]
    assert len(found.trained_on) == 6
    assert (found.solved, found.unjudged, found.stopped) == (11, (), "")
    assert min(v for r in judged.values() for v in r.versions if v != CONTEXT) > 0
