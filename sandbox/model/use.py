"""What is done with an environment: commands, leases, clearances, recalls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sandbox.model.terms import (
    BatchId,
    CheckId,
    CheckpointId,
    ClearanceState,
    Depth,
    InstanceId,
    LeaseId,
    LineageId,
    NamespaceId,
    QuarantineId,
    QuarantineReason,
    Role,
    SnapshotId,
    TrajectoryId,
    UpdateId,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """What a command did. stdout and stderr are bytes, cut at the output limit when `truncated`."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    timed_out: bool = False
    duration_s: float = 0.0

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """A process seen from outside. `argv` is NUL-free; `listens` and `sockets` are canonical texts."""

    pid: int  # inside the namespace
    parent: int
    role: Role
    argv: tuple[str, ...]
    resource: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A task's own check. `reward` None is infrastructure failure, never a zero."""

    reward: float | None
    success: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCheck:
    """What vouched for the state that a trajectory was given."""

    check: CheckId
    depth: Depth
    identity: bool = False  # the clone was proven identical to the sealed golden: deep for what lies on disk

    @property
    def verified(self) -> Depth:
        return Depth.DEEP if self.identity else self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The ledger's record of one holder's numbered, timed use of one namespace."""

    id: LeaseId
    namespace: NamespaceId
    generation: int
    sequence: int  # 1, 2, 3 ... on its namespace
    lineage: LineageId
    first_of_lineage: bool
    trajectory: TrajectoryId
    environment: str
    task: str | None
    holder: str
    start_check: StartCheck
    granted: datetime
    expires: datetime
    parent: TrajectoryId | None = None  # set for a fork
    instance: InstanceId | None = None  # set where several namespaces share one


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearance:
    """Where a trajectory stands."""

    trajectory: TrajectoryId
    state: ClearanceState
    depth: Depth | None = None  # of the clearing, when cleared
    reason: QuarantineReason | None = None
    quarantine: QuarantineId | None = None
    note: str = ""  # a person's reason, when released or discarded
    by: str = ""
    environment: str = ""
    namespace: NamespaceId | None = None

    def ships_at(self, required: Depth) -> bool:
        """True where gated training may take it: cleared at `required` or released by a person."""
        if self.state is ClearanceState.RELEASED:
            return True
        return self.state is ClearanceState.CLEARED and self.depth is not None and self.depth.covers(required)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What a quarantine had already reached."""

    quarantine: QuarantineId | None
    trajectories: tuple[TrajectoryId, ...]
    batches: tuple[BatchId, ...] = ()
    updates: tuple[UpdateId, ...] = ()
    checkpoints: tuple[CheckpointId, ...] = ()
    siblings: tuple[TrajectoryId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """What recording one check changed, in its one transaction."""

    check: CheckId
    cleared: tuple[TrajectoryId, ...] = ()
    quarantined: tuple[TrajectoryId, ...] = ()
    quarantine: QuarantineId | None = None
    recall: Recall | None = None
    instance: InstanceId | None = None  # the shared instance that is out of service with it


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRecord:
    """A namespace as the ledger knows it."""

    id: NamespaceId
    environment: str  # digest
    environment_name: str
    snapshot: SnapshotId  # the start state that it stands for
    state: str  # a lifecycle.State
    generation: int
    sequence: int  # leases given so far
    lineage: LineageId
    runtime: str
    created: datetime
    resets: int = 0
    since_restore: int = 0  # leases since the lineage began
    identity: bool = False  # the lineage opened with a physical proof
    quick_mark: int = 0  # sequence at the last clean check of that depth
    deep_mark: int = 0
    checked: datetime | None = None
    last_check: CheckId | None = None
    last_depth: Depth | None = None
    instance: InstanceId | None = None  # the one that it shares with other namespaces; None: an instance of its own
    shares: bool = False  # this is such an instance itself: nobody leases it, and `sequence` counts over all of its namespaces
    details: Mapping[str, Any] = field(default_factory=dict)
