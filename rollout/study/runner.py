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
from rollout.run import run
from rollout.selection.selector import HELD_OUT
from rollout.setup import Options
from rollout.study import cells, machine, protocol
from rollout.study.cells import Cell
from rollout.study.plan import Configuration, Factors, StudyPlan
from sandbox.ports import Clock

OpenPool = Callable[[Any, int], AbstractAsyncContextManager[Any]]
SHUFFLE = 20261130  # one fixed order of the training tasks for every study


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
        done = {(c.configuration, c.seed) for c in cells.read(self.folder)} if (self.folder / cells.CELLS).exists() else set()
        for number, seed in enumerate(self.plan.seeds):  # seed by seed, so that a change of the machine's load meets all alike
            for configuration in self.plan.configurations:
                if (configuration.name, seed) not in done:
                    self._say(f"{configuration.name}, seed {seed}")
                    cells.write(self.folder, await self._cell(configuration, seed, number))
        return check(self.plan, self._environment, self.folder)

    async def _cell(self, configuration: Configuration, seed: int, number: int) -> Cell:
        factors = self.plan.factors(configuration)
        environment = self._environment.with_reset(factors.reset).with_check(deep_every=factors.check_every)
        tasks = stretch(self._training, size=self.plan.tasks_per_run, number=number)
        held_out = drawn(self._held_out, size=self.plan.held_out_tasks, seed=seed)
        name = f"study-{self.plan.name}-{configuration.name}-{seed}-{int(self._clock.now().timestamp()):x}"
        trained = self._options(factors, seed, tasks=tasks, trajectories=len(tasks) * factors.group_size, learner=factors.learner)
        judged = self._options(
            factors, seed, tasks=held_out, trajectories=len(held_out), learner="none", group_size=1, select=False
        )
        async with self._open_pool(environment, factors.size) as pool:
            common: dict[str, Any] = {"pool": pool, "environment": environment, "home": self._home, "clock": self._clock}
            summary = await run(trained, **common, name=name)
            evaluation = await run(judged, **common, name=f"{name}-held-out")
        self._record(configuration.name, factors, summary["in_force"])
        return self._made(configuration, seed, summary, evaluation)

    def _options(self, factors: Factors, seed: int, **own: Any) -> Options:
        plain = factors.model_dump(exclude={"reset", "check_every"})
        return Options(environment=self._environment.spec.name, seed=seed, keep_flat=own.get("group_size") == 1, **(plain | own))

    def _made(self, configuration: Configuration, seed: int, summary: dict[str, Any], evaluation: dict[str, Any]) -> Cell:
        """Read the figures out of both runs; which tasks they touched, and which were solved, is the trajectory store's to say."""
        trained = read(Path(summary["journal"])).trajectories
        judged = read(Path(evaluation["journal"])).trajectories
        informative, _ = signal_of(trained)
        cost, memory = summary["cost_per_accepted"], summary["memory_peak_mb"]
        return Cell(
            configuration=configuration.name,
            seed=seed,
            run=summary["run"],
            evaluation=evaluation["run"],
            trained_on=tuple(sorted({r.task for r in trained.values()})),
            evaluated_on=tuple(sorted({r.task for r in judged.values()})),
            wall_s=summary["wall_s"],
            gpu_hours=cost["gpu_hours"],
            peak_memory_mb=memory,
            energy_kwh=summary["energy"]["kwh"],
            energy_how=summary["energy"]["how"],
            accepted=summary["states"]["accepted"],
            informative_groups=informative,
            solved=len({r.task for r in judged.values() if r.success}),
            stale_share=summary["stale_share"],
            contaminated=summary["contaminated"],
            dominant=summary["cycles"]["dominant"],
            in_force=summary["in_force"],
        )

    def _record(self, name: str, factors: Factors, in_force: dict[str, Any]) -> None:
        path = self.folder / cells.MACHINE
        known = json.loads(path.read_text("utf-8")) if path.exists() else {}
        known[name] = machine.machine() | machine.of_run(factors.model_dump(mode="json"), in_force)
        path.write_text(json.dumps(known, indent=1, default=str), encoding="utf-8")


def check(plan: StudyPlan, environment: Any, folder: Path) -> list[protocol.Shortfall]:
    """Return how a study's plan and results fall short."""
    recorded = json.loads((folder / cells.MACHINE).read_text("utf-8")) if (folder / cells.MACHINE).exists() else {}
    found = cells.read(folder) if (folder / cells.CELLS).exists() else []
    return protocol.of_results(plan, list(environment.tasks.values()), found, recorded)
