"""One whole run over an open pool: what the command does, and what a program may call itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rollout.books import Plan
from rollout.drive import drive
from rollout.engines.engine import Engine
from rollout.learner.learner import Learner, Stepping
from rollout.loop import RolloutLoop
from rollout.meters.measure import LEDGER, activity, began, used
from rollout.meters.models import gpus_in_use, told_memory
from rollout.policies.tokens import Tokenizer
from rollout.running.runner import Leave
from rollout.setup import Machinery, Options, books_of, engine_for, parts_of, plan_of, tasks_of
from rollout.summary import summarise
from sandbox.errors import EnvironmentInvalid
from sandbox.ports import Clock


def _grpo(machinery: Machinery) -> Learner:
    from rollout.learner.grpo import create

    return create(machinery)


LEARNERS: dict[str, Callable[[Machinery], Learner | None]] = {
    "none": lambda _: None,
    "stepping": lambda _: Stepping(),
    "grpo": _grpo,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Made and not started: what the options lack was said by now, before anything is opened for them."""

    options: Options
    plan: Plan
    folder: Path
    engine: Engine
    tokenizer: Tokenizer
    learner: Learner | None
    clock: Clock


def prepare(options: Options, *, environment: Any, home: Path, clock: Clock, name: str = "") -> Prepared:
    """Make what a run needs beside its pool; raise EnvironmentInvalid or RuntimeUnavailable for what cannot be made. Without a
    `name` the run is given one."""
    if options.learner not in LEARNERS:
        raise EnvironmentInvalid(f"there is no learner {options.learner!r}", fix=f"use {', '.join(LEARNERS)}")
    tasks_of(environment, options)
    plan = plan_of(options, name=name)
    folder = home / "rollouts" / plan.run
    machinery = Machinery(options=options, environment=environment, clock=clock, folder=folder)
    learner = LEARNERS[options.learner](machinery)
    engine, tokenizer = engine_for(machinery)
    return Prepared(options=options, plan=plan, folder=folder, engine=engine, tokenizer=tokenizer, learner=learner, clock=clock)


def sequel(prepared: Prepared, options: Options, *, environment: Any, name: str) -> Prepared:
    """Another run by the same engine, as it stands then: what was published in the first one is in force in the second. Nothing
    learns in it."""
    tasks_of(environment, options)
    plan = plan_of(options, name=name)
    return replace(prepared, options=options, plan=plan, folder=prepared.folder.parent / plan.run, learner=None)


async def run(
    options: Options,
    *,
    pool: Any,
    environment: Any,
    home: Path,
    clock: Clock,
    say: Callable[[str], None] = lambda _: None,
    leave: Leave | None = None,
    name: str = "",
) -> dict[str, Any]:
    """Prepare, start the engine, run to the end and return the summary. Records lie in `home`/rollouts/RUN; `leave` is what
    `--contaminate` plants."""
    prepared = prepare(options, environment=environment, home=home, clock=clock, name=name)
    async with prepared.engine:
        return await play(prepared, pool=pool, environment=environment, say=say, leave=leave)


async def play(
    prepared: Prepared,
    *,
    pool: Any,
    environment: Any,
    say: Callable[[str], None] = lambda _: None,
    leave: Leave | None = None,
    check: bool = False,
) -> dict[str, Any]:
    """Run to the end over an open pool and a started engine, and return the summary; with `check` every namespace is read at depth
    before its accounts are closed."""
    options, plan, engine, clock = prepared.options, prepared.plan, prepared.engine, prepared.clock
    books = books_of(plan, environment, options, folder=prepared.folder, clock=clock)
    async with books.journal:
        say(f"{plan.run}: {plan.groups} groups of {plan.group_rule.size} on {engine.name}")
        parts = parts_of(
            plan,
            options,
            pool=pool,
            environment=environment,
            engine=engine,
            tokenizer=prepared.tokenizer,
            clock=clock,
            leave=leave,
        )
        async with RolloutLoop(books, parts) as loop:
            driven = await drive(loop, prepared.learner, say=say)
        await loop.settle(check=check)
        status = await pool.status()
        in_force = {
            **engine.in_force,
            **status["in_force"],
            "environment": environment.spec.name,
            "environment_digest": environment.spec.digest,
            "reset": environment.spec.reset.method.value,
            "required_depth": environment.spec.check.required_depth.value,
            "mode": options.mode,
            "contaminate": options.contaminate,
            "reward": options.reward,
            "learner": options.learner,
        }
        rows: dict[str, Any] | None = None
        if options.meters:
            home = prepared.folder.parent.parent
            own = used(books.records)
            rows = await activity(home / LEDGER, environment=plan.environment, since=began(books.records), namespaces=own)
        gpus = gpus_in_use(in_force, options.learner)
        told = told_memory(engine, prepared.learner)
        return {"run": plan.run, **summarise(loop, driven, in_force=in_force, activity=rows, told=told, gpus=gpus)}
