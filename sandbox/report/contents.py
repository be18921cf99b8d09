"""What a report holds: frozen values that an audit fills and every renderer reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandbox.model import (
    NOTHING,
    CheckId,
    ClearanceState,
    Depth,
    Mismatch,
    NamespaceId,
    Problem,
    QuarantineId,
    QuarantineReason,
    Recall,
    ResetMethod,
    SnapshotId,
    TrajectoryId,
    UpdateId,
    VerdictStatus,
    WindowPolicy,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentEntry:
    """One environment that the audit looked at."""

    name: str
    version: str
    digest: str
    reset: ResetMethod
    required_depth: Depth
    baseline: str = ""  # digest; empty: none was recorded
    fields: int = 0
    instances: int = 0  # fresh instances that agreed when the baseline was recorded
    drift: tuple[Mismatch, ...] = ()
    namespaces: int = 0
    in_force: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEntry:
    """One probe's part in a check."""

    probe: str
    fields: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEntry:
    """One check of one namespace. `after` is the number of the last lease before it."""

    id: CheckId
    environment: str
    namespace: NamespaceId
    depth: Depth
    purpose: str
    status: VerdictStatus
    when: datetime
    after: int = 0
    seconds: float = 0.0
    fields: int = 0
    probes: tuple[ProbeEntry, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    problems: tuple[Problem, ...] = ()
    quarantine: QuarantineId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEntry:
    """One lease and where its trajectory stands."""

    trajectory: TrajectoryId
    namespace: NamespaceId
    sequence: int
    granted: datetime
    clearance: ClearanceState
    ended: datetime | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineEntry:
    """One quarantine with its window: the closed interval of lease numbers on its namespace."""

    id: QuarantineId
    environment: str
    namespace: NamespaceId
    reason: QuarantineReason
    first: int
    last: int
    at: datetime
    policy: WindowPolicy
    depth: Depth | None = None
    check: CheckId | None = None
    trajectories: tuple[TrajectoryId, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealEntry:
    """One golden snapshot, digested again."""

    snapshot: SnapshotId
    environment: str
    digest: str
    holds: bool
    task: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakEntry:
    """One planted leak: which fields showed it (none: it was missed) and whether the reset that followed undid it."""

    name: str
    environment: str
    caught: bool
    fields: tuple[str, ...] = ()
    repaired: bool | None = None  # None: no reset followed


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreEntry:
    """A probe score of one start state under one reset method; `body` is what `env check --json` calls score. `stale` names what
    is not as it was then: the score says nothing of the environment as it is now."""

    environment: str
    method: ResetMethod
    body: Mapping[str, Any]
    at: datetime | None
    state: str = "golden"
    runtime: str = ""  # the name of that under which it was measured; empty where that was not recorded
    stale: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardEntry:
    """What the audit saw of a guard of the runtime: host_containment, network_policy, resource_bounds. None: not looked at."""

    name: str
    holds: bool | None
    measured: Mapping[str, Any] = NOTHING
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEntry:
    """One step of an environment's verification."""

    name: str
    ok: bool
    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPage:
    """What verifying one environment's reset found."""

    environment: str
    method: ResetMethod
    verdict: VerdictStatus
    at: datetime
    fields: int
    steps: tuple[StepEntry, ...] = ()
    differences: tuple[Mismatch, ...] = ()
    problems: tuple[str, ...] = ()
    scores: tuple[ScoreEntry, ...] = ()
    in_force: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """All that an audit found."""

    started: datetime
    ended: datetime
    environments: tuple[EnvironmentEntry, ...] = ()
    checks: tuple[CheckEntry, ...] = ()
    leases: tuple[LeaseEntry, ...] = ()
    quarantines: tuple[QuarantineEntry, ...] = ()
    recalls: tuple[Recall, ...] = ()
    seals: tuple[SealEntry, ...] = ()
    leaks: tuple[LeakEntry, ...] = ()
    scores: tuple[ScoreEntry, ...] = ()
    guards: tuple[GuardEntry, ...] = ()
    problems: tuple[str, ...] = ()  # why parts of the audit could not be done: then nothing is clean
    in_force: Mapping[str, Any] = NOTHING
    html: str | None = None  # where the rendered files lie
    junit: str | None = None

    @property
    def verdict(self) -> VerdictStatus:
        """Clean only where something was checked, all of it was clean, every seal holds and every planted leak was caught."""
        statuses = {check.status for check in self.checks}
        if VerdictStatus.MISMATCH in statuses or self.broken_seals or any(not leak.caught for leak in self.leaks):
            return VerdictStatus.MISMATCH
        if self.problems or not statuses or statuses != {VerdictStatus.CLEAN}:
            return VerdictStatus.INCONCLUSIVE
        return VerdictStatus.CLEAN

    @property
    def seconds(self) -> float:
        return (self.ended - self.started).total_seconds()

    @property
    def broken_seals(self) -> tuple[SealEntry, ...]:
        return tuple(seal for seal in self.seals if not seal.holds)

    @property
    def quarantined(self) -> tuple[TrajectoryId, ...]:
        """Every trajectory that a listed quarantine names, once, in order."""
        return tuple(dict.fromkeys(t for quarantine in self.quarantines for t in quarantine.trajectories))

    @property
    def recalled_updates(self) -> tuple[UpdateId, ...]:
        return tuple(dict.fromkeys(u for recall in self.recalls for u in recall.updates))

    @property
    def mismatches(self) -> tuple[tuple[CheckEntry, Mismatch], ...]:
        return tuple((check, mismatch) for check in self.checks for mismatch in check.mismatches)
