"""What a run came to: the JSON of `autoclave rollout run`, and what its report shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rollout.drive import Driven
from rollout.loop import RolloutLoop
from rollout.meters.distribution import percentiles
from rollout.meters.events import Event, Events, read_events
from rollout.meters.measure import METERS, Evidence, measure
from rollout.record import Trajectory
from rollout.selection.selector import Purpose
from rollout.terms import State
from sandbox.model import NOTHING


def summarise(
    loop: RolloutLoop,
    driven: Driven,
    *,
    in_force: Mapping[str, Any],
    activity: Mapping[str, Any] | None = None,
    told: Mapping[str, float | None] = NOTHING,
    gpus: int = 0,
) -> dict[str, Any]:
    """Return the summary; AssertionError when the accounts do not add up, which would be a fault of ours. `activity` are the
    ledger's rows of the run, `told` is what engine and learner said of their memory."""
    books, delivery = loop.books, loop.delivery
    accounts = books.accounts
    counts = accounts.counts()
    if sum(counts.values()) != accounts.admitted:
        raise AssertionError(f"{accounts.admitted} admitted, states {counts}")
    records = list(books.records.values())
    shown = loop.parts.limits.shown()
    sync = {"max_gap": books.plan.sync.max_gap, "groups": books.plan.sync.groups}
    books.events.note("told", memory=dict(told), dependencies=shown, gpus=gpus, sync=sync)
    books.events.flush()
    evidence = Evidence(
        records=books.records,
        outcomes=books.outcomes,
        events=_all_events(books.events),
        activity=activity,
        told=told,
        dependencies=shown,
        gpus=gpus,
    )
    measured = measure(evidence) if books.events.on else dict.fromkeys(METERS)
    return {
        "admitted": accounts.admitted,
        "states": counts,
        "refused": sum(accounts.refused.values()),
        "batches": len(delivery.batches),
        "quarantined_in_batches": len(delivery.quarantined_in_batches),
        "slot_held_during_tool_wait_s": round(loop.parts.limits.slot_held_during_tool_wait_s, 6),
        "cycle": books.meter.cycle(),
        "percentiles": percentiles(records),
        "stale_share": _share(counts[State.STALE], len(records)),
        "memory_peak_mb": (measured["memory"] or {}).get("sum_of_known_mb"),
        **{name: found for name, found in measured.items() if name != "percentiles"},
        "selection": books.selector.shown() | {"trajectories": _by_purpose(records)} if books.selector else None,
        "contaminated": len(books.contaminated),
        "contamination_by": contamination(records, books.contaminated),
        "reasons": accounts.why(),
        "refusals": dict(accounts.refused),
        "long_runs": dict(books.responses),
        "budgets": {
            kind.value: {"given": books.budget.given[kind], "spent": books.budget.spent[kind]} for kind in books.budget.given
        },
        "dependencies": shown,
        "remaining": loop.parts.remaining.shown(),
        "stalls": loop.watchdog.stalls,
        "stopped": books.stopped or None,
        "updates": driven.updates,
        "metrics": driven.metrics,
        "publications": driven.publications,
        "failed_publications": driven.failed_publications,
        "version": loop.version,
        "max_gap": books.plan.sync.max_gap,
        "in_force": dict(in_force),
        "journal": str(books.journal.path),
    }


def _all_events(events: Events) -> Sequence[Event]:
    """What is no longer in memory is read from the disk, so that a long run's figures are those of the whole."""
    return read_events(events.path) if events.left_out and events.path is not None else events.seen


def _by_purpose(records: Sequence[Trajectory]) -> Mapping[str, int]:
    """What scouting and training took, in trajectories: failed, contaminated and repeated ones too."""
    found = Counter(record.extra.get("purpose", Purpose.TRAIN.value) for record in records)
    return {purpose.value: found[purpose.value] for purpose in Purpose}


def contamination(records: Sequence[Trajectory], contaminated: set[str]) -> Mapping[str, Mapping[str, Mapping[str, float | int]]]:
    """The share that is quarantined by reward and by what was done: always dropping one kind would bias training."""
    by_reward: Counter[str] = Counter()
    by_action: Counter[str] = Counter()
    lost_reward: Counter[str] = Counter()
    lost_action: Counter[str] = Counter()
    for record in records:
        bad = record.id in contaminated
        reward = _bucket(record.scored)
        by_reward[reward] += 1
        lost_reward[reward] += bad
        for tool in record.tools or {"none"}:
            by_action[tool] += 1
            lost_action[tool] += bad
    return {"reward": _rates(by_reward, lost_reward), "action": _rates(by_action, lost_action)}


def _bucket(reward: float | None) -> str:
    if reward is None:
        return "none"
    return "0" if reward <= 0 else "1" if reward >= 1 else "between"


def _rates(all_: Counter[str], lost: Counter[str]) -> Mapping[str, Mapping[str, float | int]]:
    return {
        name: {"trajectories": count, "quarantined": lost[name], "rate": round(lost[name] / count, 4)}
        for name, count in sorted(all_.items())
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
