"""One run of the recipe: GRPO on `errands` with weights published to a live engine, and held-out success on the way."""

from __future__ import annotations

import secrets
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from envs import LoadedEnvironment, define, load
from rollout.drive import Driven, drive
from rollout.engines.engine import Engine
from rollout.errors import RolloutStopped
from rollout.learner.grpo import Grpo, GrpoRule
from rollout.loop import RolloutLoop
from rollout.policies.tokens import Tokenizer
from rollout.recipes.arms import Cell, Stage
from rollout.record import Trajectory
from rollout.setup import Options, books_of, parts_of, plan_of
from rollout.terms import State
from sandbox.ports import Clock

ERRANDS = Path(__file__).parent / "errands"
HELD_OUT = "errands-held-out"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is the same in every run. `marks` are the numbers of updates after which held-out success is measured."""

    updates: int = 20
    marks: tuple[int, ...] = (0, 10, 20)
    batch_groups: int = 4
    group_size: int = 6
    samples: int = 2  # of each held-out task
    learning_rate: float = 1e-4
    max_gap: int = 1
    size: int = 24  # namespaces of each world
    slots: int = 32  # requests that the engine serves at once
    spare_batches: int = 10  # without anything to learn (all rewards equal), until the run ends with fewer updates

    def options(self, cell: Cell) -> Options:
        return Options(
            environment="errands",
            engine="vllm",
            trajectories=(self.updates + self.spare_batches) * self.batch_groups * self.group_size,
            group_size=self.group_size,
            batch_groups=self.batch_groups,
            max_gap=self.max_gap,
            keep_flat=True,
            alarm=1.0,
            contaminate=cell.rate,
            **self._bounds(cell),
        )

    def judging(self, cell: Cell, tasks: int) -> Options:
        return Options(
            environment=HELD_OUT,
            engine="vllm",
            split="held-out",
            trajectories=tasks * self.samples,
            group_size=self.samples,
            batch_groups=4,
            max_gap=4,
            keep_flat=True,
            **self._bounds(cell),
        )

    def _bounds(self, cell: Cell) -> dict[str, Any]:
        return {"size": self.size, "slots": self.slots, "seed": cell.seed, "turns": 3, "answer_tokens": 48, "total_tokens": 400}


def worlds() -> tuple[LoadedEnvironment, LoadedEnvironment]:
    """Return `errands` to learn in, and the same under another name to be judged in."""
    file = ERRANDS / "environment.toml"
    data = {**tomllib.loads(file.read_text("utf-8")), "name": HELD_OUT}
    return load(ERRANDS), define(data, ERRANDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """What a run needs beside its recipe. `folder` is the run's own. `name` is its name in the ledger, where none comes twice: what
    was interrupted and is run again is another run."""

    stage: Stage
    engine: Engine
    tokenizer: Tokenizer
    clock: Clock
    folder: Path
    name: str = field(default_factory=lambda: f"learn-{secrets.token_hex(4)}")


async def learn(recipe: Recipe, cell: Cell, model: Path, rig: Rig, *, say: Say) -> dict[str, Any]:
    """Begin with `model`, make the updates, measure at the marks; return what came of it. Ended early: RolloutStopped."""
    began = rig.clock.monotonic()
    await rig.engine.publish(model, rig.engine.version + 1)
    first = rig.engine.version
    options = recipe.options(cell)
    plan = plan_of(options, name=rig.name)
    books = books_of(plan, rig.stage.training, options, folder=rig.folder, clock=rig.clock)
    learner = Grpo(model, folder=rig.folder / "checkpoints", rule=GrpoRule(learning_rate=recipe.learning_rate, keep=2))
    parts = parts_of(
        plan,
        options,
        pool=rig.stage.pool,
        environment=rig.stage.training,
        engine=rig.engine,
        tokenizer=rig.tokenizer,
        clock=rig.clock,
        leave=rig.stage.forgetful,
    )
    curve: list[dict[str, Any]] = []
    if 0 in recipe.marks:
        curve.append(await judge(recipe, cell, 0, rig))
        say(f"{cell.name}: held-out success {curve[-1]['success']:.3f} before the first update")

    async def after(driven: Driven) -> bool:
        updates = rig.engine.version - first
        if updates in recipe.marks and (not curve or curve[-1]["updates"] < updates):
            curve.append(await judge(recipe, cell, updates, rig))
            say(f"{cell.name}: held-out success {curve[-1]['success']:.3f} after {updates} updates")
        return updates < recipe.updates

    async with books.journal:
        async with RolloutLoop(books, parts) as loop:
            driven = await drive(loop, learner, after=after)
        if books.stopped:
            raise RolloutStopped(books.stopped)
        await loop.settle()
    states = books.accounts.counts()
    shipped = set(loop.delivery.shipped)
    return {
        "cell": {**asdict(cell), "name": cell.name},
        "first_version": first,
        "updates": rig.engine.version - first,
        "curve": curve,
        "admitted": books.accounts.admitted,
        "ended": books.accounts.admitted - states[State.OPEN],
        "states": states,
        "mismatches": rig.stage.watch.mismatches,
        "quarantined_in_batches": len(loop.delivery.quarantined_in_batches),
        "in_batches": len(shipped),
        "dirty_starts_in_batches": len(shipped & rig.stage.watch.dirty_starts),
        "published": len(driven.publications),
        "changed": sum(bool(p["changed"]) for p in driven.publications),
        "in_flight_at_publication": sum(p["in_flight"] for p in driven.publications),
        "failed_publications": driven.failed_publications,
        "metrics": driven.metrics,
        "in_force": {**rig.engine.in_force, **(await rig.stage.pool.status())["in_force"]},
        "seconds": round(rig.clock.monotonic() - began, 1),
    }


async def judge(recipe: Recipe, cell: Cell, updates: int, rig: Rig) -> dict[str, Any]:
    """Measure held-out success with the weights in force: `samples` trajectories of each held-out task, in clean worlds."""
    environment = rig.stage.held_out
    tasks = [task.id for task in environment.tasks.values() if task.split == "held-out"]
    options = recipe.judging(cell, len(tasks))
    plan = plan_of(options, name=f"{rig.name}-held-out-{updates}")
    books = books_of(plan, environment, options, folder=rig.folder / f"held-out-{updates}", clock=rig.clock)
    parts = parts_of(
        plan, options, pool=rig.stage.pool, environment=environment, engine=rig.engine, tokenizer=rig.tokenizer, clock=rig.clock
    )
    async with books.journal, RolloutLoop(books, parts) as loop:
        await drive(loop, None)
    if books.stopped:
        raise RolloutStopped(books.stopped)
    return {"updates": updates, **success_of(list(books.records.values()))}


def success_of(records: Sequence[Trajectory]) -> dict[str, Any]:
    """Return the share that is solved of those that have a reward: what infrastructure broke is no failure of the policy.
    RolloutStopped where none has."""
    judged = [record for record in records if record.reward is not None]
    if not judged:
        raise RolloutStopped(
            f"none of {len(records)} held-out trajectories could be judged", fix="their reasons are in the run's records"
        )
    share = round(fmean(bool(record.success) for record in judged), 4)
    return {"success": share, "trajectories": len(judged), "tasks": len({record.task for record in judged})}
