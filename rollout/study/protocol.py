"""The protocol's rules. Each way of falling short has its own sentence; rows that fall short are shown, and marked as such."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollout.selection.selector import DIFFICULTIES, HELD_OUT
from rollout.study.cells import Cell
from rollout.study.machine import REQUIRED
from rollout.study.plan import LEAST_CONFIGURATIONS, LEAST_SEEDS, LEAST_TASKS, StudyPlan
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
    for each in plan.configurations:
        own = [c for c in cells if c.configuration == each.name]
        found += _of_configuration(plan, each.name, own, held_out, recorded.get(each.name, {}))
    return found


def _of_configuration(
    plan: StudyPlan, name: str, own: Sequence[Cell], held_out: set[str], recorded: Mapping[str, Any]
) -> list[Shortfall]:
    found: list[Shortfall] = []

    def short(rule: int, why: str) -> None:
        found.append(Shortfall(rule=rule, why=why, configuration=name))

    seen = {t for c in own for t in (*c.trained_on, *c.evaluated_on)}
    if len(seen) < LEAST_TASKS:
        short(1, f"its runs touched {len(seen)} tasks together, {LEAST_TASKS} are the least")
    if leaked := sorted(held_out & {t for c in own for t in c.trained_on}):
        short(1, f"{len(leaked)} held-out tasks were trained on or selected from, {leaked[0]} among them")
    if strangers := sorted({t for c in own for t in c.evaluated_on} - held_out):
        short(1, f"quality was measured on {len(strangers)} tasks that are not held out, {strangers[0]} among them")
    if plan.target is not None and (below := [c.seed for c in own if c.quality < plan.target]):
        short(2, f"seeds {', '.join(map(str, below))} did not reach {plan.target:.0%} on the held-out set")
    if own and any(c.energy_kwh is None for c in own):
        short(3, "energy is unknown in some run")
    if own and any(c.peak_memory_mb is None for c in own):
        short(3, "peak memory is unknown in some run")
    seeds = Counter(c.seed for c in own)
    if missing := [s for s in plan.seeds if not seeds[s]]:
        short(5, f"no run of seeds {', '.join(map(str, missing))}")
    if lacking := [name for name in REQUIRED if recorded.get(name) in (None, {}, "")]:
        short(6, f"not recorded: {', '.join(lacking)}")
    return found
