"""p50, p90 and p99 of what trajectories took: of all, and by task family and termination reason. A mean would hide the tail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rollout.record import Trajectory

QUANTITIES: Mapping[str, Callable[[Trajectory], float]] = {
    "duration_s": lambda r: r.duration_s,
    "generated_tokens": lambda r: float(r.generated),
    "tool_calls": lambda r: float(sum(not a.malformed for a in r.own_actions)),
    "tool_wait_s": lambda r: r.tool_wait_s,
    "retries": lambda r: float(r.attempt + sum(a.retries for a in r.own_actions)),
    "reward_s": lambda r: r.score_s,
}
Row = Mapping[str, float | None]


def percentiles(records: Iterable[Trajectory]) -> dict[str, Row]:
    """Return the six quantities."""
    held = list(records)
    return {name: quantiles([of(record) for record in held]) for name, of in QUANTITIES.items()}


def by_kind(records: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """Return the six quantities for every family and termination reason that occurred, the largest share of time first."""
    groups: dict[tuple[str, str], list[Trajectory]] = {}
    for record in records:
        groups.setdefault((record.family, record.termination.value), []).append(record)
    whole = sum(r.duration_s for r in records)
    rows = [
        {
            "family": family,
            "termination": termination,
            "trajectories": len(held),
            "share_of_time": round(sum(r.duration_s for r in held) / whole, 4) if whole else None,
            **percentiles(held),
        }
        for (family, termination), held in groups.items()
    ]
    return sorted(rows, key=lambda row: (-(row["share_of_time"] or 0), row["family"], row["termination"]))


def quantiles(values: Sequence[float]) -> Row:
    """p50, p90 and p99; None of nothing."""
    return {f"p{q}": quantile(values, q) for q in (50, 90, 99)}


def quantile(values: Sequence[float], q: float) -> float | None:
    """The nearest-rank quantile, so that every figure is one that was measured."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(len(ordered) * q / 100) - 1)], 4)
