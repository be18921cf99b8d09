"""`autoclave rollout calc`: the worked examples, with the articles' numbers where none are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from sandbox.cli import output
from sandbox.cli.options import Json

if TYPE_CHECKING:
    from rich.console import RenderableType

app = App(name="calc", help="Worked examples: illustrative arithmetic, no measurement.")
ILLUSTRATIVE = "illustrative: computed from the numbers given, nothing was measured"


@app.command
def timeline(
    *,
    generation_s: Annotated[float, Parameter(help="Generating a batch.")] = 90.0,
    training_s: Annotated[float, Parameter(help="The update.")] = 20.0,
    publication_s: Annotated[float, Parameter(help="Bringing the weights to the engine.")] = 2.0,
    slowest_s: Annotated[float, Parameter(help="The slowest trajectory, a part of generation.")] = 80.0,
    json: Json = False,
) -> int:
    """Say what a synchronous step takes, and the most that overlapping generation with training can gain.

    Example: autoclave rollout calc timeline --generation-s 90 --training-s 20 --publication-s 2
    """
    from rollout.advice.calc import Timeline
    from rollout.advice.calc import timeline as calculate

    found = calculate(Timeline(generation_s=generation_s, training_s=training_s, publication_s=publication_s, slowest_s=slowest_s))
    if json:
        output.print_json(found)
    else:
        output.show(
            f"a step takes {found['cycle_s']:g} s; the trainer is busy for {found['trainer_busy_s']:g} s of it "
            f"({found['trainer_share']:.1%}), the slowest trajectory takes {slowest_s:g} s of {generation_s:g} s of generation",
            f"overlapped it takes {found['overlapped_cycle_s']:g} s at best, bound by {found['bound_by']}: "
            f"{found['overlap_ceiling']:.2f} times as fast",
            ILLUSTRATIVE,
        )
    return 0


@app.command
def informative(
    *,
    group_size: Annotated[tuple[int, int], Parameter(help="Rollouts of one prompt, A and B.")] = (8, 4),
    share: Annotated[tuple[float, float], Parameter(help="Share of prompts with unequal rewards, A and B.")] = (0.4, 0.7),
    scouts: Annotated[tuple[float, float], Parameter(help="Rollouts to choose one prompt, A and B.")] = (0.0, 0.0),
    prompts: Annotated[int, Parameter(help="Of one step.")] = 100,
    steps: Annotated[int, Parameter(help="Of the run.")] = 500,
    gpu_hours: Annotated[float, Parameter(help="Of one rollout.")] = 0.02,
    json: Json = False,
) -> int:
    """Compare two configurations by informative signal per GPU-hour: by groups and by rollouts, with scouting charged.

    Example: autoclave rollout calc informative --scouts 0 4
    """
    from rollout.advice.calc import Configuration
    from rollout.advice.calc import informative as compare

    first, second = (
        Configuration(
            name=name,
            group_size=group_size[index],
            informative=share[index],
            scouts=scouts[index],
            prompts=prompts,
            steps=steps,
            gpu_hours_per_rollout=gpu_hours,
        )
        for index, name in enumerate("AB")
    )
    found = compare(first, second)
    if json:
        output.print_json(found)
    else:
        output.show(_table(found), *_even(found), ILLUSTRATIVE)
    return 0


def _table(found: Mapping[str, Any]) -> RenderableType:
    from rich.table import Table

    table = Table(title="informative signal per GPU-hour", title_justify="left")
    for column in ("", "rollouts", "scouts", "GPU-hours", "groups", "groups/GPU-h", "rollouts/GPU-h"):
        table.add_column(column)
    for row in found["configurations"]:
        table.add_row(
            row["name"],
            f"{row['rollouts']:,}",
            f"{row['scout_rollouts']:,g}",
            f"{row['gpu_hours']:,g}",
            f"{row['informative_groups']:,g}",
            f"{row['informative_groups_per_gpu_hour']:g}",
            f"{row['informative_rollouts_per_gpu_hour']:g}",
        )
    return table


def _even(found: Mapping[str, Any]) -> list[str]:
    lines = [f"B to A: {found['ratio']['informative_groups']} by groups, {found['ratio']['informative_rollouts']} by rollouts"]
    for name, even in found["scouting_break_even"].items():
        if even is not None and even["gpu_hours"] <= 0:
            lines.append(f"by {name.replace('_', ' ')}, B is not ahead even without scouting")
        elif even is not None:
            lines.append(
                f"by {name.replace('_', ' ')}, B stays ahead while scouting costs less than {even['gpu_hours']:,g} GPU-hours "
                f"({even['scouts_per_prompt']:g} rollouts for each chosen prompt)"
            )
    return lines
