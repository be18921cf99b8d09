"""Peak memory by category, each with where the figure is from; and which trajectory set the environments' peak.

Peak and not mean: a configuration fits or does not. What nobody measured is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollout.meters.events import Event
from rollout.record import Trajectory

CATEGORIES = ("weights", "optimizer", "activations", "kv_cache", "environments")


def memory(records: Sequence[Trajectory], events: Sequence[Event], told: Mapping[str, float | None]) -> dict[str, Any]:
    """Return MiB by category, their sum over those that are known, and the trajectory whose environment was the largest.

    `told` is what engine and learner said of themselves. The environments' peak is that of all that stood at the same time.
    `device_peak_mb` is what NVML saw in use on the fullest GPU, whosever it was: an engine takes room for its cache at its start.
    """
    measured = [r for r in records if r.memory_peak_mb is not None]
    largest = max(measured, key=lambda r: r.memory_peak_mb or 0.0, default=None)
    categories: dict[str, float | None] = {name: told.get(name) for name in CATEGORIES}
    categories["environments"], beside = _together(measured)
    known = [value for value in categories.values() if value is not None]
    per_trajectory = None if largest is None else largest.memory_peak_mb
    kv = [e["kv_usage"] for e in events if e["kind"] == "engine" and "kv_usage" in e]
    device = [e["memory_mb"] for e in events if e["kind"] == "power" and e.get("memory_mb") is not None]
    return {
        "categories_mb": categories,
        "unknown": [name for name, value in categories.items() if value is None],
        "sum_of_known_mb": round(sum(known), 1) if known else None,
        "largest_category": max(
            (n for n in CATEGORIES if categories[n] is not None), key=lambda n: categories[n] or 0, default=None
        ),
        "environments_at_once": beside,
        "per_trajectory_mb": per_trajectory,
        "set_by": None if largest is None else {"trajectory": largest.id, "task": largest.task, "family": largest.family},
        "kv_usage_peak": max(kv) if kv else None,
        "device_peak_mb": max(device, default=None),
        "how": "environments: control groups' own peaks, each sandbox since its start, page cache included",
    }


def _together(records: Sequence[Trajectory]) -> tuple[float | None, int]:
    """The largest sum of peaks over trajectories that held a session at the same time, and how many those were."""
    if not records:
        return None, 0
    moments: list[tuple[float, int, float]] = []
    for record in records:
        start = record.began + record.session_queue_s + (record.timings.creation_s or 0.0)
        peak = record.memory_peak_mb or 0.0
        moments += [(start, 1, peak), (record.began + record.duration_s, 0, -peak)]
    now = most = 0.0
    count = at_most = 0
    for _, opens, change in sorted(moments):
        now += change
        count += 1 if opens else -1
        if now > most:
            most, at_most = now, count
    return round(most, 1), at_most
