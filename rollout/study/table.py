"""The table: one row a configuration, cost per useful outcome with its spread, quality on what was held out, peak memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from rollout.study.cells import Cell
from rollout.study.plan import StudyPlan
from rollout.study.protocol import Shortfall

NO_COST = "—"
COLUMNS = (
    "configuration",
    "changed",
    "seeds",
    "reached_target",
    "cost_per_outcome",
    "cost_spread",
    "quality",
    "quality_spread",
    "quality_per_hour",
    "peak_memory_mb",
    "device_peak_mb",
    "hours",
    "energy_kwh",
    "informative_groups",
    "accepted",
    "stale_share",
    "contaminated",
    "against_base",
    "compliant",
)


def table(plan: StudyPlan, cells: Sequence[Cell], shortfalls: Sequence[Shortfall]) -> dict[str, Any]:
    """Return the rows, the unit of cost, its denominator and owner, and every shortfall. A row that did not reach the target in
    every seed has no cost: it would be compared with others that did. `contaminated` is the sum over the seeds, `peak_memory_mb`
    the largest of them, all else their mean."""
    gpu = bool(cells) and all(c.gpu_hours is not None for c in cells)
    rows = [
        _row(plan, each.name, [c for c in cells if c.configuration == each.name], shortfalls, gpu=gpu)
        for each in plan.configurations
    ]
    base = next((row for row in rows if not row["changed"]), None)
    for row in rows:
        row["against_base"] = _against(row, base)
    return {
        "study": plan.name,
        "owner": plan.owner or None,
        "environment": plan.environment,
        "denominator": plan.denominator,
        "target": plan.target,
        "unit": _unit(cells),
        "rows": rows,
        "shortfalls": [{"rule": s.rule, "configuration": s.configuration, "why": s.why} for s in shortfalls],
        "compliant": not shortfalls,
        "energy_how": sorted({c.energy_how for c in cells}),
        "memory_of": sorted({name for c in cells for name in c.memory_of}),
    }


def _unit(cells: Sequence[Cell]) -> str:
    held = sum(c.gpu_hours is not None for c in cells)
    if held and held == len(cells):
        return "GPU-hours"
    return "machine-hours (not every run held a GPU)" if held else "machine-hours (no GPU was held)"


def _row(plan: StudyPlan, name: str, own: Sequence[Cell], shortfalls: Sequence[Shortfall], *, gpu: bool) -> dict[str, Any]:
    configuration = next(c for c in plan.configurations if c.name == name)
    reached = [c for c in own if plan.target is not None and c.quality >= plan.target]
    hours = [_hours(c, gpu=gpu) for c in own]
    costs = [_hours(c, gpu=gpu) / outcomes for c in own if (outcomes := _outcomes(plan, c))]
    bar = bool(own) and len(reached) == len(own)
    whole = bar and len(costs) == len(own)
    quality = [c.quality for c in own]
    memory = [c.peak_memory_mb for c in own if c.peak_memory_mb is not None]
    energy = [c.energy_kwh for c in own if c.energy_kwh is not None]
    stale = [c.stale_share for c in own if c.stale_share is not None]
    return {
        "configuration": name,
        "changed": {factor: _plain(getattr(plan.factors(configuration), factor)) for factor in plan.changed(configuration)},
        "combined": configuration.combined,
        "seeds": len({c.seed for c in own}),
        "reached_target": f"{len(reached)} of {len(own)}",
        "cost_per_outcome": _mean(costs) if whole else None,
        "cost_spread": _spread(costs) if whole else None,
        "costs": [round(c, 8) for c in costs] if whole else [],
        "quality": _mean(quality),
        "quality_spread": _spread(quality),
        "qualities": [round(q, 4) for q in quality],
        "quality_per_hour": _mean([q / h for q, h in zip(quality, hours, strict=True) if h]) if bar else None,
        "peak_memory_mb": max(memory, default=None),
        "device_peak_mb": max((c.device_peak_mb for c in own if c.device_peak_mb is not None), default=None),
        "hours": _mean(hours),
        "energy_kwh": _mean(energy),
        "informative_groups": _mean([c.informative_groups for c in own]),
        "accepted": _mean([c.accepted for c in own]),
        "stale_share": _mean(stale),
        "contaminated": sum(c.contaminated for c in own),
        "dominant": [c.dominant for c in own],
        "runs": [{"seed": c.seed, "run": c.run, "evaluation": c.evaluation} for c in own],
        "compliant": not any(s.configuration in ("", name) for s in shortfalls),
    }


def _hours(cell: Cell, *, gpu: bool) -> float:
    return cell.gpu_hours if gpu and cell.gpu_hours is not None else cell.wall_s / 3600


def _outcomes(plan: StudyPlan, cell: Cell) -> int:
    return cell.informative_groups if plan.denominator == "informative groups" else cell.solved


def _against(row: Mapping[str, Any], base: Mapping[str, Any] | None) -> str:
    """How its cost stands to the base's; intervals of one spread that overlap are within noise."""
    if base is None or row is base:
        return "base" if row is base else ""
    if row["cost_per_outcome"] is None or base["cost_per_outcome"] is None:
        return "not compared: the target was not reached, or a run had no outcome"
    ratio = row["cost_per_outcome"] / base["cost_per_outcome"]
    apart = abs(row["cost_per_outcome"] - base["cost_per_outcome"])
    told = f"{ratio:.2f} times the base's cost"
    if row["cost_spread"] is None or base["cost_spread"] is None:
        return f"{told}, by one seed: whether that is noise cannot be said"
    return f"{told}{', within noise' if apart <= row['cost_spread'] + base['cost_spread'] else ''}"


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 8) if values else None


def _spread(values: Sequence[float]) -> float | None:
    """The standard deviation over the seeds; None of fewer than two."""
    return round(stdev(values), 8) if len(values) > 1 else None


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def as_csv(found: Mapping[str, Any]) -> str:
    """The rows as CSV, with unit, denominator and owner in columns of their own."""
    out = io.StringIO()
    extra = ("unit", "denominator", "target", "owner")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*COLUMNS, *extra))
    for row in found["rows"]:
        changed = " ".join(f"{name}={value}" for name, value in row["changed"].items())
        values = [changed if name == "changed" else row[name] for name in COLUMNS]
        writer.writerow([NO_COST if v is None else v for v in values] + [found[name] for name in extra])
    return out.getvalue()
