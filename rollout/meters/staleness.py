"""The share of finished trajectories that was too old for a batch, its trend over the run, and what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rollout.journal import Outcome
from rollout.meters.events import Event
from rollout.meters.lines import slope
from rollout.record import Trajectory
from rollout.terms import State

WINDOW = 20  # finished trajectories of one window


def staleness(records: Mapping[str, Trajectory], outcomes: Mapping[str, Outcome], events: Sequence[Event]) -> dict[str, Any]:
    """Return the share, its windows in the order of endings, their slope, what was lost, and what a publication takes. What is left
    over at the end joins the last window: a window of a few would be all or nothing."""
    ended = sorted((r for r in records.values() if r.id in outcomes), key=lambda r: r.began + r.duration_s)
    stale = [outcomes[r.id].state is State.STALE for r in ended]
    count = max(1, len(stale) // WINDOW) if stale else 0
    parts = [stale[n * WINDOW : (n + 1) * WINDOW if n + 1 < count else None] for n in range(count)]
    windows = [round(sum(part) / len(part), 4) for part in parts]
    published = [e["at"] - e["began"] for e in events if e["kind"] == "published"]
    gaps = [o.gap for o in outcomes.values() if o.gap is not None]
    return {
        "stale": sum(stale),
        "finished": len(ended),
        "share": round(sum(stale) / len(stale), 4) if stale else None,
        "windows": windows,
        "window": WINDOW,
        "trend": round(slope([(float(n), share) for n, share in enumerate(windows)]), 4) if len(windows) > 1 else None,
        "lost_s": round(sum(r.duration_s for r, is_stale in zip(ended, stale, strict=True) if is_stale), 4),
        "publications": len(published),
        "publication_s": round(sum(published) / len(published), 4) if published else None,
        "gaps": {str(gap): count for gap, count in sorted(Counter(gaps).items())},
    }
