"""What runs of the recipe come to: JSON, a table in Markdown, and a plot, written beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollout.recipes.arms import Arm
from rollout.recipes.intervals import analyse, interval
from rollout.recipes.plot import Line, curves

Run = Mapping[str, Any]
TOLD = {Arm.NONE: "no contamination", Arm.OFF: "contamination, quarantine off", Arm.ON: "contamination, quarantine on"}


def learning(runs: Sequence[Run], folder: Path, *, updates: int) -> dict[str, Any]:
    """Held-out success of each seed at each mark; `better` where every seed made the updates and ended better than it began."""
    table = ["| seed | updates | held-out success | published, changed | trajectories | s |", "|---|---|---|---|---|---|"]
    for run in runs:
        course = " → ".join(f"{p['success']:.3f} ({p['updates']})" for p in run["curve"])
        table.append(
            f"| {run['cell']['seed']} | {run['updates']} | {course} | {run['published']}, {run['changed']} "
            f"| {run['ended']} | {run['seconds']:.0f} |"
        )
    lines = [Line(label=f"seed {run['cell']['seed']}", points=_points(run), style=n) for n, run in enumerate(runs)]
    note = (
        f"{runs[0]['curve'][0]['trajectories']} trajectories on {runs[0]['curve'][0]['tasks']} held-out tasks at each mark"
        if runs
        else ""
    )
    return _written(
        folder,
        "learning",
        curves("Held-out success while learning errands", note, lines),
        {"table": table, "better": all(_better(run, updates) for run in runs), "runs": list(runs)},
    )


def _better(run: Run, updates: int) -> bool:
    first, last = run["curve"][0], run["curve"][-1]
    return bool(last["updates"] == updates and last["success"] > first["success"])


def experiment(runs: Sequence[Run], folder: Path, *, size: str) -> dict[str, Any]:
    """The arms at each rate, their differences with intervals, what these allow to be said, and what quarantine cost."""
    rows = analyse(runs)
    table = [
        "| rate | none | off | on | none - off | harms | none - on | protects |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {row['rate']:g} | {_said(row['none'])} | {_said(row['off'])} | {_said(row['on'])} | {_said(row['none_minus_off'])} "
            f"| {row['harms']} | {_said(row['none_minus_on'])} | {row['protects']} |"
            for row in rows
        ),
        "",
        "| arm | rate | seed | held-out success (updates) | in batches | of these started dirty | quarantined | trajectories | s |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(run) for run in runs),
    ]
    plots = []
    for row in rows:
        name = f"contamination-{row['rate']:g}"
        (folder / f"{name}.svg").write_text(_arms(runs, row["rate"]), "utf-8")
        plots.append(str(folder / f"{name}.svg"))
    summary = {"size": size, "table": table, "analysis": rows, "runs": list(runs), "plot": ", ".join(plots)}
    (folder / "contamination.json").write_text(json.dumps(summary, indent=2), "utf-8")
    return summary


def _row(run: Run) -> str:
    cell = run["cell"]
    course = " → ".join(f"{p['success']:.3f} ({p['updates']})" for p in run["curve"])
    return (
        f"| {cell['arm']} | {cell['rate']:g} | {cell['seed']} | {course} | {run['in_batches']} | {run['dirty_starts_in_batches']} "
        f"| {run['states']['quarantined']} | {run['ended']} | {run['seconds']:.0f} |"
    )


def _arms(runs: Sequence[Run], rate: float) -> str:
    lines: list[Line] = []
    for style, arm in enumerate(Arm):
        mine = [r for r in runs if r["cell"]["arm"] == arm and r["cell"]["rate"] == (0 if arm is Arm.NONE else rate)]
        lines += [Line(label="", points=_points(run), style=style, faint=True) for run in mine]
        marks = sorted(set.intersection(*({p["updates"] for p in r["curve"]} for r in mine))) if mine else []
        found = [interval([p["success"] for r in mine for p in r["curve"] if p["updates"] == mark]) for mark in marks]
        points = [(float(mark), each.mean) for mark, each in zip(marks, found, strict=True)]
        low = [each.mean if each.low is None else each.low for each in found]
        high = [each.mean if each.high is None else each.high for each in found]
        lines.append(Line(label=TOLD[arm], points=points, low=low, high=high, style=style))
    seeds = len({r["cell"]["seed"] for r in runs})
    return curves(f"Contamination at rate {rate:g}", f"means of {seeds} seeds with 95 % intervals; thin: each seed", lines)


def _points(run: Run) -> list[tuple[float, float]]:
    return [(float(p["updates"]), float(p["success"])) for p in run["curve"]]


def _said(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "not run"
    span = "" if found["low"] is None else f" [{found['low']:.3f}, {found['high']:.3f}]"
    return f"{found['mean']:.3f}{span}"


def _written(folder: Path, name: str, plot: str, summary: dict[str, Any]) -> dict[str, Any]:
    path = folder / f"{name}.svg"
    path.write_text(plot, "utf-8")
    summary = {**summary, "plot": str(path)}
    (folder / f"{name}.json").write_text(json.dumps(summary, indent=2), "utf-8")
    return summary
