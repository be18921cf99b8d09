"""The report of a run: an HTML file without scripts, and tables for a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollout.admission.planner import Decision

if TYPE_CHECKING:
    from rich.console import RenderableType


def write(summary: dict[str, Any], reports: Path) -> dict[str, Any]:
    """Write the HTML report and the same as JSON; return the summary with the report's path."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from sandbox.cli.output import jsonable

    reports.mkdir(parents=True, exist_ok=True)
    path = reports / f"rollout-{summary['run']}.html"
    plain = jsonable({**summary, "report": path})
    templates = Environment(
        loader=PackageLoader("rollout"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    path.write_text(templates.get_template("rollout.html.j2").render(run=plain), encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(plain, indent=2), encoding="utf-8")
    return dict(plain)


def terminal(summary: Mapping[str, Any]) -> list[RenderableType]:
    """Tables for a person. What a tool or a check said is text and no markup: it may hold brackets."""
    from rich.table import Table
    from rich.text import Text

    states = Table(title=f"{summary['run']}: {summary['admitted']} trajectories admitted", title_justify="left")
    for column in ("state", "count", "reasons"):
        states.add_column(column)
    for state, count in summary["states"].items():
        reasons = "; ".join(f"{n} {why}" for why, n in summary["reasons"].get(state, {}).items())
        states.add_row(state, str(count), Text(reasons))
    cycle = Table(title="where the time went", title_justify="left")
    for column in ("stage", "service s", "in line s", "share"):
        cycle.add_column(column)
    for stage, row in summary["cycle"].items():
        share = "" if row["share"] is None else f"{row['share']:.0%}"
        cycle.add_row(stage, f"{row['service_s']:.2f}", f"{row['queue_s']:.2f}", share)
    lines = [
        f"batches {summary['batches']}, quarantined in batches {summary['quarantined_in_batches']}, "
        f"contaminated {summary['contaminated']}, refused {summary['refused']}",
        f"slot held during tool waits: {summary['slot_held_during_tool_wait_s']:g} s",
        f"report: {summary['report']}",
    ]
    if summary["stopped"]:
        lines.insert(0, f"stopped early: {summary['stopped']}")
    return [states, cycle, Text("\n".join(lines))]


def decisions_table(run: str, found: Sequence[Decision]) -> RenderableType:
    """Each decision about one task: the sum, its terms, and who came next."""
    from rich.table import Table

    table = Table(title=f"{run}: why {found[0].task} ({found[0].family})", title_justify="left")
    for column in ("no.", "by", "score", "terms", "before"):
        table.add_column(column)
    for each in found:
        terms = " ".join(f"{name} {value:+.3f}" for name, value in each.terms.items())
        after = f"{each.runner_up} {each.runner_up_score:.3f}" if each.runner_up_score is not None else ""
        table.add_row(str(each.number), each.by, f"{each.score:.3f}", terms, after)
    return table


def rows_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> RenderableType:
    """Any query's answer."""
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(Text("" if value is None else str(value)) for value in row))
    return table
