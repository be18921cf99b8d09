"""The map of one trajectory: every span from admission to the next policy, who answers for what it depended on, and four answers.

What was held while it waited; what ran beside it; what ended it; what an update needs of it, and whether it is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from rollout.eligibility import ARTIFACTS, missing
from rollout.meters.measure import Evidence
from rollout.meters.spans import History, Span, SpanKind, spans
from rollout.record import Trajectory
from rollout.terms import FAILURE, Termination
from sandbox.errors import RecordMissing

OWNERS = {
    "pool": ("the pool", None),
    "trainer": ("the trainer", 1),
    "ledger": ("the ledger", 1),
    "policy": ("the policy", None),
}


def trajectory_map(evidence: Evidence, name: str, *, run: str = "") -> dict[str, Any]:
    """Return the map; raise RecordMissing for a trajectory that this run does not know."""
    record = evidence.records.get(name)
    if record is None:
        raise RecordMissing(f"run {run} has no trajectory {name}", fix="`autoclave rollout query` lists those there are")
    history = History.of(evidence.events)
    own = spans(record, history)
    outcome = evidence.outcomes.get(name)
    return {
        "run": run,
        "trajectory": name,
        "task": record.task,
        "family": record.family,
        "state": outcome.state.value if outcome else "open",
        "kinds": {kind.value: sum(span.kind is kind for span in own) for kind in SpanKind},
        "spans": [_shown(span, record, evidence) for span in own],
        "dependencies": _dependencies(own, evidence),
        "answers": {
            "held_while_waiting": _held(record, own),
            "ran_beside_it": _beside(record, own, evidence, history),
            "what_ended_it": _ended(record),
            "needed_by_an_update": _needed(record, evidence),
        },
    }


def _shown(span: Span, record: Trajectory, evidence: Evidence) -> dict[str, Any]:
    owner, limit = _owner(span.dependency, evidence)
    return {
        "kind": span.kind.value,
        "stage": span.stage.value,
        "what": span.what,
        "at_s": round(span.start - record.began, 4),
        "seconds": round(span.seconds, 4),
        "dependency": span.dependency,
        "owner": owner,
        "limit": limit,
    }


def _owner(name: str, evidence: Evidence) -> tuple[str, int | None]:
    found = evidence.dependencies.get(name)
    return (found["owner"], found["limit"]) if found else OWNERS.get(name, ("", None))


def _dependencies(own: list[Span], evidence: Evidence) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(span.dependency for span in own if span.dependency))
    return [{"name": n, "owner": _owner(n, evidence)[0], "limit": _owner(n, evidence)[1]} for n in names]


def _held(record: Trajectory, own: list[Span]) -> dict[str, Any]:
    """For every kind of wait and every tool call: how long, and what it held meanwhile."""
    acquired = record.began + record.session_queue_s + (record.timings.creation_s or 0.0)
    ended = record.began + record.duration_s
    waits: dict[str, dict[str, Any]] = {}
    for span in own:
        if not (span.waits or span.kind is SpanKind.TOOL) or span.seconds <= 0:
            continue
        held = ["a place among the sessions"] if span.what != "a place among the sessions" and span.start < ended else []
        if acquired <= span.start + 1e-6 and span.start < ended:
            held.append("its namespace")
        row = waits.setdefault(span.what, {"seconds": 0.0, "held": held})
        row["seconds"] = round(row["seconds"] + span.seconds, 4)
    slots = [(s.start, s.end) for s in own if s.kind is SpanKind.MODEL]
    tools = [(s.start, s.end) for s in own if s.kind is SpanKind.TOOL]
    return {"waits": waits, "model_slot_held_while_a_tool_worked_s": round(_overlap(slots, tools), 4)}


def _beside(record: Trajectory, own: list[Span], evidence: Evidence, history: History) -> dict[str, Any]:
    """How long other trajectories used each dependency while this one waited or used a tool, until its own work was over: what can
    run at the same time did."""
    ended = record.began + record.duration_s
    idle = [(s.start, min(s.end, ended)) for s in own if s.start < ended and s.seconds > 0 and (s.waits or s.kind is SpanKind.TOOL)]
    used: dict[str, float] = defaultdict(float)
    others: set[str] = set()
    for other in evidence.records.values():
        if other.id == record.id or other.began > ended:
            continue
        for span in spans(other, history):
            if span.kind in (SpanKind.MODEL, SpanKind.TOOL, SpanKind.REWARD):
                both = _overlap(idle, [(span.start, span.end)])
                if both > 0:
                    used[span.kind.value] += both
                    others.add(other.id)
    return {"trajectories": len(others), "seconds": {kind: round(seconds, 4) for kind, seconds in used.items()}}


def _overlap(some: list[tuple[float, float]], others: list[tuple[float, float]]) -> float:
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in some for b in others)


def _ended(record: Trajectory) -> dict[str, Any]:
    return {
        "reason": record.termination.value,
        "class": record.failure.value,
        "detail": record.detail,
        "has_reward": record.failure.has_reward,
        "what_would_end_one": {reason.value: FAILURE[reason].value for reason in Termination},
    }


def _needed(record: Trajectory, evidence: Evidence) -> dict[str, Any]:
    """The artifacts, the clearance, and its group: an update takes it when all of them are there."""
    lacking = missing(record)
    outcome = evidence.outcomes.get(record.id)
    there: Mapping[str, bool] = {name: name not in lacking for name in ARTIFACTS}
    return {
        "artifacts": dict(there),
        "clearance": outcome.clearance if outcome else "pending",
        "end_check": outcome.end_check if outcome else "",
        "advantage": outcome.advantage if outcome else None,
        "batch": outcome.batch if outcome else "",
        "reason": outcome.reason if outcome else "",
    }
