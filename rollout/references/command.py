"""`autoclave rollout references`: says of which tasks the reference is wrong or missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from sandbox.cli import output
from sandbox.cli.options import Home, Json, load
from sandbox.cli.running import run as run_to_end

if TYPE_CHECKING:
    from sandbox.settings import Settings


def references(
    environment: str,
    /,
    *,
    file: Annotated[
        Path | None, Parameter(help="JSON lines of id and calls; by default what comes with `shop` and `repo`.")
    ] = None,
    split: Annotated[Literal["train", "held-out", "all"], Parameter(help="Which tasks.")] = "train",
    task: Annotated[tuple[str, ...], Parameter(help="Only these tasks; may be repeated.", negative="")] = (),
    size: Annotated[int, Parameter(validator=Number(gte=1), help="Namespaces.")] = 4,
    home: Home = None,
    json: Json = False,
) -> int:
    """Do every task's reference in a clean world of its own, and say which are wrong, missing or not decided.

    References that guide credit and are wrong, or lack for some tasks, bias what is learned. Exit code 1 where any is not right.

    Example: autoclave rollout references repo
    """
    found = run_to_end(_audit(environment, file, split, task, size, load(home)))
    if json:
        output.print_json(found)
    else:
        from rollout.meters.shown import table

        counts = found["counts"]
        rows = [(r["task"], r["difficulty"], r["finding"], r["why"]) for r in found["to_look_at"]]
        spread = [(name, *row.values()) for name, row in (*found["by_family"].items(), *found["by_difficulty"].items())]
        output.show(
            table(
                f"{found['environment']}: references of {found['tasks']} tasks", ("", *counts), [*spread, ("all", *counts.values())]
            ),
            table("to look at", ("task", "difficulty", "reference", "why"), rows) if rows else "every reference is right",
        )
    return 0 if found["counts"]["right"] == found["tasks"] else 1


async def _audit(
    environment: str, file: Path | None, split: str, names: tuple[str, ...], size: int, settings: Settings
) -> dict[str, Any]:
    from rollout.journal import Contents
    from rollout.references.audit import audit, findings
    from rollout.references.reference import of_environment, of_file
    from rollout.setup import Options, tasks_of
    from sandbox.clock import SystemClock
    from sandbox.wiring import environment as opened_of
    from sandbox.wiring import open_pool

    opened: Any = opened_of(environment, settings)
    chosen = tuple(opened.tasks) if split == "all" and not names else names
    options = Options(environment=opened.spec.name, split=split, tasks=chosen, size=size)
    tasks = tasks_of(opened, options)
    known = of_environment(opened, tasks) if file is None else of_file(file, tasks)
    if not any(known.values()):
        return {"environment": opened.spec.name, "run": None, **findings(known, tasks, Contents())}
    async with open_pool([opened], size=size, settings=settings) as pool:
        found = await audit(known, tasks, options, pool=pool, environment=opened, home=settings.home, clock=SystemClock())
    return {"environment": opened.spec.name, **found}
