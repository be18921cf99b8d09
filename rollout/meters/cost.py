"""Cost per accepted learning signal, by family: all that was spent, on rejected trajectories too, over those that an update took.

It shows how much is thrown away before an update. It is no objective: no scheduler input reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rollout.journal import Outcome
from rollout.record import Trajectory
from rollout.terms import State

USED = frozenset({State.ACCEPTED, State.OFF_POLICY})
UNIT = "seconds of trajectories, evaluation included"
SCOUT = "scout"


def cost_per_accepted(
    records: Iterable[Trajectory], outcomes: Mapping[str, Outcome], *, wall_s: float = 0.0, gpus: int = 0
) -> dict[str, Any]:
    """Return cost, acceptance and coverage: all together and by family. With GPUs, their hours are what the whole run held, spread
    over the families by time; without, they are None and not 0."""
    held = list(records)
    by_family: dict[str, list[Trajectory]] = {}
    for record in held:
        by_family.setdefault(record.family, []).append(record)
    whole = _sum(held)
    gpu_hours = gpus * wall_s / 3600 if gpus else None
    families = {family: _row(rows, outcomes, whole, gpu_hours) for family, rows in sorted(by_family.items())}
    return {"unit": UNIT, **_row(held, outcomes, whole, gpu_hours), "families": families}


def _row(
    records: list[Trajectory], outcomes: Mapping[str, Outcome], whole: Mapping[str, float], gpu_hours: float | None
) -> dict[str, Any]:
    used = [r for r in records if r.id in outcomes and outcomes[r.id].state in USED]
    spent, kept = _sum(records), _sum(used)
    share = spent["seconds"] / whole["seconds"] if whole["seconds"] else None
    hours = None if gpu_hours is None or share is None else gpu_hours * share
    rejected: dict[str, dict[str, float]] = {}
    for record in records:
        state = outcomes[record.id].state if record.id in outcomes else State.OPEN
        if state not in USED:
            row = rejected.setdefault(state.value, {"trajectories": 0, "seconds": 0.0})
            row["trajectories"] += 1
            row["seconds"] = round(row["seconds"] + record.duration_s, 4)
    return {
        "trajectories": len(records),
        "accepted": len(used),
        "tasks": len({r.task for r in records}),
        "tasks_accepted": len({r.task for r in used}),
        "coverage": round(len({r.task for r in used}) / len({r.task for r in records}), 4) if records else None,
        "cost": {name: round(value, 4) for name, value in spent.items()},
        "gpu_hours": None if hours is None else round(hours, 6),
        "scouting_s": round(sum(r.duration_s for r in records if r.extra.get("purpose") == SCOUT), 4),
        "per_accepted": round(spent["seconds"] / len(used), 4) if used else None,
        "gpu_hours_per_accepted": round(hours / len(used), 8) if used and hours is not None else None,
        "spent_on_rejected": round(1 - kept["seconds"] / spent["seconds"], 4) if spent["seconds"] else None,
        "rejected": rejected,
        "share_of_cost": None if share is None else round(share, 4),
    }


def _sum(records: Iterable[Trajectory]) -> dict[str, float]:
    """What trajectories took: their whole time, and in it the parts that stand for what is scarce."""
    held = list(records)
    return {
        "seconds": sum(r.duration_s for r in held),
        "model_s": sum(t.service_s for r in held for t in r.own_turns),
        "session_s": sum(max(0.0, r.duration_s - r.session_queue_s - (r.timings.creation_s or 0.0)) for r in held if r.lease),
        "evaluation_s": sum(r.score_s for r in held),
        "tokens": float(sum(r.generated for r in held)),
    }
