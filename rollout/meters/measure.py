"""Every meter over one run, from its trajectory store, its events and the ledger's rows: the same figures then and later."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rollout.journal import Outcome, read
from rollout.meters.cost import cost_per_accepted
from rollout.meters.cycle import stages
from rollout.meters.distribution import by_kind, percentiles
from rollout.meters.events import EVENTS, Event, read_events
from rollout.meters.generation import generation
from rollout.meters.judges import judges
from rollout.meters.lines import advice, trends
from rollout.meters.memory import memory
from rollout.meters.power import energy
from rollout.meters.staleness import staleness
from rollout.meters.timings import environment_timings
from rollout.record import Trajectory
from sandbox.clock import SystemClock
from sandbox.errors import RecordMissing
from sandbox.ledger import open_ledger

JOURNAL = "trajectories.jsonl"
LEDGER = "ledger.sqlite"  # beside `rollouts` in a home
METERS = (
    "wall_s",
    "cycles",
    "percentiles",
    "percentiles_by",
    "staleness",
    "cost_per_accepted",
    "capacity",
    "generation",
    "environments",
    "memory",
    "energy",
    "judges",
)
ROWS = 1_000_000  # of the ledger, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the meters read. `activity` are the ledger's rows since the run began; `told` is what engine and learner said of their
    memory, MiB by category."""

    records: Mapping[str, Trajectory]
    outcomes: Mapping[str, Outcome]
    events: Sequence[Event]
    activity: Mapping[str, Any] | None = None
    told: Mapping[str, float | None] = field(default_factory=dict)
    dependencies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    gpus: int = 0

    @property
    def wall_s(self) -> float:
        """From the first trajectory's begin to the last thing that happened."""
        begins = [r.began for r in self.records.values()]
        ends = [r.began + r.duration_s for r in self.records.values()] + [e["at"] for e in self.events]
        return max(ends) - min(begins) if begins else 0.0


def measure(evidence: Evidence) -> dict[str, Any]:
    """Return every meter's figures."""
    records, wall_s = list(evidence.records.values()), evidence.wall_s
    found = trends(evidence.events, dependencies=evidence.dependencies)
    figures: tuple[Any, ...] = (
        round(wall_s, 4),
        stages(evidence.records, evidence.events),
        percentiles(records),
        by_kind(records),
        staleness(evidence.records, evidence.outcomes, evidence.events),
        cost_per_accepted(records, evidence.outcomes, wall_s=wall_s, gpus=evidence.gpus),
        advice(found, evidence.events),
        generation(records, evidence.events, wall_s=wall_s),
        environment_timings(records, evidence.activity, wall_s=wall_s),
        memory(records, evidence.events, evidence.told),
        energy(evidence.events),
        judges(records, evidence.outcomes, wall_s=wall_s),
    )
    return dict(zip(METERS, figures, strict=True))


def stored(folder: Path, *, activity: Mapping[str, Any] | None = None) -> Evidence:
    """Read a run's folder; raise RecordMissing where there is no journal."""
    journal = folder / JOURNAL
    if not journal.exists():
        raise RecordMissing(f"there is no journal {journal}", fix="name a run of `autoclave rollout run`")
    contents = read(journal)
    told = next((e for e in read_events(folder / EVENTS) if e["kind"] == "told"), {})
    return Evidence(
        records=contents.trajectories,
        outcomes=contents.outcomes,
        events=read_events(folder / EVENTS),
        activity=activity,
        told=told.get("memory", {}),
        dependencies=told.get("dependencies", {}),
        gpus=told.get("gpus", 0),
    )


def began(records: Mapping[str, Trajectory]) -> datetime | None:
    """When the first trajectory began, by the calendar."""
    moments = [datetime.fromisoformat(r.started) for r in records.values() if r.started]
    return min(moments, default=None)


def until(records: Mapping[str, Trajectory]) -> datetime | None:
    """A minute after the last trajectory ended, when the check after it is over."""
    ends = [datetime.fromisoformat(r.started) + timedelta(seconds=r.duration_s + 60) for r in records.values() if r.started]
    return max(ends, default=None)


def used(records: Mapping[str, Trajectory]) -> set[str]:
    """The namespaces in which trajectories ran."""
    return {r.namespace for r in records.values() if r.namespace}


async def activity(
    ledger: Path,
    *,
    environment: str,
    since: datetime | None,
    until: datetime | None = None,
    namespaces: Collection[str] | None = None,
) -> dict[str, Any] | None:
    """Return the ledger's rows of one environment in a stretch of time; None where there is no ledger. Reads beside a running pool.

    Namespaces are often made before the first trajectory: their creations count from five minutes before, those of `namespaces`
    only where they are given, since a run that ended just then made its own.
    """
    if since is None or not ledger.exists():
        return None
    async with open_ledger(ledger, clock=SystemClock(), read_only=True) as opened:
        found = await opened.activity(since - timedelta(minutes=5), limit=ROWS)
    when = {"checks": "at", "resets": "ended", "creations": "ended", "quarantines": "at"}
    return {
        name: [
            row
            for row in found[name]
            if row["environment"] == environment
            and (name == "creations" or datetime.fromisoformat(row[at]) >= since)
            and (name != "creations" or namespaces is None or row["namespace"] in namespaces)
            and (until is None or datetime.fromisoformat(row[at]) <= until)
        ]
        for name, at in when.items()
    }
