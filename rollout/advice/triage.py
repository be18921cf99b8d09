"""Which of three problems binds: idle compute, rollouts that teach nothing, memory. Each has a cure of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rollout.journal import Outcome
from rollout.meters.cost import SCOUT
from rollout.meters.cycle import stages
from rollout.meters.measure import Evidence
from rollout.meters.memory import memory
from rollout.meters.spans import union_s
from rollout.record import Trajectory
from rollout.terms import State

CURES = {
    "idle compute": "overlap generation with learning (--max-gap), take capacity to the stage that dominates (see `capacity`)",
    "rollouts without signal": "choose tasks (--select) or change the group size, so that rewards differ within groups",
    "memory": "page the KV cache and measure again; shorter contexts or fewer trajectories at once; quantise last",
}
FULL = 0.9  # of a device's memory
ON_DEVICE = ("weights", "optimizer", "activations", "kv_cache")
LOST = frozenset({State.QUARANTINED, State.FAILED})


def triage(evidence: Evidence, *, device_mb: float | None = None) -> dict[str, Any]:
    """Return the three numbers, what each wastes as a share, and the constraint with the largest waste.

    Idle: the share of model-slot time in which no request was served. Without signal: the share of groups whose rewards were all
    equal. Memory: whether the peak is near the device's, where both are known.
    """
    cycle = stages(evidence.records, evidence.events)
    told = memory(list(evidence.records.values()), evidence.events, evidence.told)
    served = sum(t.service_s for r in evidence.records.values() for t in r.own_turns)
    slots = evidence.dependencies.get("model", {}).get("limit")
    idle = 1 - served / (evidence.wall_s * slots) if slots and evidence.wall_s else None
    varied, groups = signal_of(evidence.records, evidence.outcomes)
    waste = {
        "idle compute": idle,
        "rollouts without signal": None if not groups else 1 - varied / groups,
        "memory": _full(told, device_mb),
    }
    known_waste = {name: value for name, value in waste.items() if value is not None}
    binds = max(known_waste, key=lambda n: known_waste[n]) if known_waste else None
    return {
        "stage_shares": {name: row["share_of_path"] for name, row in cycle["stages"].items()},
        "gpu_time": _gpu_time(evidence),
        "prompts_with_reward_variance": None if not groups else round(varied / groups, 4),
        "groups": groups,
        "peak_memory_per_trajectory_mb": told["per_trajectory_mb"],
        "peak_memory_set_by": told["set_by"],
        "waste": {name: None if value is None else round(value, 4) for name, value in waste.items()},
        "binds": binds,
        "cure": CURES[binds] if binds else "measure a run first: too little is known",
    }


def _full(told: Mapping[str, Any], device_mb: float | None) -> float | None:
    """1 where the device or the KV cache in it is nearly full, 0 where it is not, None where what nobody measured may fill it."""
    parts = [told["categories_mb"][name] for name in ON_DEVICE]
    known = [part for part in parts if part is not None]
    if (told["kv_usage_peak"] or 0.0) >= FULL or (device_mb and known and sum(known) >= FULL * device_mb):
        return 1.0
    return 0.0 if device_mb and None not in parts else None


def _gpu_time(evidence: Evidence) -> dict[str, Any]:
    """GPU seconds held and used by stage; None where the run held none."""
    if not evidence.gpus:
        return {"gpus": 0, "held_s": None, "share": None}
    held = evidence.gpus * evidence.wall_s
    learned = sum(e["at"] - e["began"] for e in evidence.events if e["kind"] == "update")
    busy = union_s((r.began + t.at + t.queue_s, t.service_s) for r in evidence.records.values() for t in r.own_turns)
    return {
        "gpus": evidence.gpus,
        "held_s": round(held, 4),
        "share": {"generation": round(busy / evidence.wall_s, 4), "optimisation": round(learned / evidence.wall_s, 4)},
    }


def signal_of(
    records: Mapping[str, Trajectory], outcomes: Mapping[str, Outcome], *, among: Collection[State] | None = None
) -> tuple[int, int]:
    """How many groups had different rewards, of those with two rewards or more: of the trajectories that ended in a state `among`
    these, or that were not quarantined or failed. Scouts are no groups to learn from."""
    groups: dict[str, list[float]] = {}
    for record in records.values():
        outcome = outcomes.get(record.id)
        state = State.OPEN if outcome is None else outcome.state
        if record.reward is None or record.extra.get("purpose") == SCOUT or state in LOST or (among and state not in among):
            continue
        groups.setdefault(record.group, []).append(record.reward)
    several = [rewards for rewards in groups.values() if len(rewards) > 1]
    return sum(len(set(rewards)) > 1 for rewards in several), len(several)
