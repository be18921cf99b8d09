"""The protocol's rules. Each way of falling short has its own sentence; rows that fall short are shown, and marked as such."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollout.selection.selector import DIFFICULTIES, HELD_OUT
from rollout.study.cells import Cell
from rollout.study.machine import differing, lacking
from rollout.study.plan import LEAST_CONFIGURATIONS, LEAST_SEEDS, LEAST_TASKS, Configuration, StudyPlan
from sandbox.model import TaskSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """`rule` is the protocol's number, 1 to 7; `configuration` is empty where the whole study falls short."""

    rule: int
    why: str
    configuration: str = ""


def of_plan(plan: StudyPlan, tasks: Sequence[TaskSpec]) -> list[Shortfall]:
    """What can be said before anything runs."""
    found = [Shortfall(rule=1, why=why) for why in _workload(tasks)]
    if plan.target is None:
        found.append(Shortfall(rule=2, why="no quality target is set: cost cannot be compared"))
    elif plan.target <= 0:
        found.append(Shortfall(rule=2, why="a target of 0 is none: whatever learns nothing reaches it"))
    if plan.denominator is None:
        found.append(Shortfall(rule=3, why="the denominator of cost is not named"))
    found += _factors(plan)
    if (seeds := len(set(plan.seeds))) < LEAST_SEEDS:
        found.append(Shortfall(rule=5, why=f"{seeds} seeds, {LEAST_SEEDS} are the least"))
    if not plan.owner.strip():
        found.append(Shortfall(rule=7, why="nobody is named as the owner of the cost"))
    return found


def _workload(tasks: Sequence[TaskSpec]) -> list[str]:
    found = []
    if len(tasks) < LEAST_TASKS:
        found.append(f"the workload has {len(tasks)} tasks, {LEAST_TASKS} are the least")
    if absent := [d for d in DIFFICULTIES if d not in {t.difficulty for t in tasks}]:
        found.append(f"the workload has no {', '.join(absent)} task")
    if not any(t.split == HELD_OUT for t in tasks):
        found.append("nothing is held out: quality would be measured on what was trained on")
    if unchecked := [t.id for t in tasks if not t.success]:
        found.append(f"{len(unchecked)} tasks have no automatic check, {unchecked[0]} among them")
    return found


def _factors(plan: StudyPlan) -> list[Shortfall]:
    found = []
    if len(plan.configurations) < LEAST_CONFIGURATIONS:
        found.append(Shortfall(rule=4, why=f"{len(plan.configurations)} configurations are no comparison"))
    for each in plan.configurations:
        changed = plan.changed(each)
        if len(changed) > 1 and not each.combined:
            why = f"{len(changed)} factors differ from the base ({', '.join(changed)}) and it is not marked as combined"
            found.append(Shortfall(rule=4, why=why, configuration=each.name))
    bases = sum(not plan.changed(each) for each in plan.configurations)
    if bases != 1:
        found.append(Shortfall(rule=4, why=f"{bases} configurations are the base itself; one must be"))
    return found


def of_results(
    plan: StudyPlan, tasks: Sequence[TaskSpec], cells: Sequence[Cell], recorded: Mapping[str, Mapping[str, Any]]
) -> list[Shortfall]:
    """What the runs themselves show; `recorded` is what was written down of the environment, by configuration."""
    found = of_plan(plan, tasks)
    held_out = {t.id for t in tasks if t.split == HELD_OUT}
    if unlike := differing([c.machine for c in cells]):
        found.append(Shortfall(rule=6, why=f"its runs differ in {', '.join(unlike)}: their costs cannot be compared"))
    if len({c.memory_of for c in cells if c.peak_memory_mb is not None}) > 1:
        found.append(Shortfall(rule=3, why="peak memory is the sum of other parts in some runs than in others"))
    for each in plan.configurations:
        own = [c for c in cells if c.configuration == each.name]
        found += _of_configuration(plan, each, own, held_out, recorded.get(each.name, {}))
    return found


def _of_configuration(
    plan: StudyPlan, configuration: Configuration, own: Sequence[Cell], held_out: set[str], recorded: Mapping[str, Any]
) -> list[Shortfall]:
    whys = [*_tasks(own, held_out), *_quality(plan, own), *_costs(plan, configuration, own), *_runs(plan, configuration, own)]
    if absent := lacking(recorded):
        whys.append((6, f"not recorded: {', '.join(absent)}"))
    return [Shortfall(rule=rule, why=why, configuration=configuration.name) for rule, why in whys]


def _tasks(own: Sequence[Cell], held_out: set[str]) -> Iterator[tuple[int, str]]:
    seen = {t for c in own for t in (*c.trained_on, *c.evaluated_on)}
    if len(seen) < LEAST_TASKS:
        yield 1, f"its runs touched {len(seen)} tasks together, {LEAST_TASKS} are the least"
    if leaked := sorted(held_out & {t for c in own for t in c.trained_on}):
        yield 1, f"{len(leaked)} held-out tasks were trained on or selected from, {leaked[0]} among them"
    if strangers := sorted({t for c in own for t in c.evaluated_on} - held_out):
        yield 1, f"quality was measured on {len(strangers)} tasks that are not held out, {strangers[0]} among them"


def _quality(plan: StudyPlan, own: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    if plan.target is not None and (below := [c.seed for c in own if c.quality < plan.target]):
        yield 2, f"seeds {', '.join(map(str, below))} did not reach {plan.target:.0%} on the held-out set"
    if unjudged := sorted({t for c in own for t in c.unjudged}):
        yield 2, f"{len(unjudged)} held-out tasks came to no verdict and count as not solved, {unjudged[0]} among them"


def _costs(plan: StudyPlan, configuration: Configuration, own: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    if own and plan.factors(configuration).engine == "http":
        yield 3, "what its server's devices cost is not known here"
    if any(c.energy_kwh is None for c in own):
        yield 3, "energy is unknown in some run"
    if any(c.peak_memory_mb is None for c in own):
        yield 3, "peak memory is unknown in some run"


def _runs(plan: StudyPlan, configuration: Configuration, own: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    planned = plan.planned(configuration)
    if other := [str(c.seed) for c in own if c.planned != planned]:
        yield 4, f"seeds {', '.join(other)} were run by another plan than this one: `study run` runs them again"
    if missing := sorted(set(plan.seeds) - {c.seed for c in own}):
        yield 5, f"no run of seeds {', '.join(map(str, missing))}"
    for cell in own:
        if cell.stopped:
            yield 5, f"seed {cell.seed} was stopped early: {cell.stopped}"
