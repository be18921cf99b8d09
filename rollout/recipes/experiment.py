"""Runs cells of an experiment one after the other over one live engine. What was run with the same recipe is not run again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs import LoadedEnvironment
from rollout.engines.vllm import VllmEngine, VllmRule
from rollout.policies.tokens import ModelTokenizer
from rollout.recipes.arms import Arm, Cell, open_stage
from rollout.recipes.training import Recipe, Rig, Say, learn, worlds
from rollout.recipes.warmstart import WarmStart, make
from rollout.tools import tools_for
from sandbox.aio import in_thread
from sandbox.cli.output import jsonable
from sandbox.clock import SystemClock
from sandbox.settings import Settings

RATES = {"quick": (0.5,), "full": (0.1, 0.25, 0.5)}
SEEDS = {"quick": (1, 2, 3), "full": tuple(range(1, 9))}


def cells(rates: Sequence[float], seeds: Sequence[int]) -> list[Cell]:
    """Return every arm at every rate: first the one without contamination, then the others seed by seed."""
    clean = [Cell(arm=Arm.NONE, rate=0.0, seed=seed) for seed in seeds]
    return [*clean, *(Cell(arm=arm, rate=rate, seed=seed) for seed in seeds for rate in rates for arm in (Arm.OFF, Arm.ON))]


class Results:
    """The files of an experiment: a folder for each recipe, in it the models, and a file for each cell that was run."""

    def __init__(self, folder: Path, recipe: Recipe, warm: WarmStart) -> None:
        text = json.dumps(jsonable([asdict(recipe), asdict(warm), _digest(worlds()[0])]), sort_keys=True)
        self.folder = folder / hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "recipe.json").write_text(
            json.dumps(jsonable({"recipe": asdict(recipe), "warm_start": asdict(warm)}), indent=2)
        )

    def model(self, seed: int) -> Path:
        return self.folder / f"model-{seed}"

    def scratch(self, cell: Cell) -> Path:
        """Where a cell's records and checkpoints lie; what an interrupted run left there is taken away."""
        path = self.folder / "runs" / cell.name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def read(self, cell: Cell) -> dict[str, Any] | None:
        path = self._path(cell)
        return json.loads(path.read_text("utf-8")) if path.is_file() else None

    def write(self, cell: Cell, result: dict[str, Any]) -> None:
        draft = self._path(cell).with_suffix(".draft")
        draft.write_text(json.dumps(jsonable(result), indent=2), "utf-8")
        draft.rename(self._path(cell))

    def _path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.name}.json"


async def run_cells(
    wanted: Sequence[Cell], results: Results, *, recipe: Recipe, warm: WarmStart, settings: Settings, say: Say
) -> list[dict[str, Any]]:
    """Run what was not run yet, and return the results of all."""
    missing = [cell for cell in wanted if results.read(cell) is None]
    if missing:
        await _run(missing, results, recipe=recipe, warm=warm, settings=settings, say=say)
    return [found for cell in wanted if (found := results.read(cell)) is not None]


async def _run(missing: Sequence[Cell], results: Results, *, recipe: Recipe, warm: WarmStart, settings: Settings, say: Say) -> None:
    training, held_out = worlds()
    clock = SystemClock()

    async def model_of(seed: int) -> Path:
        path = results.model(seed)
        if not path.is_dir():
            say(f"seed {seed}: making the model and its warm start ({warm.steps} steps)")
            loss = await in_thread(_made, path, training, seed, warm)
            say(f"seed {seed}: warm start done, loss {loss:.3f}")
        return path

    first = await model_of(missing[0].seed)
    say("starting vLLM")
    async with VllmEngine(first, clock=clock, rule=VllmRule(slots=recipe.slots, gpu_share=0.3)) as engine:
        for number, cell in enumerate(missing, start=1):
            model = await model_of(cell.seed)
            say(f"{cell.name}: run {number} of {len(missing)}")
            async with open_stage(training, held_out, cell, size=recipe.size, settings=settings) as stage:
                rig = Rig(stage=stage, engine=engine, tokenizer=ModelTokenizer(model), clock=clock, folder=results.scratch(cell))
                result = await learn(recipe, cell, model, rig, say=say)
            results.write(cell, result)
            say(f"{cell.name}: {result['updates']} updates, {result['ended']} trajectories, {result['seconds']:.0f} s")


def _made(folder: Path, environment: LoadedEnvironment, seed: int, warm: WarmStart) -> float:
    """Make a model; the directory has its name once it is whole."""
    draft = folder.with_name(f".{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    tasks = [task for task in environment.tasks.values() if task.split == "train"]
    loss = make(draft, tasks, [tool.spec for tool in tools_for(environment.spec)], seed=seed, rule=warm)
    draft.rename(folder)
    return loss


def _digest(environment: LoadedEnvironment) -> str:
    return str(environment.spec.digest)
