"""A study's table for a terminal, as HTML with plots, and as CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollout.meters.shown import table as rich_table
from rollout.study.table import NO_COST, as_csv

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH, LEFT, RIGHT, ROW = 720.0, 190.0, 44.0, 34.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    x: float
    y: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One configuration in a plot: a dot a seed, the mean, and one standard deviation to both sides."""

    name: str
    y: float
    dots: tuple[Dot, ...]
    mean: float | None
    low: float | None
    high: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Geometry that the template draws; `marks` are the axis' places and labels, `bar` that of the target."""

    title: str
    height: float
    lines: tuple[Line, ...]
    marks: tuple[tuple[float, str], ...]
    bar: float | None = None


def plot(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    values: str,
    mean: str,
    spread: str,
    most: float | None = None,
    bar: float | None = None,
) -> Plot:
    """Lay out one figure over all configurations; the axis begins at 0."""
    top = most or max((v for row in rows for v in row[values]), default=1.0) * 1.15 or 1.0

    def x(value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * max(0.0, min(value, top)) / top, 1)

    lines = []
    for index, row in enumerate(rows):
        y = 24 + index * ROW
        middle, apart = row[mean], row[spread] or 0.0
        lines.append(
            Line(
                name=row["configuration"],
                y=y,
                dots=tuple(Dot(x=x(v), y=y, value=v) for v in row[values]),
                mean=None if middle is None else x(middle),
                low=None if middle is None else x(middle - apart),
                high=None if middle is None else x(middle + apart),
                note="" if row[values] else "no figure: the target was not reached, or there was no outcome",
            )
        )
    marks = tuple((x(top * n / 4), f"{top * n / 4:.3g}") for n in range(5))
    return Plot(title=title, height=50 + len(rows) * ROW, lines=tuple(lines), marks=marks, bar=None if bar is None else x(bar))


def write(found: Mapping[str, Any], folder: Path, *, machine: Mapping[str, Any]) -> dict[str, str]:
    """Write HTML, CSV and JSON beside each other; return their paths."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    rows = found["rows"]
    plots = [
        plot(f"cost per outcome, {found['unit']}", rows, values="costs", mean="cost_per_outcome", spread="cost_spread"),
        plot(
            "success on the held-out set",
            rows,
            values="qualities",
            mean="quality",
            spread="quality_spread",
            most=1.0,
            bar=found["target"],
        ),
    ]
    templates = Environment(
        loader=PackageLoader("rollout"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    paths = {kind: folder / f"{found['study']}.{kind}" for kind in ("html", "csv", "json")}
    html = templates.get_template("study.html.j2").render(
        study=found, plots=plots, machine=machine, dash=NO_COST, width=WIDTH, left=LEFT
    )
    paths["html"].write_text(html, encoding="utf-8")
    paths["csv"].write_text(as_csv(found), encoding="utf-8")
    paths["json"].write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
    return {kind: str(path) for kind, path in paths.items()}


def terminal(found: Mapping[str, Any]) -> list[RenderableType]:
    """The table, its denominator, and every shortfall."""
    from rich.text import Text

    rows = [
        (
            row["configuration"] + ("" if row["compliant"] else " *"),
            row["reached_target"],
            _with_spread(row["cost_per_outcome"], row["cost_spread"]),
            _with_spread(row["quality"], row["quality_spread"]),
            row["peak_memory_mb"],
        )
        for row in found["rows"]
    ]
    columns = ("configuration", "reached", "cost per outcome", "held-out", "peak MiB")
    told = f"an outcome: {found['denominator'] or 'NOT NAMED'}; owner of the cost: {found['owner'] or 'NOBODY'}"
    changes = [_change(row) for row in found["rows"] if row["changed"]]
    short = [f"* rule {s['rule']} {s['configuration']}: {s['why']}" for s in found["shortfalls"]]
    lines = [told, *changes, *(short or ["compliant with the protocol"])]
    return [rich_table(f"{found['study']}: cost in {found['unit']}", columns, rows), Text("\n".join(lines))]


def _change(row: Mapping[str, Any]) -> str:
    changed = ", ".join(f"{name} = {value}" for name, value in row["changed"].items())
    return f"{row['configuration']} ({changed}): {row['against_base']}"


def _with_spread(mean: float | None, spread: float | None) -> str:
    if mean is None:
        return NO_COST
    return f"{mean:.4g}" + ("" if spread is None else f" ± {spread:.2g}")
