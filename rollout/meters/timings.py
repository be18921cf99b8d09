"""What environments cost, in five separate timings; and what the checks between trajectories took, from the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollout.meters.distribution import quantiles
from rollout.record import Trajectory

FIVE = ("creation", "reset", "action", "observation", "teardown")


def environment_timings(
    records: Sequence[Trajectory], activity: Mapping[str, Any] | None = None, *, wall_s: float = 0.0
) -> dict[str, Any]:
    """Return count, sum and percentiles of the five, beside what a session had to wait for a namespace, and the actions of a second
    of the run. Creations and resets are the ledger's rows; without a ledger, resets are those that made the trajectories'
    starts. Unreadable answers are no actions; of several calls in one answer, one observation is made."""
    resets = [r.timings.reset_s for r in records if r.timings.reset_s is not None]
    creations: list[float] = []
    if activity is not None:
        resets = [row["seconds"] for row in activity["resets"] if row["seconds"] is not None]
        creations = [row["seconds"] for row in activity["creations"]]
    own = [a for r in records for a in r.own_actions if not a.malformed]
    values: dict[str, list[float]] = {
        "creation": creations,
        "reset": resets,
        "action": [a.action_s for a in own],
        "observation": [a.observation_s for a in own if a.observation_s > 0],
        "teardown": [r.timings.teardown_s for r in records if r.timings.teardown_s is not None],
    }
    spent = sum(r.duration_s for r in records)
    found: dict[str, Any] = {name: _row(values[name]) for name in FIVE}
    found["acquire"] = _row([r.timings.creation_s for r in records if r.timings.creation_s is not None])
    found["actions_per_s"] = round(len(own) / wall_s, 4) if wall_s else None
    found["rate_limited"] = sum(a.rate_limited for a in own)
    found["checks"], found["checks_share_of_trajectories"] = {}, None
    if activity is not None:
        found["checks"] = {
            depth: _row([row["seconds"] for row in activity["checks"] if row["depth"] == depth]) for depth in ("quick", "deep")
        }
        checked = sum(row["seconds"] for row in activity["checks"])
        found["checks_share_of_trajectories"] = round(checked / spent, 4) if spent else None
    return found


def _row(values: Sequence[float]) -> dict[str, Any]:
    return {"count": len(values), "sum_s": round(sum(values), 4), **quantiles(values)}
