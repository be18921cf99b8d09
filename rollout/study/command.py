"""`autoclave rollout study run | table | validate`: configurations compared under one protocol."""

from __future__ import annotations

import json as encoding
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from sandbox.cli import output
from sandbox.cli.options import Home, Json, load
from sandbox.cli.running import run as run_to_end

if TYPE_CHECKING:
    from rollout.study.plan import StudyPlan
    from sandbox.settings import Settings

app = App(name="study", help="Compare configurations at a fixed quality bar, by a protocol that says when it was not kept.")


@app.command
def run(file: Path, /, *, home: Home = None, json: Json = False) -> int:
    """Run every configuration of FILE under every seed, evaluate each on the held-out set, and print the table.

    What was run before is kept: a study that was stopped goes on. Exit code 1 where the protocol was not kept.

    Example: autoclave rollout study run study.toml
    """
    from rollout.study.plan import read

    settings = load(home)
    plan = read(file)
    run_to_end(_run(plan, settings))
    return _shown(plan, settings, json)


@app.command
def table(name: str, /, *, home: Home = None, json: Json = False) -> int:
    """Print a study's table again, and write it as HTML, CSV and JSON.

    Example: autoclave rollout study table cadence
    """
    settings = load(home)
    return _shown(_plan(name, settings), settings, json)


@app.command
def validate(file: Path, /, *, home: Home = None, json: Json = False) -> int:
    """Say how a study falls short of the protocol: by its file before it runs, and by its results where there are some.

    Exit code 1 where it does.

    Example: autoclave rollout study validate study.toml
    """
    from rollout.study.plan import read
    from rollout.study.protocol import of_plan
    from rollout.study.runner import check

    settings = load(home)
    plan = read(file)
    opened = _environment(plan, settings)
    folder = settings.home / "studies" / plan.name
    has_results = (folder / "cells").exists()
    found = check(plan, opened, folder) if has_results else of_plan(plan, list(opened.tasks.values()))
    rows = [{"rule": s.rule, "configuration": s.configuration, "why": s.why} for s in found]
    if json:
        output.print_json({"study": plan.name, "results": has_results, "compliant": not rows, "shortfalls": rows})
    else:
        what = "plan and results" if has_results else "the plan; nothing was run yet"
        output.show(what, *(f"rule {r['rule']} {r['configuration']}: {r['why']}" for r in rows) if rows else ("no shortfall",))
    return 1 if rows else 0


def _plan(name: str, settings: Settings) -> StudyPlan:
    from rollout.study.plan import StudyPlan
    from sandbox.errors import RecordMissing

    path = settings.home / "studies" / name / "plan.json"
    if not path.exists():
        raise RecordMissing(f"there is no study {name} in {settings.home}", fix="`autoclave rollout study run FILE` makes one")
    return StudyPlan.model_validate_json(path.read_text("utf-8"))


def _environment(plan: StudyPlan, settings: Settings) -> Any:
    from sandbox.wiring import environment

    return environment(plan.environment, settings)


async def _run(plan: StudyPlan, settings: Settings) -> None:
    from rollout.study.runner import Study
    from sandbox.clock import SystemClock
    from sandbox.wiring import open_pool

    progress = output.Progress()
    study = Study(
        plan,
        environment=_environment(plan, settings),
        open_pool=lambda environment, size: open_pool([environment], size=size, settings=settings),
        home=settings.home,
        clock=SystemClock(),
        say=progress.say,
    )
    await study.run()


def _shown(plan: StudyPlan, settings: Settings, json: bool) -> int:
    from rollout.study import cells, report
    from rollout.study.runner import check
    from rollout.study.table import table as build

    folder = settings.home / "studies" / plan.name
    found: dict[str, Any] = build(plan, cells.read(folder), check(plan, _environment(plan, settings), folder))
    machine: Mapping[str, Any] = encoding.loads((folder / cells.MACHINE).read_text("utf-8"))
    found["reports"] = report.write(found, folder, machine=machine)
    if json:
        output.print_json(found)
    else:
        output.show(*report.terminal(found), *found["reports"].values())
    return 0 if found["compliant"] else 1
