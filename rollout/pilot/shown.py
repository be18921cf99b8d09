"""A pilot as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rollout.meters.shown import table

if TYPE_CHECKING:
    from rich.console import RenderableType


def load_tables(found: Mapping[str, Any]) -> list[RenderableType]:
    rows = [
        (
            step["rate"],
            step["offered"],
            step["finished"],
            step["in_flight"],
            step["valid_per_s"],
            step["percentiles"]["duration_s"]["p50"],
            step["percentiles"]["duration_s"]["p99"],
            step["cost_per_valid_s"],
            ", ".join(f"{n} {why}" for why, n in step["ended_by"].items()),
            step["grows"] or "",
        )
        for step in found["steps"]
    ]
    columns = ("rate", "offered", "finished", "in flight", "valid/s", "p50 s", "p99 s", "s per valid", "ended by", "grows")
    verdict = f"add capacity to: {found['bottleneck'] or 'nothing'}; {found['why']}"
    return [table("load at a fixed policy", columns, rows), verdict]


def loop_tables(found: Mapping[str, Any]) -> list[RenderableType]:
    names = ("accepted_per_hour", "cost_per_accepted", "failed_share", "cycle_s", "mean_gap", "publication_s", "busy")
    rows = [(r["run"], *(r[n] for n in names)) for r in found["runs"]]
    lines = [f"{d['change']}: {'kept' if d['keep'] else 'not kept'}: {d['why']}" for d in found["decisions"]]
    return [table("the whole loop", ("run", *names), rows), *lines]
