"""One whole run over an open pool: what the command does, and what a program may call itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollout.drive import drive
from rollout.learner.learner import Learner, Stepping
from rollout.loop import RolloutLoop
from rollout.running.runner import Leave
from rollout.setup import Machinery, Options, books_of, engine_for, parts_of, plan_of
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
    """Run to the end and return the summary. Records lie in `home`/rollouts/RUN; `leave` is what `--contaminate` plants; a run
    without a `name` is given one."""
    if options.learner not in LEARNERS:
        raise EnvironmentInvalid(f"there is no learner {options.learner!r}", fix=f"use {', '.join(LEARNERS)}")
    plan = plan_of(options, name=name)
    folder = home / "rollouts" / plan.run
    machinery = Machinery(options=options, environment=environment, clock=clock, folder=folder)
    learner = LEARNERS[options.learner](machinery)  # what it lacks is said before anything starts
    engine, tokenizer = engine_for(machinery)
    books = books_of(plan, environment, options, folder=folder, clock=clock)
    async with engine, books.journal:
        say(f"{plan.run}: {plan.groups} groups of {plan.group_rule.size} on {engine.name}")
        parts = parts_of(
            plan, options, pool=pool, environment=environment, engine=engine, tokenizer=tokenizer, clock=clock, leave=leave
        )
        async with RolloutLoop(books, parts) as loop:
            driven = await drive(loop, learner, say=say)
        await loop.settle()
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
        return {"run": plan.run, **summarise(loop, driven, in_force=in_force)}
