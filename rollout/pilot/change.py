"""Stage 2: one limit is raised at a time, and kept only when more signals are accepted an hour at bearable cost and reliability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.errors import EnvironmentInvalid

LIMITS = ("size", "slots", "tool_limit", "batch_groups", "max_gap", "group_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of the whole loop under some limits. `busy` (of the model's places) is reported and decides nothing."""

    limits: Mapping[str, int]
    accepted_per_hour: float
    cost_per_accepted: float | None
    failed_share: float
    cycle_s: float | None
    mean_gap: float | None
    publication_s: float | None
    busy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearable:
    """What a change may cost: at most `cost` times as much for an accepted trajectory, and at most `failed` of all failing."""

    cost: float = 1.1
    failed: float = 0.1


def measured(summary: Mapping[str, Any], limits: Mapping[str, int]) -> Measured:
    """Read a run's summary."""
    wall_s, states = summary["wall_s"], summary["states"]
    gaps = {int(gap): count for gap, count in summary["staleness"]["gaps"].items()}
    slots = summary["dependencies"]["model"]
    return Measured(
        limits=dict(limits),
        accepted_per_hour=round(states["accepted"] / wall_s * 3600, 4) if wall_s else 0.0,
        cost_per_accepted=summary["cost_per_accepted"]["per_accepted"],
        failed_share=round((states["failed"] + states["quarantined"]) / summary["admitted"], 4) if summary["admitted"] else 0.0,
        cycle_s=summary["cycles"]["seconds"]["mean"],
        mean_gap=round(sum(g * n for g, n in gaps.items()) / sum(gaps.values()), 4) if gaps else None,
        publication_s=summary["staleness"]["publication_s"],
        busy=round(slots["service_s"] / (wall_s * slots["limit"]), 4) if wall_s else None,
    )


def keep_change(before: Measured, after: Measured, bearable: Bearable) -> dict[str, Any]:
    """Say whether a change is kept, and why. EnvironmentInvalid when not exactly one limit changed: nobody could tell which one
    it was."""
    changed = sorted(n for n in {*before.limits, *after.limits} if before.limits.get(n) != after.limits.get(n))
    if len(changed) != 1:
        raise EnvironmentInvalid(
            f"{len(changed)} limits changed at once: {', '.join(changed) or 'none'}", fix="change one limit and measure again"
        )
    gain = after.accepted_per_hour - before.accepted_per_hour
    told = f"{changed[0]} from {before.limits.get(changed[0])} to {after.limits.get(changed[0])}"
    why = ""
    if gain <= 0:
        why = f"accepted signals an hour went from {before.accepted_per_hour:g} to {after.accepted_per_hour:g}"
    elif after.failed_share > bearable.failed:
        why = f"{after.failed_share:.0%} of the trajectories failed, {bearable.failed:.0%} may"
    elif after.cost_per_accepted is None or (
        before.cost_per_accepted is not None and after.cost_per_accepted > bearable.cost * before.cost_per_accepted
    ):
        why = f"an accepted trajectory costs {after.cost_per_accepted}, before {before.cost_per_accepted}"
    return {
        "change": told,
        "keep": not why,
        "why": why or f"accepted signals an hour rose from {before.accepted_per_hour:g} to {after.accepted_per_hour:g}",
    }
