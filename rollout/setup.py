"""The one place that puts a run together: engine, policy, tools, limits, books."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rollout.admission.limits import JUDGE, MODEL, SESSION, STORAGE, Dependency, Limits
from rollout.admission.planner import Planner
from rollout.admission.remaining import Remaining, Serve
from rollout.batches import SyncRule, by_gap, full_weight
from rollout.books import Books, Plan
from rollout.engines.engine import Engine
from rollout.groups import GroupRule
from rollout.journal import Journal
from rollout.judging import by_task, judged_again
from rollout.meter import Meter
from rollout.meters.events import EVENTS, Events
from rollout.policies.chat import ChatPolicy
from rollout.policies.tokens import Tokenizer
from rollout.running.board import Board
from rollout.running.runner import Bounds, Leave, Parts, as_scored, shaped
from rollout.running.tooling import Tooling, dependency
from rollout.selection.selector import SelectionRule, Selector
from rollout.terms import Late
from rollout.tools import Tool, tools_for
from sandbox.errors import EnvironmentInvalid
from sandbox.model import TaskSpec
from sandbox.ports import Clock

ENGINES = {
    "scripted": "rollout.engines.scripted:create",
    "http": "rollout.engines.http:create",
    "vllm": "rollout.engines.vllm:create",
}
WEIGHTS = {"full": full_weight, "by-gap": by_gap}
REWARDS = {"task": as_scored, "shaped": shaped}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user may set of a run."""

    environment: str
    engine: str = "scripted"
    model: str = ""  # a directory for vllm, the served name for http
    url: str = ""
    trajectories: int = 16
    group_size: int = 4
    batch_groups: int = 2
    max_gap: int = 4
    completeness: float = 1.0
    late: Late = Late.NEXT
    mode: str = "gated"
    weight: str = "full"
    keep_flat: bool = False
    reward: str = "task"
    learner: str = "none"
    learning_rate: float = 1e-5  # of grpo
    kl_weight: float = 0.0
    contaminate: float = 0.0
    alarm: float = 0.5
    branch_turn: int = 0
    split: str = "train"
    tasks: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    even: bool = False  # no task comes again before every one has come
    style: str = "json"
    meters: bool = True
    sample_s: float = 1.0  # between two looks at the lines
    select: bool = False  # scout tasks, and give whole groups only to those in the middle band
    scouts: int = 3
    band: tuple[float, float] = (0.2, 0.8)
    revisit: int = 10
    judge_again: float = 0.0  # share of trajectories that are judged twice
    size: int = 4  # namespaces
    slots: int = 8  # of the model
    tool_limit: int = 0  # acts of one tool at once; 0: as many as namespaces
    serve: Serve = Serve.BEGUN
    temperature: float = 1.0
    seed: int = 0
    turns: int = 12
    answer_tokens: int = 0  # 0: 512, or 16,384 for the scripted engine, whose tokens are bytes
    total_tokens: int = 0  # 0: 16,384, or sixteen times as many for the scripted engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Machinery:
    """What the makers of engines and learners are given. `folder` is the run's own."""

    options: Options
    environment: Any
    clock: Clock
    folder: Path


def engine_for(machinery: Machinery) -> tuple[Engine, Tokenizer]:
    """Make the engine that the options name, with the tokenizer of its model."""
    name = machinery.options.engine
    if name not in ENGINES:
        raise EnvironmentInvalid(f"there is no engine {name!r}", fix=f"use {', '.join(ENGINES)}")
    module, function = ENGINES[name].split(":")
    create: Callable[[Machinery], tuple[Engine, Tokenizer]] = getattr(import_module(module), function)
    return create(machinery)


def tasks_of(environment: Any, options: Options) -> list[TaskSpec]:
    """Return the tasks that the options choose: held-out ones only where they are asked for by split or name. EnvironmentInvalid
    where there are none."""
    found: Sequence[TaskSpec] = list(environment.tasks.values())
    if options.tasks:
        if unknown := sorted(set(options.tasks) - set(environment.tasks)):
            raise EnvironmentInvalid(f"{options.environment} has no task {', '.join(unknown)}")
        return [task for task in found if task.id in options.tasks]
    here = [t for t in found if t.split == options.split]
    families = {t.family for t in here}
    if not here or (unknown := sorted(set(options.families) - families)):
        asked = f"of family {', '.join(unknown)} in split {options.split}" if here else f"in split {options.split}"
        raise EnvironmentInvalid(
            f"{options.environment} has no task {asked}", fix=f"its families there are: {', '.join(sorted(families)) or 'none'}"
        )
    return [t for t in here if not options.families or t.family in options.families]


