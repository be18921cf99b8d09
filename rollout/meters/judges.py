"""What the judges did: how many verdicts, how fast, how long their prompts, how often a second look agreed, and the backlog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollout.journal import Outcome
from rollout.meters.distribution import quantiles
from rollout.record import Trajectory
from rollout.terms import State


def judges(records: Sequence[Trajectory], outcomes: Mapping[str, Outcome], *, wall_s: float) -> dict[str, Any]:
    """`agreement` is the share of second verdicts that were the same, None where none was asked for. The backlog for people are the
    quarantined trajectories that nobody has released or discarded."""
    judged = [r for r in records if r.score_at is not None]
    again = [r.judge_agrees for r in judged if r.judge_agrees is not None]
    lengths = [float(r.judge_tokens) for r in judged if r.judge_tokens is not None]
    return {
        "samples": len(judged),
        "no_verdict": sum(r.scored is None for r in judged),
        "samples_per_s": round(len(judged) / wall_s, 4) if wall_s else None,
        "service_s": quantiles([r.score_s for r in judged]),
        "queue_s": quantiles([r.score_queue_s for r in judged]),
        "prompt_tokens": quantiles(lengths) if lengths else None,  # the tasks' own checks read the state and no prompt
        "judged_again": len(again),
        "agreement": round(sum(again) / len(again), 4) if again else None,
        "review_backlog": sum(o.state is State.QUARANTINED and o.clearance == "quarantined" for o in outcomes.values()),
    }
