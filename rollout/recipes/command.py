"""`autoclave rollout learn` and `autoclave rollout contamination`: the recipe, and the experiment with it, each by one command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from sandbox.cli import output
from sandbox.cli.options import Home, Json, load
from sandbox.cli.running import run as run_to_end

Folder = Annotated[Path, Parameter(help="Where results, models and plots go; runs that are there already are not run again.")]
Seeds = Annotated[tuple[int, ...], Parameter(name="--seed", help="May be repeated.", negative="")]


def learn(
    folder: Folder,
    /,
    *,
    seed: Seeds = (1, 2, 3),
    updates: Annotated[int, Parameter(validator=Number(gte=1), help="Of the learner, each published to the engine.")] = 20,
    home: Home = None,
    json: Json = False,
) -> int:
    """Teach a small model `errands` with GRPO and a live vLLM engine, and measure held-out success before, between and after.

    Makes the model and its warm start, needs no GPU, and writes JSON and a plot. Exit code 1 where a seed ended no better than it
    began, or with fewer updates.

    Example: autoclave rollout learn ./learning --seed 1 --seed 2 --seed 3
    """
    from rollout.recipes.report import learning
    from rollout.recipes.training import Recipe

    recipe = Recipe(updates=updates, marks=tuple(sorted({0, updates // 2, updates})))
    runs, at = run_to_end(_cells(folder, (), seed, recipe, load(home)))
    summary = learning(runs, at, updates=updates)
    output.print_json(summary) if json else output.show(*_lines(summary["table"], summary["plot"]))
    return 0 if summary["better"] else 1


def contamination(
    folder: Folder,
    /,
    *,
    size: Annotated[Literal["quick", "full"], Parameter(help="As docs/experiments/contamination.md fixes them.")] = "quick",
    home: Home = None,
    json: Json = False,
) -> int:
    """Run the contamination experiment: held-out success with right resets, with leaky ones, and with leaky ones under quarantine.

    Everything about it was fixed in docs/experiments/contamination.md. May be interrupted and called again: it goes on with the
    runs that are missing.

    Example: autoclave rollout contamination ./contamination --size quick
    """
    from rollout.recipes.experiment import RATES, SEEDS
    from rollout.recipes.report import experiment
    from rollout.recipes.training import Recipe

    runs, at = run_to_end(_cells(folder, RATES[size], SEEDS[size], Recipe(), load(home)))
    summary = experiment(runs, at, size=size)
    output.print_json(summary) if json else output.show(*_lines(summary["table"], summary["plot"]))
    return 0


async def _cells(
    folder: Path, rates: Sequence[float], seeds: Sequence[int], recipe: Any, settings: Any
) -> tuple[list[dict[str, Any]], Path]:
    from rollout.recipes.experiment import Results, cells, run_cells
    from rollout.recipes.warmstart import WarmStart

    warm = WarmStart()
    results = Results(folder.absolute(), recipe, warm)
    progress = output.Progress()
    wanted = cells(rates, seeds)
    return await run_cells(wanted, results, recipe=recipe, warm=warm, settings=settings, say=progress.say), results.folder


def _lines(table: Sequence[str], plot: str) -> list[str]:
    return [*table, f"plot: {plot}"]
