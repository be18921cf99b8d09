"""Runs a study: every configuration under every seed, with an evaluation on what was held out. What was run already is kept."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from rollout.advice.triage import signal_of
from rollout.journal import read
from rollout.meters.cost import USED
from rollout.run import play, prepare, sequel
from rollout.running.runner import Bounds
from rollout.selection.selector import HELD_OUT
from rollout.setup import Options, bounds_of
from rollout.study import cells, machine, protocol
from rollout.study.cells import Cell
from rollout.study.plan import Configuration, Factors, StudyPlan
from sandbox.ports import Clock

OpenPool = Callable[[Any, int], AbstractAsyncContextManager[Any]]
SHUFFLE = 20261130  # one fixed order of the training tasks for every study
JUDGING: dict[str, Any] = {
    "learner": "none",
    "group_size": 1,
    "batch_groups": 1,
    "completeness": 1.0,
    "keep_flat": True,
    "select": False,
}


def stretch(tasks: Sequence[str], *, size: int, number: int) -> tuple[str, ...]:
    """Return the tasks of the run with this number: stretches of one shuffle, so that seeds cover the workload together."""
    order = sorted(tasks)
    random.Random(SHUFFLE).shuffle(order)
    start = number * size
    return tuple(order[(start + n) % len(order)] for n in range(min(size, len(order))))


def drawn(tasks: Sequence[str], *, size: int, seed: int) -> tuple[str, ...]:
    """Return a uniform draw of the held-out tasks; all of them for a size of 0."""
    order = sorted(tasks)
    return tuple(order) if not size or size >= len(order) else tuple(random.Random(seed).sample(order, size))


class Study:
    """`open_pool(environment, size)` opens a pool of an environment for one run."""

    def __init__(
        self,
        plan: StudyPlan,
        *,
        environment: Any,
        open_pool: OpenPool,
        home: Path,
        clock: Clock,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.plan = plan
        self.folder = home / "studies" / plan.name
        self._environment = environment
        self._open_pool = open_pool
        self._home = home
        self._clock = clock
        self._say = say
        tasks = list(environment.tasks.values())
        self._training = [t.id for t in tasks if t.split != HELD_OUT]
        self._held_out = [t.id for t in tasks if t.split == HELD_OUT]

    async def run(self) -> list[protocol.Shortfall]:
        """Run what is missing; return how the whole falls short of the protocol."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / cells.PLAN).write_text(self.plan.model_dump_json(indent=1), encoding="utf-8")
        known = cells.read(self.folder) if (self.folder / cells.CELLS).exists() else []
        done = {(c.configuration, c.seed): c.planned for c in known}
        for number, seed in enumerate(self.plan.seeds):  # seed by seed, so that a change of the machine's load meets all alike
            for configuration in self.plan.configurations:
                if done.get((configuration.name, seed)) != self.plan.planned(configuration):
                    self._say(f"{configuration.name}, seed {seed}")
                    cells.write(self.folder, await self._cell(configuration, seed, number))
        return check(self.plan, self._environment, self.folder)

    async def _cell(self, configuration: Configuration, seed: int, number: int) -> Cell:
        factors = self.plan.factors(configuration)
        environment = self._environment.with_reset(factors.reset).with_check(deep_every=factors.check_every)
        tasks = stretch(self._training, size=self.plan.tasks_per_run, number=number)
        held_out = drawn(self._held_out, size=self.plan.held_out_tasks, seed=seed)
        name = f"study-{self.plan.name}-{configuration.name}-{seed}-{int(self._clock.now().timestamp()):x}"
        trained = self._options(factors, seed, tasks=tasks, trajectories=len(tasks) * factors.group_size, even=not factors.select)
        judged = self._options(factors, seed, tasks=held_out, trajectories=len(held_out), even=True, **JUDGING)
        common: dict[str, Any] = {"environment": environment}
        prepared = prepare(trained, **common, home=self._home, clock=self._clock, name=name)
        async with prepared.engine, self._open_pool(environment, factors.size) as pool:
            summary = await play(prepared, pool=pool, **common)
            after = sequel(prepared, judged, **common, name=f"{name}-held-out")  # the policy that came of it is what is judged
            evaluation = await play(after, pool=pool, **common)
            self._record(configuration.name, factors, summary["in_force"], bounds_of(trained), prepared.engine.context)
        return self._made(configuration, seed, held_out, summary, evaluation)

    def _options(self, factors: Factors, seed: int, **own: Any) -> Options:
        plain = factors.model_dump(exclude={"reset", "check_every"})
        return Options(environment=self._environment.spec.name, seed=seed, **(plain | own))

    def _made(
        self,
        configuration: Configuration,
        seed: int,
        held_out: Sequence[str],
        summary: dict[str, Any],
        evaluation: dict[str, Any],
    ) -> Cell:
        """Read the figures out of both runs; which tasks they touched, and which were solved, is the trajectory store's to say: a
        success in a contaminated world is none."""
        trained, judged = read(Path(summary["journal"])), read(Path(evaluation["journal"]))
        informative, _ = signal_of(trained.trajectories, trained.outcomes, among=USED)
        sound = [r for t, r in judged.trajectories.items() if (o := judged.outcomes.get(t)) is not None and o.state in USED]
        return Cell(
            configuration=configuration.name,
            seed=seed,
            run=summary["run"],
            evaluation=evaluation["run"],
            trained_on=tuple(sorted({r.task for r in trained.trajectories.values()})),
            evaluated_on=tuple(sorted(held_out)),
            unjudged=tuple(sorted(set(held_out) - {r.task for r in sound})),
            stopped=summary["stopped"] or evaluation["stopped"] or "",
            wall_s=summary["wall_s"],
            gpu_hours=summary["cost_per_accepted"]["gpu_hours"],
            peak_memory_mb=summary["memory_peak_mb"],
            device_peak_mb=summary["memory"]["device_peak_mb"],
            memory_of=tuple(name for name, value in summary["memory"]["categories_mb"].items() if value is not None),
            energy_kwh=summary["energy"]["kwh"],
            energy_how=summary["energy"]["how"],
            accepted=summary["states"]["accepted"],
            informative_groups=informative,
            solved=len({r.task for r in sound if r.success}),
            stale_share=summary["stale_share"],
            contaminated=summary["contaminated"] + evaluation["contaminated"],
            dominant=summary["cycles"]["dominant"],
            planned=self.plan.planned(configuration),
            machine=machine.machine(),
            in_force=summary["in_force"],
        )

    def _record(self, name: str, factors: Factors, in_force: dict[str, Any], bounds: Bounds, context: int | None) -> None:
        whole = bounds.total_tokens if context is None else min(bounds.total_tokens, context)
        limits = {"turns": bounds.turns, "answer_tokens": bounds.answer_tokens, "total_tokens": whole}
        path = self.folder / cells.MACHINE
        known = json.loads(path.read_text("utf-8")) if path.exists() else {}
        known[name] = machine.machine() | machine.of_run(factors.model_dump(mode="json"), in_force, limits=limits)
        path.write_text(json.dumps(known, indent=1, default=str), encoding="utf-8")


def check(plan: StudyPlan, environment: Any, folder: Path) -> list[protocol.Shortfall]:
    """Return how a study's plan and results fall short."""
    recorded = json.loads((folder / cells.MACHINE).read_text("utf-8")) if (folder / cells.MACHINE).exists() else {}
    found = cells.read(folder) if (folder / cells.CELLS).exists() else []
    return protocol.of_results(plan, list(environment.tasks.values()), found, recorded)