def plan_of(options: Options, *, name: str = "") -> Plan:
    """Return the plan; trajectories are rounded up to whole groups."""
    if options.trajectories < 1 or options.group_size < 1:
        raise EnvironmentInvalid(f"{options.trajectories} trajectories in groups of {options.group_size}: both are at least 1")
    groups = -(-options.trajectories // options.group_size)
    holding = max(2 * options.size, options.group_size)
    return Plan(
        run=name or f"run-{secrets.token_hex(4)}",
        environment=options.environment,
        groups=groups,
        group_rule=GroupRule(
            size=options.group_size,
            min_survivors=min(2, options.group_size),
            keep_flat=options.keep_flat or options.group_size == 1,
        ),
        sync=SyncRule(
            groups=options.batch_groups,
            max_gap=options.max_gap,
            completeness=options.completeness,
            late=options.late,
            mode=options.mode,
            weight=WEIGHTS[options.weight],
        ),
        seed=options.seed,
        low=max(1, min(options.slots, holding)),
        high=max(1, min(2 * options.slots, holding)),
        holding=holding,
        retries=max(8, groups * options.group_size // 2),
        alternatives=4 * groups * options.group_size,
        branch_turn=options.branch_turn,
        alarm=options.alarm,
        sample_s=options.sample_s,
        power=options.engine == "vllm" or options.learner == "grpo",
    )


def bounds_of(options: Options) -> Bounds:
    """Return the bounds of each trajectory."""
    scripted = options.engine == "scripted"
    return Bounds(
        turns=options.turns,
        answer_tokens=options.answer_tokens or (16_384 if scripted else 512),
        total_tokens=options.total_tokens or (262_144 if scripted else 16_384),
    )


def selection_of(options: Options) -> SelectionRule:
    return SelectionRule(scouts=options.scouts, band=options.band, revisit=options.revisit)


def books_of(plan: Plan, environment: Any, options: Options, *, folder: Path, clock: Clock) -> Books:
    folder.mkdir(parents=True, exist_ok=True)
    planner = Planner(tasks_of(environment, options), even=options.even, log=folder / "decisions.jsonl")
    return Books(
        plan=plan,
        planner=planner,
        journal=Journal(folder / "trajectories.jsonl", clock),
        meter=Meter(clock),
        selector=Selector(tasks_of(environment, options), rule=selection_of(options)) if options.select else None,
        events=Events(clock, folder / EVENTS, on=options.meters),
    )


def parts_of(
    plan: Plan,
    options: Options,
    *,
    pool: Any,
    environment: Any,
    engine: Engine,
    tokenizer: Tokenizer,
    clock: Clock,
    leave: Leave | None = None,
    change_tools: Callable[[Sequence[Tool]], Sequence[Tool]] = tuple,
    line: int = 0,
) -> Parts:
    """Put together what all trajectories share. `line` is how many may wait at each dependency, by the plan where it is 0."""
    bounds = bounds_of(options)
    if engine.context is not None:  # what the engine cannot take is a limit of the trajectory, not a fault of its request
        bounds = replace(bounds, total_tokens=min(bounds.total_tokens, engine.context))
    tools = change_tools(tools_for(environment.spec))
    line = line or plan.sync.outstanding * plan.group_rule.size  # whoever is admitted finds a place in line
    owner, tool_limit = f"environment {plan.environment}", options.tool_limit or options.size
    limits = Limits(
        [
            Dependency(name=MODEL, owner=f"engine {engine.name}", limit=options.slots, waiting=line),
            Dependency(name=SESSION, owner=f"pool of {plan.environment}", limit=options.size, waiting=line, wait_s=1800),
            Dependency(name=JUDGE, owner=owner, limit=options.size, waiting=line, safe=options.size),
            Dependency(name=STORAGE, owner="the run's journal", limit=1, waiting=4 * line),
            *(
                Dependency(name=dependency(t.spec.name), owner=owner, limit=tool_limit, waiting=line, safe=tool_limit)
                for t in tools
            ),
        ],
        clock=clock,
    )
    return Parts(
        pool=pool,
        engine=engine,
        policy=ChatPolicy(tokenizer, style=options.style),
        tooling=Tooling(tools, limits=limits, clock=clock, grace_s=bounds.tool_grace_s),
        limits=limits,
        board=Board(clock),
        clock=clock,
        bounds=bounds,
        reward=REWARDS[options.reward],
        temperature=options.temperature,
        leave=leave,
        judge=judged_again(by_task, share=options.judge_again, seed=options.seed) if options.judge_again else by_task,
        memory=options.meters,
        remaining=Remaining(serve=options.serve),
    )
