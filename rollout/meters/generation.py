"""What the engine generated: tokens a second, sequences at once, how long answers took. Requests at once are no capacity."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from rollout.meters.distribution import quantiles
from rollout.meters.events import Event
from rollout.meters.spans import union_s
from rollout.record import Trajectory


def generation(records: Sequence[Trajectory], events: Sequence[Event], *, wall_s: float) -> dict[str, Any]:
    """`tokens_per_s` is over the whole run, `tokens_per_busy_s` over the seconds in which anything was being generated. Sequences
    and the KV cache's use are the engine's own samples, None where it does not say; an answer's seconds are without its wait."""
    turns = [(r.began + t.at + t.queue_s, t) for r in records for t in r.own_turns]
    tokens = sum(turn.end - turn.start for _, turn in turns)
    busy_s = union_s((start, turn.service_s) for start, turn in turns)
    running = [e["running"] for e in events if e["kind"] == "engine" and "running" in e]
    kv = [e["kv_usage"] for e in events if e["kind"] == "engine" and "kv_usage" in e]
    return {
        "tokens": tokens,
        "tokens_per_s": round(tokens / wall_s, 4) if wall_s else None,
        "tokens_per_busy_s": round(tokens / busy_s, 4) if busy_s else None,
        "busy_share": round(busy_s / wall_s, 4) if wall_s else None,
        "sequences_mean": round(fmean(running), 4) if running else None,
        "sequences_peak": max(running, default=None),
        "kv_usage_peak": max(kv, default=None),
        "answers": len(turns),
        "answer_s": quantiles([turn.service_s for _, turn in turns]),
    }
